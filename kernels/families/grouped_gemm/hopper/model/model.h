/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of the target "hopper", in two steps: the facts of a problem on a device,
 * computed once; then the time of any tile, in less than a microsecond each.
 *
 *   facts.c           the facts, predict() and predict_space()
 *   tile_time.c       the time of a tile, from facts and constants
 *   default.c         the analytic default
 *   corrections.c     corrections learnt from landscapes; the default does not use them
 *   constants.h       the constants, fitted to measurements by tests/model/refit.py
 *
 * The facts hold the effect of routing as counts, not as a list of experts: row tiles of each
 * height that are whole, row tiles that end after 16, 32, .. rows, and the experts by rows in a few
 * bins.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"
#include "kernels/families/grouped_gemm/hopper/model/constants.h"

struct hopper_constants {
#define X(name, value, fp8, least, start, most, what) double name;
    HOPPER_CONSTANTS(X)
#undef X
};
extern const struct hopper_constants hopper_h200, hopper_fp8_h200;
/* The constants of predictions: hopper_h200 and hopper_fp8_h200, except in tests of other fits. */
extern const struct hopper_constants *hopper_fitted, *hopper_fp8_fitted;

static inline const struct hopper_constants *hopper_constants_of(const struct hopper_tile *t)
{
    return t->scales ? hopper_fp8_fitted : hopper_fitted;
}

enum { HOPPER_BINS = 8, HOPPER_HEIGHTS = 4 /* 64, 128, 192, 256 rows */ };

struct hopper_facts {
    struct gemm v;     /* v.routing is not kept */
    double sms, speed; /* number of SMs; speed of an SM, H200: 1 */
    double bytes_us, l2_bytes;
    double active; /* number of experts with rows */
    struct {
        double whole,
            cut[HOPPER_HEIGHTS * 4 + 1]; /* row tiles; cut[i]: with up to 16 i rows, not whole */
        double beside;                   /* number of cut tiles whose expert also has whole tiles */
    } height[HOPPER_HEIGHTS];
    /* swap_ab: number of tiles, by thread blocks of a cluster (less 1), by the tile's height in
     * units of 16 rows (less 1), and by its existing rows in units of 8, rounded up */
    double swapped[2][HOPPER_HEIGHTS * 4][HOPPER_HEIGHTS * 8 + 1];
    uint32_t n_bins;
    struct {
        double experts, rows; /* number of experts; mean rows of each */
        /* groups of experts with similar rows, the longest last; experts without rows are left out
         */
    } bin[HOPPER_BINS];
};

/* `w` gives the experts' rows; NULL: rows of a typical draw (gemm_typical_rows). */
void hopper_facts_init(struct hopper_facts *f, const struct problem *p,
                       const struct device_info *info, const struct workload *w);
/* The same for a problem already read; sorts `rows`, the experts' rows. */
void hopper_facts_of(struct hopper_facts *f, const struct gemm *v, const struct device_info *info,
                     int64_t rows[]);
/* The predicted time of a launch in microseconds. */
double hopper_time(const struct hopper_facts *f, const struct hopper_tile *t,
                   const struct hopper_constants *c);

void hopper_predict_space(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[]);

/* ---- corrections.c --------------------------------------------------------------------------- */

/*
 * Corrections of hopper_time(), learnt from recorded landscapes. A trait is a shape of tile, a
 * number of stages, an order of tiles, or a combination. Each trait makes a config slower or
 * faster, depending on aspects of the problem. The correction is a sum of logarithms over the
 * traits of a config. Ridge regression on landscapes (tests/model/learn.c) found the terms. A trait
 * that was never recorded adds nothing.
 */
enum {
    HOPPER_MODES = GEMM_DW + 1,
    HOPPER_TRAITS = 2816,    /* traits that a config could have */
    HOPPER_TRAITS_MOST = 24, /* most traits of a config */
    /* aspects of a problem: a constant, the rows of an expert, the size of an expert's weights */
    HOPPER_ASPECTS = 3,
};

/* By mode, trait and aspect: what the trait adds to a time's logarithm per unit of the aspect.
 */
struct hopper_corrections {
    float by[HOPPER_MODES][HOPPER_TRAITS][HOPPER_ASPECTS];
};
extern const struct hopper_corrections hopper_corrections_h200; /* embedded corrections_h200.txt */
/* The corrections of predictions: hopper_corrections_h200, except in tests. NULL: no
 * corrections. */
extern const struct hopper_corrections *hopper_corrections_used;

/* Writes a config's traits to `out`; returns how many. */
uint32_t hopper_traits(const struct hopper_facts *f, const struct hopper_tile *t,
                       uint16_t out[HOPPER_TRAITS_MOST]);
/* Computes the problem's aspects, clamped to the range of the recorded problems: a problem beyond
 * the range gets the corrections of the nearest recorded problem. */
void hopper_aspects(const struct hopper_facts *f, double out[HOPPER_ASPECTS]);

/* Microseconds: hopper_time() with hopper_constants_of(), corrected by hopper_corrections_used. */
double hopper_expected(const struct hopper_facts *f, const struct hopper_tile *t);
/* Puts what a default says of loads, and a tile's run-time settings, into a config. */
void hopper_put_loads(const struct gemm *v, struct record *config);
void hopper_put_run_time(const struct gemm *v, const struct hopper_tile *t, struct record *config);
/* Puts the best run-time settings of a tile into *t; returns its expected time. */
double hopper_best_run_time(const struct hopper_facts *f, struct hopper_tile *t);

#endif
