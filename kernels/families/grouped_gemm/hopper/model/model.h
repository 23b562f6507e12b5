/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of the target "hopper" in two steps: facts of a problem on a device, worked
 * out once, then the time of any tile, for less than a microsecond each.
 *
 *   facts.c           the facts, predict() and predict_space()
 *   tile_time.c       the time of a tile, from facts and constants
 *   default.c         the analytic default
 *   corrections.c     what landscapes teach beside that; choices are not corrected by it
 *   constants.h       the constants, fitted to measurements by tests/model/refit.py
 *
 * What the routing does to a time is in the facts as counts, not as a list of experts: how many row
 * tiles of each height are whole, how many end after 16, 32, .. rows, and the experts by rows in a
 * few bins.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"
#include "kernels/families/grouped_gemm/hopper/model/constants.h"

struct hopper_constants {
#define X(name, value, least, start, most, what) double name;
    HOPPER_CONSTANTS(X)
#undef X
};
extern const struct hopper_constants hopper_h200;
/* Those that predictions are made with: hopper_h200, but for tests of other fits. */
extern const struct hopper_constants *hopper_fitted;

enum { HOPPER_BINS = 8, HOPPER_HEIGHTS = 4 /* 64, 128, 192, 256 rows */ };

struct hopper_facts {
    struct grouped_gemm_problem v; /* v.routing is not kept */
    double sms, speed;             /* speed: of an SM, in those of the H200 */
    double bytes_us, l2_bytes;
    double active; /* experts with rows */
    struct {
        double whole, cut[HOPPER_HEIGHTS * 4 + 1]; /* cut[i]: tiles that end after 16 i rows */
        double beside; /* of the cut ones, below whole ones of the same expert */
    } height[HOPPER_HEIGHTS];
    /* swap_ab, tiles of up to 16, 32, .. rows: [i]: those of 8 i rows, rounded up. [1]: two at a
     * time, for a cluster */
    double swapped[2][HOPPER_HEIGHTS * 4][HOPPER_HEIGHTS * 8 + 1];
    uint32_t n_bins;
    struct {
        double experts, rows; /* rows: of each */
    } bin[HOPPER_BINS];       /* by rows, the longest last; those without rows are not in here */
};

/* `w` NULL: rows as expected, spread as draws are. */
void hopper_facts_init(struct hopper_facts *f, const struct problem *p,
                       const struct device_info *info, const struct workload *w);
/* Microseconds. */
double hopper_time(const struct hopper_facts *f, const struct hopper_tile *t,
                   const struct hopper_constants *c);

void hopper_predict_space(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[]);

/* ---- corrections.c --------------------------------------------------------------------------- */

/*
 * What recorded landscapes teach that the model's physics does not know: by how much configs with a
 * trait (a shape of tile, a number of stages, a way to walk the tiles, some of these together) are
 * slower or faster than hopper_time() says, depending on what the problem is like. A sum over the
 * traits of a config, of logarithms; ridge regression on landscapes (tests/model/learn.c) found the
 * terms. A trait that was never recorded says nothing.
 */
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
