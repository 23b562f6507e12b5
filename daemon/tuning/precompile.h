/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling ahead: while one job has a GPU, the variants that queued jobs will ask for first are
 * compiled by a second process, `gemmd-runner --precompile`, at the lowest priority of processor
 * and disk: the reference and what the strategy proposes before it has measured anything, within
 * what restricts the search; of a list of given configs, these. One job after the other, as they
 * wait: the next one finds all of its own, where by turns it would find a part.
 *
 * It is not the runner that measures: to know what a search begins with means to draw its rows, to
 * build its space and to rank it, which would stop the measuring or need the runner's process for
 * it; a fault of it must not cost the measurement; and who is nice cannot be less so later, when
 * the search whose kernel it compiles has its turn.
 *
 * While a search measures, decides and ends, most cores of the host are idle. It needs no device,
 * so it disturbs no measurement there; on the CPU, where a compiler beside a kernel would be
 * measured with it, and in replays nothing is compiled ahead.
 *
 * It is never waited for: a variant that it works on is compiled once all the same
 * (kernels/modules.h), and what it has not done the runner does.
 */
#ifndef GEMMD_DAEMON_TUNING_PRECOMPILE_H
#define GEMMD_DAEMON_TUNING_PRECOMPILE_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct daemon;
struct scheduler;

struct precompiler {
    struct daemon *daemon;             /* borrowed */
    const struct scheduler *scheduler; /* borrowed */
    uv_timer_t soon; /* keys of a layer come one by one: they are looked at together */
    uv_process_t process;
    bool runs, stopping;
    uint64_t starts;
};

void precompile_init(struct precompiler *a, struct daemon *d, const struct scheduler *s);
void precompile_queued(struct precompiler *a); /* a job may have to wait */
void precompile_stop(struct precompiler *a);   /* kills it, and does not wait for its end */

#endif
