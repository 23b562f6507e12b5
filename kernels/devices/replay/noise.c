/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variation of a replayed config. Where the recording has blocks of samples of the config, each
 * call of time() draws a block, and takes its launches from it. The samples of a block share clocks
 * and placement. A config that was measured a few times varies like a random
 * block of another config. Times are then multiplied by the reference kernel's recorded slowness at
 * the virtual clock's time. The point of the recording where a run begins is random, too.
 */
#include <math.h>

#include "kernels/devices/replay/replay.h"

double landscape_slow(const struct landscape_turn *turns, uint32_t n, double at_ms)
{
    uint32_t i = 0;
    while (i < n && turns[i].at_ms < at_ms) {
        i++;
    }
    if (n == 0 || i == 0 || i == n) {
        return n == 0 ? 1 : turns[i == n ? n - 1 : 0].slow;
    }
    const struct landscape_turn *a = &turns[i - 1], *b = &turns[i];
    double part = b->at_ms > a->at_ms ? (at_ms - a->at_ms) / (b->at_ms - a->at_ms) : 0;
    return a->slow + part * (b->slow - a->slow);
}

double noise_drift(const struct landscape *l, uint32_t problem, uint64_t seed, double clock_ms)
{
    uint32_t n;
    const struct landscape_turn *turns = landscape_turns(l, problem, &n);
    if (n < 2) {
        return 1;
    }
    double length = turns[n - 1].at_ms - turns[0].at_ms;
    uint64_t state = seed;
    double at = fmod(random_unit(&state) * length + clock_ms, 2 * length);
    at = at < length ? at : 2 * length - at; /* back and forth: no jump */
    return landscape_slow(turns, n, turns[0].at_ms + at);
}

static uint32_t noise_draw_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(random_unit(state) * n);
}

void noise_visit(const struct landscape *l, const struct landscape_entry *e, uint64_t *state,
                 struct noise *out)
{
    const struct landscape_entry *of = e;
    if (e->n == 0 && l->n_often > 0) {
        of = &l->entries[l->often[noise_draw_below(state, l->n_often)]];
    }
    *out = (struct noise){.landscape = l, .scale = e->us};
    if (of->n > 0) {
        uint32_t each = of->each ? of->each : of->n;
        out->block = l->samples + of->first + each * noise_draw_below(state, of->n / each);
        out->n = each;
        out->scale = e->us / of->us;
    }
}

double noise_gauss(uint64_t *state)
{
    double u = random_unit(state), v = random_unit(state);
    return sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v);
}

double noise_draw(const struct noise *v, uint64_t *state)
{
    if (v->n > 0) {
        return v->scale * v->block[noise_draw_below(state, v->n)];
    }
    return v->scale * exp(v->landscape->noise * noise_gauss(state));
}
