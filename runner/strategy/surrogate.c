/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/surrogate.h"

/* Standard deviations of the logarithm of a time: the model's common error; the errors by single
 * compile-time values, which add up; the error by their combination; and the error of a single
 * config and its measurement. ALIKE and SETTINGS are the factors of the third error for each
 * further parameter that differs. Recorded landscapes (tests/search) show these values, with models
 * fitted to other landscapes. */
static const double COMMON = 0.5, VALUES = 0.07, TOGETHER = 0.06, OWN = 0.006;
static const double ALIKE = 0.7,
                    SETTINGS = 0.9; /* for a compile-time parameter; for a run-time one */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The longest predicted time that a member may have: the time of the SURROGATE_MOST-th fastest
 * candidate. */
static double limit_of(const double predicted[], uint32_t n)
{
    double *sorted = n > SURROGATE_MOST ? malloc(n * sizeof(*sorted)) : NULL;
    if (!sorted) {
        return INFINITY;
    }
    memcpy(sorted, predicted, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), by_value);
    double limit = sorted[SURROGATE_MOST - 1];
    free(sorted);
    return limit;
}

static void choose_members(struct surrogate *s, const double predicted[])
{
    double limit = limit_of(predicted, s->grid->n);
    for (uint32_t c = 0; c < s->grid->n; c++) {
        bool in = isfinite(predicted[c]) && predicted[c] <= limit && s->n < SURROGATE_MOST;
        s->place[c] = in ? s->n : GRID_NONE;
        if (in) {
            s->mean[s->n] = log(predicted[c]);
            s->variance[s->n] = COMMON * COMMON + VALUES * VALUES + TOGETHER * TOGETHER;
            s->member[s->n++] = c;
        }
    }
}

int surrogate_init(struct surrogate *s, const struct grid *grid, const double predicted[],
                   struct error *err)
{
    *s = (struct surrogate){.grid = grid, .unit = NAN};
    s->member = calloc(SURROGATE_MOST, sizeof(*s->member));
    s->place = calloc(grid->n + 1, sizeof(*s->place));
    s->mean = calloc(SURROGATE_MOST, sizeof(*s->mean));
    s->variance = calloc(SURROGATE_MOST, sizeof(*s->variance));
    if (!s->member || !s->place || !s->mean || !s->variance) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to learn about %u configs", grid->n);
    }
    choose_members(s, predicted);
    return 0;
}

void surrogate_deinit(struct surrogate *s)
{
    free(s->member);
    free(s->place);
    free(s->mean);
    free(s->variance);
    free(s->rows);
}

static double *new_row(struct surrogate *s)
{
    if (s->n_rows == s->room) {
        uint32_t room = s->room ? s->room * 2 : 32;
        double *rows = realloc(s->rows, (size_t)room * s->n * sizeof(*rows));
        if (!rows) {
            return NULL;
        }
        s->rows = rows;
        s->room = room;
    }
    return s->rows + (size_t)s->n_rows * s->n;
}

/* How much a difference in a parameter separates variants, in quarters of a usual difference. The
 * model errs most about parameters that decide how tiles are cut, dealt out and loaded. */
static uint32_t weight_of(const char *name)
{
    enum { LESSER = 3, GREATER = 6 };
    static const char *const lesser[] = {"num_stages", "staging_buffers", "in_flight", "skip_rows"};
    for (size_t i = 0; i < sizeof(lesser) / sizeof(lesser[0]); i++) {
        if (strcmp(name, lesser[i]) == 0) {
            return LESSER;
        }
    }
    return GREATER;
}

static uint32_t apart_by(const struct grid *g, const uint32_t weight[], uint32_t a, uint32_t b)
{
    const struct space_point *x = grid_at(g, a), *y = grid_at(g, b);
    uint32_t sum = 0;
    for (uint32_t i = 0; i < g->n_compile; i++) {
        sum += x->at[i] != y->at[i] ? weight[i] : 0;
    }
    return sum;
}

/* Computes the covariances of all members with member `at`, less the part that the rows so far
 * explain. */
static void surrogate_explain_row(const struct surrogate *s, uint32_t at, double row[])
{
    enum { QUARTERS = 4, MOST = PARAMS_MAX * 2 * QUARTERS };
    double apart[MOST + 1], alike[MOST + 1], settings[PARAMS_MAX + 1];
    uint32_t weight[PARAMS_MAX];
    for (uint32_t i = 0; i < s->grid->n_compile; i++) {
        weight[i] = weight_of(s->grid->space->params[i].name);
    }
    for (uint32_t n = 0; n <= MOST; n++) {
        double differ = (double)n / QUARTERS;
        double shared = 1 - fmin(differ, s->grid->n_compile) / fmax(s->grid->n_compile, 1);
        apart[n] = COMMON * COMMON + VALUES * VALUES * shared;
        alike[n] = TOGETHER * TOGETHER * pow(ALIKE, differ);
    }
    for (uint32_t n = 0; n <= PARAMS_MAX; n++) {
        settings[n] = pow(SETTINGS, n);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t a = s->member[at], b = s->member[i], n = apart_by(s->grid, weight, a, b);
        row[i] = apart[n] + alike[n] * settings[grid_settings_distance(s->grid, a, b)];
    }
    for (uint32_t k = 0; k < s->n_rows; k++) {
        const double *other = s->rows + (size_t)k * s->n, part = other[at];
        for (uint32_t i = 0; i < s->n; i++) {
            row[i] -= part * other[i];
        }
    }
}

/* Adds a row for member `at`, and updates mean and variance of all members. value: the logarithm of
 * its time; NaN: pending. */
static void surrogate_take_value(struct surrogate *s, uint32_t at, double value)
{
    double *row = new_row(s);
    if (!row) {
        return;
    }
    surrogate_explain_row(s, at, row);
    double scale = sqrt(fmax(row[at], 0) + OWN * OWN);
    double surprise = isnan(value) ? 0 : (value - s->mean[at]) / scale;
    for (uint32_t i = 0; i < s->n; i++) {
        row[i] /= scale;
        s->mean[i] += row[i] * surprise;
        s->variance[i] -= row[i] * row[i];
    }
    s->n_rows++;
}

double surrogate_value(const struct surrogate *s, double value)
{
    return log(value) - s->unit;
}

void surrogate_learn(struct surrogate *s, uint32_t candidate, double value)
{
    uint32_t at = s->place[candidate];
    if (at == GRID_NONE) {
        return;
    }
    surrogate_forget(s);
    if (isnan(s->unit)) {
        s->unit = log(value) - s->mean[at];
    }
    surrogate_take_value(s, at, surrogate_value(s, value));
    s->n_known = s->n_rows;
}

void surrogate_expect(struct surrogate *s, uint32_t candidate)
{
    if (s->place[candidate] != GRID_NONE) {
        surrogate_take_value(s, s->place[candidate], NAN);
    }
}

void surrogate_forget(struct surrogate *s)
{
    while (s->n_rows > s->n_known) {
        const double *row = s->rows + (size_t)--s->n_rows * s->n;
        for (uint32_t i = 0; i < s->n; i++) {
            s->variance[i] += row[i] * row[i];
        }
    }
}

static double surrogate_deviation(const struct surrogate *s, uint32_t at)
{
    return sqrt(fmax(s->variance[at], 0));
}

double surrogate_hope(const struct surrogate *s, uint32_t candidate, double deviations)
{
    uint32_t at = s->place[candidate];
    return at == GRID_NONE ? INFINITY : s->mean[at] - deviations * surrogate_deviation(s, at);
}

double surrogate_gain(const struct surrogate *s, uint32_t candidate, double value)
{
    static const double root_2 = 1.4142135623730951, root_2_pi = 2.5066282746310002;
    uint32_t at = s->place[candidate];
    if (at == GRID_NONE) {
        return INFINITY;
    }
    double below = value - s->mean[at], scale = surrogate_deviation(s, at);
    if (scale == 0) {
        return fmax(below, 0);
    }
    double z = below / scale;
    return below * 0.5 * erfc(-z / root_2) + scale * exp(-z * z / 2) / root_2_pi;
}
