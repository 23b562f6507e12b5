/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Corrects times for clocks and temperature, which change while a space is measured. Every time is
 * divided by the slowness of the reference kernel at that time, interpolated between two of its
 * measurements ("turns"). Entries that were measured often keep their samples' variation; replay
 * varies other entries like these (noise.c).
 * The minimum over many configs with two samples each is too small by luck. Therefore the times of
 * entries with few samples are multiplied by the mean ratio of the second to the first measurement
 * of the best configs.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"

static int drift_normalise_turns(struct landscape_turn *turns, uint32_t n, double *midmean,
                                 struct error *err)
{
    double *sorted = calloc(n + 1, sizeof(*sorted));
    if (!sorted) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    for (uint32_t i = 0; i < n; i++) {
        sorted[i] = turns[i].slow;
    }
    *midmean = n ? reader_midmean(sorted, n) : 0;
    for (uint32_t i = 0; i < n; i++) {
        turns[i].slow /= *midmean;
    }
    free(sorted);
    return 0;
}

/* The mean slowness of the turns after the last variant, while the best configs were measured
 * again. */
static double finals_slow(const struct table *t, const struct landscape_turn *turns, uint32_t n)
{
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += turns[i].at_ms > t->walked_ms ? turns[i].slow : 0;
        count += turns[i].at_ms > t->walked_ms;
    }
    return count ? sum / count : 1;
}

static void drift_correct_entry(struct landscape *l, const struct table *t,
                                struct landscape_entry *e)
{
    uint32_t n;
    const struct landscape_turn *turns = landscape_turns(l, l->n_problems - 1, &n);
    double then = landscape_slow(turns, n, e->at_ms);
    double slow = e->n ? finals_slow(t, turns, n) : then;
    e->walked_us = e->us / then;
    e->us /= slow;
    for (uint32_t i = 0; i < e->n; i++) {
        l->samples[e->first + i] /= slow;
    }
    if (e->n) {
        double sorted[SETTINGS_MAX];
        uint32_t some = e->n < SETTINGS_MAX ? e->n : SETTINGS_MAX;
        memcpy(sorted, l->samples + e->first, some * sizeof(*sorted));
        e->us = reader_midmean(sorted, some);
    }
}

/* The reference's time is the midmean of its turns: many samples over the whole recording. Adds an
 * entry also when the reference is outside the space or its recorded part. */
static int settle_reference(struct reader *r, double turns_us, struct error *err)
{
    const struct table *t = r->table;
    if (t->reference.n == 0 || !(t->reference_us > 0)) {
        return 0;
    }
    struct landscape_entry *e = reader_find(r->l, t->first_entry, &t->reference);
    e = e ? e : reader_entry(r->l, &t->reference, err);
    if (!e) {
        return ERROR_NO_MEMORY;
    }
    record_copy(&r->l->problems[r->l->n_problems - 1].reference, &t->reference);
    if (e->n == 0) {
        e->us = turns_us > 0 ? turns_us : t->reference_us;
        e->sure = true;
    }
    return 0;
}

/* Returns the mean of (second time / first time) over the configs that the recording measured
 * twice; at least 1. The first time rests on two samples, and a config may be chosen because these
 * were lucky. */
static double luck_of(const struct landscape *l, const struct table *t)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = t->first_entry; i < l->n_entries; i++) {
        const struct landscape_entry *e = &l->entries[i];
        if (e->n > 0) {
            sum += log(e->us / e->walked_us);
            n++;
        }
    }
    return n ? fmax(exp(sum / n), 1) : 1;
}

static void correct_all(struct reader *r)
{
    struct landscape *l = r->l;
    const struct table *t = r->table;
    for (uint32_t i = t->first_entry; i < l->n_entries; i++) {
        drift_correct_entry(l, t, &l->entries[i]);
    }
    double luck = luck_of(l, t);
    for (uint32_t i = t->first_entry; i < l->n_entries; i++) {
        l->entries[i].us *= l->entries[i].n == 0 ? luck : 1;
    }
}

int drift_correct(struct reader *r, struct error *err)
{
    double turns_us = 0;
    uint32_t n;
    struct landscape_turn *turns = landscape_turns(r->l, r->l->n_problems - 1, &n);
    int status = drift_normalise_turns(turns, n, &turns_us, err);
    if (status == 0) {
        correct_all(r);
        status = settle_reference(r, turns_us, err);
    }
    return status;
}
