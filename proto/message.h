/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between gemmd, its runner, its store and its clients, each a list of fields
 * (schema.h). Points in time (`_s`) are Unix seconds; names of durations end in the unit. All
 * hashes are hash128 as hex. Times of a config (`_us`) are the median of a launch.
 */
#ifndef GEMMD_PROTO_MESSAGE_H
#define GEMMD_PROTO_MESSAGE_H

#include "proto/device.h"
#include "proto/hash.h"
#include "proto/schema.h"

enum {
    CONFIG_TEXT_MAX = 512,
    SAMPLES_MAX = 64,
    STAMP_MAX = 160,
    TARGET_MAX = 16,
    GATE_TEXT_MAX = 160
};

/* ---- client <-> gemmd ---------------------------------------------------------------------- */

/* get, tune: fields beside "problem". proto/request.h reads the nested `restrict` and `configs`. */
#define QUERY_FIELDS(X, T)                                                                         \
    X(T, TEXT, wait, 16)           /* tuned (default): until a search has the best; now: answer    \
                                      at once and search later; cached: never search;              \
                                      boundary: search in a training job's pauses */               \
    X(T, INT, deadline_ms, 0)      /* 0: no limit; when over: a lower tier, or ERROR_DEADLINE */   \
    X(T, FLAG, progress, 0)        /* send `progress` notifications for this request */            \
    X(T, FLAG, again, 0)           /* tune even when an answer is known */                         \
    X(T, TEXT, strategy, 16)       /* ranked (default) | exhaustive | random | genetic | given */  \
    X(T, INT, budget, 0)           /* most configs to measure; 0: the daemon's default */          \
    X(T, INT, budget_ms, 0)        /* most device time; 0: the daemon's default */                 \
    X(T, INT, iters, 0)            /* most timed launches per config (0: 3 to 20, 3 ms in all) */  \
    X(T, INT, warmup, 0)           /* untimed launches per config (0: 1) */                        \
    X(T, REAL, atol, 0)            /* absolute tolerance; 0: 1e-2 */                               \
    X(T, REAL, rtol, 0)            /* relative tolerance; 0: 1e-2 */                               \
    X(T, INT, seed, 0)             /* draws operands, routing, and the strategy random */          \
    X(T, TEXT, target, TARGET_MAX) /* kernels of this name only; "": the device's own choice */    \
    X(T, TEXT, bucket, 8)          /* exact | pow2 | sqrt2: rounding of the problem to its bucket; \
                                      "": the database's setting */                                \
    X(T, INT, wall_ms, 0)          /* most time of the search, waits included; 0: no limit */
SCHEMA_STRUCT(query, QUERY_FIELDS);

#define ANSWER_FIELDS(X, T)                                                                        \
    X(T, TEXT, key, HASH_HEX) /* hash of the key: key.id */                                        \
    X(T, TEXT, tier, 16)      /* exact | near | portfolio | default */                             \
    X(T, TEXT, source, 16)    /* as best.source, or model (tier default) */                        \
    X(T, TEXT, family, 32)                                                                         \
    X(T, RECORD, config, 0)                                                                        \
    X(T, TEXT, module, HASH_HEX) /* content hash of the kernel image; "": no image */              \
    X(T, REAL, time_us, 0)       /* median time of the config; NaN for tier default */             \
    X(T, REAL, spread, 0)        /* (q75 - q25) / median of the time samples */                    \
    X(T, REAL, reference_us, 0)  /* time of the reference kernel in the same run */                \
    X(T, REAL, tflops, 0)                                                                          \
    X(T, REAL, gbps, 0)                                                                            \
    X(T, REAL, floor_us, 0)  /* no kernel is faster: max(flops / peak, bytes / peak) */            \
    X(T, INT, measured, 0)   /* configs that the search of this key had measured */                \
    X(T, INT, generation, 0) /* number of the best; each new best gets a higher number */          \
    X(T, FLAG, saved, 0)     /* the database has the best; false: only this daemon's memory */     \
    X(T, TEXT, stamp, STAMP_MAX)                                                                   \
    X(T, INT, created_s, 0)                                                                        \
    X(T, TEXT, note, 160) /* for users: why the tier is low, and which row answers */
SCHEMA_STRUCT(answer, ANSWER_FIELDS);

#define PROGRESS_FIELDS(X, T)                                                                      \
    X(T, INT, request, 0) /* id of the client's request */                                         \
    X(T, TEXT, phase, 16) /* queued | start | compile | measure | final | done */                  \
    X(T, INT, done, 0)    /* configs with a trial, failed ones included */                         \
    X(T, INT, total, 0)   /* configs that the search will try; 0: not known */                     \
    X(T, INT, failed, 0)  /* configs without a time */                                             \
    X(T, REAL, best_us, 0)                                                                         \
    X(T, REAL, reference_us, 0)                                                                    \
    X(T, REAL, elapsed_ms, 0)                                                                      \
    X(T, REAL, eta_ms, 0)               /* expected time to the end; NaN: not known */             \
    X(T, REAL, device_ms, 0)            /* device time of the job so far */                        \
    X(T, REAL, compile_ms, 0)           /* sum of the times of all compiles so far */              \
    X(T, TEXT, config, CONFIG_TEXT_MAX) /* the config just finished */
SCHEMA_STRUCT(progress, PROGRESS_FIELDS);

/* ---- evidence: runner -> gemmd -> store -> client -------------------------------------------- */

#define RUN_FIELDS(X, T)                                                                           \
    X(T, INT, id, 0)                                                                               \
    X(T, TEXT, device, 64) /* device_info.uuid */                                                  \
    X(T, TEXT, driver, 32)                                                                         \
    X(T, TEXT, compiler, 96)                                                                       \
    X(T, TEXT, build, 64)                                                                          \
    X(T, INT, pid, 0)                                                                              \
    X(T, INT, started_s, 0)                                                                        \
    X(T, INT, ended_s, 0)  /* 0: the runner runs, or no daemon saw its end */                      \
    X(T, TEXT, ending, 64) /* idle | gemmd stopped | crashed: ... | hung: ... */
SCHEMA_STRUCT(run, RUN_FIELDS);

#define TRIAL_FIELDS(X, T)                                                                         \
    X(T, INT, id, 0)                                                                               \
    X(T, INT, run, 0)                                                                              \
    X(T, TEXT, key, HASH_HEX)                                                                      \
    X(T, TEXT, family, 32)                                                                         \
    X(T, RECORD, config, 0)                                                                        \
    X(T, TEXT, variant, HASH_HEX)                                                                  \
    X(T, TEXT, module, HASH_HEX)                                                                   \
    X(T, TEXT, stage, 16)    /* measure | final | reference | pin | baseline */                    \
    X(T, TEXT, status, 24)   /* ok | aborted (slower, stopped early) | baseline (a vendor's        \
                                library, which cannot win) | an error_name() */                    \
    X(T, TEXT, resource, 32) /* status resource: the resource that lacks: shared_memory,           \
                                registers, threads ... */                                          \
    X(T, INT, required, 0)   /* so much of the resource the config needs */                        \
    X(T, INT, limit_value, 0)                                                                      \
    X(T, TEXT, reason, 320) /* why the config failed; for a final's winner: why it beat            \
                               the former best, or why the former best stayed */                   \
    X(T, REAL, time_us, 0)  /* median of samples_us */                                             \
    X(T, REAL, ratio, 0)    /* time / reference time of the same run, of the same rounds when      \
                               the reference was a finalist too */                                 \
    X(T, REAL, q25_us, 0)                                                                          \
    X(T, REAL, q75_us, 0)                                                                          \
    X(T, REAL, predicted_us, 0) /* by the analytic model */                                        \
    X(T, REAL, compile_ms, 0)   /* 0: the module was in the cache */                               \
    X(T, REAL, max_error, 0)    /* largest |out - ref| of the verification */                      \
    X(T, REAL, rel_norm, 0)     /* largest ||out - ref|| / ||ref|| of a verified row */            \
    X(T, FLAG, reference, 0)    /* the config is the run's reference kernel */                     \
    X(T, REALS, samples_us, SAMPLES_MAX)                                                           \
    X(T, TEXT, stamp, STAMP_MAX)                                                                   \
    X(T, INT, created_s, 0)                                                                        \
    X(T, INT, sm_mhz, 0) /* the GPU's clock during the measurement; 0: not known */                \
    X(T, INT, temperature_c, 0)                                                                    \
    X(T, INT, power_w, 0)                                                                          \
    X(T, TEXT, throttle, 48) /* device_health.throttle */
SCHEMA_STRUCT(trial, TRIAL_FIELDS);

#define MODULE_FIELDS(X, T)                                                                        \
    X(T, TEXT, id, HASH_HEX)      /* hash of the image */                                          \
    X(T, TEXT, variant, HASH_HEX) /* hash of family, source, compile-time config, target and       \
                                     compiler */                                                   \
    X(T, TEXT, family, 32)                                                                         \
    X(T, TEXT, target, 16)                                                                         \
    X(T, TEXT, compiler, 96)                                                                       \
    X(T, TEXT, flags, 512)       /* the compiler's defines and options */                          \
    X(T, TEXT, source, HASH_HEX) /* hash of the source text */                                     \
    X(T, TEXT, entry, 64)                                                                          \
    X(T, INT, registers, 0) /* per thread; -1: not known */                                        \
    X(T, INT, spill_bytes, 0)                                                                      \
    X(T, INT, smem_static, 0)                                                                      \
    X(T, INT, size, 0) /* bytes of the image */                                                    \
    X(T, REAL, compile_ms, 0)                                                                      \
    X(T, INT, created_s, 0)                                                                        \
    X(T, INT, used_s, 0)
SCHEMA_STRUCT(module, MODULE_FIELDS);

#define BEST_FIELDS(X, T)                                                                          \
    X(T, INT, generation, 0)                                                                       \
    X(T, TEXT, key, HASH_HEX)                                                                      \
    X(T, TEXT, op, 64)                                                                             \
    X(T, TEXT, family, 32)                                                                         \
    X(T, RECORD, problem, 0) /* the bucket's fields */                                             \
    X(T, TEXT, class, 192)                                                                         \
    X(T, TEXT, source, 16) /* tuned | manual | imported | trusted | partial | fleet */             \
    X(T, RECORD, config, 0)                                                                        \
    X(T, TEXT, module, HASH_HEX)                                                                   \
    X(T, INT, trial,                                                                               \
      0) /* id of the trial that won; 0: a brought row, a candidate, or the trial is lost */       \
    X(T, REAL, time_us, 0)                                                                         \
    X(T, REAL, spread, 0)                                                                          \
    X(T, REAL, reference_us, 0)                                                                    \
    X(T, REAL, flops, 0) /* operations of the bucket's problem */                                  \
    X(T, REAL, bytes, 0) /* least that memory moves for it */                                      \
    X(T, REAL, floor_us, 0)                                                                        \
    X(T, REAL, atol, 0) /* absolute tolerance of the verification */                               \
    X(T, REAL, rtol, 0)                                                                            \
    X(T, INT, measured, 0) /* configs that its search measured */                                  \
    X(T, TEXT, stamp, STAMP_MAX)                                                                   \
    X(T, INT, uid, 0) /* the user who sent the query, the pin or the row */                        \
    X(T, INT, created_s, 0)                                                                        \
    X(T, TEXT, doubt, 160) /* what disturbed the measurement; "": nothing known */
SCHEMA_STRUCT(best, BEST_FIELDS);
/* True for a row that a user brought (source imported or trusted), and gemmd has not measured. */
bool best_is_brought(const struct best *b);

/* True for a row of the fleet that no daemon of this database has confirmed. */
bool best_is_candidate(const struct best *b);
/* The same of the row's answer: only a confirmed row has a kernel here. */
bool answer_is_candidate(const struct answer *a);

#define QUARANTINE_FIELDS(X, T)                                                                    \
    X(T, INT, id, 0)                                                                               \
    X(T, TEXT, variant, HASH_HEX) /* the variant that may not run again */                         \
    X(T, TEXT, module, HASH_HEX)                                                                   \
    X(T, TEXT, family, 32)                                                                         \
    X(T, RECORD, config, 0)                                                                        \
    X(T, TEXT, key, HASH_HEX) /* the key that was being tuned when the runner died */              \
    X(T, TEXT, class, 192)                                                                         \
    X(T, TEXT, driver, 32)                                                                         \
    X(T, TEXT, status, 24) /* crashed | hung | device_lost */                                      \
    X(T, TEXT, reason, 320)                                                                        \
    X(T, INT, deaths, 0)                                                                           \
    X(T, INT, created_s, 0)
SCHEMA_STRUCT(quarantine, QUARANTINE_FIELDS);

#define EVENT_FIELDS(X, T)                                                                         \
    X(T, INT, id, 0)                                                                               \
    X(T, INT, created_s, 0)                                                                        \
    X(T, TEXT, kind, 32) /* start | stop | tuned | corrupt | disk_full | evict ... */              \
    X(T, INT, uid, 0)                                                                              \
    X(T, TEXT, text, 320)
SCHEMA_STRUCT(event, EVENT_FIELDS);

/* Answers of one tier to a training job, summed. `key` "": the sum over all other keys, which all
 * answers of the tier exact belong to. `job` "": further jobs of the user, beyond the limit. */
enum { SERVED_JOB_MAX = 64 };
#define SERVED_FIELDS(X, T)                                                                        \
    X(T, INT, id, 0)                                                                               \
    X(T, INT, uid, 0)                                                                              \
    X(T, TEXT, job, SERVED_JOB_MAX) /* slurm:ID | torchelastic:ID | torchrun:PID | pgid:N */       \
    X(T, TEXT, key, HASH_HEX)                                                                      \
    X(T, TEXT, tier, 16) /* as answer.tier */                                                      \
    X(T, TEXT, op, 64)                                                                             \
    X(T, RECORD, problem, 0) /* the bucket's fields */                                             \
    X(T, RECORD, config, 0)  /* the config of these answers */                                     \
    X(T, INT, answers, 0)                                                                          \
    X(T, INT, first_s, 0) /* times of the first and the last of these answers */                   \
    X(T, INT, last_s, 0)
SCHEMA_STRUCT(served_row, SERVED_FIELDS);

/* The cache directory has modules/<id>.<cubin|so>, and variants/<hash>, links from a variant to its
 * module. */

/* ---- gemmd <-> gemmd-runner (one private socket pair, the same RPC) -------------------------- */

/* runner -> gemmd, the first notification, `hello`. gemmd refuses a runner of another build. */
#define RUNNER_HELLO_FIELDS(X, T)                                                                  \
    X(T, TEXT, build, 64)                                                                          \
    X(T, INT, pid, 0)                                                                              \
    X(T, TEXT, driver, 32)                                                                         \
    X(T, TEXT, class, 192)
SCHEMA_STRUCT(runner_hello, RUNNER_HELLO_FIELDS);

/* runner -> gemmd, notification `attempt`: sent before a step that may crash or hang the runner.
 * From it gemmd knows the step that killed a runner, and how long it waits for the next message
 * before it kills the runner. */
#define ATTEMPT_FIELDS(X, T)                                                                       \
    X(T, INT, job, 0)                                                                              \
    X(T, TEXT, stage, 16) /* prepare | compile | load | verify | time | baseline | pause | idle */ \
    X(T, RECORD, config, 0) /* empty for prepare and idle */                                       \
    X(T, TEXT, variant, HASH_HEX)                                                                  \
    X(T, TEXT, module, HASH_HEX)                                                                   \
    X(T, INT, limit_ms, 0) /* allowed silence from now on; 0: no limit (idle) */
SCHEMA_STRUCT(attempt, ATTEMPT_FIELDS);

/* runner -> gemmd, the result of a `tune` request. The best config's trial was sent before.
 * set_aside: there is no best yet. gemmd has said that other jobs wait for the device, and the
 * search would only wait for compilers, or has had the device for its turn (runner/aside.h). A
 * later `tune` request with the trials so far continues the search. in_use: nothing was done,
 * because the order is `quiet`, and other processes use the device, as `doubt` says. */
#define TUNE_RESULT_FIELDS(X, T)                                                                   \
    X(T, RECORD, config, 0)                                                                        \
    X(T, TEXT, module, HASH_HEX)                                                                   \
    X(T, REAL, time_us, 0)                                                                         \
    X(T, REAL, spread, 0)                                                                          \
    X(T, REAL, reference_us, 0)                                                                    \
    X(T, REAL, flops, 0)                                                                           \
    X(T, REAL, bytes, 0)                                                                           \
    X(T, INT, measured, 0)                                                                         \
    X(T, INT, space, 0) /* number of legal configs in the searched space */                        \
    X(T, REAL, device_ms, 0)                                                                       \
    X(T, REAL, compile_ms, 0) /* sum of the times of all compiles */                               \
    X(T, REAL, wall_ms, 0) /* time that all orders of this search took, less waits for pauses */   \
    X(T, TEXT, timeline, 240) /* for users: milliseconds of each phase */                          \
    X(T, FLAG, set_aside, 0)                                                                       \
    X(T, FLAG, in_use, 0)                                                                          \
    X(T, TEXT, doubt, 160)          /* what disturbed the measurement */                           \
    X(T, TEXT, gate, GATE_TEXT_MAX) /* why the former best stayed or went; "": no former best */
SCHEMA_STRUCT(tune_result, TUNE_RESULT_FIELDS);

#endif
