/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tuning job: from an order to a best. The parts, in the order in which they run:
 *
 *   job.c             begin (family, target, plan, prepare) and end (result, or the error)
 *   strategy/plan.c   which configs may be measured, in the model's order
 *   search.c          reference, hints, then the strategy's proposals: compile ahead, measure
 *   candidates.c      the way of a config through the compilers
 *   compilers_*.c     the compilers and the clock: of this host, or of a recorded host
 *   aside.c           when to wait for compilers, and when to set the search aside
 *   measure.c         one candidate on the device: load, probe, verify, samples
 *   outcomes.c        the outcome of each config's trial
 *   finals.c          the best few again, in alternating blocks
 *   gate.c            decides if their winner replaces the former best of the key
 *   pauses.c          device work only while a training job's GPU pauses
 *   notices.c         messages about the job on the socket
 *
 * The reference is the first of these configs that works: the config that an earlier run of this
 * key used as its reference, the analytic default, the first config that works. Times are compared
 * within this run. A job that goes on after another run compares by ratios: time / time of the
 * reference in the same run. So the job measures the reference again, as a trial of stage
 * "reference", which does not count as a measured config. A winner that only earlier runs measured
 * is measured again in the finals.
 *
 * The winner is never slower than the default: the reference competes like any other config, unless
 * a restriction or a given list excludes the reference.
 */
#ifndef GEMMD_RUNNER_JOB_INNER_H
#define GEMMD_RUNNER_JOB_INNER_H

#include "runner/base/stats.h"
#include "runner/runner.h"
#include "runner/strategy/plan.h"
#include "runner/strategy/strategy.h"

enum {
    ITERS_DEFAULT = 20,
    WARMUP_DEFAULT = 1,
    VISIT_USUAL = 5, /* most samples of a candidate each time that a GPU measures it */
    /* samples of a winner; with fewer the answer's confidence is lower
     * (daemon/cache/confidence.c) */
    SAMPLES_ENOUGH = 5,
    PREPARE_LIMIT_MS = 120000, /* the longest silence while a problem is prepared */
};
/* Times that differ by a smaller fraction count as equal. Sampling stops when the error of a
 * mean is below this fraction. */
#define TIE 0.003

/* The outcome of a config's trial, in this run or before. */
struct outcome {
    bool known;       /* the config has had its trial */
    bool ok;          /* the config was measured, and its result is right */
    bool measured;    /* the config has a time, also when its trial was stopped early */
    bool here;        /* the trial is of this run, not from the order's earlier trials */
    bool eligible;    /* allowed by the restrictions and the given list */
    bool out_of_race; /* the config may not win, or failed in the finals */
    double time_us, ratio, spread; /* ratio: time / reference's time; spread: answer.spread */
    uint32_t samples;              /* number of timed launches */
    double max_error, rel_norm;
    char module[HASH_HEX];
};

/* A config on its way through compile and measurement. */
struct candidate {
    uint32_t id;
    bool reference;
    struct record config;
    double predicted_us;
    struct variant variant;
    char hash[HASH_HEX];
    struct build *build; /* counted: job_release() gives it back; NULL: not begun */
    double due_ms;       /* replay: when the recorded compile ends, by runner_now_ms() */
};

/* A trial that is not sent yet, since its ratio is not known (outcomes.c). */
struct held_trial {
    struct held_trial *next;
    uint32_t id; /* the config's number in the plan (strategy/plan.h), as everywhere below */
    struct trial trial;
};

struct tally { /* failed trials with the same status */
    char status[24];
    char reason[320]; /* of the first failure with this status */
    uint32_t n;
};
enum { TALLY_MAX = 32 };

struct job {
    struct runner *runner;          /* borrowed */
    const struct tune_order *order; /* borrowed */
    const struct family *family;
    const struct family_target *target;
    struct workload workload; /* owned */
    struct plan plan;         /* owned */
    /* true for the strategy `given`: measures the list in its order, without early stops */
    bool given;
    struct prepared *prepared; /* owned by the device */
    uint64_t seed;             /* draws operands and routing (base/conditions.h) */
    char doubt[160];           /* what disturbed the measuring; "": nothing (base/conditions.h) */
    struct strategy *strategy; /* owned */
    uint32_t n_outcomes;
    struct outcome *outcomes; /* owned, by plan id, with room for all configs of the job */
    uint32_t reference;       /* plan id, or PLAN_NONE */
    bool reference_again;     /* an earlier run has measured the reference too */
    uint32_t former;          /* plan id of the key's former best (gate.c), or PLAN_NONE */
    char gate[GATE_TEXT_MAX]; /* says if the former best stays, and why */
    double reference_us;      /* the reference's last time in this run; NaN: unknown */
    /* least time of an eligible config with a right result in this run; NaN: none yet */
    double best_us;
    /* Owned list: the trials that came before the reference's trial, the oldest first. They are
     * sent to gemmd when their ratios are known. */
    struct held_trial *held;
    struct scatter scatter; /* spread of each config's launch times, pooled (base/stats.h) */
    bool warm;              /* the device has been warmed up (measure.c) */
    /* true on a GPU: the device idles before each launch (measure.c) */
    bool idles;
    uint32_t total, done, failed; /* numbers of configs, for `progress` */
    uint32_t done_before;         /* configs done by earlier orders of this job */
    /* the order ends without an answer, and a later order goes on with the search (aside.h) */
    bool set_aside;
    double device_ms, compile_ms;
    /* sums over the modules of this job, also modules that the cache had: core time of the compile
     * in ms, and effort (job_effort). Their quotient predicts further compiles. */
    double took_ms, took_effort;
    /* start of this order, less the time that earlier orders of the job took: so runner_now_ms()
     * less began_ms is the age of the job */
    double began_ms;
    double order_began_ms; /* start of this order, by runner_now_ms() */
    double turn_began_ms;  /* when the order's problem had been prepared */
    double reference_rate; /* multiply-adds per us of the independent reference; 0: unknown */
    /* build of the last announced compile; only its address is compared */
    const struct build *announced;
    uint32_t n_tally;
    struct tally tally[TALLY_MAX];
};

/* ---- functions by file ----------------------------------------------------------------------- */

/* candidates.c */
/* Handles messages on the socket. Returns ERROR_CANCELLED when the job must stop. */
int job_poll(struct job *j, struct error *err);
/* Fills a candidate and starts its compile. ERROR_*: the target builds no variant for the config,
 * or no memory. */
int job_candidate(struct job *j, uint32_t id, struct candidate *c, struct error *err);
/* Predicted compile time of a config; the unit is the mean of the space. */
double job_effort(const struct job *j, uint32_t id);
void job_release(struct job *j, struct candidate *c); /* gives the build back to the pool */
/* For a candidate that is not worth the wait: gives its build back, and adds the build's whole
 * compile time to compile_ms. */
void job_drop(struct job *j, struct candidate *c);
/* Sends the module of a ready build, unless a trial of this run names the module: then the module
 * was sent before that trial. */
void job_module(struct job *j, struct candidate *c);

/* aside.c: the longest wait for the queue's builds, in ms, before the next call. 0: set the
 * search aside now (aside.h). ASIDE_NEVER: wait without limit. */
int64_t job_patience(const struct job *j, struct candidate *const queue[], uint32_t n);
/* True when other searches wait and this order's turn on the device is over. */
bool job_turn_is_over(const struct job *j);

/* outcomes.c: records a finished trial as its config's outcome, and sends the trial. */
void job_record(struct job *j, const struct candidate *c, struct trial *t);
/* Records a trial as the outcome of its config, and counts a failure. `here`: the trial is of this
 * run. */
void job_book(struct job *j, uint32_t id, const struct trial *t, bool here);
void job_count_failure(struct job *j, const struct trial *t);
/* Lower is better: time / time of the reference in the same run, so that outcomes of all runs
 * compare. Microseconds while the reference has no time. */
double job_score(const struct job *j, const struct outcome *o);
/* Plan id of the best outcome that may win and is not in `ids`; PLAN_NONE: there is none. */
uint32_t job_best_but(const struct job *j, const uint32_t ids[], uint32_t n);
/* Sets ERROR_NO_CONFIG, with counts and the most common reason. */
int job_nothing_works(const struct job *j, struct error *err);

/* Call when no further config will be measured. When the reference has no trial, the first held
 * trial that is ok becomes the reference. Sends the held trials. */
void job_without_reference(struct job *j);

/* search.c */
int job_search(struct job *j, struct error *err);
/* finals.c: finds the winner among the outcomes; returns its plan id. The winner's outcome is then
 * of this run. ERROR_NO_CONFIG: no config works. */
int job_finals(struct job *j, uint32_t *winner, struct error *err);

/* gate.c: sets j->former from the order. plan_init() must have made the plan. */
int gate_begin(struct job *j, struct error *err);
/* Decides if the former best stays, and writes the reason to j->gate. `former_us` and `other_us`
 * are medians (us) of the same rounds of the finals. `other_us` is of the winner or, when the
 * former best won, of the runner-up. NULL `other_us`: no other config came near. NULL `former_us`:
 * the former best failed. */
bool gate_keeps(struct job *j, uint32_t winner, const double other_us[], const double former_us[],
                uint32_t rounds);

/* measure.c */
void trial_begin(struct trial *t, const struct job *j, const struct candidate *c,
                 const char *stage);
void trial_fail(struct trial *t, const struct error *e);
void trial_reject(struct trial *t, const struct rejection *why);
void trial_samples(struct trial *t, double reference_us, const double *samples, uint32_t n);
/* Measures a candidate whose build has ended. Returns 0 with the outcome in the trial (a failure
 * too), ERROR_DEVICE_LOST, or ERROR_CANCELLED. A candidate slower than best_us is stopped early, as
 * the head of measure.c says; best_us 0: never. */
int measure_candidate(struct job *j, struct candidate *c, const char *stage, double best_us,
                      struct trial *t, struct error *err);
/* Idle time in ms before a launch of `expected_us` (NaN: unknown): as long as `launches` launches
 * take, counted with at most 4 ms each, and at least 0.3 ms. 0 on a host. */
double measure_gap_ms(const struct job *j, double expected_us, double launches);
/* Long launches need no warm-up: the first launch costs some 20 us more, a warm-up a whole
 * launch. */
bool measure_is_long(double expected_us);
/* The steps of measure_candidate(), for finals.c. 0: the trial goes on. MEASURE_FAILED: the trial
 * has failed and says why. ERROR_DEVICE_LOST. ERROR_CANCELLED: the step was not begun, and the
 * trial is not recorded. */
enum { MEASURE_FAILED = 1 };
struct measuring {
    struct candidate *c;   /* borrowed */
    struct trial *t;       /* borrowed */
    struct kernel *kernel; /* from measure_load to measure_unload */
    double samples[SAMPLES_MAX];
    uint32_t n;
};
int measure_load(struct job *j, struct measuring *m, struct error *err);
/* seen_us: time of an earlier launch of this candidate; NaN: unknown. */
int measure_verify(struct job *j, struct measuring *m, double seen_us, struct error *err);
/* Appends `timing->samples` samples. */
int measure_time(struct job *j, struct measuring *m, const struct timing *timing, double seen_us,
                 struct error *err);
void measure_unload(struct job *j, struct kernel *k);

/* pauses.c: waits for a pause before a step on the device, if the order is bound to pauses.
 * ERROR_CANCELLED. */
int pauses_wait(struct job *j, struct error *err);
/* The same before the problem's preparation, which needs the device's own kernels: a pause must not
 * wait for their compilers. */
int pauses_wait_to_prepare(struct job *j, struct error *err);

/* notices.c */
void notice_trial(struct job *j, const struct trial *t);
void notice_progress(struct job *j, const char *phase, const struct record *config);

#endif
