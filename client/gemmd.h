/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgemmd: ask gemmd which kernel configuration is best for a problem, get the compiled kernel,
 * and launch exactly what was measured.
 *
 * Threading: a `struct gemmd` may be used from several threads; calls on one are serialised. After
 * fork() the child reconnects by itself; the parent's connection is left alone.
 * Blocking: every call returns within its deadline, or the connection's default (options). Only a
 * tuning (gemmd_acquire, too) without a deadline waits as long as it takes, and even that notices a
 * daemon that hangs; and gemmd_list has the default for each page, however many there are.
 * Who cannot wait for so long takes steps: gemmd_wait.
 * Never in the way: gemmd_get with GEMMD_FALLBACK answers by the analytic default, marked so, when
 * no daemon answers in time.
 * Compatibility: structs begin with `size`, set by the GEMMD_*_INIT macros; fields are added at the
 * end only. Numbers of enum gemmd_error_code and their names are stable.
 * Memory: text is owned by the struct it stands in; what a call allocates says which call frees it.
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

/* Every function that can fail returns 0 or one of these, and fills `err` (which may be NULL). */
enum gemmd_error_code {
    GEMMD_INTERNAL = -1,
    GEMMD_INVALID = -2,
    GEMMD_UNKNOWN_METHOD = -3,
    GEMMD_UNKNOWN_OP = -4,
    GEMMD_UNKNOWN_FIELD = -5,
    GEMMD_CONFLICT = -6,
    GEMMD_MALFORMED = -7,
    GEMMD_TOO_LARGE = -8,
    GEMMD_VERSION_MISMATCH = -9,
    GEMMD_NOT_FOUND = -10,
    GEMMD_DENIED = -11,
    GEMMD_BUSY = -12,
    GEMMD_DEADLINE = -13,
    GEMMD_CANCELLED = -14,
    GEMMD_NO_CONFIG = -15,
    GEMMD_NO_DEVICE = -16,
    GEMMD_DEVICE_LOST = -17,
    GEMMD_NO_COMPILER = -18,
    GEMMD_COMPILE = -19,
    GEMMD_RESOURCE = -20,
    GEMMD_WRONG_RESULT = -21,
    GEMMD_HUNG = -22,
    GEMMD_CRASHED = -23,
    GEMMD_NO_MEMORY = -24,
    GEMMD_DISK_FULL = -25,
    GEMMD_STORE = -26,
    GEMMD_IO = -27,
    GEMMD_UNREACHABLE = -28,
    GEMMD_DISCONNECTED = -29,
    GEMMD_SHUTTING_DOWN = -30,
    GEMMD_QUARANTINED = -31
};

struct gemmd_error {
    int code;       /* enum gemmd_error_code */
    char text[512]; /* a sentence that a person can act on */
};

GEMMD_API const char *gemmd_error_name(int code);
/* Whether the connection can still be used after this error. When not, the next call connects
 * again by itself, so this is for people and logs. */
GEMMD_API bool gemmd_error_survives(int code);
GEMMD_API const char *gemmd_version(void);

/* ---- connection ------------------------------------------------------------------------------ */

struct gemmd;

struct gemmd_options {
    size_t size;
    const char *socket; /* path; NULL: GEMMD_SOCKET, else found by `device` */
    const char *device; /* "cuda:0", "cuda:GPU-<uuid>", "cpu", "replay-<name>"; NULL: the current
                           CUDA device when the process has one, else "cpu"; "any": the only
                           daemon that runs here. A UUID may be shortened, as in
                           CUDA_VISIBLE_DEVICES */
    int deadline_ms;    /* default for connect and every call without its own; 0: 5000 */
    bool autostart;     /* start a daemon for `device` when none answers: $GEMMD_DAEMON, else
                           gemmd beside this program, else in PATH; its log is in the state
                           directory */
    const char *generation; /* pins the handle to a generation of the database, a number or "now": a
                               question then has the same answer for the job's whole life, at every
                               rank and daemon that is pinned to the same number, also while tuning
                               goes on. A key without an answer in that generation has its first one
                               after it, for GEMMD_WAIT_TUNED without a deadline; else the analytic
                               default. "now" differs from rank to rank: let one rank connect so,
                               and give the others the number of gemmd_generation. NULL:
                               $GEMMD_GENERATION, else not pinned */
    int step_ms; /* 0: a call is back when it is over. Else one that may wait for long is back after
                    so long at the latest, with GEMMD_WAITING: see gemmd_wait */
};
#define GEMMD_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_options), NULL, NULL, 0, false, NULL, 0                                \
    }

/* GEMMD_UNREACHABLE (nobody listens; the sentence names the path tried), GEMMD_VERSION_MISMATCH,
 * GEMMD_DEADLINE, GEMMD_DENIED, GEMMD_BUSY (no room for one more connection, until the deadline).
 * `options` may be NULL. */
GEMMD_API int gemmd_connect(struct gemmd **out, const struct gemmd_options *options,
                            struct gemmd_error *err);
/* A handle that need not be connected: gemmd_get and gemmd_get_many behave as with GEMMD_FALLBACK,
 * and while no daemon answers, connecting is tried at most once a second. Fails only for bad
 * options and for memory. */
GEMMD_API int gemmd_open_lazy(struct gemmd **out, const struct gemmd_options *options,
                              struct gemmd_error *err);
GEMMD_API struct gemmd *gemmd_close(struct gemmd *g); /* NULL in, NULL out */
/* The newest generation of the daemon's database, and the one that the handle is pinned to (-1:
 * none). Either may be NULL. */
GEMMD_API int gemmd_generation(struct gemmd *g, int64_t *newest, int64_t *pinned,
                               struct gemmd_error *err);

/* ---- problems -------------------------------------------------------------------------------- */

/*
 * A matrix product. W is [experts, N, K] and M the routed rows (tokens * topk) in every mode; dense
 * GEMM is experts = 1, topk = 1.
 *   forward: X [M, K] -> Y [M, N];  dX: dY [M, N] -> dX [M, K];  dW: dY, X -> dW [experts, N, K]
 */
struct gemmd_problem {
    size_t size;
    const char *mode;      /* "forward" | "dX" | "dW" */
    const char *dtype_in;  /* "bf16" (NULL) | "fp16" | "fp32" */
    const char *dtype_out; /* NULL: as dtype_in */
    int64_t m, n, k;
    int64_t experts, topk; /* 0: 1 */
    bool permute_x, permute_y, fuse_mul_post, accumulate;
    const char *routing; /* "uniform" (NULL) | "zipf:<s>": expert e is chosen with weight
                            (e + 1)^-s | "rows:<a>,<b>,...": see rows_per_expert */
    const char *text;    /* when not NULL: the whole problem in text form ("grouped_gemm M=...",
                            or "custom:<name> ..."), and the other fields are not read */
    const int64_t *rows_per_expert; /* [experts], m in all: routing as it was measured, instead of
                              `routing`; NULL: that says it */
};
#define GEMMD_PROBLEM_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_problem), "forward", NULL, NULL, 0, 0, 0, 1, 1, false, false, false,   \
            false, NULL, NULL, NULL                                                                \
    }

/* ---- asking ---------------------------------------------------------------------------------- */

enum gemmd_wait {
    GEMMD_WAIT_TUNED = 0, /* tune when not known, and wait for it */
    GEMMD_WAIT_NOW = 1,   /* the best lower tier at once, tuned in the background */
    GEMMD_WAIT_CACHED = 2 /* never tune */
};

enum gemmd_flags {
    GEMMD_FALLBACK = 1 << 0, /* no daemon, no way to one (a socket that cannot be, a `hello` that is
                                refused), not in time, or it cannot tune: the analytic default,
                                tier "default", within restrict_json and configs_json; where that
                                cannot be the note says so. GEMMD_QUARANTINED stays an error, and
                                with restrict_json or configs_json what the daemon has found out
                                about those configs (they crash, do not compile, ...) does, too */
    GEMMD_NO_TABLE = 1 << 1, /* do not answer from the in-process table */
    GEMMD_AGAIN = 1 << 2,    /* tune even when known */
    GEMMD_OFFLINE = 1 << 3,  /* ask no daemon: the in-process table, or the analytic default */
    GEMMD_PROGRESS = 1 << 4  /* with step_ms: progress comes by gemmd_wait, no function is called */
};

struct gemmd_progress {
    size_t size;
    const char *phase; /* queued | start | compile | measure | final | done */
    int64_t done, total, failed;
    double best_us, reference_us, elapsed_ms, eta_ms; /* NaN: not known */
    const char *config;                               /* the one just finished, text form */
};

struct gemmd_query {
    size_t size;
    enum gemmd_wait wait;
    unsigned flags;            /* enum gemmd_flags */
    int deadline_ms;           /* 0: the connection's default for cached answers, none for tuning */
    const char *strategy;      /* NULL: the daemon's default */
    int64_t budget;            /* configs to measure at most; 0: the daemon's default */
    int64_t budget_ms;         /* device time at most; 0: the daemon's default */
    int64_t iters, warmup;     /* 0: defaults */
    double atol, rtol;         /* 0: 1e-2 */
    const char *restrict_json; /* {"BLOCK_SIZE_M": [64, 128], ...}, or NULL */
    const char *configs_json;  /* ["BLOCK_SIZE_M=64 ...", {...}], or NULL */
    /* In the calling thread; must not use the same handle. */
    void (*progress)(void *ctx, const struct gemmd_progress *p);
    void *ctx;
    int64_t seed;       /* of inputs, routing and the random strategy */
    const char *target; /* only kernels of this name ("portable", "hopper", "cpu"), to compare
                           them; NULL: the device's own choice, by architecture and problem. A
                           target that is not the device's own choice restricts the search, as
                           restrict_json does: its winner is "partial" */
    const char *bucket; /* "exact" | "pow2" | "sqrt2": round the problem so, to compare; NULL: as
                           the daemon's database does. The answer is of that bucket, and answers
                           no query that does not round to it */
    int64_t wall_ms;    /* of searching at most, then the best so far wins; 0: as long as it
                           takes. Compilers and waiting for them count, other jobs do not */
};
#define GEMMD_QUERY_INIT                                                                           \
    {                                                                                              \
        sizeof(struct gemmd_query), GEMMD_WAIT_TUNED, 0, 0, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL,    \
            NULL, NULL, 0, NULL, NULL, 0                                                           \
    }

struct gemmd_answer {
    size_t size;
    char key[33];    /* id of the key */
    char tier[16];   /* exact | near | portfolio | default */
    char source[16]; /* tuned | manual | imported | trusted | partial | model */
    char family[32];
    char config[512]; /* one line, "BLOCK_SIZE_K=64 BLOCK_SIZE_M=128 ..." */
    char module[33];  /* content hash of the compiled kernel; "" when there is none */
    double time_us, spread, reference_us, tflops, gbps, floor_us; /* NaN: not known */
    int64_t measured, generation, created_s;
    bool saved;
    bool local; /* from the in-process table, or made here (fallback) */
    char note[160];
    char target[16]; /* whose config it is: "portable", "hopper", "cpu"; "": not known */
    char stamp[160]; /* what its kernel was made of; "": not known, or made here */
};
#define GEMMD_ANSWER_INIT                                                                          \
    {                                                                                              \
        sizeof(struct gemmd_answer), "", "", "", "", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, false,     \
            false, "", "", ""                                                                      \
    }

/* `query` may be NULL. A gemmd that is `busy` (as many tunings are queued as it takes) is asked
 * again until the deadline (without one, but with GEMMD_FALLBACK, until the connection's default);
 * GEMMD_BUSY is what is left then. So it is by gemmd_tune and gemmd_acquire; gemmd_call hands it
 * on. */
GEMMD_API int gemmd_get(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, struct gemmd_answer *out,
                        struct gemmd_error *err);
/* n problems, n answers; statuses[i] is 0 or a code, texts in answers[i].note. Never waits for a
 * tuning: GEMMD_WAIT_TUNED is taken as NOW. All problems, and all answers, have the size of the
 * first one. The return value is of the call as a whole: when it is not 0, the statuses of what was
 * not answered hold it too, and their notes its text. Of `query` wait, flags, deadline_ms and
 * target are taken; bucket, restrict_json, configs_json, strategy, the budgets, wall_ms, iters,
 * warmup, seed, atol, rtol and GEMMD_AGAIN are GEMMD_INVALID: ask by gemmd_get. */
GEMMD_API int gemmd_get_many(struct gemmd *g, const struct gemmd_problem *problems, size_t n,
                             const struct gemmd_query *query, struct gemmd_answer *answers,
                             int *statuses, struct gemmd_error *err);
/* Tunes, whether known or not (GEMMD_AGAIN is implied). */
GEMMD_API int gemmd_tune(struct gemmd *g, const struct gemmd_problem *problem,
                         const struct gemmd_query *query, struct gemmd_answer *out,
                         struct gemmd_error *err);

/*
 * A call in steps, for those who cannot be away for as long as a tuning takes: an interpreter,
 * which has to see Ctrl-C, or a loop that has other work. With gemmd_options.step_ms, gemmd_get,
 * gemmd_tune, gemmd_acquire and gemmd_call may return GEMMD_WAITING, which is no fault: gemmd_wait
 * goes on, and returns what they would have, or GEMMD_WAITING again.
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
 * Until then, whatever the call was given stays where it is, and the handle is its thread's: other
 * threads wait, as long as their deadlines allow, and not in steps; other calls of this one are
 * GEMMD_BUSY. Connecting, again perhaps, and starting a daemon are in steps, too, but not in
 * gemmd_connect itself: gemmd_open_lazy leaves it to the first call.
 */
enum { GEMMD_WAITING = 1 };
/* Back after step_ms, at the end, or with progress, when GEMMD_PROGRESS asked for it: *progress
 * (may be NULL) is NULL when there is none, else valid until the next call. GEMMD_INVALID: no call
 * of this thread waits. */
GEMMD_API int gemmd_wait(struct gemmd *g, const struct gemmd_progress **progress,
                         struct gemmd_error *err);
/* Gives up a call that waits; without one, nothing. The daemon ends a tuning that nobody else waits
 * for; other methods than get and tune end with the connection, and with it the handle's leases.
 * The handle can be used as before. */
GEMMD_API void gemmd_cancel(struct gemmd *g);

/* What there is to search for a problem, on a device that need not be here ("cuda:sm_90a"; or any
 * that gemmd_options names, NULL: the current one): the result of the protocol's `space` as JSON
 * text, freed with gemmd_free. Made in this process, without a daemon; may take a second. Of
 * `query` (may be NULL) target and restrict_json are looked at. GEMMD_NO_DEVICE,
 * GEMMD_NO_CONFIG. */
GEMMD_API int gemmd_space(const char *device, const struct gemmd_problem *problem,
                          const struct gemmd_query *query, char **result_json,
                          struct gemmd_error *err);
/* Why a query gets the answer it gets: which tier, from which row, on what evidence (run, trial,
 * stamp, age), how far to rely on it, and on a miss the nearest key and the fields in which it
 * differs: the result of the protocol's `why` as JSON text, freed with gemmd_free. Nothing is
 * tuned. Of `query` (may be NULL) target, atol, rtol and deadline_ms are looked at. */
GEMMD_API int gemmd_why(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, char **result_json,
                        struct gemmd_error *err);
/* Waits for keys that get an answer, or a newer one, whoever tunes them, until the first of them or
 * for timeout_ms (0: only those that have come already); *n (may be NULL): how many were told. The
 * handle subscribes by its first call of this; what comes while another call of the handle waits is
 * not told, so use a handle for this. A pinned handle hears of them too, and goes on with its own
 * answers. GEMMD_BUSY: 512 connections of this user listen already. problem_json and answer are
 * valid during the call. */
GEMMD_API int gemmd_improvements(struct gemmd *g, int timeout_ms,
                                 void (*improved)(void *ctx, const char *problem_json,
                                                  const struct gemmd_answer *answer),
                                 void *ctx, int *n, struct gemmd_error *err);
/* A result of the caller's own: for "custom:" ops an answer from now on, to all jobs of this user
 * (the caller is the witness), and the end of the caller's lease; for ops that gemmd understands a
 * hint, until measured. time_us may be NaN. */
GEMMD_API int gemmd_put(struct gemmd *g, const struct gemmd_problem *problem, const char *config,
                        double time_us, struct gemmd_error *err);

/* ---- kernels of one's own -------------------------------------------------------------------- */

/*
 * A job may tune kernels that gemmd knows nothing of and let gemmd be cache and referee. The
 * problem is of a "custom:<name>" op (gemmd_problem.text): everything that makes an answer valid
 * stands in its fields (hash of the source, compiler's version, shape); the device class is added
 * by gemmd.
 *
 *   gemmd_acquire -> GEMMD_HIT: launch the answer's config
 *                 -> GEMMD_LEASE: measure, gemmd_record what was measured, gemmd_put the winner
 *                 -> GEMMD_HELD: another one is at it; go on with the answer so far, or a default
 *
 * One connection holds a key at a time. The lease ends by gemmd_put, by gemmd_release, with the
 * connection, or after lease_ms without a gemmd_record or gemmd_acquire of that key. What was
 * recorded stays: whoever gets the lease next need not measure it again. A call that has heard
 * nothing of gemmd by its deadline, of 100 ms or more, ends the connection, whichever thread made
 * it: a handle that holds leases is no handle for others' short deadlines.
 * A row answers its user alone until the daemon's owner promotes it (`gemmctl promote`). It is no
 * secret: whoever may connect to the daemon may list it.
 */
enum gemmd_outcome { GEMMD_HIT = 0, GEMMD_LEASE = 1, GEMMD_HELD = 2 };

struct gemmd_acquire {
    size_t size;
    /* ["BLOCK_M=64 num_warps=4", {...}], at most 512: the configs that the caller chooses among. A
     * hit is then the fastest of these, all of them known. NULL: whatever was put. */
    const char *configs_json;
    int deadline_ms; /* waits so long while another one holds the key; 0: as long as it takes */
    int lease_ms;    /* 0: 60000; at most 3600000 */
    bool now;        /* does not wait at all: GEMMD_HELD at once */
};
#define GEMMD_ACQUIRE_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_acquire), NULL, 0, 0, false                                            \
    }

/* `options` may be NULL. *answer: of GEMMD_HIT; else the best that is known so far, tier "" when
 * nothing is. *known_json (may be NULL; freed with gemmd_free): what is known of the configs named,
 * as a JSON array of {"config": {..}, "status": "ok" or an error's name, "time_us": number or null,
 * "reason": text}. GEMMD_NO_CONFIG: all configs named are known to fail. */
GEMMD_API int gemmd_acquire(struct gemmd *g, const struct gemmd_problem *problem,
                            const struct gemmd_acquire *options, enum gemmd_outcome *outcome,
                            struct gemmd_answer *answer, char **known_json,
                            struct gemmd_error *err);
/* What was measured: a JSON array of {"config": text or {..}, "time_us": microseconds, "status":
 * "ok" (the default), "invalid", "compile", "resource", "wrong_result", "crashed" or "hung",
 * "reason": text of at most 319 bytes}. What crashed or hung may be tried again; the others are
 * known from now on. Renews the lease of the key. Durable when it has returned 0. */
GEMMD_API int gemmd_record(struct gemmd *g, const struct gemmd_problem *problem,
                           const char *trials_json, struct gemmd_error *err);
/* Gives up a lease without an answer: the next in line gets it. 0 also when there was none. */
GEMMD_API int gemmd_release(struct gemmd *g, const struct gemmd_problem *problem,
                            struct gemmd_error *err);

/* Any method of docs/protocol.md: params (NULL: none) and result as JSON text. *result is freed
 * with gemmd_free. progress (may be NULL) sees the request's notifications; params must ask for
 * them.
 * deadline_ms 0: the connection's default, for `get`, `tune`, `pin` none. */
GEMMD_API int gemmd_call(struct gemmd *g, const char *method, const char *params_json,
                         int deadline_ms, char **result_json,
                         void (*progress)(void *ctx, const struct gemmd_progress *p), void *ctx,
                         struct gemmd_error *err);
GEMMD_API void gemmd_free(void *p);

/* All rows of a listing ("best", "history", "trials", "modules", "quarantine", "runs", "devices",
 * "events", "portfolio"), as one JSON array; filter_json as docs/protocol.md says, or NULL. Pages
 * are fetched as needed; of a list that is sorted, modules or a portfolio, what others add and
 * remove meanwhile may make it miss or repeat a row. */
GEMMD_API int gemmd_list(struct gemmd *g, const char *what, const char *filter_json,
                         char **rows_json, struct gemmd_error *err);

/* ---- kernels --------------------------------------------------------------------------------- */

/* The compiled image of an answer; *data is freed with gemmd_free. (Here and in gemmd_kernel_load
 * the default deadline is that of the whole image; what is compiled here takes its time.) */
GEMMD_API int gemmd_module(struct gemmd *g, const char *module, void **data, size_t *size,
                           struct gemmd_error *err);

struct gemmd_kernel;

/* Fetches and loads the kernel of an answer, into the calling thread's current CUDA context (or the
 * process, for the CPU). `problem` is the true problem, not the bucket; a launch may have other
 * rows than its M. The kernel of a measured answer (tier "exact") that is in gemmd's cache
 * directory no more is compiled here, as by gemmd_kernel_compile. GEMMD_CONFLICT: the answer is to
 * a problem of other types, mode or permutes. GEMMD_VERSION_MISMATCH: the kernel is of a gemmd of
 * other sources, whose arguments may lie otherwise. */
GEMMD_API int gemmd_kernel_load(struct gemmd *g, const struct gemmd_problem *problem,
                                const struct gemmd_answer *answer, struct gemmd_kernel **out,
                                struct gemmd_error *err);
/* A kernel that gemmd does not have (an answer of tier "default"), or cannot give: compiled in this
 * process, by NVRTC or the host's C compiler, and kept in the cache directory that gemmd uses too,
 * so that ranks which start together compile once; not kept where there is none, or where others
 * may write to it (stderr says so). Needs no daemon; may take a second. `device`: NULL, the
 * thread's current CUDA device, else the CPU; or "cpu". `config` in text form; NULL or
 * "": the analytic default. GEMMD_NO_COMPILER, GEMMD_COMPILE, GEMMD_RESOURCE, GEMMD_NO_CONFIG. */
GEMMD_API int gemmd_kernel_compile(const char *device, const struct gemmd_problem *problem,
                                   const char *config, struct gemmd_kernel **out,
                                   struct gemmd_error *err);
/* From any thread, whichever CUDA context is current there; when no launch of it is under way. NULL
 * in, NULL out. */
GEMMD_API struct gemmd_kernel *gemmd_kernel_free(struct gemmd_kernel *k);

enum gemmd_dtype {
    GEMMD_BF16 = 1,
    GEMMD_FP16 = 2,
    GEMMD_FP32 = 3,
    GEMMD_INT32 = 4,
    GEMMD_INT64 = 5
};
enum { GEMMD_ACCUMULATE = 1 }; /* into bf16 or fp16: only when the problem says accumulate */

/* Arguments of one launch. T = rows routed. Strides in elements, 0 = dense. With permute_y, dX and
 * dW read row gather_indices[i] of dy: any row there is, also one of them twice, and also beyond T.
 * How many there are is not said here, so the caller sees to it that indices are below 2^30 and dy
 * below 64 GiB: kernels count on it. */
struct gemmd_grouped_gemm_args {
    uint32_t size;
    uint32_t flags;         /* GEMMD_ACCUMULATE: dW only, out += result */
    const void *x, *w, *dy; /* NULL where the mode does not read it */
    void *out;              /* forward [T, N]; dX [T, K]; dW [experts, N, K] */
    int64_t x_stride, w_stride, w_stride_expert, dy_stride, out_stride, out_stride_expert;
    const void *m_sizes;        /* device, [experts]; their sum is rows; one expert: may be NULL */
    const void *gather_indices; /* device, [T]: flat (token, slot) index of each row */
    const void *topk_weights;   /* device, [T] in token order */
    uint32_t m_sizes_dtype, gather_dtype, weights_dtype, reserved; /* enum gemmd_dtype */
    int64_t rows;                                                  /* T */
    void *workspace; /* gemmd_kernel_workspace bytes, 256-byte aligned; NULL when 0 */
    int64_t workspace_bytes;
    void *stream; /* CUstream; NULL: the default stream; ignored on the CPU */
};
#define GEMMD_GROUPED_GEMM_ARGS_INIT                                                               \
    {                                                                                              \
        sizeof(struct gemmd_grouped_gemm_args), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, \
            NULL, NULL, 0, 0, 0, 0, 0, NULL, 0, NULL                                               \
    }

GEMMD_API int gemmd_kernel_workspace(struct gemmd_kernel *k,
                                     const struct gemmd_grouped_gemm_args *args, int64_t *bytes,
                                     struct gemmd_error *err);
/* Asynchronous on args->stream; no allocation, no synchronisation; CUDA graphs can capture it. */
GEMMD_API int gemmd_kernel_launch(struct gemmd_kernel *k,
                                  const struct gemmd_grouped_gemm_args *args,
                                  struct gemmd_error *err);

#ifdef __cplusplus
}
#endif

#endif
