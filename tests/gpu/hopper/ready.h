/* SPDX-License-Identifier: Apache-2.0 */
/* One config made ready to be launched on one problem's buffers, and whether it is right. */
#ifndef GEMMD_TESTS_GPU_HOPPER_READY_H
#define GEMMD_TESTS_GPU_HOPPER_READY_H

#include "tests/gpu/hopper/watch.h"

/* Plans of the same launch: as it is meant, and with so few thread blocks that each has many tiles,
 * one after the other. */
enum plan { PLAN_ALL, PLAN_FEW, PLANS };

struct ready {
    struct gpu_module module;
    struct launch_plan plans[PLANS];
};

/* REFUSED: by the compiler. WRONG: it could not be planned or compiled, which was said. RIGHT: it
 * is ready. `few`: how many SMs PLAN_FEW is made for; 0: it is not needed. */
enum tally ready_make(struct ready *r, struct lab *lab, struct data *d, const struct record *config,
                      const struct variant *v, int few, const char *name);
void ready_launch(struct ready *r, enum plan plan);
void ready_free(struct ready *r);

/* Launches both plans, each on a poisoned output, and compares with the reference; what is wrong is
 * said, and put into `finding`. `save`: keeps the two outputs for ready_steady. */
bool ready_right(struct ready *r, struct lab *lab, struct data *d, const char *name, bool save,
                 char *finding, size_t size);
/* Whether that many launches give the saved bits every time, the two plans in turn. */
bool ready_steady(struct ready *r, struct lab *lab, struct data *d, int launches, const char *name);

#endif
