/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner: the child process that owns the device. gemmd starts the runner on the first miss
 * and may kill the runner at any time. The runner sends every finding on the socket at once. In
 * memory, the runner keeps only data that a new runner can compute again (aside.h).
 *
 * The conversation (proto/rpc.h on one socket; structs in proto/message.h and proto/request.h):
 *
 *   runner  notify  hello {runner_hello}       first message; driver and class are "", since the
 *                                              first tune opens the device.
 *   gemmd   request tune {tune_order}          one order at a time; a second order is ERROR_BUSY.
 *   runner  notify  device {device_info}       once, when the device has been opened.
 *           notify  attempt {attempt}          before each step that may hang or crash.
 *           notify  module {module}            a variant's image, before any trial that names it.
 *           notify  trial {job, trial}         the outcome of each candidate, failures included.
 *           notify  progress {job, progress}   after each trial, and when the phase changes.
 *           response tune_result, which may say that the search is set aside; or error.
 *           notify  attempt, stage idle        limit_ms 0: silence is no fault from now on.
 *   gemmd   notify  cancel {job}               the tune ends with ERROR_CANCELLED.
 *   gemmd   notify  others_wait {job}          other searches wait for the device: the runner may
 *                                              set the tune aside (aside.h).
 *   gemmd   notify  forget {job}               a job that was set aside will not come back.
 *   gemmd   notify  pause {job, ms}            the device is free for so long (order.in_pauses);
 *                                              0: no longer; below 0: to the end of the order.
 *   runner  notify  quiet {job, wants}         the device is quiet until the next pause; wants:
 *                                              work for the device is ready.
 *   gemmd   request ping                       answered by true between two steps.
 *   runner  notify  bye                        before exit with 0: idle for --linger-ms (at least
 *                                              half a minute before the first tune), or a compiler
 *                                              never ended and holds a thread. A tune that gemmd
 *                                              sends before it reads the bye is not answered.
 *
 * The order of messages on the socket shows which candidate ended the runner: the last
 * `attempt` names the candidate. Compilers run in processes of their own (compile/apart.h). gemmd
 * ignores a message that the runner's death has cut off.
 *
 * Threads: only the main thread touches the device and the socket; pool threads compile
 * (compile/pool.h).
 */
#ifndef GEMMD_RUNNER_RUNNER_H
#define GEMMD_RUNNER_RUNNER_H

#include "proto/request.h"
#include "runner/aside.h"
#include "runner/base/channel.h"
#include "runner/base/timeline.h"
#include "runner/compile/pool.h"
#include "runner/compilers.h"
#include "runner/landscape/landscape.h"
#include "runner/precompile/precompile.h"

enum runner_exit {
    RUNNER_EXIT_OK = 0,          /* idle for --linger-ms, or gemmd closed the socket */
    RUNNER_EXIT_PROBE = 1,       /* --probe: no such device; the error map is on stdout */
    RUNNER_EXIT_USAGE = 2,       /* invalid arguments; the error is on stderr */
    RUNNER_EXIT_DEVICE_LOST = 3, /* this process cannot use the device any more */
    RUNNER_EXIT_PROTOCOL = 4,    /* gemmd sent an invalid message */
};

struct runner_options {
    int64_t fd;             /* of the socket to gemmd, or to the process that started this child */
    struct mode_order mode; /* the runner itself uses device, cache_dir and threads */
    const char *expect;
    struct device_info expected; /* from `expect`: the device as gemmd knows it; kind "": unknown */
    int64_t linger_ms;
    int64_t nice;
    int64_t memory_percent; /* of the device's free memory, for tunings; 0: the device decides */
    int64_t lock_mhz;       /* lock the clocks while the device is open; 0: never */
    int64_t hold_mhz;       /* run as the child that locks the clocks at these MHz; 0: no */
    int64_t hang_limit_ms;  /* upper bound of attempt.limit_ms; 0: only the limits of each step */
    bool probe, version, precompile, compile, no_baseline;
    struct precompile_order precompile_order; /* with `precompile` */
    struct landscape_order landscape;         /* when `landscape.path` is set */
};

/* An order may use the device only while the GPU of a training job pauses. */
struct pauses {
    bool bound;      /* the running order waits for pauses */
    bool open;       /* a pause has begun, and gemmd has not been told of its end */
    double until_ms; /* end of the open pause, on the host's clock */
};

enum { RUNNER_LOOK_MAX = 64 }; /* most candidates that a search's compile queue holds at once */

/* Times of a vendor's library for tuned keys, measured when the runner is idle, so that no answer
 * waits for them. gemmd gets each baseline as a trial of stage and status `baseline`. A baseline
 * never wins a search. */
enum { BASELINES_MAX = 64 };

struct baseline_key {
    char key[HASH_HEX];
    struct problem problem;
    uint64_t seed;
    struct tolerance tolerance;
    double reference_us; /* the reference kernel's time in the tuning run */
};
struct baselines {
    bool off; /* no baselines: the library is missing, or --no-baseline */
    uint32_t n;
    struct baseline_key owed[BASELINES_MAX]; /* keys to measure, the oldest first */
};

struct runner {
    struct runner_options opt;
    struct channel channel;
    struct device *device;     /* owned; NULL until the first tune */
    struct compiler *compiler; /* owned; NULL until the first tune */
    struct compile_pool *pool; /* owned; NULL until the first tune */
    struct helpers helpers;
    struct aside *aside; /* owned list: searches that were set aside */
    struct baselines baselines;
    struct timeline timeline; /* milliseconds that each phase of the running job has taken */
    unsigned threads;
    const struct compilers_ops *compilers;
    struct lanes lanes; /* the recorded host's compilers, on a replay device */
    int64_t job;        /* id of the running job; 0: no job runs */
    bool ordered;       /* the first order has come */
    bool cancelled;     /* the running job must stop */
    /* other searches wait for the device, so the job may be set aside (aside.h) */
    bool others_wait;
    struct pauses pauses;
    double slowdown;    /* largest launch time / prediction of this process; 0: no launch yet */
    char unlocked[160]; /* why the clocks could not be locked; "": no failure */
};

/* Runs the whole program. Returns an enum runner_exit. */
int runner_main(int argc, char **argv); /* options.c */

/* serve.c: handles orders until the process ends. */
int runner_serve(const struct runner_options *opt);
/* Handles gemmd's unread messages, also while a job runs: cancel, others_wait, forget, ping, a
 * second tune. Ends the process when gemmd has closed the socket. */
void runner_pump(struct runner *r);
void runner_quit(enum runner_exit code) __attribute__((noreturn));

/* job.c: runs an order. Returns 0 and the result, or ERROR_*. After ERROR_DEVICE_LOST the process
 * must end. */
int job_run(struct runner *r, const struct tune_order *o, struct tune_result *out,
            struct error *err);

/* notices.c: sends an `attempt`: the step that begins, its candidate (NULL: none), and the longest
 * silence until the next message. Stage idle with limit 0: silence is no fault. */
void runner_announce(struct runner *r, const char *stage, const struct candidate *c,
                     int64_t limit_ms);

/* pauses.c: begins an order that is bound to pauses, or free of them. */
void pauses_begin(struct runner *r, bool bound);
/* gemmd's `pause`. ms below 0: frees the order of pauses. */
void pauses_open(struct runner *r, int64_t ms);
/* Ends the open pause: for now nothing is ready for the device. */
void pauses_give_back(struct runner *r);

/* baselines.c: remembers a key that was just tuned. Its baseline is measured when the runner
 * idles. */
void baselines_owe(struct runner *r, const struct tune_order *o, const struct tune_result *result);
/* Measures the baseline of the oldest remembered key, and forgets that key; keeps the key when a
 * message from gemmd comes first. False: no key was left. */
bool baselines_pay(struct runner *r);

/* opening.c: opens device, compiler and pool, unless they are open. */
int runner_open(struct runner *r, struct error *err);
/* Opens only the device, without a context and without locking its clocks. */
int runner_open_device(struct runner *r, struct error *err);
/* Starts the compiles that the first search will ask for while the GPU is opened (a tenth of a
 * second). gemmd has told the runner which device to expect. Compiles that the search does not ask
 * for are dropped when the search has filled its queue. */
void runner_want_opening(struct runner *r, const struct tune_order *o);
/* How many candidates a search's compile queue may hold: two for each compiler, at most
 * RUNNER_LOOK_MAX. Compilers must be open. */
uint32_t runner_look(const struct runner *r);

/* The runner's clock. On a replay device: virtual time in which the recorded host compiles and
 * waits. */
double runner_now_ms(const struct runner *r);
/* limit_ms, or hang_limit_ms when that is set and shorter. */
int64_t runner_limit(const struct runner *r, double limit_ms);

#endif
