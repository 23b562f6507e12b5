/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiling ahead. While a job has a GPU, a second process compiles the first variants of queued
 * jobs: `gemmd-runner --precompile`, at the lowest priority of processor and disk. These variants
 * are the reference and the strategy's proposals before any measurement, within the restrictions of
 * the search; of a given list, its configs. The process works through the jobs in queue order, so
 * that the next job finds all its variants.
 *
 * The measuring runner does not do this. To list the first variants of a search, a process must
 * draw its rows, build its space and rank the space, which would interrupt the measuring. A fault
 * must not cost the measurement. And a low priority could not be raised again for the search whose
 * turn comes.
 *
 * While a search measures, decides and ends, most cores of the host are idle. On a GPU, compiling
 * ahead disturbs no measurement. On the CPU a compiler would slow the measured kernel, so nothing
 * is compiled ahead; in replays neither.
 *
 * No search waits for this process: a variant is never compiled twice (kernels/modules.h), and the
 * runner compiles the rest.
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
    uv_timer_t soon; /* collects the keys of a layer, which come in quick succession */
    uv_process_t process;
    bool runs, stopping;
    uint64_t starts;
};

void precompile_init(struct precompiler *a, struct daemon *d, const struct scheduler *s);
/* call when a job was queued, which may have to wait */
void precompile_queued(struct precompiler *a);
/* kills the process, and does not wait for its end */
void precompile_stop(struct precompiler *a);

#endif
