/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-runner: the child that owns the device. gemmd starts it on the first miss and may kill it
 * at any time; it keeps nothing that is not said on the socket at once, but what it would only ask
 * for again (aside.h).
 *
 * The conversation (proto/rpc.h on one socket; structs in proto/message.h and proto/request.h):
 *
 *   runner  notify  hello {runner_hello}       first of all; driver and class are "": the device is
 *                                              opened by the first tune, so that this takes no time
 *   gemmd   request tune {tune_order}          one at a time; a second is ERROR_BUSY
 *   runner  notify  device {device_info}       once, when the device has been opened
 *           notify  attempt {attempt}          before each risky thing
 *           notify  module {module}            a variant's image, before any trial that names it
 *           notify  trial {job, trial}         each candidate's end, good or bad
 *           notify  progress {job, progress}   after each trial, and when the phase changes
 *           response tune_result, which may be that the search is set aside, or error
 *           notify  attempt, stage idle        limit_ms 0: silence is no fault any more
 *   gemmd   notify  cancel {job}               the tune ends with ERROR_CANCELLED
 *   gemmd   notify  others_wait {job}          other searches wait for the device: the tune may be
 *                                              set aside (aside.h)
 *   gemmd   notify  forget {job}               one that was set aside will not come back
 *   gemmd   request ping                       answered by true between two steps
 *   runner  notify  bye                        idle for --linger-ms (half a minute at least
 *                                              before the first tune), or threads are lost to a
 *                                              compiler that never ends: it exits with 0. A
 *                                              tune that crosses it is not answered
 *
 * The order of messages on the socket is the truth about a death: the last `attempt` names the
 * candidate. Compilers have processes of their own (compile/apart.h). A cut message before the end
 * of the stream says nothing.
 *
 * Threads: the main thread alone touches the device and the socket; pool threads compile
 * (compile/pool.h).
 */
#ifndef GEMMD_RUNNER_RUNNER_H
#define GEMMD_RUNNER_RUNNER_H

#include "proto/request.h"
#include "runner/aside.h"
#include "runner/base/channel.h"
#include "runner/base/timeline.h"
#include "runner/baselines.h"
#include "runner/compile/pool.h"
#include "runner/compile/helpers.h"
#include "runner/compilers.h"
#include "runner/landscape/landscape.h"
#include "runner/precompile/precompile.h"

enum runner_exit {
    RUNNER_EXIT_OK = 0,          /* idle for long enough, or gemmd closed the socket */
    RUNNER_EXIT_PROBE = 1,       /* --probe: no such device; the error map is on stdout */
    RUNNER_EXIT_USAGE = 2,       /* arguments that make no sense; the sentence is on stderr */
    RUNNER_EXIT_DEVICE_LOST = 3, /* the device cannot be used by this process any more */
    RUNNER_EXIT_PROTOCOL = 4,    /* gemmd sent what is no message */
};

struct runner_options {
    int64_t fd;         /* of the socket */
    const char *device; /* spec */
    const char *cache_dir, *expect;
    struct device_info expected; /* what the device is, for who cannot wait; kind "": not known */
    int64_t compile_threads;     /* 0: one per core */
    int64_t linger_ms;
    int64_t nice;
    int64_t memory_percent; /* of the device's free memory, for us; 0: as the device thinks */
    int64_t lock_mhz;       /* the clocks, while the device is open; 0: never */
    int64_t hold_mhz;       /* be the child that does that */
    int64_t hang_limit_ms;  /* no attempt's limit is above it; 0: the defaults hold */
    bool probe, version, precompile, compile, no_baseline;
    struct precompile_order precompile_order; /* with `precompile` */
    struct landscape_order landscape;         /* when it has a path */
};

enum { RUNNER_LOOK_MAX = 64 }; /* configs on their way at once */

struct runner {
    struct runner_options opt;
    void (*on_tune)(struct runner *r, const struct rpc_message *m); /* serve.c's */
    struct channel channel;
    struct device *device;     /* owned; NULL until the first tune */
    struct compiler *compiler; /* owned; NULL until the first tune */
    struct compile_pool *pool; /* owned; NULL until the first tune */
    struct helpers helpers;
    struct aside *aside; /* owned list */
    struct baselines baselines;
    struct timeline timeline; /* of the running job */
    unsigned threads;
    const struct compilers_ops *compilers;
    struct lanes lanes; /* of recorded compilers */
    int64_t job;        /* the running job; 0: none */
    bool ordered;       /* it has had an order */
    bool cancelled;     /* it is to stop */
    bool others_wait;   /* for the device: it may step aside (aside.h) */
    double slowdown;    /* the most that a launch took of what the model predicted; 0: not known */
    char unlocked[160]; /* why the clocks are not locked though they should be; "" */
};

/* The whole program. Returns an enum runner_exit. */
int runner_main(int argc, char **argv); /* options.c */

/* serve.c: speaks until the end. */
int runner_serve(const struct runner_options *opt);

/* inbox.c: handles what has come while a job runs: cancel, others_wait, forget, ping, a second
 * tune. Ends the process when gemmd is gone. */
void runner_pump(struct runner *r);
/* Ends the process. */
void runner_quit(enum runner_exit code) __attribute__((noreturn));

/* job.c: runs an order. 0 and the result, or ERROR_*. ERROR_DEVICE_LOST: the process must end. */
int job_run(struct runner *r, const struct tune_order *o, struct tune_result *out,
            struct error *err);

/* notices.c: an `attempt` that is no candidate's. Stage idle, limit 0: silence is no fault. */
void runner_announce(struct runner *r, const char *stage, int64_t limit_ms);

/* opening.c: device, compiler and pool, when they are not open yet. */
int runner_open(struct runner *r, struct error *err);
/* The device alone, without a context, and with its clocks as they are. */
int runner_open_device(struct runner *r, struct error *err);
/* The latter two alone: they need no device. */
int runner_open_pool(struct runner *r, struct error *err);
/* Opening a GPU takes a tenth of a second, in which compilers would be idle. What the first search
 * begins with is wanted before, since gemmd knows what the device is; what it does not ask for
 * itself is dropped when it has filled its queue. */
void runner_want_opening(struct runner *r, const struct tune_order *o);
/* How many configs may be on their way at once; compilers must be open. */
uint32_t runner_look(const struct runner *r);

/* ms; of a recorded device, as if its host had compiled and waited. */
double runner_now_ms(const struct runner *r);
/* min(limit, --hang-limit-ms) */
int64_t runner_limit(const struct runner *r, double limit_ms);

#endif
