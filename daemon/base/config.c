/* SPDX-License-Identifier: Apache-2.0 */
/* The keys, and the three ways to read and show them (config.h). */
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/config.h"
#include "daemon/base/log.h"
#include "proto/problem.h"
#include "proto/text.h"
#include "proto/trust.h"

static int config_check_bucket(const char *value, struct error *err)
{
    enum bucket_scheme scheme;
    return value[0] ? bucket_scheme_parse(value, &scheme, err) : 0;
}

static int check_level(const char *value, struct error *err)
{
    enum log_level level;
    return log_level_parse(value, &level, err);
}

#define AT(member) offsetof(struct config, member), sizeof(((struct config *)0)->member)

const struct config_key config_keys[CONFIG_KEYS] = {
    {"device", CONFIG_TEXT, AT(device), "", 0, 0, "SPEC",
     "Device to tune on: cuda:0, cuda:GPU-<uuid>, cpu, cpu:<threads>, replay:<file> (default: "
     "cuda:0 when there is a GPU, else cpu)"},
    {"socket", CONFIG_TEXT, AT(socket), "", 0, 0, "PATH",
     "Socket to listen on (default: <runtime dir>/<device uuid>.sock)"},
    {"database", CONFIG_TEXT, AT(database), "", 0, 0, "FILE",
     "Database (default: <state dir>/gemmd.db)"},
    {"cache-dir", CONFIG_TEXT, AT(cache_dir), "", 0, 0, "DIR", "Where compiled modules are kept"},
    {"runner", CONFIG_TEXT, AT(runner), "", 0, 0, "FILE",
     "The gemmd-runner program (default: $GEMMD_RUNNER, else beside gemmd)"},
    {"group", CONFIG_TEXT, AT(group), "", 0, 0, "NAME",
     "Group whose members may connect (default: the user's own)"},
    {"bucket", CONFIG_TEXT, AT(bucket), "", 0, 0, "SCHEME",
     "Rounding of sizes: exact, pow2 or sqrt2; belongs to the database (default: what the database "
     "has, else sqrt2)",
     config_check_bucket},
    {"log-level", CONFIG_TEXT, AT(log_level), "info", 0, 0, "LEVEL",
     "error, warning, notice, info or debug", check_level},
    {"linger-ms", CONFIG_INT, AT(linger_ms), "5000", 0, 3600000, "MS",
     "How long an idle runner keeps the device before it leaves"},
    {"runner-nice", CONFIG_INT, AT(runner_nice), "5", 0, 19, "N",
     "Niceness of the runner, so that its work keeps no client waiting; its compilers are at 10 or "
     "more"},
    {"compile-ahead", CONFIG_INT, AT(compile_ahead), "20", 0, 10000, "N",
     "Variants of each queued problem that are compiled while another one has the GPU (0: none)"},
    {"hang-limit-ms", CONFIG_INT, AT(hang_limit_ms), "0", 0, 3600000, "MS",
     "A candidate silent for longer is killed, also when it was given more time (0: each step's "
     "own limit)"},
    {"memory-percent", CONFIG_INT, AT(memory_percent), "0", 0, 100, "N",
     "Share of the device's free memory that a tuning may take (0: $GEMMD_MEMORY_SHARE, a fraction "
     "such as 0.3, else 50)"},
    {"lock-clocks", CONFIG_INT, AT(lock_clocks), "0", 0, 10000, "MHZ",
     "Locks the GPU's clock here while a runner has it, for all who use it; needs root (0: never)"},
    {"retry-ms", CONFIG_INT, AT(retry_ms), "60000", 0, 3600000, "MS",
     "When the device made tuning fail, it is off for this long, and twice as long each time that "
     "it fails again, an hour at most (0: until a restart)"},
    {"budget", CONFIG_INT, AT(budget), "0", 0, 1000000, "N",
     "Configs measured for one key when the query does not say (0: 96 at most; ranked takes a "
     "share of the space)"},
    {"budget-ms", CONFIG_INT, AT(budget_ms), "0", 0, 86400000, "MS",
     "Device time of one tuning when the query does not say (0: no limit)"},
    {"min-gain", CONFIG_REAL, AT(min_gain), "1", 0, 100, "PERCENT",
     "A key that is tuned again keeps its best unless the winner is faster by more than this in "
     "the same finals"},
    {"remeasure-s", CONFIG_INT, AT(remeasure_s), "60", 0, 86400, "S",
     "A key whose confidence is low is tuned again when the device has been idle for so long, "
     "three times at most (0: never)"},
    {"max-connections", CONFIG_INT, AT(max_connections), "4096", 1, 60000, "N",
     "Connections beyond this are answered `busy`"},
    {"message-ms", CONFIG_INT, AT(message_ms), "10000", 1, 3600000, "MS",
     "A client whose message is not complete this long after its first byte is hung up on"},
    {"answer-ms", CONFIG_INT, AT(answer_ms), "30000", 1, 3600000, "MS",
     "A client that does not take its answers for this long is hung up on"},
    {"user-connections", CONFIG_INT, AT(user_connections), "0", 0, 60000, "N",
     "Connections of one user beyond this are answered `busy` (0: three quarters of "
     "--max-connections)"},
    {"user-jobs", CONFIG_INT, AT(user_jobs), "0", 0, 4096, "N",
     "Tunings of one user beyond this are answered `busy` (0: three quarters of what can be "
     "queued)"},
    {"user-mib", CONFIG_INT, AT(user_mib), "64", 1, 65536, "MIB",
     "A user whose requests or answers wait with more bytes than this is not read from until they "
     "are fewer"},
    {"max-keys", CONFIG_INT, AT(max_keys), "262144", 0, 1 << 30, "N",
     "When so many keys are known, a put, record or acquire of others is refused to all users but "
     "gemmd's own (0: no limit)"},
    {"user-keys", CONFIG_INT, AT(user_keys), "0", 0, 1 << 30, "N",
     "Keys that one user has put or recorded trials of, beyond which more are refused (0: three "
     "quarters of --max-keys)"},
    {"trials-per-key", CONFIG_INT, AT(trials_per_key), "0", 0, 10000000, "N",
     "Trials kept for one key (0: the store's default)"},
    {"cache-max-mib", CONFIG_INT, AT(cache_max_mib), "4096", 0, 1 << 30, "MIB",
     "Above this size of the cache directory, the modules that were used longest ago and that "
     "serve no answer are removed (0: no limit)"},
    {"idle-exit-s", CONFIG_INT, AT(idle_exit_s), "0", 0, 31536000, "S",
     "Leave after this long without connections and work (0: never)"},
    {"offline", CONFIG_FLAG, AT(offline), "false", 0, 0, NULL,
     "Serve a stopped database on a private socket, whose path is printed; nothing is tuned"},
    {"no-baseline", CONFIG_FLAG, AT(no_baseline), "false", 0, 0, NULL,
     "Do not measure what cuBLAS takes for the keys that were tuned, when nothing else is to be "
     "done"},
    {"force-network-fs", CONFIG_FLAG, AT(force_network_fs), "false", 0, 0, NULL,
     "Open a database on a network file system all the same"},
};

static int set_text(const struct config_key *k, char *out, const char *value, struct error *err)
{
    if (strlen(value) >= k->size) {
        return error_set(err, ERROR_INVALID, "%s is longer than %zu bytes", k->name, k->size - 1);
    }
    int status = k->check ? k->check(value, err) : 0;
    if (status == 0) {
        strcpy(out, value);
    }
    return status;
}

static int config_set_number(const struct config_key *k, void *out, const char *value,
                             struct error *err)
{
    const bool whole = k->kind == CONFIG_INT;
    int64_t integer = 0;
    double real = 0;
    enum text_number form = text_number(value, strlen(value), &integer, &real);
    real = form == TEXT_INT ? (double)integer : real;
    bool is_number = form == TEXT_INT || (form == TEXT_REAL && !whole);
    if (!is_number || real < (double)k->min || real > (double)k->max) {
        return error_set(err, ERROR_INVALID, "%s is \"%s\"; it must be a %s from %lld to %lld",
                         k->name, value, whole ? "whole number" : "number", (long long)k->min,
                         (long long)k->max);
    }
    if (whole) {
        *(int64_t *)out = integer;
    } else {
        *(double *)out = real;
    }
    return 0;
}

static int config_set_flag(const struct config_key *k, bool *out, const char *value,
                           struct error *err)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "1") == 0) {
        *out = true;
    } else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0 || strcmp(value, "0") == 0) {
        *out = false;
    } else {
        return error_set(err, ERROR_INVALID, "%s is \"%s\"; it must be true or false", k->name,
                         value);
    }
    return 0;
}

static int set_key(struct config *c, const struct config_key *k, const char *value,
                   struct error *err)
{
    char *at = (char *)c + k->offset;
    return k->kind == CONFIG_TEXT   ? set_text(k, at, value, err)
           : k->kind == CONFIG_FLAG ? config_set_flag(k, (bool *)at, value, err)
                                    : config_set_number(k, at, value, err);
}

void config_init(struct config *c, struct config_sources *from)
{
    *c = (struct config){0};
    for (int i = 0; i < CONFIG_KEYS; i++) {
        set_key(c, &config_keys[i], config_keys[i].fallback, NULL);
        strcpy(from->of[i], "default");
    }
}

int config_set(struct config *c, struct config_sources *from, const char *name, const char *value,
               const char *source, struct error *err)
{
    for (int i = 0; i < CONFIG_KEYS; i++) {
        if (strcmp(config_keys[i].name, name) == 0) {
            snprintf(from->of[i], sizeof(from->of[i]), "%s", source);
            return set_key(c, &config_keys[i], value, err);
        }
    }
    return error_set(err, ERROR_UNKNOWN_FIELD,
                     "unknown key \"%s\"; gemmd --print-config lists the known ones", name);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct reading {
    struct config *config;
    struct config_sources *from;
    const char *path;
    int line;
    int status;
    struct error *err;
};

/* inih's line reader, which counts the lines: the packaged build of inih gives its handler no line
 * number. The indent is removed, because inih appends an indented line to the value before. */
static char *config_read_line(char *text, int size, void *stream)
{
    struct reading *r = ((void **)stream)[1];
    r->line++;
    char *line = fgets(text, size, ((void **)stream)[0]);
    if (line && strlen(line) == (size_t)size - 1 && line[size - 2] != '\n') {
        r->status = error_set(r->err, ERROR_TOO_LARGE, "%s:%d: the line is longer than %d bytes",
                              r->path, r->line, size - 2);
        return NULL;
    }
    if (line) {
        const size_t indent = strspn(line, " \t");
        memmove(line, line + indent, strlen(line + indent) + 1);
    }
    return line;
}

static int config_take_line(void *ctx, const char *section, const char *name, const char *value)
{
    struct reading *r = ctx;
    if (r->status) {
        return 0;
    }
    char source[CONFIG_SOURCE_MAX];
    snprintf(source, sizeof(source), "%s:%d", r->path, r->line);
    if (strcmp(section, "gemmd") != 0) {
        r->status = error_set(r->err, ERROR_UNKNOWN_FIELD,
                              "section [%s] is not known: settings stand under [gemmd]", section);
    } else {
        r->status = config_set(r->config, r->from, name, value, source, r->err);
    }
    if (r->status) {
        error_prefix(r->err, "%s", source);
    }
    return r->status == 0;
}

int config_read(struct config *c, struct config_sources *from, const char *path, bool required,
                struct error *err)
{
    char whole[PATH_MAX];
    int fd, opened = trust_open(path, O_RDONLY, 0, &fd, err);
    if (opened == ERROR_DENIED && trust_file(path, TRUST_SHARED, whole, NULL) == 0) {
        /* the path is a symbolic link, as in a mounted volume: open the file behind the link */
        opened = trust_open(whole, O_RDONLY, 0, &fd, err);
    }
    FILE *f = opened ? NULL : fdopen(fd, "r");
    if (opened == TRUST_MISSING && !required) {
        return 0;
    }
    if (opened < 0) {
        return error_prefix(err, "cannot read the configuration");
    }
    if (!f) {
        return error_set(err, ERROR_IO, "cannot read the configuration %s: %s", path,
                         strerror(opened ? ENOENT : errno));
    }
    struct reading r = {.config = c, .from = from, .path = path, .err = err};
    void *stream[2] = {f, &r};
    int bad = ini_parse_stream(config_read_line, stream, config_take_line, &r);
    int unread = ferror(f) ? errno : 0; /* a directory can be opened */
    fclose(f);
    if (unread) {
        return error_set(err, ERROR_IO, "cannot read the configuration %s: %s", path,
                         strerror(unread));
    }
    if (r.status) {
        return r.status;
    }
    if (bad) {
        return error_set(err, ERROR_INVALID, "%s:%d: not \"key = value\" and no [section]", path,
                         bad);
    }
    return 0;
}

void config_print(const struct config *c, const struct config_sources *from)
{
    puts("[gemmd]");
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys[i];
        const char *at = (const char *)c + k->offset;
        char text[PATHS_MAX + 64];
        if (k->kind == CONFIG_TEXT) {
            snprintf(text, sizeof(text), "%s = %s", k->name, at);
        } else if (k->kind == CONFIG_INT) {
            snprintf(text, sizeof(text), "%s = %lld", k->name,
                     (long long)*(const int64_t *)(const void *)at);
        } else if (k->kind == CONFIG_REAL) {
            snprintf(text, sizeof(text), "%s = %.15g", k->name, *(const double *)(const void *)at);
        } else {
            snprintf(text, sizeof(text), "%s = %s", k->name, *(const bool *)at ? "true" : "false");
        }
        printf("%-48s ; %s\n", text, from->of[i]);
    }
}
