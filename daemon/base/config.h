/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Settings. One table of keys serves the configuration file (unit-file syntax, section [gemmd]),
 * the command line (--key) and --print-config, which shows the source of each value. The command
 * line wins over the file, the file over the default. An unknown key or an invalid value is refused
 * with file and line: a daemon that silently ignores a setting is worse than a daemon that does not
 * start.
 */
#ifndef GEMMD_DAEMON_BASE_CONFIG_H
#define GEMMD_DAEMON_BASE_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/paths.h"

#define CONFIG_FILE_DEFAULT "/etc/gemmd/gemmd.conf"

/* Each setting once: its key as in the file (on the command line with "--" before it), its member
 * in struct config, default, limits, the value's name in --help, and the help. The help says how an
 * empty text is read. */
#define CONFIG_LIST(TEXT, INT, REAL, FLAG)                                                         \
    TEXT("device", device, PATHS_MAX, "", NULL, "SPEC",                                            \
         "Device to tune on: cuda:0, cuda:GPU-<uuid>, cpu, cpu:<threads>, replay:<file> "          \
         "(default: cuda:0 when there is a GPU, else cpu)")                                        \
    TEXT("socket", socket, PATHS_MAX, "", NULL, "PATH",                                            \
         "Socket to listen on (default: <runtime dir>/<device uuid>.sock)")                        \
    TEXT("database", database, PATHS_MAX, "", NULL, "FILE",                                        \
         "Database (default: <state dir>/gemmd.db)")                                               \
    TEXT("cache-dir", cache_dir, PATHS_MAX, "", NULL, "DIR", "Where compiled modules are kept")    \
    TEXT("runner", runner, PATHS_MAX, "", NULL, "FILE",                                            \
         "The gemmd-runner program (default: $GEMMD_RUNNER, else beside gemmd)")                   \
    TEXT("group", group, 64, "", NULL, "NAME",                                                     \
         "Group whose members may connect (default: the user's own)")                              \
    TEXT("metrics-listen", metrics_listen, PATHS_MAX, "", address_check, "ADDRESS",                \
         "Serve /metrics and /health by HTTP on 127.0.0.1:PORT, [::1]:PORT or a socket's path; "   \
         "`public:` before any other address (default: not at all)")                               \
    TEXT("bucket", bucket, 16, "", config_check_bucket, "SCHEME",                                  \
         "Rounding of sizes: exact, pow2 or sqrt2; belongs to the database (default: what the "    \
         "database has, else sqrt2)")                                                              \
    TEXT("log-level", log_level, 16, "info", check_level, "LEVEL",                                 \
         "error, warning, notice, info or debug")                                                  \
    INT("linger-ms", linger_ms, "5000", 0, 3600000, "MS",                                          \
        "How long an idle runner keeps the device before it leaves")                               \
    INT("runner-nice", runner_nice, "5", 0, 19, "N",                                               \
        "Niceness of the runner, so that its work keeps no client waiting; its compilers are at "  \
        "10 or more")                                                                              \
    INT("compile-ahead", compile_ahead, "20", 0, 10000, "N",                                       \
        "Variants of each queued problem that are compiled while another one has the GPU (0: "     \
        "none)")                                                                                   \
    INT("hang-limit-ms", hang_limit_ms, "0", 0, 3600000, "MS",                                     \
        "A candidate silent for longer is killed, also when it was given more time (0: each "      \
        "step's own limit)")                                                                       \
    INT("memory-percent", memory_percent, "0", 0, 100, "N",                                        \
        "Share of the device's free memory that a tuning may take (0: $GEMMD_MEMORY_SHARE, a "     \
        "fraction such as 0.3, else 50)")                                                          \
    INT("lock-clocks", lock_clocks, "0", 0, 10000, "MHZ",                                          \
        "Locks the GPU's clock here while a runner has it, for all who use it; needs root (0: "    \
        "never)")                                                                                  \
    INT("retry-ms", retry_ms, "60000", 0, 3600000, "MS",                                           \
        "When the device made tuning fail, it is off for this long, and twice as long each time "  \
        "that it fails again, an hour at most (0: until a restart)")                               \
    INT("budget", budget, "0", 0, 1000000, "N",                                                    \
        "Configs measured for one key when the query does not say (0: 96 at most; ranked takes "   \
        "a share of the space)")                                                                   \
    INT("budget-ms", budget_ms, "0", 0, 86400000, "MS",                                            \
        "Device time of one tuning when the query does not say (0: no limit)")                     \
    REAL("min-gain", min_gain, "1", 0, 100, "PERCENT",                                             \
         "A key that is tuned again keeps its best unless the winner is faster by more than this " \
         "in the same finals")                                                                     \
    INT("remeasure-s", remeasure_s, "60", 0, 86400, "S",                                           \
        "A key whose confidence is low is tuned again when the device has been idle for so "       \
        "long, three times at most (0: never)")                                                    \
    INT("jobs-s", jobs_s, "3600", 1, 86400, "S",                                                   \
        "Answers are counted by job (gemmctl jobs), and the counts are written to the database "   \
        "after so long")                                                                           \
    INT("fleet-ms", fleet_ms, "3000", 0, 3600000, "MS",                                            \
        "How long a search waits for gemmd-fleet to say if another host has the key, before it "   \
        "is done here (0: gemmd-fleet is not asked)")                                              \
    TEXT("fleet-trust", fleet_trust, 16, "confirm", config_check_trust, "HOW",                     \
         "confirm: a row of the fleet answers after it was verified and timed here; serve: at "    \
         "once")                                                                                   \
    INT("max-connections", max_connections, "4096", 1, 60000, "N",                                 \
        "Connections beyond this are answered `busy`")                                             \
    INT("message-ms", message_ms, "10000", 1, 3600000, "MS",                                       \
        "A client whose message is not complete this long after its first byte is hung up on")     \
    INT("answer-ms", answer_ms, "30000", 1, 3600000, "MS",                                         \
        "A client that does not take its answers for this long is hung up on")                     \
    INT("user-connections", user_connections, "0", 0, 60000, "N",                                  \
        "Connections of one user beyond this are answered `busy` (0: three quarters of "           \
        "--max-connections)")                                                                      \
    INT("user-jobs", user_jobs, "0", 0, 4096, "N",                                                 \
        "Tunings of one user beyond this are answered `busy` (0: three quarters of what can be "   \
        "queued)")                                                                                 \
    INT("user-mib", user_mib, "64", 1, 65536, "MIB",                                               \
        "A user whose requests or answers wait with more bytes than this is not read from until "  \
        "they are fewer")                                                                          \
    INT("max-keys", max_keys, "262144", 0, 1 << 30, "N",                                           \
        "When so many keys are known, a put, record or acquire of others is refused to all "       \
        "users but gemmd's own (0: no limit)")                                                     \
    INT("user-keys", user_keys, "0", 0, 1 << 30, "N",                                              \
        "Keys that one user has put or recorded trials of, beyond which more are refused (0: "     \
        "three quarters of --max-keys)")                                                           \
    INT("trials-per-key", trials_per_key, "0", 0, 10000000, "N",                                   \
        "Trials kept for one key (0: the store's default)")                                        \
    INT("cache-max-mib", cache_max_mib, "4096", 0, 1 << 30, "MIB",                                 \
        "Above this size of the cache directory, the modules that were used longest ago and "      \
        "that serve no answer are removed (0: no limit)")                                          \
    INT("idle-exit-s", idle_exit_s, "0", 0, 31536000, "S",                                         \
        "Leave after this long without connections and work (0: never)")                           \
    FLAG("offline", offline,                                                                       \
         "Serve a stopped database on a private socket, whose path is printed; nothing is tuned")  \
    FLAG("no-baseline", no_baseline,                                                               \
         "Do not measure what cuBLAS takes for the keys that were tuned, when nothing else is to " \
         "be done")                                                                                \
    FLAG("force-network-fs", force_network_fs,                                                     \
         "Open a database on a network file system all the same")

#define CONFIG_TEXT_MEMBER(key, name, size, ...) char name[size];
#define CONFIG_INT_MEMBER(key, name, ...)        int64_t name;
#define CONFIG_REAL_MEMBER(key, name, ...)       double name;
#define CONFIG_FLAG_MEMBER(key, name, ...)       bool name;

struct config {
    CONFIG_LIST(CONFIG_TEXT_MEMBER, CONFIG_INT_MEMBER, CONFIG_REAL_MEMBER, CONFIG_FLAG_MEMBER)
};

enum config_kind { CONFIG_TEXT, CONFIG_INT, CONFIG_REAL, CONFIG_FLAG };

struct config_key {
    const char *name;
    enum config_kind kind;
    size_t offset, size;
    const char *fallback;
    int64_t min, max; /* limits of a CONFIG_INT or CONFIG_REAL */
    const char *arg;  /* the value's name in --help; NULL: a flag */
    const char *help;
    /* checks a CONFIG_TEXT; NULL: any text is valid */
    int (*check)(const char *value, struct error *err);
};

#define CONFIG_ONE(...) 1 +
enum { CONFIG_KEYS = CONFIG_LIST(CONFIG_ONE, CONFIG_ONE, CONFIG_ONE, CONFIG_ONE) 0 };
extern const struct config_key config_keys[CONFIG_KEYS];

enum { CONFIG_SOURCE_MAX = PATHS_MAX + 16 };
struct config_sources {
    char of[CONFIG_KEYS][CONFIG_SOURCE_MAX]; /* "default" | "<file>:<line>" | "command line" */
};

void config_init(struct config *c, struct config_sources *from);
/* Sets the setting `name` from text and notes its `source`. ERROR_UNKNOWN_FIELD, ERROR_INVALID. */
int config_set(struct config *c, struct config_sources *from, const char *name, const char *value,
               const char *source, struct error *err);
/* Reads a file. A missing file is an error only when `required`. */
int config_read(struct config *c, struct config_sources *from, const char *path, bool required,
                struct error *err);
/* Prints lines of "key = value ; source" on stdout, a file that can be read back. */
void config_print(const struct config *c, const struct config_sources *from);

#endif
