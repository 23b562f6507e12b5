/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner --fd N --device SPEC --cache-dir DIR [--expect JSON] [--compile-threads N]
 *              [--linger-ms N] [--nice N] [--hang-limit-ms N] [--memory-percent N]
 *              [--lock-clocks MHZ] [--no-baseline]
 * gemmd-runner --probe --device SPEC
 * gemmd-runner --precompile --device SPEC [--cache-dir DIR] [--compile-threads N] [--target NAME]
 *              [--mode LIST] [--all] [--problems] [--each N] [--openings] [--seconds S]
 *              [--expect JSON] [--cache-max-mib N] [--with-parent PID] [--quiet] [--json]
 * gemmd-runner --landscape FILE --device SPEC [--cache-dir DIR] [--compile-threads N]
 *              [--target NAME] [--variants N] [--settings N] [--seconds S] [--finals N]
 *              [--note TEXT] [--quiet] [--json] PROBLEM
 * gemmd-runner --hold-clocks MHZ --device UUID --fd N
 * gemmd-runner --compile --device SPEC --fd N
 * gemmd-runner --version
 *
 * --expect: what the device is, before it is opened (opening.c), or though it is not.
 * --precompile (also --warm; precompile/precompile.h) is what `gemmctl precompile` starts.
 * --problems: their texts are on stdin, one a line, or whole searches as JSON, each with what
 * restricts it. --openings: of each search only what it begins with, one search after the other.
 * --with-parent: who starts it; when that ends, it is killed.
 * --landscape (landscape/landscape.h) measures a whole space for the replay device.
 * --hold-clocks (base/clocks.h) is what a runner with --lock-clocks starts, --compile
 * (compile/apart.h) what one starts that compiles.
 * --hang-limit-ms (or $GEMMD_HANG_LIMIT_MS) caps every attempt's limit, for tests of hangs.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/build.h"
#include "runner/base/clocks.h"
#include "runner/compile/apart.h"
#include "runner/runner.h"

enum {
    LINGER_DEFAULT_MS = 10000,
    FINALS_DEFAULT = 50,
    FINALS_MOST = 1000,
    CLOCKS_MOST_MHZ = 10000,
    UNKNOWN = 1
};
static const int64_t PRECOMPILE_MAX_DEFAULT_MIB = 4096; /* as gemmd's cache-max-mib */
enum option_code {
    OPT_FD = 256,
    OPT_DEVICE,
    OPT_CACHE,
    OPT_EXPECT,
    OPT_THREADS,
    OPT_LINGER,
    OPT_NICE,
    OPT_HANG,
    OPT_PROBE,
    OPT_VERSION,
    OPT_PRECOMPILE,
    OPT_TARGET,
    OPT_MODE,
    OPT_ALL,
    OPT_PROBLEMS,
    OPT_EACH,
    OPT_OPENINGS,
    OPT_SECONDS,
    OPT_MAX,
    OPT_WITH_PARENT,
    OPT_QUIET,
    OPT_JSON,
    OPT_LANDSCAPE,
    OPT_VARIANTS,
    OPT_SETTINGS,
    OPT_FINALS,
    OPT_NOTE,
    OPT_MEMORY,
    OPT_LOCK,
    OPT_HOLD,
    OPT_NO_BASELINE,
    OPT_COMPILE
};

static const struct option table[] = {
    {"fd", required_argument, NULL, OPT_FD},
    {"device", required_argument, NULL, OPT_DEVICE},
    {"cache-dir", required_argument, NULL, OPT_CACHE},
    {"expect", required_argument, NULL, OPT_EXPECT},
    {"compile-threads", required_argument, NULL, OPT_THREADS},
    {"linger-ms", required_argument, NULL, OPT_LINGER},
    {"nice", required_argument, NULL, OPT_NICE},
    {"hang-limit-ms", required_argument, NULL, OPT_HANG},
    {"probe", no_argument, NULL, OPT_PROBE},
    {"version", no_argument, NULL, OPT_VERSION},
    {"precompile", no_argument, NULL, OPT_PRECOMPILE},
    {"warm", no_argument, NULL, OPT_PRECOMPILE}, /* its former name */
    {"target", required_argument, NULL, OPT_TARGET},
    {"mode", required_argument, NULL, OPT_MODE},
    {"all", no_argument, NULL, OPT_ALL},
    {"problems", no_argument, NULL, OPT_PROBLEMS},
    {"each", required_argument, NULL, OPT_EACH},
    {"openings", no_argument, NULL, OPT_OPENINGS},
    {"seconds", required_argument, NULL, OPT_SECONDS},
    {"cache-max-mib", required_argument, NULL, OPT_MAX},
    {"with-parent", required_argument, NULL, OPT_WITH_PARENT},
    {"quiet", no_argument, NULL, OPT_QUIET},
    {"json", no_argument, NULL, OPT_JSON},
    {"landscape", required_argument, NULL, OPT_LANDSCAPE},
    {"variants", required_argument, NULL, OPT_VARIANTS},
    {"settings", required_argument, NULL, OPT_SETTINGS},
    {"finals", required_argument, NULL, OPT_FINALS},
    {"note", required_argument, NULL, OPT_NOTE},
    {"memory-percent", required_argument, NULL, OPT_MEMORY},
    {"lock-clocks", required_argument, NULL, OPT_LOCK},
    {"no-baseline", no_argument, NULL, OPT_NO_BASELINE},
    {"hold-clocks", required_argument, NULL, OPT_HOLD},
    {"compile", no_argument, NULL, OPT_COMPILE},
    {0},
};

static int options_read_number(const char *name, const char *text, int64_t min, int64_t max,
                               int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < min || v > max) {
        fprintf(stderr, "gemmd-runner: %s %s: expected a number from %lld to %lld\n", name, text,
                (long long)min, (long long)max);
        return -1;
    }
    *out = v;
    return 0;
}

/* UNKNOWN: it is no option of that mode. */
static int parse_precompile(struct precompile_order *w, int code, bool *precompile)
{
    int64_t mib = 0;
    int r = 0;
    switch (code) {
    case OPT_PRECOMPILE:
        *precompile = true;
        return 0;
    case OPT_TARGET:
        w->setup.target = optarg;
        return 0;
    case OPT_MODE:
        w->modes = optarg;
        return 0;
    case OPT_ALL:
        w->all = true;
        return 0;
    case OPT_PROBLEMS:
        w->problems = stdin;
        return 0;
    case OPT_EACH:
        return options_read_number("--each", optarg, 0, INT32_MAX, &w->setup.each);
    case OPT_OPENINGS:
        w->setup.openings = true;
        return 0;
    case OPT_SECONDS:
        return options_read_number("--seconds", optarg, 0, INT32_MAX, &w->seconds);
    case OPT_MAX:
        r = options_read_number("--cache-max-mib", optarg, 0, 1 << 30, &mib);
        w->max_bytes = mib << 20;
        return r;
    case OPT_WITH_PARENT:
        return options_read_number("--with-parent", optarg, 1, INT32_MAX, &w->with_parent);
    case OPT_QUIET:
        w->quiet = true;
        return 0;
    case OPT_JSON:
        w->json = true;
        return 0;
    default:
        return UNKNOWN;
    }
}

/* What gemmd knows of the device. Something else is as good as nothing. */
static void read_expected(const char *json, struct device_info *out)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    const struct wire_obj *map;
    struct error err;
    struct wire_doc *doc = wire_doc_new();
    if (!doc || wire_from_json(&packed, json, &err) ||
        wire_decode(doc, packed.data, packed.len, &map, &err) ||
        schema_decode(&device_info_schema, SCHEMA_LENIENT, map, out, &err)) {
        *out = (struct device_info){.index = -1};
    }
    wire_doc_free(doc);
}

static int take_landscape(struct landscape_order *o, int code)
{
    switch (code) {
    case OPT_LANDSCAPE:
        o->path = optarg;
        return 0;
    case OPT_VARIANTS:
        return options_read_number("--variants", optarg, 0, INT32_MAX, &o->variants);
    case OPT_SETTINGS:
        return options_read_number("--settings", optarg, 0, INT32_MAX, &o->settings);
    case OPT_FINALS:
        return options_read_number("--finals", optarg, 1, FINALS_MOST, &o->finals);
    case OPT_NOTE:
        o->note = optarg;
        return 0;
    default: /* getopt has said it */
        return -1;
    }
}

static int options_take_option(struct runner_options *o, int code)
{
    int64_t fd;
    int r = parse_precompile(&o->precompile_order, code, &o->precompile);
    if (r != UNKNOWN) {
        return r;
    }
    switch (code) {
    case OPT_FD:
        r = options_read_number("--fd", optarg, 0, 1 << 20, &fd);
        o->fd = r ? -1 : (int)fd;
        return r;
    case OPT_DEVICE:
        o->device = optarg;
        return 0;
    case OPT_EXPECT:
        read_expected(optarg, &o->expected);
        return 0;
    case OPT_CACHE:
        o->cache_dir = optarg;
        return 0;
    case OPT_THREADS:
        return options_read_number("--compile-threads", optarg, 0, 256, &o->compile_threads);
    case OPT_LINGER:
        return options_read_number("--linger-ms", optarg, 0, INT32_MAX, &o->linger_ms);
    case OPT_NICE:
        return options_read_number("--nice", optarg, -20, 19, &o->nice);
    case OPT_HANG:
        return options_read_number("--hang-limit-ms", optarg, 0, INT32_MAX, &o->hang_limit_ms);
    case OPT_MEMORY:
        return options_read_number("--memory-percent", optarg, 0, 100, &o->memory_percent);
    case OPT_LOCK:
        return options_read_number("--lock-clocks", optarg, 0, CLOCKS_MOST_MHZ, &o->lock_mhz);
    case OPT_NO_BASELINE:
        o->no_baseline = true;
        return 0;
    case OPT_HOLD:
        return options_read_number("--hold-clocks", optarg, 1, CLOCKS_MOST_MHZ, &o->hold_mhz);
    case OPT_COMPILE:
        o->compile = true;
        return 0;
    case OPT_PROBE:
        o->probe = true;
        return 0;
    case OPT_VERSION:
        o->version = true;
        return 0;
    default:
        return take_landscape(&o->landscape, code);
    }
}

static int options_parse(int argc, char **argv, struct runner_options *o)
{
    const char *hang = getenv("GEMMD_HANG_LIMIT_MS");
    *o = (struct runner_options){.fd = -1, .linger_ms = LINGER_DEFAULT_MS};
    o->precompile_order.max_bytes = PRECOMPILE_MAX_DEFAULT_MIB << 20;
    o->precompile_order.seconds = -1;
    o->landscape.finals = FINALS_DEFAULT;
    if (hang && options_read_number("GEMMD_HANG_LIMIT_MS", hang, 0, INT32_MAX, &o->hang_limit_ms)) {
        return -1;
    }
    optind = 0;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (options_take_option(o, c)) {
            return -1;
        }
    }
    if (o->version) {
        return 0;
    }
    if (o->landscape.path && optind + 1 == argc) {
        o->landscape.problem = argv[optind++];
    }
    bool alone = o->probe || o->precompile || o->landscape.problem;
    bool placed = o->fd >= 0 && (o->cache_dir || o->hold_mhz || o->compile);
    if (optind < argc || !o->device || (!alone && !placed)) {
        fprintf(stderr,
                "usage: gemmd-runner --fd N --device SPEC --cache-dir DIR "
                "[--expect JSON]\n"
                "                    [--compile-threads N] [--linger-ms N]\n"
                "                    [--nice N] [--hang-limit-ms N] "
                "[--memory-percent N]\n"
                "                    [--lock-clocks MHZ] [--no-baseline]\n"
                "       gemmd-runner --probe --device SPEC\n"
                "       gemmd-runner --precompile --device SPEC [--cache-dir DIR] "
                "[--compile-threads N]\n"
                "                    [--target NAME] [--mode LIST] [--all] [--problems] "
                "[--each N] [--openings]\n"
                "                    [--seconds S] [--expect JSON] [--cache-max-mib N] "
                "[--with-parent PID]\n"
                "                    [--quiet] [--json]\n"
                "       gemmd-runner --landscape FILE --device SPEC [--cache-dir DIR] "
                "[--compile-threads N]\n"
                "                    [--target NAME] [--variants N] [--settings N] "
                "[--seconds S] [--finals N]\n"
                "                    [--note TEXT] [--quiet] [--json] PROBLEM\n"
                "       gemmd-runner --version\n"
                "gemmd starts it; it is of no use by hand, but for --probe and --precompile "
                "(gemmctl precompile).\n");
        return -1;
    }
    return 0;
}

static int options_run_probe(const struct runner_options *o)
{
    struct device_info info = {0};
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int r = device_probe(o->device, &info, &err);
    if (r) {
        wire_put_map(&b, 3);
        wire_put_kv_str(&b, "name", error_name(err.code));
        wire_put_kv_str(&b, "message", err.text);
        wire_put_kv_bool(&b, "survives", error_survives(err.code));
    } else {
        schema_encode(&b, &device_info_schema, &info);
    }
    bool written = !b.failed && fwrite(b.data, 1, b.len, stdout) == b.len && fflush(stdout) == 0;
    return r || !written ? RUNNER_EXIT_PROBE : RUNNER_EXIT_OK;
}

static int run_precompile(struct runner_options *o)
{
    o->precompile_order.setup.device = o->device;
    o->precompile_order.setup.info = o->expected;
    o->precompile_order.cache_dir = o->cache_dir;
    o->precompile_order.threads = o->compile_threads;
    return precompile_run(&o->precompile_order);
}

/* Options that both modes know are read into `precompile_order`. */
static int options_run_landscape(struct runner_options *o)
{
    o->landscape.device = o->device;
    o->landscape.cache_dir = o->cache_dir;
    o->landscape.threads = o->compile_threads;
    o->landscape.target = o->precompile_order.setup.target;
    o->landscape.seconds = o->precompile_order.seconds;
    o->landscape.quiet = o->precompile_order.quiet;
    o->landscape.json = o->precompile_order.json;
    return landscape_run(&o->landscape);
}

int runner_main(int argc, char **argv)
{
    struct runner_options o;
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a full disk (EFBIG), not an end */
    families_register();
    if (options_parse(argc, argv, &o)) {
        return RUNNER_EXIT_USAGE;
    }
    if (o.version) {
        printf("gemmd-runner %s\n", build_id);
        return RUNNER_EXIT_OK;
    }
    if (o.hold_mhz) {
        return clocks_child(o.device, o.hold_mhz, o.fd);
    }
    if (o.compile) {
        return apart_child(o.device, o.fd);
    }
    if (o.landscape.path) {
        return options_run_landscape(&o);
    }
    return o.precompile ? run_precompile(&o) : o.probe ? options_run_probe(&o) : runner_serve(&o);
}
