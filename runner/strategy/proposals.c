/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <stdlib.h>

#include "runner/strategy/strategy.h"

enum { TAKEN = 1, OUT = 2 };

int proposals_init(struct proposals *p, const struct strategy_setup *s, uint32_t limit,
                   struct error *err)
{
    *p = (struct proposals){
        .n = s->n, .limit = limit, .refunds = limit, .state = calloc(s->n ? s->n : 1, 1)};
    if (!p->state) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a search over %u configs", s->n);
    }
    for (uint32_t i = 0; i < s->n_coming; i++) {
        if (s->coming[i] < s->n) {
            p->state[s->coming[i]] = TAKEN;
        }
    }
    for (uint32_t i = 0; i < s->n_begun; i++) {
        if (proposals_allow(p) == 0 && !proposals_taken(p, s->begun[i])) {
            proposals_take(p, s->begun[i]);
        }
    }
    return 0;
}

void proposals_deinit(struct proposals *p)
{
    free(p->state);
    p->state = NULL;
}

bool proposals_taken(const struct proposals *p, uint32_t candidate)
{
    return p->state[candidate] & TAKEN;
}

bool proposals_is_out(const struct proposals *p, uint32_t candidate)
{
    return p->state[candidate] & OUT;
}

int proposals_allow(const struct proposals *p)
{
    if (p->spent < p->limit) {
        return 0;
    }
    return p->out > 0 && p->refunds > 0 ? STRATEGY_WAIT : STRATEGY_DONE;
}

void proposals_take(struct proposals *p, uint32_t candidate)
{
    assert(candidate < p->n && p->spent < p->limit && !proposals_taken(p, candidate));
    p->state[candidate] = TAKEN | OUT;
    p->spent++;
    p->out++;
}

void proposals_spare(struct proposals *p, uint32_t candidate)
{
    if (proposals_is_out(p, candidate)) {
        p->state[candidate] = TAKEN;
        p->out--;
    }
}

void proposals_observe(struct proposals *p, uint32_t candidate, const struct observation *o)
{
    assert(candidate < p->n);
    bool ours = p->state[candidate] & OUT;
    p->state[candidate] = TAKEN;
    if (!ours) {
        return;
    }
    p->out--;
    if (!o->ok && p->refunds > 0) {
        p->refunds--;
        p->spent--;
    }
}
