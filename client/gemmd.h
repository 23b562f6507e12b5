/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgemmd: get gemmd's best kernel configuration for a problem, get the compiled kernel, and
 * launch exactly the kernel that was measured.
 *
 * Threading: several threads may use a `struct gemmd`; calls on the same struct are serialised.
 * After fork() the child connects again by itself and leaves the parent's connection alone.
 * Blocking: every call returns within its deadline, or without one within the handle's default
 * deadline (gemmd_options.deadline_ms). Only a tuning or a gemmd_acquire without a deadline waits
 * without a limit; even these fail with GEMMD_DEADLINE when the daemon hangs. gemmd_list applies
 * the default to each page. A caller that cannot block for so long calls in steps: gemmd_wait.
 * Fallback: when no daemon answers in time, gemmd_get with GEMMD_FALLBACK gives the analytic
 * default, a config that a model predicts to be fast and that is not measured (tier "default").
 * Compatibility: structs begin with `size`, which the GEMMD_*_INIT macros set. Fields are only
 * added at the end. The numbers and names of enum gemmd_error_code are stable.
 * Memory: the library fills in texts in arrays of the caller's structs. The library only reads a
 * `const char *` that the caller gives, during the call. A call that allocates names the call that
 * frees.
 */
#ifndef GEMMD_H
#define GEMMD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GEMMD_API __attribute__((visibility("default")))
#else
#define GEMMD_API
#endif

#define GEMMD_VERSION_MAJOR 0
#define GEMMD_VERSION_MINOR 1

/* ---- errors --------------------------------------------------------------------------------- */

/* Every function that can fail returns 0 or one of these codes, and fills `err` (may be NULL). */
enum gemmd_error_code {
    GEMMD_INTERNAL = -1,         /* a bug of gemmd */
    GEMMD_INVALID = -2,          /* an argument has a value that the call does not take */
    GEMMD_UNKNOWN_METHOD = -3,   /* the daemon does not know this call: it is older */
    GEMMD_UNKNOWN_OP = -4,       /* the op of gemmd_problem.text */
    GEMMD_UNKNOWN_FIELD = -5,    /* a field that the op does not have */
    GEMMD_CONFLICT = -6,         /* arguments contradict each other */
    GEMMD_MALFORMED = -7,        /* the peer does not speak gemmd's protocol */
    GEMMD_TOO_LARGE = -8,        /* a message beyond the protocol's limit */
    GEMMD_VERSION_MISMATCH = -9, /* library and daemon, or kernel, are of different versions */
    GEMMD_NOT_FOUND = -10,       /* no such key, module or row */
    GEMMD_DENIED = -11,          /* this user may not do this, or not connect */
    GEMMD_BUSY = -12,            /* no room now; try again later */
    GEMMD_DEADLINE = -13,        /* not done within the deadline */
    GEMMD_CANCELLED = -14,       /* a user has ended the tuning */
    GEMMD_NO_CONFIG = -15,       /* no config is legal, or none works */
    GEMMD_NO_DEVICE = -16,       /* no such GPU, or no driver */
    GEMMD_DEVICE_LOST = -17,     /* every call to the GPU fails: it needs a reset */
    GEMMD_NO_COMPILER = -18,     /* no NVRTC, or no C compiler */
    GEMMD_COMPILE = -19,         /* the compiler refused the kernel */
    GEMMD_RESOURCE = -20,     /* the kernel needs more registers or shared memory than there are */
    GEMMD_WRONG_RESULT = -21, /* the kernel's result differs from the reference's */
    GEMMD_HUNG = -22,         /* the kernel or the compiler did not end */
    GEMMD_CRASHED = -23,      /* the kernel or the compiler crashed */
    GEMMD_NO_MEMORY = -24,    /* of the host or of the device */
    GEMMD_DISK_FULL = -25,
    GEMMD_STORE = -26,         /* the daemon's database or module cache is damaged or too new */
    GEMMD_IO = -27,            /* a call on a file or a socket failed */
    GEMMD_UNREACHABLE = -28,   /* no daemon listens */
    GEMMD_DISCONNECTED = -29,  /* the daemon closed the connection */
    GEMMD_SHUTTING_DOWN = -30, /* the daemon is ending */
    GEMMD_QUARANTINED = -31    /* the kernel hung or crashed before, and is not run again */
};

struct gemmd_error {
    int code;       /* enum gemmd_error_code */
    char text[512]; /* a sentence that tells a person how to act */
};

/* A static word for a code, as in the protocol: "invalid", "no_config"; 0: "ok". */
GEMMD_API const char *gemmd_error_name(int code);
/* True when the connection survives this error. Otherwise the next call connects again by itself,
 * so callers need the result only for messages. */
GEMMD_API bool gemmd_error_survives(int code);
GEMMD_API const char *gemmd_version(void); /* static text: "0.1.0" */

/* ---- connection ------------------------------------------------------------------------------ */

struct gemmd; /* a handle: a connection to a daemon, and a table of answers already received */

struct gemmd_options {
    size_t size;
    const char *socket; /* path; NULL: $GEMMD_SOCKET, else the socket of `device` */
    const char *device; /* "cuda:0", "cuda:GPU-<uuid>", "cpu", "replay-<name>"; NULL: the current
                           CUDA device when the process has a context, else "cpu"; "any": the only
                           daemon that runs here. A UUID may be shortened, as in
                           CUDA_VISIBLE_DEVICES */
    int deadline_ms;    /* default deadline of the handle, ms: for connecting, and for calls without
                           a deadline of their own; 0: 5000 */
    bool autostart;     /* start a daemon for `device` when no daemon answers: $GEMMD_DAEMON, else
                           gemmd beside this program, else in PATH; its log is in the state
                           directory */
    const char *generation; /* pins the handle to a generation of the database: a number or "now". A
                               query then has the same answer as long as the job runs, at every rank
                               and daemon pinned to the same number, also while tuning goes on. For
                               a key without an answer in that generation, GEMMD_WAIT_TUNED without
                               a deadline gives the first later answer; other queries give the
                               analytic default. "now" differs from rank to rank: one rank connects
                               with "now" and gives the other ranks the number that
                               gemmd_generation returns. For ranks on several hosts of a fleet:
                               "fleet:N" pins to the fleet's number N, which is the same on all
                               hosts. A key without a row up to N is then an error. NULL:
                               $GEMMD_GENERATION, else not pinned */
    int step_ms; /* 0: a call returns when it is over. Otherwise a call that may wait returns
                    GEMMD_WAITING after at most this time in ms: see gemmd_wait */
};
#define GEMMD_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_options), NULL, NULL, 0, false, NULL, 0                                \
    }

/* Connects to a daemon. The caller closes *out with gemmd_close; after an error *out is NULL.
 * `options` (copied) may be NULL. GEMMD_UNREACHABLE (no daemon listens; the error message names the
 * path tried), GEMMD_VERSION_MISMATCH, GEMMD_DEADLINE, GEMMD_DENIED, GEMMD_BUSY (the daemon had no
 * room for another connection until the deadline). */
GEMMD_API int gemmd_connect(struct gemmd **out, const struct gemmd_options *options,
                            struct gemmd_error *err);
/* gemmd_connect without connecting: the first call connects. gemmd_get and gemmd_get_many behave as
 * with GEMMD_FALLBACK. While no daemon answers, the handle tries to connect at most once a second.
 * Fails only for bad options and for lack of memory. */
GEMMD_API int gemmd_open_lazy(struct gemmd **out, const struct gemmd_options *options,
                              struct gemmd_error *err);
/* Cancels a waiting call of this thread (gemmd_cancel), ends the connection and its leases, and
 * frees the handle. Returns NULL; g may be NULL. No other thread may use the handle. */
GEMMD_API struct gemmd *gemmd_close(struct gemmd *g);
/* *newest: the newest generation of the daemon's database; *pinned: the generation that the handle
 * is pinned to, or -1. Both pointers may be NULL. */
GEMMD_API int gemmd_generation(struct gemmd *g, int64_t *newest, int64_t *pinned,
                               struct gemmd_error *err);

/* ---- problems -------------------------------------------------------------------------------- */

/*
 * A matrix product of an MoE layer, whose experts share a launch. W is [experts, N, K] and M the
 * routed rows (tokens * topk, sorted by expert) in every mode; dense GEMM is experts = 1, topk = 1.
 *   forward: X [M, K] -> Y [M, N];  dX: dY [M, N] -> dX [M, K];  dW: dY, X -> dW [experts, N, K]
 */
struct gemmd_problem {
    size_t size;
    const char *mode;      /* "forward" | "dX" | "dW" */
    const char *dtype_in;  /* "bf16" (NULL) | "fp16" | "fp32"; NULL with quant, which decides it */
    const char *dtype_out; /* NULL: as dtype_in; "fp32": only in mode dW, or with dtype_in "fp32" */
    int64_t m, n, k;       /* M is a multiple of topk */
    int64_t experts, topk; /* 0: 1 */
    /* permute_x: X (in dX the result) has its rows in token order, not sorted by expert: forward
     * and dW read X [M / topk, K], dX writes row (token, slot). permute_y: the same for Y and dY
     * [M, N]. Not both. fuse_mul_post: multiplies each row of Y by its routing weight; only forward
     * with permute_y. accumulate: adds the result to the output; only dW. */
    bool permute_x, permute_y, fuse_mul_post, accumulate;
    const char *routing; /* how the rows spread over the experts: "uniform" (NULL) | "zipf:<s>":
                            expert e is chosen with weight (e + 1)^-s | "rows:<a>,<b>,...": the rows
                            of each expert */
    const char *text;    /* when not NULL: the whole problem in text form ("grouped_gemm M=...", or
                            "custom:<name> ..."); the other fields are ignored */
    /* [experts], with the sum m: the rows of each expert, as "rows:" in `routing`, which then must
     * be NULL. NULL: `routing` holds */
    const int64_t *rows_per_expert;
    /* A row of the result has the same bits for every M, in every batch, on this kind of device:
     * all answers are configs with the same order of summation. A key of its own. Not in mode dW,
     * which sums over the batch. */
    bool batch_invariant;
    /* "none" (NULL) | "fp8_block": fp8 operands with fp32 scales, 1x128 of X and dY, 128x128 of W |
     * "fp8_row": fp8 operands with a scale for each row. dtype_out is then "bf16" (NULL) or, in
     * mode dW, "fp32" */
    const char *quant;
};
#define GEMMD_PROBLEM_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_problem), "forward", NULL, NULL, 0, 0, 0, 1, 1, false, false, false,   \
            false, NULL, NULL, NULL, false, NULL                                                   \
    }

/* ---- asking ---------------------------------------------------------------------------------- */

/* A query for a key without a measured answer: */
enum gemmd_wait {
    GEMMD_WAIT_TUNED = 0,  /* tunes the key, and waits for the result */
    GEMMD_WAIT_NOW = 1,    /* returns the best lower tier at once, and tunes in the background */
    GEMMD_WAIT_CACHED = 2, /* returns the best lower tier at once, and does not tune */
    /* returns the best lower tier at once, and tunes only while this process says that its GPU
     * pauses (method `pause` of docs/protocol.md), until the handle is closed */
    GEMMD_WAIT_BOUNDARY = 3
};

enum gemmd_flags {
    GEMMD_FALLBACK = 1 << 0, /* when no daemon can be reached or refuses the connection, when no
                                answer comes in time, or when the daemon cannot tune: answer with
                                the analytic default, tier "default", instead of an error. A daemon
                                that cannot tune is asked for its best lower tier first. The
                                default keeps within restrict_json and configs_json; where that is
                                impossible, the answer's note says so. GEMMD_QUARANTINED stays an
                                error. With restrict_json or configs_json, the daemon's findings
                                about these configs (crashed, compile, ...) stay errors too */
    GEMMD_NO_TABLE = 1 << 1, /* ask the daemon even when the handle's table has an answer. The table
                                keeps tuned and pinned answers, so that the same query gets the same
                                answer for the life of the handle */
    GEMMD_AGAIN = 1 << 2,    /* tune even when the key has an answer; implies GEMMD_NO_TABLE */
    GEMMD_OFFLINE = 1 << 3, /* use no daemon: answer from the handle's table, else with the analytic
                               default */
    GEMMD_PROGRESS = 1 << 4 /* with gemmd_options.step_ms: gemmd_wait returns the progress of the
                               tuning; `progress` is not called */
};

struct gemmd_progress {
    size_t size;
    const char *phase; /* queued | start | compile | measure | final | done */
    /* numbers of configs: tried so far; to try in all (0: not known); tried without success */
    int64_t done, total, failed;
    /* launch time of the best config so far, and of the analytic default's kernel; time since the
     * tuning began, and expected time to its end. NaN: not known */
    double best_us, reference_us, elapsed_ms, eta_ms;
    const char *config; /* the config that was tried last, "BLOCK_SIZE_K=64 ..." */
};

struct gemmd_query {
    size_t size;
    enum gemmd_wait wait;
    unsigned flags;            /* enum gemmd_flags */
    int deadline_ms;           /* 0: no limit with GEMMD_WAIT_TUNED, else the handle's default. When
                                  it passes, the daemon answers with the best lower tier */
    const char *strategy;      /* ranked | exhaustive | random | genetic | given; NULL: ranked */
    int64_t budget;            /* most configs to measure; 0: the daemon's default */
    int64_t budget_ms;         /* most time on the device; 0: the daemon's default */
    int64_t iters, warmup;     /* timed launches, and launches before these, of each config; 0: the
                                  daemon's defaults */
    double atol, rtol;         /* absolute and relative tolerance of a config's result; 0: 1e-2 */
    const char *restrict_json; /* {"BLOCK_SIZE_M": [64, 128], ...}: search only configs with these
                                  values; NULL: all */
    const char *configs_json;  /* ["BLOCK_SIZE_M=64 ...", {...}]: search only these configs, with
                                  strategy given; NULL: all */
    /* Called with the tuning's progress, in the calling thread; must not use the same handle. */
    void (*progress)(void *ctx, const struct gemmd_progress *p);
    void *ctx;
    int64_t seed;       /* draws the operands and the routing that are measured, and the order of
                           the strategy random */
    const char *target; /* only kernels of this target ("portable", "hopper", "cpu"), for
                           comparisons; NULL: the device's own choice, by architecture and problem.
                           Another target than the device's own choice restricts the search, as
                           restrict_json does: the winner is "partial" */
    const char *bucket; /* "exact" | "pow2" | "sqrt2": bucket scheme for this query, for
                           comparisons; NULL: the scheme of the daemon's database. The answer
                           belongs to that bucket, and serves no query that does not round to the
                           same bucket */
    int64_t wall_ms;    /* longest duration of the search, ms; then the best config so far wins; 0:
                           no limit. Includes the time of compilers and of waiting for compilers,
                           without the time that other jobs use the device */
};
#define GEMMD_QUERY_INIT                                                                           \
    {                                                                                              \
        sizeof(struct gemmd_query), GEMMD_WAIT_TUNED, 0, 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL,    \
            NULL, NULL, 0, NULL, NULL, 0                                                           \
    }

struct gemmd_answer {
    size_t size;
    char key[33];  /* hash of the key (op, rounded problem, device class), 32 hex digits */
    char tier[16]; /* exact: measured for this key | near: from another key, or not confirmed for
                      this key | portfolio: good for many keys | default: not measured */
    char
        source[16];   /* tuned | manual (a pin) | imported | trusted | fleet | partial (of a
                         restricted  search) | locked (of the file $GEMMD_LOCK) | model (tier default)
                       */
    char family[32];  /* kind of kernel: "grouped_gemm" */
    char config[512]; /* one line, "BLOCK_SIZE_K=64 BLOCK_SIZE_M=128 ..." */
    char module[33];  /* hash of the compiled kernel, for gemmd_module; "" without a kernel */
    /* Median time of a launch; its spread, (q75 - q25) / median; time of the analytic default's
     * kernel in the same tuning; 10^12 operations and 10^9 bytes per second; least time that the
     * device's peak rates allow. NaN: not known */
    double time_us, spread, reference_us, tflops, gbps, floor_us;
    /* How many configs the search had measured; number of the best in the daemon's database (0: not
     * in the database); when the best was found, Unix seconds */
    int64_t measured, generation, created_s;
    bool saved;      /* the daemon's database has the best; false: only the daemon's memory */
    bool local;      /* from the handle's table, or made in this process (fallback) */
    char note[160];  /* for people: why the tier is low, or which row answers */
    char target[16]; /* target of the config: "portable", "hopper", "cpu"; "": not known */
    char stamp[160]; /* version of the kernel (sources, compiler); "": not known, or made here */
};
#define GEMMD_ANSWER_INIT                                                                          \
    {                                                                                              \
        sizeof(struct gemmd_answer), "", "", "", "", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, false,     \
            false, "", "", ""                                                                      \
    }

/* Gets the best config of a problem. `query` may be NULL: the defaults. While gemmd is busy (its
 * queue of tunings is full), gemmd_get repeats the request until the deadline, then fails with
 * GEMMD_BUSY. With GEMMD_FALLBACK and no deadline, it repeats a busy request only for the handle's
 * default deadline, and then gives the analytic default. gemmd_tune and gemmd_acquire repeat, too;
 * gemmd_call returns GEMMD_BUSY at once. */
GEMMD_API int gemmd_get(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, struct gemmd_answer *out,
                        struct gemmd_error *err);
/* gemmd_get for n problems at once: fills in answers[0..n) and statuses[0..n). statuses[i] is 0 or
 * a code, with the error text in answers[i].note. Never waits for a tuning: GEMMD_WAIT_TUNED acts
 * as GEMMD_WAIT_NOW. All problems must have the `size` of the first problem, all answers that of
 * the first answer. When the return value is not 0, problems without an answer have that code as
 * status, and its text as note. Uses wait, flags, deadline_ms and target of `query` (may be NULL).
 * With bucket, restrict_json, configs_json, strategy, a budget, wall_ms, iters, warmup, seed, atol,
 * rtol or GEMMD_AGAIN it fails with GEMMD_INVALID: use gemmd_get. */
GEMMD_API int gemmd_get_many(struct gemmd *g, const struct gemmd_problem *problems, size_t n,
                             const struct gemmd_query *query, struct gemmd_answer *answers,
                             int *statuses, struct gemmd_error *err);
/* gemmd_get that tunes even when the key has an answer (as with GEMMD_AGAIN). Has no fallback. */
GEMMD_API int gemmd_tune(struct gemmd *g, const struct gemmd_problem *problem,
                         const struct gemmd_query *query, struct gemmd_answer *out,
                         struct gemmd_error *err);

/*
 * A call in steps, for a caller that cannot block for a whole tuning: an interpreter that has to
 * handle Ctrl-C, or a loop with other work. With gemmd_options.step_ms, gemmd_get, gemmd_tune,
 * gemmd_acquire and gemmd_call may return GEMMD_WAITING, which is no error. gemmd_wait then
 * continues the call, and returns the call's result, or GEMMD_WAITING again.
 *
 *   int r = gemmd_tune(g, &problem, &query, &answer, &err);
 *   while (r == GEMMD_WAITING) {
 *       if (stopped) {
 *           gemmd_cancel(g);
 *           return;
 *       }
 *       r = gemmd_wait(g, &progress, &err);
 *   }
 *
 * Until the call ends, its arguments must stay valid, and the handle belongs to the calling thread.
 * Calls of other threads on this handle wait for that end, at most until their deadlines, and not
 * in steps. Other calls of the same thread on this handle fail with GEMMD_BUSY. Connecting and
 * starting a daemon also happen in steps, except in gemmd_connect: gemmd_open_lazy leaves
 * connecting to the first call.
 */
enum { GEMMD_WAITING = 1 };
/* Continues the waiting call. Returns after step_ms, at the end of the call, or, with
 * GEMMD_PROGRESS, when the tuning reports progress. `progress` may be NULL; else *progress is the
 * report, valid until the handle's next call, or NULL without a report. GEMMD_INVALID: no call of
 * this thread waits. */
GEMMD_API int gemmd_wait(struct gemmd *g, const struct gemmd_progress **progress,
                         struct gemmd_error *err);
/* Gives up the waiting call; without a waiting call, does nothing. The daemon ends a tuning that no
 * other client waits for. For a call other than gemmd_get and gemmd_tune, closes the connection,
 * which also ends the handle's leases. The handle stays usable: the next call connects again. */
GEMMD_API void gemmd_cancel(struct gemmd *g);

/* The search space of a problem: *result_json is the result of the method `space` of
 * docs/protocol.md as JSON text; free with gemmd_free. The device need not be present
 * ("cuda:sm_90a", or any device as in gemmd_options; NULL: the current device). Computed in this
 * process, without a daemon; may take a second. Uses target and restrict_json of `query` (may be
 * NULL). GEMMD_NO_DEVICE, GEMMD_NO_CONFIG. */
GEMMD_API int gemmd_space(const char *device, const struct gemmd_problem *problem,
                          const struct gemmd_query *query, char **result_json,
                          struct gemmd_error *err);
/* The short notation of a config, such as "160x256 df s4 swap 2x1" (docs/kernel-notes.md has the
 * words of each target). *text: free with gemmd_free; NULL when the config, "BLOCK_SIZE_M=160 ...",
 * has no short notation. `target` is the target that the config belongs to (gemmd_answer.target);
 * NULL: the first whose notation has the config. */
GEMMD_API int gemmd_config_shorten(const struct gemmd_problem *problem, const char *target,
                                   const char *config, char **text, struct gemmd_error *err);
/* The inverse: *config is "BLOCK_SIZE_M=160 ..."; free with gemmd_free. A text that is not short
 * notation is returned as it is. `target` may be NULL: the only target whose notation has the text.
 * GEMMD_INVALID names the mistake in the text. */
GEMMD_API int gemmd_config_expand(const struct gemmd_problem *problem, const char *target,
                                  const char *text, char **config, struct gemmd_error *err);
/* The bits of a config's results, where the operands have the same bits. */
struct gemmd_exactness {
    size_t size;
    bool runs;    /* every launch gives the same bits */
    bool batches; /* a row's bits depend neither on the number of rows nor on the row's place */
    /* The order of summation: configs of a target with equal texts give a row the same bits, on the
     * same kind of device. "" unless `batches`. */
    char order[32];
};
#define GEMMD_EXACTNESS_INIT                                                                       \
    {                                                                                              \
        sizeof(struct gemmd_exactness), false, false, ""                                           \
    }
/* `target` is the target that the config belongs to (gemmd_answer.target). An op without kernels of
 * gemmd's ("custom:...") and an unknown target promise nothing. GEMMD_INVALID. */
GEMMD_API int gemmd_config_exactness(const struct gemmd_problem *problem, const char *target,
                                     const char *config, struct gemmd_exactness *out,
                                     struct gemmd_error *err);
/* Explains the answer that gemmd_get with GEMMD_WAIT_CACHED gives: its tier, the database's row,
 * the evidence (run, trial, kernel version, age), and the confidence. For a key without an answer:
 * the nearest key with an answer and the fields in which that key differs. *result_json is the
 * result of the method `why` of docs/protocol.md as JSON text; free with gemmd_free. Tunes nothing.
 * Uses target, atol, rtol and deadline_ms of `query` (may be NULL). */
GEMMD_API int gemmd_why(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, char **result_json,
                        struct gemmd_error *err);
/* Waits until the daemon has new or better answers, for any key and from any job, and calls
 * `improved` for each. Returns after the first answers, or after timeout_ms (0: reports only
 * answers that have already arrived). *n (may be NULL): the number of reported answers. The first
 * call subscribes the handle. Answers that arrive during another call of the handle are not
 * reported, so use a handle for this alone. A pinned handle also reports new answers, but its
 * queries keep the answers of its generation. problem_json (the problem as a JSON object) and
 * answer are valid during the callback. GEMMD_BUSY: 512 connections of this user are subscribed
 * already. */
GEMMD_API int gemmd_improvements(struct gemmd *g, int timeout_ms,
                                 void (*improved)(void *ctx, const char *problem_json,
                                                  const struct gemmd_answer *answer),
                                 void *ctx, int *n, struct gemmd_error *err);
/* Stores a config that the caller found, in text form, with its time in us (NaN: not known). For a
 * "custom:" op the config answers from now on for all jobs of this user, without a check by gemmd,
 * and the caller's lease ends. For an op that gemmd has kernels for, the config answers as tier
 * "near" until the key is tuned. GEMMD_CONFLICT: the key has a tuned or pinned answer, or another
 * user's. */
GEMMD_API int gemmd_put(struct gemmd *g, const struct gemmd_problem *problem, const char *config,
                        double time_us, struct gemmd_error *err);

/* ---- kernels of the caller ------------------------------------------------------------------ */

/*
 * A job may tune kernels that gemmd does not know, and use gemmd as a cache of the results and to
 * decide which process tunes. The problem has a "custom:<name>" op (gemmd_problem.text). Its fields
 * hold everything that makes an answer valid (hash of the source, compiler's version, shape); gemmd
 * adds the device class.
 *
 *   gemmd_acquire -> GEMMD_HIT: launch the answer's config
 *                 -> GEMMD_LEASE: measure, gemmd_record the trials, gemmd_put the winner
 *                 -> GEMMD_HELD: another process measures; use the answer so far, or a default
 *
 * The lease is the right to tune a key; a single connection holds it. The lease ends by gemmd_put,
 * by gemmd_release, with the connection, or after lease_ms without a gemmd_record or gemmd_acquire
 * of that key. Recorded trials stay: gemmd_acquire gives them to the next holder, which need not
 * repeat them. When a call on the handle, in any thread, has a deadline of 100 ms or more and
 * receives no byte from gemmd by then, the connection ends, and its leases too: use another handle
 * for calls with short deadlines. A stored config answers only its user until the daemon's owner
 * promotes it (`gemmctl promote`). It is no secret: every user who may connect to the daemon may
 * list it.
 */
enum gemmd_outcome { GEMMD_HIT = 0, GEMMD_LEASE = 1, GEMMD_HELD = 2 };

struct gemmd_acquire {
    size_t size;
    /* ["BLOCK_M=64 num_warps=4", {...}], at most 512: the configs that the caller chooses among.
     * GEMMD_HIT then comes only when gemmd has recorded results of all of them, and gives the
     * fastest. NULL: GEMMD_HIT gives the config that gemmd_put stored. */
    const char *configs_json;
    int deadline_ms; /* longest wait while another connection has the lease, ms; 0: no limit */
    int lease_ms;    /* the lease ends after so long without a call for it; 0: 60000; <= 3600000 */
    bool now;        /* do not wait while another connection has the lease: GEMMD_HELD at once */
};
#define GEMMD_ACQUIRE_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_acquire), NULL, 0, 0, false                                            \
    }

/* Asks for a key's answer, or for its lease. `options` may be NULL. *answer: the answer of
 * GEMMD_HIT; else the best answer so far, or tier "" without an answer. known_json may be NULL;
 * else *known_json (free with gemmd_free) has the recorded results of the given configs, as a JSON
 * array of {"config": {..}, "status": "ok" or an error's name, "time_us": number or null, "reason":
 * text}. GEMMD_NO_CONFIG: all given configs have failed. */
GEMMD_API int gemmd_acquire(struct gemmd *g, const struct gemmd_problem *problem,
                            const struct gemmd_acquire *options, enum gemmd_outcome *outcome,
                            struct gemmd_answer *answer, char **known_json,
                            struct gemmd_error *err);
/* Stores measured trials: a JSON array of {"config": text or {..}, "time_us": microseconds,
 * "status": "ok" (the default), "invalid", "compile", "resource", "wrong_result", "crashed" or
 * "hung", "reason": text of at most 319 bytes}. Later calls of gemmd_acquire give these results as
 * known, except of configs that crashed or hung, which may be tried again. Renews the lease.
 * Returns 0 when the trials are durable. */
GEMMD_API int gemmd_record(struct gemmd *g, const struct gemmd_problem *problem,
                           const char *trials_json, struct gemmd_error *err);
/* Gives up a lease without an answer; the next waiting connection gets the lease. Returns 0 also
 * when the handle has no lease of the key. */
GEMMD_API int gemmd_release(struct gemmd *g, const struct gemmd_problem *problem,
                            struct gemmd_error *err);

/* Calls any method of docs/protocol.md: params (NULL: an empty map) and result as JSON text; free
 * *result_json with gemmd_free. Calls `progress` (may be NULL) with the progress of a tuning, when
 * params has "progress": true. deadline_ms 0: the handle's default, but no limit for `get`, `tune`,
 * `pin` and `acquire`. */
GEMMD_API int gemmd_call(struct gemmd *g, const char *method, const char *params_json,
                         int deadline_ms, char **result_json,
                         void (*progress)(void *ctx, const struct gemmd_progress *p), void *ctx,
                         struct gemmd_error *err);
GEMMD_API void gemmd_free(void *p);

/* All rows of a list (`what`: "best", "history", "trials", "modules", "quarantine", "runs",
 * "devices", "events", "jobs", "served", "portfolio"), as a single JSON array; free *rows_json with
 * gemmd_free. filter_json: {"column": value, ...} and more as in docs/protocol.md, or NULL. The
 * rows are fetched in pages. A list that the filter sorts, "modules" or "portfolio" may miss or
 * repeat a row when other clients add or remove rows meanwhile. */
GEMMD_API int gemmd_list(struct gemmd *g, const char *what, const char *filter_json,
                         char **rows_json, struct gemmd_error *err);

/* ---- kernels --------------------------------------------------------------------------------- */

/* Fetches the compiled image that gemmd_answer.module names; free *data with gemmd_free. (Here and
 * in gemmd_kernel_load the handle's default deadline covers the whole image, but not a compilation
 * in this process.) */
GEMMD_API int gemmd_module(struct gemmd *g, const char *module, void **data, size_t *size,
                           struct gemmd_error *err);

struct gemmd_kernel; /* a loaded kernel; needs neither the handle nor the daemon any more */

/* Fetches and loads the kernel of an answer, into the calling thread's current CUDA context (or the
 * process, for the CPU); the caller frees *out with gemmd_kernel_free. `problem` is the problem
 * that will be launched, not rounded; a launch may have another number of rows than its M. When
 * gemmd's cache directory lost the kernel of a measured answer (tier "exact"), this call compiles
 * the kernel, as gemmd_kernel_compile does. GEMMD_CONFLICT: the answer belongs to a problem with
 * other types, mode or permutes. GEMMD_VERSION_MISMATCH: a gemmd of other sources made the kernel,
 * and may lay out arguments differently. */
GEMMD_API int gemmd_kernel_load(struct gemmd *g, const struct gemmd_problem *problem,
                                const struct gemmd_answer *answer, struct gemmd_kernel **out,
                                struct gemmd_error *err);
/* Compiles a kernel in this process, by NVRTC or the host's C compiler: for an answer of tier
 * "default", or when gemmd cannot give the kernel. Keeps the kernel in gemmd's cache directory, so
 * that ranks which start together compile once. Without a cache directory, or when other users may
 * write to it, the kernel is not kept, and stderr says so. Needs no daemon; may take a second.
 * `device`: "cpu", "cuda" (the thread's current CUDA device), or NULL: "cuda" when the thread has a
 * current CUDA device, else "cpu". `config`: text form; NULL or "": the analytic default. The
 * caller frees *out with gemmd_kernel_free. GEMMD_NO_COMPILER, GEMMD_COMPILE, GEMMD_RESOURCE,
 * GEMMD_NO_CONFIG. */
GEMMD_API int gemmd_kernel_compile(const char *device, const struct gemmd_problem *problem,
                                   const char *config, struct gemmd_kernel **out,
                                   struct gemmd_error *err);
/* Unloads the kernel, and returns NULL; k may be NULL. Any thread may call this, with any current
 * CUDA context, when no launch of the kernel is under way. */
GEMMD_API struct gemmd_kernel *gemmd_kernel_free(struct gemmd_kernel *k);

enum gemmd_dtype {
    GEMMD_BF16 = 1,
    GEMMD_FP16 = 2,
    GEMMD_FP32 = 3,
    GEMMD_INT32 = 4,
    GEMMD_INT64 = 5
};
enum {
    GEMMD_ACCUMULATE = 1, /* mode dW only: out += result. When out is bf16 or fp16, some kernels
                             need gemmd_problem.accumulate for this, else GEMMD_CONFLICT */
    GEMMD_ENDS = 2 /* m_sizes[e] is the row behind expert e's last row (the running sum of the
                      sizes), not the number of its rows */
};

/* Arguments of a launch: row-major matrices in the device's memory (on the CPU in the process's),
 * which must stay valid until the launch has run. T = routed rows. Strides in elements, 0 = dense.
 *   mode     reads                                   out
 *   forward  x [T, K] (permute_x: [T / topk, K]), w  [T, N]
 *   dX       dy [T, N], w                            [T, K]
 *   dW       dy [T, N], x as in forward              [experts, N, K]; an expert without rows: zeros
 * With permute_y, dX and dW read row gather_indices[i] of dy: any row of dy, also twice, and also
 * beyond T. Kernels rely on indices below 2^30 and a dy below 64 GiB; the caller must ensure both.
 *
 * Operands of quant=fp8_block and fp8_row are e4m3, a byte an element, and lie with the summed
 * dimension contiguous:
 *   forward  x [T, K], w [experts, N, K]
 *   dX       dy [T, N], w [experts, K, N]: the transposed weights
 *   dW       dy [N, C], x [K, C]. The columns are the routed rows in the order of experts. Each
 *            expert begins at a multiple of 128 columns; the gap behind its last row is zeros.
 *            C >= (T + 127 * min(experts, T)) / 128 * 128
 * An element's value is its number times scale[row / R * stride + b * stride_block]:
 *   fp8_block  b: the block of 128 along the summed dimension; R: 128 for w, else 1
 *   fp8_row    b: in dW the expert, else 0; R: 1
 * Scale strides of 0: x and dy [b][row], with the rows padded to a multiple of 4; where the launch
 * gathers their rows [row][b], with b padded to a multiple of 4. w of fp8_block
 * [experts, ceil(N / 128), ceil(K / 128)] in forward and dX; w of fp8_row [experts, row].
 */
struct gemmd_grouped_gemm_args {
    uint32_t size;
    uint32_t flags;         /* GEMMD_ACCUMULATE, GEMMD_ENDS */
    const void *x, *w, *dy; /* w [experts, N, K]; NULL for an operand that the mode does not read */
    void *out;
    /* x, w, dy, out: from row to row; w and out of dW also from expert to expert */
    int64_t x_stride, w_stride, w_stride_expert, dy_stride, out_stride, out_stride_expert;
    const void *m_sizes; /* device, [experts]: rows of each expert; the sum is at most `rows`. No
                            kernel writes the rows beyond the sum, and no result depends on these
                            rows. Not read for a single expert, which has all rows */
    const void *gather_indices; /* device, [T]: for row i in the order of experts, token * topk +
                                   slot; needed by permute_x and permute_y, else NULL. Every index
                                   names a row, also beyond the sum of m_sizes: a kernel may copy
                                   the rows of all T indices */
    const void *topk_weights;   /* device, [T] at token * topk + slot; needed by fuse_mul_post */
    /* enum gemmd_dtype: INT32 or INT64, INT32 or INT64, FP32 or the input type */
    uint32_t m_sizes_dtype, gather_dtype, weights_dtype;
    uint32_t sms; /* the product's main kernel has no more thread blocks than so many SMs hold, but
                     a cluster at least, for a kernel of another stream that runs beside it; 0: no
                     limit; ignored on the CPU. The bits are the same */
    int64_t rows; /* T, a multiple of topk */
    void *workspace; /* gemmd_kernel_workspace bytes, 256-byte aligned; NULL when 0 */
    int64_t workspace_bytes;
    void *stream; /* CUstream; NULL: the default stream; ignored on the CPU */
    const void *x_scale, *w_scale, *dy_scale; /* fp32, of fp8 operands; else NULL */
    int64_t x_scale_stride, x_scale_stride_block;
    int64_t w_scale_stride, w_scale_stride_block, w_scale_stride_expert;
    int64_t dy_scale_stride, dy_scale_stride_block;
};
#define GEMMD_GROUPED_GEMM_ARGS_INIT                                                               \
    {                                                                                              \
        sizeof(struct gemmd_grouped_gemm_args), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, \
            NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0        \
    }

/* Arguments of a launch of a kernel for "quantise mode=... M=<T> K=..." (gemmd_problem.text): bf16
 * to e4m3 bytes and fp32 scales, by blocks of 128. Strides in elements, 0 = dense.
 *
 *   mode        reads                                 writes
 *   rows        x [T, K] (permute_x: [T / topk, K])   q [T, K], scales: for (row, block of K)
 *   columns     x as rows                             q_t [K, padded], scales_t [padded / 128, K]
 *   both        x as rows                             as rows and as columns
 *   weights     x [experts, N, K], T = experts * N    q as x, q_t [experts, K, N],
 *                                                     scales [experts, blocks of N, of K]
 *   whole_rows  x as rows                             q [T, K], scales [T]: K is a single block
 *
 * A block's scale is max(amax, eps) / 448, or the next power of two (scale_type=pow2); below 2^-126
 * it becomes 1. q is x * (1 / scale) rounded to the nearest e4m3, at most 448. NaN stays NaN;
 * infinities become 448; neither counts for amax.
 * In q_t each expert begins at a multiple of 128 columns, and its last block is filled with zeros.
 * Columns behind the last expert's block are not written. */
struct gemmd_quantise_args {
    uint32_t size;
    uint32_t flags; /* GEMMD_ENDS */
    const void *x;  /* x, q, q_t: multiples of 16 bytes; NULL where the mode has none */
    void *q, *scales, *q_t, *scales_t;
    int64_t x_stride, q_stride; /* from row to row; multiples of 8 and of 16 */
    /* of the scale of (row, block); both 0: 1, and T rounded up to a multiple of 4; weights: a row
     * is 128 rows of an expert, and the scales are dense */
    int64_t scales_row_stride, scales_block_stride;
    int64_t q_t_stride, scales_t_stride; /* from row to row of q_t (multiple of 16) and scales_t */
    int64_t padded; /* columns of q_t, a multiple of 128; 0: (T + 127 * experts) / 128 * 128. A
                       block of tokens beyond `padded` is not quantised at all */
    const void *m_sizes, *gather_indices; /* as in gemmd_grouped_gemm_args */
    uint32_t m_sizes_dtype, gather_dtype; /* enum gemmd_dtype: INT32 or INT64 */
    float eps;                            /* the least amax, 0 or more; usually 1e-12 */
    uint32_t reserved;                    /* 0 */
    int64_t rows;                         /* T */
    void *workspace;                      /* as in gemmd_grouped_gemm_args */
    int64_t workspace_bytes;
    void *stream; /* CUstream; NULL: the default stream; ignored on the CPU */
};
#define GEMMD_QUANTISE_ARGS_INIT                                                                   \
    {                                                                                              \
        sizeof(struct gemmd_quantise_args), 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, 0,  \
            NULL, NULL, 0, 0, 1e-12f, 0, 0, NULL, 0, NULL                                          \
    }

/* `args` is the struct of the kernel's op: gemmd_grouped_gemm_args or gemmd_quantise_args. */

/* *bytes: size of the device memory that a launch with these args needs as `workspace`. The caller
 * owns the workspace; launches on different streams need different ones. args->workspace may be
 * NULL. */
GEMMD_API int gemmd_kernel_workspace(struct gemmd_kernel *k, const void *args, int64_t *bytes,
                                     struct gemmd_error *err);
/* Launches asynchronously on args->stream, in the calling thread's current CUDA context, without
 * allocation or synchronisation. CUDA graphs can capture the launch. GEMMD_INVALID: a missing or
 * misaligned operand, overlapping strides, a workspace that is too small. On the CPU, returns when
 * the result is complete. */
GEMMD_API int gemmd_kernel_launch(struct gemmd_kernel *k, const void *args,
                                  struct gemmd_error *err);

#ifdef __cplusplus
}
#endif

#endif
