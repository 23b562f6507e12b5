/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line (usage[] below).
 *
 *   --expect       the properties of the device as JSON, so that the runner can plan before, or
 *                  without, opening the device.
 *   --precompile   (also --warm; precompile/precompile.h) compiles before any tuning.
 *   --problems     reads stdin: on each line a problem's text, or a search (problem and
 *                  restrictions) as JSON.
 *   --openings     compiles only the first variants of each search, one search after the other.
 *   --with-parent  the process id of the starter; when that process ends, the kernel kills this
 * one.
 *   --landscape    (landscape/landscape.h) measures a whole space for the replay device.
 *   --hold-clocks  (base/clocks.h) started by a runner with --lock-clocks.
 *   --compile      (compile/apart.h) started by a runner that compiles.
 *   --hang-limit-ms (or $GEMMD_HANG_LIMIT_MS) caps the silence that each `attempt` message allows
 *                  the runner, for tests of hangs.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stddef.h>
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
    PRECOMPILE_MAX_DEFAULT_MIB = 4096, /* the default of gemmd's cache-max-mib */
};
/* the member of struct runner_options is a bool, a const char *, an int64_t */
enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_NUMBER };

#define AT(field) offsetof(struct runner_options, field)
static const struct option_row {
    const char *name;
    enum option_kind kind;
    size_t at; /* offset in struct runner_options */
    int64_t min, max;
} rows[] = {
    {"--fd", OPTION_NUMBER, AT(fd), 0, 1 << 20},
    {"--device", OPTION_TEXT, AT(mode.device), 0, 0},
    {"--cache-dir", OPTION_TEXT, AT(mode.cache_dir), 0, 0},
    {"--expect", OPTION_TEXT, AT(expect), 0, 0},
    {"--compile-threads", OPTION_NUMBER, AT(mode.threads), 0, 256},
    {"--linger-ms", OPTION_NUMBER, AT(linger_ms), 0, INT32_MAX},
    {"--nice", OPTION_NUMBER, AT(nice), -20, 19},
    {"--hang-limit-ms", OPTION_NUMBER, AT(hang_limit_ms), 0, INT32_MAX},
    {"--memory-percent", OPTION_NUMBER, AT(memory_percent), 0, 100},
    {"--lock-clocks", OPTION_NUMBER, AT(lock_mhz), 0, CLOCKS_MOST_MHZ},
    {"--no-baseline", OPTION_FLAG, AT(no_baseline), 0, 0},
    {"--hold-clocks", OPTION_NUMBER, AT(hold_mhz), 1, CLOCKS_MOST_MHZ},
    {"--compile", OPTION_FLAG, AT(compile), 0, 0},
    {"--probe", OPTION_FLAG, AT(probe), 0, 0},
    {"--version", OPTION_FLAG, AT(version), 0, 0},
    {"--precompile", OPTION_FLAG, AT(precompile), 0, 0},
    {"--warm", OPTION_FLAG, AT(precompile), 0, 0}, /* --precompile's former name */
    {"--mode", OPTION_TEXT, AT(precompile_order.modes), 0, 0},
    {"--all", OPTION_FLAG, AT(precompile_order.all), 0, 0},
    {"--problems", OPTION_FLAG, AT(precompile_order.problems), 0, 0},
    {"--each", OPTION_NUMBER, AT(precompile_order.setup.each), 0, INT32_MAX},
    {"--openings", OPTION_FLAG, AT(precompile_order.setup.openings), 0, 0},
    {"--cache-max-mib", OPTION_NUMBER, AT(precompile_order.max_mib), 0, 1 << 30},
    {"--with-parent", OPTION_NUMBER, AT(precompile_order.with_parent), 1, INT32_MAX},
    {"--target", OPTION_TEXT, AT(mode.target), 0, 0},
    {"--seconds", OPTION_NUMBER, AT(mode.seconds), 0, INT32_MAX},
    {"--quiet", OPTION_FLAG, AT(mode.quiet), 0, 0},
    {"--json", OPTION_FLAG, AT(mode.json), 0, 0},
    {"--landscape", OPTION_TEXT, AT(landscape.path), 0, 0},
    {"--variants", OPTION_NUMBER, AT(landscape.variants), 0, INT32_MAX},
    {"--settings", OPTION_NUMBER, AT(landscape.settings), 0, INT32_MAX},
    {"--finals", OPTION_NUMBER, AT(landscape.finals), 1, FINALS_MOST},
    {"--note", OPTION_TEXT, AT(landscape.note), 0, 0},
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const char usage[] =
    "usage: gemmd-runner --fd N --device SPEC --cache-dir DIR [--expect JSON]\n"
    "                    [--compile-threads N] [--linger-ms N] [--nice N] [--hang-limit-ms N]\n"
    "                    [--memory-percent N] [--lock-clocks MHZ] [--no-baseline]\n"
    "       gemmd-runner --probe --device SPEC\n"
    "       gemmd-runner --precompile --device SPEC [--cache-dir DIR] [--compile-threads N]\n"
    "                    [--target NAME] [--mode LIST] [--all] [--problems] [--each N]\n"
    "                    [--openings] [--seconds S] [--expect JSON] [--cache-max-mib N]\n"
    "                    [--with-parent PID] [--quiet] [--json]\n"
    "       gemmd-runner --landscape FILE --device SPEC [--cache-dir DIR] [--compile-threads N]\n"
    "                    [--target NAME] [--variants N] [--settings N] [--seconds S]\n"
    "                    [--finals N] [--note TEXT] [--quiet] [--json] PROBLEM\n"
    "       gemmd-runner --version\n"
    "gemmd starts this program; by hand only --probe and --precompile (gemmctl precompile)\n"
    "are useful.\n";

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

/* Reads the device properties that gemmd gave with --expect. Invalid JSON counts as unknown. */
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

static int options_take_option(struct runner_options *o, const struct option_row *row)
{
    void *at = (char *)o + row->at;
    switch (row->kind) {
    case OPTION_FLAG:
        *(bool *)at = true;
        return 0;
    case OPTION_TEXT:
        *(const char **)at = optarg;
        return 0;
    default:
        return options_read_number(row->name, optarg, row->min, row->max, at);
    }
}

static int options_parse(int argc, char **argv, struct runner_options *o)
{
    const char *hang = getenv("GEMMD_HANG_LIMIT_MS");
    struct option table[N_ROWS + 1] = {0};
    *o = (struct runner_options){.fd = -1, .linger_ms = LINGER_DEFAULT_MS};
    o->precompile_order.max_mib = PRECOMPILE_MAX_DEFAULT_MIB;
    o->mode.seconds = -1;
    o->landscape.finals = FINALS_DEFAULT;
    if (hang && options_read_number("GEMMD_HANG_LIMIT_MS", hang, 0, INT32_MAX, &o->hang_limit_ms)) {
        return -1;
    }
    for (int i = 0; i < N_ROWS; i++) {
        table[i] = (struct option){
            .name = rows[i].name + strlen("--"), .has_arg = rows[i].kind != OPTION_FLAG, .val = i};
    }
    optind = 0;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (c == '?' || options_take_option(o, &rows[c])) {
            return -1; /* getopt or options_read_number has printed the error */
        }
    }
    if (o->version) {
        return 0;
    }
    if (o->landscape.path && optind + 1 == argc) {
        o->landscape.problem = argv[optind++];
    }
    bool alone = o->probe || o->precompile || o->landscape.problem;
    bool placed = o->fd >= 0 && (o->mode.cache_dir || o->hold_mhz || o->compile);
    if (optind < argc || !o->mode.device || (!alone && !placed)) {
        fputs(usage, stderr);
        return -1;
    }
    if (o->expect) {
        read_expected(o->expect, &o->expected);
    }
    return 0;
}

static int options_run_probe(const struct runner_options *o)
{
    struct device_info info = {0};
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    int r = device_probe(o->mode.device, &info, &err);
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

int runner_main(int argc, char **argv)
{
    struct runner_options o;
    signal(SIGXFSZ, SIG_IGN); /* beyond a limit on file sizes writes fail with EFBIG */
    families_register();
    if (options_parse(argc, argv, &o)) {
        return RUNNER_EXIT_USAGE;
    }
    if (o.version) {
        printf("gemmd-runner %s\n", build_id);
        return RUNNER_EXIT_OK;
    }
    if (o.hold_mhz) {
        return clocks_child(o.mode.device, o.hold_mhz, (int)o.fd);
    }
    if (o.compile) {
        return apart_child(o.mode.device, (int)o.fd);
    }
    if (o.landscape.path) {
        return landscape_run(&o.mode, &o.landscape);
    }
    o.precompile_order.setup.info = o.expected;
    return o.precompile ? precompile_run(&o.mode, &o.precompile_order)
           : o.probe    ? options_run_probe(&o)
                        : runner_serve(&o);
}
