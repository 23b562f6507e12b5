/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tuning job: from an order to a best. The parts, in the order in which they run:
 *
 *   job.c             begin (family, target, plan, prepare) and end (result, or why there is none)
 *   strategy/plan.c   which configs may be measured, in the model's order
 *   search.c          reference, hints, then the strategy's proposals: compile ahead, measure
 *   candidates.c      a config on its way through the compilers
 *   compilers_*.c     these compilers, and the clock: of this host, of a recorded one
 *   patience.c        whether to wait for them, or to give way to another search
 *   measure.c         one candidate on the device: load, probe, verify, samples
 *   outcomes.c        what is known of each config
 *   held.c            trials from before the reference's
 *   finals.c          the best few again, in alternating blocks
 *   gate.c            whether their winner replaces the best that the key had
 *   notices.c         what is said about it on the socket
 *
 * The reference is the analytic default, or the config that an earlier run of this key used as its
 * reference, or, when that does not work, the first config that does. Times are compared within
 * this run; a resumed job takes what earlier runs measured by its ratio to the reference, and so
 * measures the reference again, as a trial of stage "reference", which is no new evidence about a
 * candidate. What wins on old evidence is measured again in the finals.
 *
 * The default cannot lose: the reference competes like any other config, unless a restriction or a
 * given list excludes it.
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
    VISIT_USUAL = 5,    /* samples that one visit of a GPU takes: more share what is of the visit */
    SAMPLES_ENOUGH = 5, /* of a winner: fewer speak against an answer (daemon/cache/confidence.c) */
};
/* Times that differ by a smaller part are equal: what is known to that needs no more samples. */
#define TIE 0.003

/* What is known of a config after its trial, in this run or before. */
struct outcome {
    bool known;       /* it has had its trial */
    bool ok;          /* measured and right */
    bool measured;    /* has a time, also when it was stopped early */
    bool here;        /* in this run */
    bool eligible;    /* by the restrictions, the list */
    bool out_of_race; /* may not win, or failed in the finals */
    double time_us, ratio, spread;
    uint32_t samples;
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
    struct build *build; /* held */
    double due_ms;       /* of recorded compilers: when it is done, of runner_now_ms */
};

struct held_trial {
    uint32_t id; /* of the plan */
    struct trial trial;
};

struct tally { /* of failures, by status */
    char status[24];
    char reason[320]; /* the first one's */
    uint32_t n;
};
enum { TALLY_MAX = 32 };

struct job {
    struct runner *runner;          /* borrowed */
    const struct tune_order *order; /* borrowed */
    const struct family *family;
    const struct family_target *target;
    struct workload workload;  /* owned */
    struct plan plan;          /* owned */
    bool given;                /* strategy given: the list as it is, nothing is stopped early */
    struct prepared *prepared; /* owned by the device */
    uint64_t seed;             /* of its inputs (base/conditions.h) */
    char doubt[160];           /* what disturbs the measuring (base/conditions.h) */
    struct strategy *strategy; /* owned */
    uint32_t n_outcomes;
    struct outcome *outcomes; /* owned, by plan id, room for all that may come */
    uint32_t reference;       /* plan id, PLAN_NONE when there is none */
    bool reference_again;     /* an earlier run has measured it */
    uint32_t former;          /* plan id of the key's best so far (gate.c), or PLAN_NONE */
    char gate[GATE_TEXT_MAX]; /* sentence about it */
    double reference_us;      /* its last turn in this run; NaN: not known */
    double best_us;           /* of this run, eligible and right; NaN: none */
    /* Trials that came before the reference's: they are sent when their ratios are known. */
    uint32_t n_held, room_held;
    struct held_trial *held;      /* owned */
    struct scatter scatter;       /* of this run's launches */
    bool warm;                    /* the device has been warmed up (measure.c) */
    bool idles;                   /* before each launch (measure.c): a GPU */
    uint32_t total, done, failed; /* for progress */
    uint32_t done_before;         /* by earlier orders */
    bool set_aside;               /* aside.h: the order ends, the search does not */
    double device_ms, compile_ms;
    double took_ms, took_effort; /* what was compiled, whenever: core time; times the mean */
    double began_ms;             /* of runner_now_ms, less what earlier orders took */
    double order_began_ms;       /* this order, likewise */
    double turn_began_ms;        /* when its problem had been prepared */
    double reference_rate;       /* the independent reference's multiply-adds a us; 0: not known */
    const struct build *announced; /* whose compile was announced last; only compared */
    uint32_t n_told, room_told;
    char (*told)[HASH_HEX]; /* owned: modules that this job has sent */
    uint32_t n_tally;
    struct tally tally[TALLY_MAX];
};

/* ---- for the parts --------------------------------------------------------------------------- */

/* candidates.c */
/* Looks at the socket. ERROR_CANCELLED when the job is to stop. */
int job_poll(struct job *j, struct error *err);
/* Fills a candidate and starts its build. ERROR_*: the config has no variant, or no memory. */
int job_candidate(struct job *j, uint32_t id, struct candidate *c, struct error *err);
/* To compile it, in times of the space's mean. */
double job_effort(const struct job *j, uint32_t id);
void job_release(struct job *j, struct candidate *c); /* gives the build back */
/* The same of one whose compiler nobody waits for: what that has cost and will cost is counted. */
void job_drop(struct job *j, struct candidate *c);
/* Sends the module of a ready build, once per job. */
void job_module(struct job *j, struct candidate *c);

/* patience.c: how long, in ms, to wait at most for the builds of the queue before asking again. 0:
 * the search is to be set aside now (aside.h). ASIDE_NEVER: wait for them. */
int64_t job_patience(const struct job *j, struct candidate *const queue[], uint32_t n);
/* Others wait for the device, and this order has had it for long enough. */
bool job_turn_is_over(const struct job *j);

/* outcomes.c: books and sends a finished trial. */
void job_record(struct job *j, const struct candidate *c, struct trial *t);
/* What a trial says of a config, in this run or an earlier one; and of why one failed. */
void job_book(struct job *j, uint32_t id, const struct trial *t, bool here);
void job_count_failure(struct job *j, const struct trial *t);
/* Lower is better; comparable among outcomes of this run and earlier ones. */
double job_score(const struct job *j, const struct outcome *o);
/* The best that is in the race, but for these: a plan id, or PLAN_NONE. */
uint32_t job_best_but(const struct job *j, const uint32_t ids[], uint32_t n);
/* Those that this run has seen faster than `winner` are in the race again, also those that were
 * stopped early. False: there are none. */
bool job_call_back(struct job *j, uint32_t winner);
/* ERROR_NO_CONFIG, with counts and the most common reason. */
int job_nothing_works(const struct job *j, struct error *err);

/* held.c */
bool job_awaits_reference(const struct job *j); /* whether it may still come */
void job_become_reference(struct job *j, uint32_t id, struct trial *t);
/* Keeps a copy of a trial until then. False: no memory. */
bool job_hold(struct job *j, uint32_t id, const struct trial *t);
void job_send_held(struct job *j);
/* The reference's trial will not come: another one's takes its place. */
void job_without_reference(struct job *j);

/* variations.c: what of a config's variations (family.h) this device can measure and the query
 * allows. Returns how many. */
uint32_t job_variations(const struct job *j, const struct record *config,
                        struct record out[VARIATIONS_MAX]);

/* search.c */
int job_search(struct job *j, struct error *err);
/* finals.c: settles the winner among the outcomes: its plan id, and its outcome is up to date.
 * ERROR_NO_CONFIG: nothing is left. */
int job_finals(struct job *j, uint32_t *winner, struct error *err);

/* gate.c: finds the former best, once there is a plan. */
int gate_begin(struct job *j, struct error *err);
/* Whether the former best stays, and in j->gate why or why not. Medians (us) of the same rounds of
 * the finals: of the winner (when that is the former best itself: of the next one), and of the
 * former best. NULL for one that is not there: nothing else came near, or the former best
 * failed. */
bool gate_keeps(struct job *j, uint32_t winner, const double other_us[], const double former_us[],
                uint32_t rounds);

/* measure.c */
void trial_begin(struct trial *t, const struct job *j, const struct candidate *c,
                 const char *stage);
void trial_fail(struct trial *t, const struct error *e);
void trial_reject(struct trial *t, const struct rejection *why);
void trial_samples(struct trial *t, const struct job *j, const double *samples, uint32_t n);
/* One candidate whose build is done, through to a trial. 0 (the trial says how it went),
 * ERROR_DEVICE_LOST, or ERROR_CANCELLED. best_us: what is much slower is stopped early; 0: nothing
 * is. */
int measure_candidate(struct job *j, struct candidate *c, const char *stage, double best_us,
                      struct trial *t, struct error *err);
/* How long the device idles before a launch that takes so long (NaN: not known): as long as so many
 * of them take, within bounds. */
double measure_gap_ms(const struct job *j, double expected_us, double launches);
/* A launch that takes so long is not warmed up: the first costs some 20 us, and as long again as it
 * takes would be lost. */
bool measure_is_long(double expected_us);
/* The steps, for finals. 0: the trial goes on. 1: it has failed and says why. ERROR_DEVICE_LOST;
 * ERROR_CANCELLED: before a piece of the work, and the trial is nothing. */
enum { MEASURE_FAILED = 1 };
int measure_load(struct job *j, struct candidate *c, struct kernel **k, struct trial *t,
                 struct error *err);
/* seen_us: what a launch of this candidate took before; NaN: none was seen. */
int measure_verify(struct job *j, struct candidate *c, struct kernel *k, double seen_us,
                   struct trial *t, struct error *err);
/* `wanted` samples are appended to samples[*n]. */
int measure_time(struct job *j, struct candidate *c, struct kernel *k, const struct timing *timing,
                 double seen_us, double *samples, uint32_t *n, struct trial *t, struct error *err);
void measure_unload(struct job *j, struct kernel *k);

/* notices.c */
void notice_attempt(struct job *j, const char *stage, const struct candidate *c, int64_t limit_ms);
void notice_trial(struct job *j, const struct trial *t);
void notice_module(struct job *j, const struct module *m);
void notice_progress(struct job *j, const char *phase, const struct record *config);

#endif
