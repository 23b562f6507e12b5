/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model separates tiles far better than variants of a tile (stages, staging, rasters), so its
 * first twenty configs are often variants of a single tile. When the model is wrong about that
 * tile, a budget of twenty never finds another. So each place goes to the candidate with the least
 * predicted time after a surcharge of 2 % for every similar point that already has a place.
 * Near-equal variants still come early, but not all before the first other tile. Points predicted
 * far behind the best get no place.
 *
 * Each choice is a pass over the candidates, which adds the surcharges of the last choice and finds
 * the next choice.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/plan.h"

/* SURCHARGE: the fraction of its predicted time that a config is charged for each similar config
 * with a place. HOPELESS: no place beyond this multiple of the least predicted time. */
static const double SURCHARGE = 0.02, HOPELESS = 1.6;

struct option {
    uint32_t alike; /* number of similar configs that have a place */
    bool chosen;    /* the config has a place */
};

static bool are_alike(const struct space_point *a, const struct space_point *b)
{
    uint32_t n = 0;
    for (int i = 0; i < PARAMS_MAX; i++) {
        n += a->at[i] != b->at[i];
    }
    return n <= DIVERSE_NEAR;
}

/* The number of candidates: points at the front that are not hopeless. */
static uint32_t count_options(const struct ranked *ranked, uint32_t n)
{
    uint32_t k = 0;
    while (k < n && k < DIVERSE_FROM && ranked[k].predicted <= HOPELESS * ranked[0].predicted) {
        k++;
    }
    return k;
}

/* Chooses the config for the next place; `last` got the place before. At least one config must be
 * left. */
static uint32_t find_next(const struct space_point points[], const struct ranked *ranked,
                          struct option *o, uint32_t n, uint32_t last)
{
    uint32_t best = n;
    double least = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (o[i].chosen) {
            continue;
        }
        o[i].alike += are_alike(&points[ranked[i].point], &points[ranked[last].point]);
        double cost = ranked[i].predicted * (1 + SURCHARGE * o[i].alike);
        if (best == n || cost < least) {
            best = i;
            least = cost;
        }
    }
    assert(best < n);
    return best;
}

/* Puts chosen points first, in the order of choice, and the rest behind in their old order. */
static void diverse_reorder(const struct space_point points[], struct ranked *ranked,
                            struct option *o, uint32_t n, struct ranked *out)
{
    const uint32_t most = n < DIVERSE_CHOICES ? n : DIVERSE_CHOICES;
    uint32_t at = 0;
    for (uint32_t next = 0; at < most; at++) { /* the first is the model's best */
        next = at ? find_next(points, ranked, o, n, next) : 0;
        o[next].chosen = true;
        out[at] = ranked[next];
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!o[i].chosen) {
            out[at++] = ranked[i];
        }
    }
    memcpy(ranked, out, n * sizeof(*out));
}

int diverse_order(const struct space_point points[], struct ranked *ranked, uint32_t n,
                  struct error *err)
{
    n = count_options(ranked, n);
    if (n < 3) {
        return 0; /* the first stays first, and for a second place there is only one config */
    }
    struct option *o = calloc(n, sizeof(*o));
    struct ranked *out = malloc(n * sizeof(*out));
    int r = o && out ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to order %u configs", n);
    if (r == 0) {
        diverse_reorder(points, ranked, o, n, out);
    }
    free(o);
    free(out);
    return r;
}
