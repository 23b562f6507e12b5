/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model tells tiles apart far better than it tells apart the variants of one tile (stages,
 * staging, rasters), so its first twenty are often one tile twenty times. When the model is wrong
 * about that tile, a budget of twenty never learns it. So places are given out one by one, each to
 * the candidate of least predicted time after a surcharge of 2 % for every point like it that has a
 * place already: near-equal variants still come early, only no longer all before the first other
 * tile. Points predicted far behind the best get no place by being unlike the others.
 *
 * Each choice is one pass over the candidates, which charges for the last choice and finds the next
 * one. Points are compared as three words of eight bytes at once: indices are below 128, so adding
 * 0x7f to each byte sets the top bit of those that differ and carries into no other.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runner/strategy/plan.h"

enum { WORDS = PARAMS_MAX / 8 };
static_assert(sizeof(struct space_point) == WORDS * sizeof(uint64_t), "points are whole words");
static_assert(PARAM_VALUES_MAX <= 0x7f, "indices leave the top bit of their byte free");

static const double SURCHARGE = 0.02, /* of the predicted time, for each point alike */
    HOPELESS = 1.6;                   /* times the best prediction */

struct option {
    uint64_t at[WORDS]; /* its space_point */
    double predicted;
    uint32_t alike; /* chosen points that are like it */
    bool chosen;
};

static bool are_alike(const uint64_t a[WORDS], const uint64_t b[WORDS])
{
    uint64_t sums = 0; /* by byte */
    for (int i = 0; i < WORDS; i++) {
        uint64_t differs = (a[i] ^ b[i]) + UINT64_C(0x7f7f7f7f7f7f7f7f);
        sums += differs >> 7 & UINT64_C(0x0101010101010101);
    }
    return (sums * UINT64_C(0x0101010101010101)) >> 56 <= DIVERSE_NEAR;
}

/* How many candidates there are: those at the front that are not hopeless. */
static uint32_t count_options(const struct ranked *ranked, uint32_t n)
{
    uint32_t k = 0;
    while (k < n && k < DIVERSE_FROM && ranked[k].predicted <= HOPELESS * ranked[0].predicted) {
        k++;
    }
    return k;
}

static void diverse_choose(struct option *o, uint32_t i, const struct ranked *ranked,
                           struct ranked *out)
{
    o[i].chosen = true;
    *out = ranked[i];
}

/* The next choice, after the one of `last`. There must be one left. */
static uint32_t find_next(struct option *o, uint32_t n, uint32_t last)
{
    uint32_t best = n;
    double least = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (o[i].chosen) {
            continue;
        }
        o[i].alike += are_alike(o[i].at, o[last].at);
        double cost = o[i].predicted * (1 + SURCHARGE * o[i].alike);
        if (best == n || cost < least) {
            best = i;
            least = cost;
        }
    }
    assert(best < n);
    return best;
}

/* Chosen ones first, in the order of choice; the others behind them as they stood. */
static void diverse_reorder(struct option *o, struct ranked *ranked, uint32_t n, struct ranked *out)
{
    uint32_t at = n < DIVERSE_CHOICES ? n : DIVERSE_CHOICES;
    uint32_t last = 0; /* the model's best */
    diverse_choose(o, last, ranked, &out[0]);
    for (uint32_t k = 1; k < at; k++) {
        last = find_next(o, n, last);
        diverse_choose(o, last, ranked, &out[k]);
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
        return 0; /* the first stays, so there is nothing to choose */
    }
    struct option *o = malloc(n * sizeof(*o));
    struct ranked *out = malloc(n * sizeof(*out));
    int r = o && out ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory to order %u configs", n);
    if (r == 0) {
        for (uint32_t i = 0; i < n; i++) {
            o[i] = (struct option){.predicted = ranked[i].predicted};
            memcpy(o[i].at, &points[ranked[i].point], sizeof(o[i].at));
        }
        diverse_reorder(o, ranked, n, out);
    }
    free(o);
    free(out);
    return r;
}
