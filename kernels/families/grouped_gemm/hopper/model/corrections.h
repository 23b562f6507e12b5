/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recorded landscapes teach that the model's physics does not know: by how much configs with a
 * trait (a shape of tile, a number of stages, a way to walk the tiles, some of these together) are
 * slower or faster than hopper_time() says, depending on what the problem is like. A sum over the
 * traits of a config, of logarithms; ridge regression on landscapes (tests/model/learn.c) found the
 * terms. A trait that was never recorded says nothing.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CORRECTIONS_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CORRECTIONS_H

#include "kernels/families/grouped_gemm/hopper/model/model.h"

enum {
    HOPPER_MODES = GEMM_DW + 1,
    HOPPER_TRAITS = 2816,    /* a trait's number is less */
    HOPPER_TRAITS_MOST = 24, /* of a config */
    HOPPER_ASPECTS = 3,      /* of a problem: that it is one, rows of an expert, size of a weight */
};

/* By mode, trait and aspect: what is added to the logarithm of a time, times the aspect. */
struct hopper_corrections {
    float by[HOPPER_MODES][HOPPER_TRAITS][HOPPER_ASPECTS];
};
extern const struct hopper_corrections hopper_corrections_h200; /* embedded corrections_h200.txt */
/* Those that predictions are made with: hopper_corrections_h200, but for tests. NULL: none. */
extern const struct hopper_corrections *hopper_corrections_used;

/* Returns how many. */
uint32_t hopper_traits(const struct hopper_facts *f, const struct hopper_tile *t,
                       uint16_t out[HOPPER_TRAITS_MOST]);
/* Within what was recorded: beyond it a problem is taken to be like the last that was. */
void hopper_aspects(const struct hopper_facts *f, double out[HOPPER_ASPECTS]);

/* Microseconds: hopper_time() with hopper_fitted, corrected by what was learnt. */
double hopper_expected(const struct hopper_facts *f, const struct hopper_tile *t);

#endif
