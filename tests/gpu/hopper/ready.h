/* SPDX-License-Identifier: Apache-2.0 */
/* A config ready for launches on a problem's buffers, and checks of its results. */
#ifndef GEMMD_TESTS_GPU_HOPPER_READY_H
#define GEMMD_TESTS_GPU_HOPPER_READY_H

#include "tests/gpu/hopper/watch.h"

/* Plans of the same launch: the real plan, and a plan with few thread blocks, each of which has
 * many tiles in turn. */
enum plan { PLAN_ALL, PLAN_FEW, PLANS };

struct ready {
    struct gpu_module module;
    struct launch_plan plans[PLANS];
};

/* REFUSED: by the compiler. WRONG: planning or compiling failed, with a printed error. RIGHT:
 * ready. `few`: the number of SMs for PLAN_FEW; 0: no such plan. */
enum tally ready_make(struct ready *r, struct lab *lab, struct data *d, const struct record *config,
                      const struct variant *v, int few, const char *name);
void ready_launch(struct ready *r, enum plan plan);
void ready_free(struct ready *r);

/* Launches both plans, each on a poisoned output, and compares with the reference. Prints errors
 * and puts them into `finding`. `save`: keeps the two outputs for ready_steady. */
bool ready_right(struct ready *r, struct lab *lab, struct data *d, const char *name, bool save,
                 char *finding, size_t size);
/* True if `launches` launches, the two plans in turn, always give the saved bits. */
bool ready_steady(struct ready *r, struct lab *lab, struct data *d, int launches, const char *name);

#endif
