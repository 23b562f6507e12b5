/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/surrogate.h"

/* Of the logarithm of a time: what the model errs by, what of it falls to a variant alone or to the
 * measurement, and what two variants that differ in one more parameter have in common. On recorded
 * landscapes (tests/search) results hardly change when they are half or twice these. */
static const double ERROR = 0.05, OWN = 0.011, ALIKE = 0.7;

int surrogate_init(struct surrogate *s, const struct grid *grid, const uint32_t *representative,
                   struct error *err)
{
    const uint32_t n = grid->n_variants;
    *s = (struct surrogate){.grid = grid, .representative = representative, .n = n};
    s->mean = calloc(n + 1, sizeof(*s->mean));
    s->variance = calloc(n + 1, sizeof(*s->variance));
    if (!s->mean || !s->variance) {
        surrogate_deinit(s);
        return error_set(err, ERROR_NO_MEMORY, "no memory to learn about %u variants", n);
    }
    return 0;
}

void surrogate_deinit(struct surrogate *s)
{
    free(s->mean);
    free(s->variance);
    free(s->rows);
    s->mean = s->variance = s->rows = NULL;
}

void surrogate_begin(struct surrogate *s, const double prior[])
{
    memcpy(s->mean, prior, s->n * sizeof(*prior));
    for (uint32_t i = 0; i < s->n; i++) {
        s->variance[i] = ERROR * ERROR;
    }
    s->n_rows = 0;
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

/* Covariances of all variants with one, less what the observations so far explain. */
static void explain(const struct surrogate *s, uint32_t variant, double row[])
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint32_t apart = grid_compile_distance(s->grid, s->representative[variant],
                                               s->representative[i]);
        row[i] = ERROR * ERROR * pow(ALIKE, apart);
    }
    for (uint32_t k = 0; k < s->n_rows; k++) {
        const double *other = s->rows + (size_t)k * s->n, part = other[variant];
        for (uint32_t i = 0; i < s->n; i++) {
            row[i] -= part * other[i];
        }
    }
}

void surrogate_learn(struct surrogate *s, uint32_t variant, double value)
{
    double *row = new_row(s);
    if (!row) {
        return;
    }
    explain(s, variant, row);
    double scale = sqrt(fmax(row[variant], 0) + OWN * OWN);
    double surprise = isnan(value) ? 0 : (value - s->mean[variant]) / scale;
    for (uint32_t i = 0; i < s->n; i++) {
        row[i] /= scale;
        s->mean[i] += row[i] * surprise;
        s->variance[i] -= row[i] * row[i];
    }
    s->n_rows++;
}

double surrogate_hope(const struct surrogate *s, uint32_t variant)
{
    return s->mean[variant] - sqrt(fmax(s->variance[variant], 0));
}
