/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libgemmd: get gemmd's best kernel configuration for a problem, get the compiled kernel, and
 * launch exactly the kernel that was measured.
 *
 * Threading: several threads may use a `struct gemmd`; calls on the same struct are serialised.
 * After fork() the child connects again by itself and leaves the parent's connection alone.
 * Blocking: every call returns within its deadline, or within the connection's default (options).
 * Only a tuning or a gemmd_acquire without a deadline waits without a limit; even these notice a
 * daemon that hangs. gemmd_list applies the default to each page. A caller that cannot block for so
 * long makes calls in steps: see gemmd_wait.
 * Fallback: gemmd_get with GEMMD_FALLBACK answers with the analytic default, and marks the answer,
 * when no daemon answers in time.
 * Compatibility: structs begin with `size`, which the GEMMD_*_INIT macros set. Fields are only
 * added at the end. The numbers and names of enum gemmd_error_code are stable.
 * Memory: a struct owns the text in its fields. A call that allocates names the call that frees.
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
    char text[512]; /* a sentence that tells a person how to act */
};

GEMMD_API const char *gemmd_error_name(int code);
/* True when the connection survives this error. Otherwise the next call connects again by itself,
 * so the result is only for people and logs. */
GEMMD_API bool gemmd_error_survives(int code);
GEMMD_API const char *gemmd_version(void);

/* ---- connection ------------------------------------------------------------------------------ */

struct gemmd;

struct gemmd_options {
    size_t size;
    const char *socket; /* path; NULL: $GEMMD_SOCKET, else the socket of `device` */
    const char *device; /* "cuda:0", "cuda:GPU-<uuid>", "cpu", "replay-<name>"; NULL: the current
                           CUDA device when the process has a context, else "cpu"; "any": the only
                           daemon that runs here. A UUID may be shortened, as in
                           CUDA_VISIBLE_DEVICES */
    int deadline_ms;    /* default for connecting, and for calls without a deadline; 0: 5000 */
    bool autostart;     /* start a daemon for `device` when no daemon answers: $GEMMD_DAEMON, else
                           gemmd beside this program, else in PATH; its log is in the state
                           directory */
    const char *generation; /* pins the handle to a generation of the database: a number or "now". A
                               query then has the same answer as long as the job runs, at every rank
                               and daemon pinned to the same number, also while tuning goes on. For
                               a key without an answer in that generation, GEMMD_WAIT_TUNED without
                               a deadline gives the first later answer; other queries give the
                               analytic default. "now" differs from rank to rank: one rank connects
                               with "now" and gives the other ranks the number of gemmd_generation.
                               NULL: $GEMMD_GENERATION, else not pinned */
    int step_ms; /* 0: a call returns when it is over. Otherwise a call that may wait returns
                    GEMMD_WAITING after at most this time: see gemmd_wait */
};
#define GEMMD_OPTIONS_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_options), NULL, NULL, 0, false, NULL, 0                                \
    }

/* GEMMD_UNREACHABLE (no daemon listens; the error message names the path tried),
 * GEMMD_VERSION_MISMATCH, GEMMD_DEADLINE, GEMMD_DENIED, GEMMD_BUSY (the daemon had no room for
 * another connection until the deadline). `options` may be NULL. */
GEMMD_API int gemmd_connect(struct gemmd **out, const struct gemmd_options *options,
                            struct gemmd_error *err);
/* Makes a handle that may stay unconnected: gemmd_get and gemmd_get_many behave as with
 * GEMMD_FALLBACK. While no daemon answers, the handle tries to connect at most once a second. Fails
 * only for bad options and for lack of memory. */
GEMMD_API int gemmd_open_lazy(struct gemmd **out, const struct gemmd_options *options,
                              struct gemmd_error *err);
GEMMD_API struct gemmd *gemmd_close(struct gemmd *g); /* NULL in, NULL out */
/* *newest: the newest generation of the daemon's database; *pinned: the generation that the handle
 * is pinned to, or -1. Either may be NULL. */
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
    const char *text;    /* when not NULL: the whole problem in text form ("grouped_gemm M=...", or
                            "custom:<name> ..."); the other fields are ignored */
    const int64_t *rows_per_expert; /* [experts], with the sum m: measured routing, instead of
                                       `routing`; NULL: `routing` is used */
};
#define GEMMD_PROBLEM_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_problem), "forward", NULL, NULL, 0, 0, 0, 1, 1, false, false, false,   \
            false, NULL, NULL, NULL                                                                \
    }

/* ---- asking ---------------------------------------------------------------------------------- */

enum gemmd_wait {
    GEMMD_WAIT_TUNED = 0,  /* tune an unknown key, and wait for the result */
    GEMMD_WAIT_NOW = 1,    /* return the best lower tier at once, and tune in the background */
    GEMMD_WAIT_CACHED = 2, /* never tune */
    /* as NOW, and the daemon tunes only while this process says that its GPU pauses (method `pause`
     * of docs/protocol.md), until the handle is closed */
    GEMMD_WAIT_BOUNDARY = 3
};

enum gemmd_flags {
    GEMMD_FALLBACK = 1 << 0, /* no daemon in reach (or an impossible socket, or a refused `hello`),
                                no answer in time, or a daemon that cannot tune: answer with the
                                analytic default, tier "default". The default keeps within
                                restrict_json and configs_json; where that is impossible, the note
                                says so. GEMMD_QUARANTINED stays an error. With restrict_json or
                                configs_json, the daemon's findings about these configs (crashed,
                                compile, ...) stay errors too */
    GEMMD_NO_TABLE = 1 << 1, /* do not answer from the in-process table */
    GEMMD_AGAIN = 1 << 2,    /* tune even when the key has an answer */
    GEMMD_OFFLINE = 1 << 3,  /* use no daemon: the in-process table, or the analytic default */
    GEMMD_PROGRESS = 1 << 4  /* with step_ms: gemmd_wait returns progress, no function is called */
};

struct gemmd_progress {
    size_t size;
    const char *phase; /* queued | start | compile | measure | final | done */
    int64_t done, total, failed;
    double best_us, reference_us, elapsed_ms, eta_ms; /* NaN: not known */
    const char *config;                               /* the config finished last, text form */
};

struct gemmd_query {
    size_t size;
    enum gemmd_wait wait;
    unsigned flags;            /* enum gemmd_flags */
    int deadline_ms;           /* 0: the connection's default for cached answers, none for tuning */
    const char *strategy;      /* NULL: the daemon's default */
    int64_t budget;            /* maximal number of configs to measure; 0: the daemon's default */
    int64_t budget_ms;         /* maximal device time; 0: the daemon's default */
    int64_t iters, warmup;     /* 0: defaults */
    double atol, rtol;         /* 0: 1e-2 */
    const char *restrict_json; /* {"BLOCK_SIZE_M": [64, 128], ...}, or NULL */
    const char *configs_json;  /* ["BLOCK_SIZE_M=64 ...", {...}], or NULL */
    /* Called in the calling thread; must not use the same handle. */
    void (*progress)(void *ctx, const struct gemmd_progress *p);
    void *ctx;
    int64_t seed;       /* for inputs, routing and the random strategy */
    const char *target; /* only kernels of this target ("portable", "hopper", "cpu"), for
                           comparisons; NULL: the device's own choice, by architecture and problem.
                           Another target than the device's own choice restricts the search, as
                           restrict_json does: the winner is "partial" */
    const char *bucket; /* "exact" | "pow2" | "sqrt2": bucket scheme for this query, for
                           comparisons; NULL: the scheme of the daemon's database. The answer
                           belongs to that bucket, and serves no query that does not round to the
                           same bucket */
    int64_t wall_ms;    /* maximal duration of the search, then the best so far wins; 0: no limit.
                           Includes the time of compilers and of waiting for compilers, without the
                           time that other jobs use the device */
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
    char module[33];  /* content hash of the compiled kernel; "" without a kernel */
    double time_us, spread, reference_us, tflops, gbps, floor_us; /* NaN: not known */
    int64_t measured, generation, created_s;
    bool saved;
    bool local; /* from the in-process table, or made in this process (fallback) */
    char note[160];
    char target[16]; /* target of the config: "portable", "hopper", "cpu"; "": not known */
    char stamp[160]; /* version of the kernel (sources, compiler); "": not known, or made here */
};
#define GEMMD_ANSWER_INIT                                                                          \
    {                                                                                              \
        sizeof(struct gemmd_answer), "", "", "", "", "", "", 0, 0, 0, 0, 0, 0, 0, 0, 0, false,     \
            false, "", "", ""                                                                      \
    }

/* `query` may be NULL. While gemmd is `busy` (its queue of tunings is full), gemmd_get repeats the
 * request until the deadline, then fails with GEMMD_BUSY. Without a deadline, but with
 * GEMMD_FALLBACK, the connection's default is the limit. gemmd_tune and gemmd_acquire do the same;
 * gemmd_call returns the error at once. */
GEMMD_API int gemmd_get(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, struct gemmd_answer *out,
                        struct gemmd_error *err);
/* n problems, n answers; statuses[i] is 0 or a code, with the error text in answers[i].note. Never
 * waits for a tuning: GEMMD_WAIT_TUNED is read as NOW. All problems must have the size of the first
 * problem, all answers the size of the first answer. When the return value is not 0, unanswered
 * problems have that code as status, and its text as note. Of `query`, wait, flags, deadline_ms and
 * target are used. bucket, restrict_json, configs_json, strategy, the budgets, wall_ms, iters,
 * warmup, seed, atol, rtol and GEMMD_AGAIN are GEMMD_INVALID: use gemmd_get. */
GEMMD_API int gemmd_get_many(struct gemmd *g, const struct gemmd_problem *problems, size_t n,
                             const struct gemmd_query *query, struct gemmd_answer *answers,
                             int *statuses, struct gemmd_error *err);
/* Tunes, also a key with an answer (implies GEMMD_AGAIN). */
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
 * Other threads block until their deadlines, and not in steps. Other calls of the same thread fail
 * with GEMMD_BUSY. Connecting and starting a daemon also happen in steps, except in gemmd_connect:
 * gemmd_open_lazy leaves connecting to the first call.
 */
enum { GEMMD_WAITING = 1 };
/* Returns after step_ms, at the end of the call, or, with GEMMD_PROGRESS, at progress. *progress
 * (may be NULL): NULL without progress, else valid until the next call. GEMMD_INVALID: no waiting
 * call. */
GEMMD_API int gemmd_wait(struct gemmd *g, const struct gemmd_progress **progress,
                         struct gemmd_error *err);
/* Gives up the waiting call; without a waiting call, does nothing. The daemon ends a tuning that
 * nobody else waits for. A method other than get and tune ends with the connection, which also ends
 * the handle's leases. The handle stays usable. */
GEMMD_API void gemmd_cancel(struct gemmd *g);

/* The search space of a problem: the result of the protocol's `space` as JSON text; free with
 * gemmd_free. The device need not be present ("cuda:sm_90a", or any device that gemmd_options
 * names; NULL: the current device). Computed in this process, without a daemon; may take a second.
 * Of `query` (may be NULL), target and restrict_json are used. GEMMD_NO_DEVICE, GEMMD_NO_CONFIG. */
GEMMD_API int gemmd_space(const char *device, const struct gemmd_problem *problem,
                          const struct gemmd_query *query, char **result_json,
                          struct gemmd_error *err);
/* Explains the answer of a query: the tier, the row, the evidence (run, trial, kernel version,
 * age), and the confidence. On a miss: the nearest key and the fields in which that key differs.
 * *result_json is the result of the protocol's `why` as JSON text; free with gemmd_free. Tunes
 * nothing. Of `query` (may be NULL), target, atol, rtol and deadline_ms are used. */
GEMMD_API int gemmd_why(struct gemmd *g, const struct gemmd_problem *problem,
                        const struct gemmd_query *query, char **result_json,
                        struct gemmd_error *err);
/* Waits for new or better answers of any key, from any job, and calls `improved` for each. Returns
 * after the first answers, or after timeout_ms (0: reports only answers that have already arrived).
 * *n (may be NULL): the number of reported answers. The first call subscribes the handle. Answers
 * that arrive during another call of the handle are not reported, so use a handle for this alone. A
 * pinned handle reports new answers too, and keeps its own answers. GEMMD_BUSY: 512 connections of
 * this user are already subscribed. problem_json and answer are valid during the callback. */
GEMMD_API int gemmd_improvements(struct gemmd *g, int timeout_ms,
                                 void (*improved)(void *ctx, const char *problem_json,
                                                  const struct gemmd_answer *answer),
                                 void *ctx, int *n, struct gemmd_error *err);
/* Stores a result of the caller. For a "custom:" op the result is an answer from now on, for all
 * jobs of this user (the caller is the witness), and the caller's lease ends. For an op that gemmd
 * understands the result is a hint until measured. time_us may be NaN. */
GEMMD_API int gemmd_put(struct gemmd *g, const struct gemmd_problem *problem, const char *config,
                        double time_us, struct gemmd_error *err);

/* ---- kernels of the caller ------------------------------------------------------------------ */

/*
 * A job may tune kernels that gemmd does not know, and use gemmd as cache and referee. The problem
 * has a "custom:<name>" op (gemmd_problem.text). Its fields hold everything that makes an answer
 * valid (hash of the source, compiler's version, shape); gemmd adds the device class.
 *
 *   gemmd_acquire -> GEMMD_HIT: launch the answer's config
 *                 -> GEMMD_LEASE: measure, gemmd_record the trials, gemmd_put the winner
 *                 -> GEMMD_HELD: another holder works on it; use the answer so far, or a default
 *
 * A key has one holder, a connection. The lease ends by gemmd_put, by gemmd_release, with the
 * connection, or after lease_ms without a gemmd_record or gemmd_acquire of that key. Recorded
 * trials stay: the next holder need not repeat them. When a call, in any thread, has a deadline of
 * 100 ms or more and receives no byte from gemmd by then, the connection ends, and its leases too:
 * use another handle for calls with short deadlines. A row answers only its user until the daemon's
 * owner promotes it (`gemmctl promote`). The row is no secret: every user who may connect to the
 * daemon may list it.
 */
enum gemmd_outcome { GEMMD_HIT = 0, GEMMD_LEASE = 1, GEMMD_HELD = 2 };

struct gemmd_acquire {
    size_t size;
    /* ["BLOCK_M=64 num_warps=4", {...}], at most 512: the configs that the caller chooses among. A
     * hit is then the fastest of these configs, and gemmd knows the results of all of them. NULL:
     * any config that was put. */
    const char *configs_json;
    int deadline_ms; /* how long to wait while another connection holds the key; 0: no limit */
    int lease_ms;    /* 0: 60000; at most 3600000 */
    bool now;        /* do not wait: GEMMD_HELD at once */
};
#define GEMMD_ACQUIRE_INIT                                                                         \
    {                                                                                              \
        sizeof(struct gemmd_acquire), NULL, 0, 0, false                                            \
    }

/* `options` may be NULL. *answer: the answer of GEMMD_HIT; else the best known so far, or tier ""
 * when no answer is known. *known_json (may be NULL; free with gemmd_free): known results of the
 * given configs, a JSON array of {"config": {..}, "status": "ok" or an error's name, "time_us":
 * number or null, "reason": text}. GEMMD_NO_CONFIG: all given configs are known to fail. */
GEMMD_API int gemmd_acquire(struct gemmd *g, const struct gemmd_problem *problem,
                            const struct gemmd_acquire *options, enum gemmd_outcome *outcome,
                            struct gemmd_answer *answer, char **known_json,
                            struct gemmd_error *err);
/* Stores measured trials: a JSON array of {"config": text or {..}, "time_us": microseconds,
 * "status": "ok" (the default), "invalid", "compile", "resource", "wrong_result", "crashed" or
 * "hung", "reason": text of at most 319 bytes}. A config that crashed or hung may be tried again;
 * other results are known from now on. Renews the lease. Returns 0 when the trials are durable. */
GEMMD_API int gemmd_record(struct gemmd *g, const struct gemmd_problem *problem,
                           const char *trials_json, struct gemmd_error *err);
/* Gives up a lease without an answer; the next waiting caller gets it. 0 also without a lease. */
GEMMD_API int gemmd_release(struct gemmd *g, const struct gemmd_problem *problem,
                            struct gemmd_error *err);

/* Calls any method of docs/protocol.md: params (NULL: an empty map) and result as JSON text; free
 * *result_json with gemmd_free. progress (may be NULL) gets the request's notifications, which
 * params must request. deadline_ms 0: the connection's default; `get`, `tune`, `pin`: no limit. */
GEMMD_API int gemmd_call(struct gemmd *g, const char *method, const char *params_json,
                         int deadline_ms, char **result_json,
                         void (*progress)(void *ctx, const struct gemmd_progress *p), void *ctx,
                         struct gemmd_error *err);
GEMMD_API void gemmd_free(void *p);

/* All rows of a listing ("best", "history", "trials", "modules", "quarantine", "runs", "devices",
 * "events", "portfolio"), as a single JSON array; filter_json as in docs/protocol.md, or NULL. The
 * rows are fetched in pages. A sorted list, modules or a portfolio may miss or repeat a row when
 * other clients add or remove rows meanwhile. */
GEMMD_API int gemmd_list(struct gemmd *g, const char *what, const char *filter_json,
                         char **rows_json, struct gemmd_error *err);

/* ---- kernels --------------------------------------------------------------------------------- */

/* The compiled image of an answer; free *data with gemmd_free. (Here and in gemmd_kernel_load the
 * default deadline covers the whole image, but not a compilation in this process.) */
GEMMD_API int gemmd_module(struct gemmd *g, const char *module, void **data, size_t *size,
                           struct gemmd_error *err);

struct gemmd_kernel;

/* Fetches and loads the kernel of an answer, into the calling thread's current CUDA context (or the
 * process, for the CPU). `problem` is the true problem, not the bucket; a launch may have another
 * number of rows than M. When gemmd's cache directory lost the kernel of a measured answer (tier
 * "exact"), this call compiles the kernel, as gemmd_kernel_compile does. GEMMD_CONFLICT: the answer
 * belongs to a problem with other types, mode or permutes. GEMMD_VERSION_MISMATCH: a gemmd of other
 * sources made the kernel, and may lay out arguments differently. */
GEMMD_API int gemmd_kernel_load(struct gemmd *g, const struct gemmd_problem *problem,
                                const struct gemmd_answer *answer, struct gemmd_kernel **out,
                                struct gemmd_error *err);
/* Compiles a kernel in this process, by NVRTC or the host's C compiler: for an answer of tier
 * "default", or when gemmd cannot give the kernel. Keeps the kernel in gemmd's cache directory, so
 * that ranks which start together compile once. Without a cache directory, or when other users may
 * write to it, the kernel is not kept, and stderr says so. Needs no daemon; may take a second.
 * `device`: NULL, the thread's current CUDA device, else the CPU; or "cpu". `config`: text form;
 * NULL or "": the analytic default. GEMMD_NO_COMPILER, GEMMD_COMPILE, GEMMD_RESOURCE,
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
    GEMMD_ACCUMULATE = 1, /* dW only: out += result; into bf16 or fp16 when the problem says so */
    GEMMD_ENDS = 2        /* m_sizes holds the experts' ends: the running sums of their sizes */
};

/* Arguments of a launch. T = rows routed. Strides in elements, 0 = dense. With permute_y, dX and dW
 * read row gather_indices[i] of dy: any row of dy, also twice, and also beyond T. Kernels rely on
 * indices below 2^30 and a dy below 64 GiB; the caller must ensure both. */
struct gemmd_grouped_gemm_args {
    uint32_t size;
    uint32_t flags;         /* GEMMD_ACCUMULATE, GEMMD_ENDS */
    const void *x, *w, *dy; /* NULL for an operand that the mode does not read */
    void *out;              /* forward [T, N]; dX [T, K]; dW [experts, N, K] */
    int64_t x_stride, w_stride, w_stride_expert, dy_stride, out_stride, out_stride_expert;
    const void *m_sizes; /* device, [experts]; the sum is at most `rows`, and no kernel touches
                            the rows beyond; not read for a single expert: all rows */
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
/* Launches asynchronously on args->stream, without allocation or synchronisation. CUDA graphs can
 * capture the launch. */
GEMMD_API int gemmd_kernel_launch(struct gemmd_kernel *k,
                                  const struct gemmd_grouped_gemm_args *args,
                                  struct gemmd_error *err);

#ifdef __cplusplus
}
#endif

#endif
