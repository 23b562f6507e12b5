/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runner's first order finds nothing open. Opening a GPU takes a tenth of a second, in which
 * compilers would be idle; but what a search begins with can be known without, as --precompile
 * knows it (precompile/precompile.h), since gemmd knows what the device is. These variants are
 * wanted before it is opened, and given back when the job has wanted its own, which are the same
 * unless the device is another one.
 *
 * Only of a search that begins: one that goes on, has hints or must avoid something begins
 * otherwise.
 */
#ifndef GEMMD_RUNNER_PRECOMPILE_FIRST_H
#define GEMMD_RUNNER_PRECOMPILE_FIRST_H

#include <stdint.h>

struct build;
struct runner;
struct tune_order;

struct precompile_first {
    struct build **builds; /* owned; held */
    uint32_t n;
};

/* Nothing that goes wrong here is said: it will go wrong again. */
void precompile_first_begin(struct runner *r, const struct tune_order *o);
void precompile_first_end(struct runner *r); /* may be called twice */

#endif
