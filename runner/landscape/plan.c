/* SPDX-License-Identifier: Apache-2.0 */
/* The points and their order. Variants are sorted by a hash of the text of their compile-time
 * config. The hash leaves the kernel's source out, so that the next version of a kernel is sampled
 * at the same points. Settings (run-time parts of configs) are sorted by a hash of their text; the
 * first of the space is always chosen. The reference's variant and setting come first. */
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "runner/landscape/recorder.h"

static uint64_t hash_part(const struct space *s, const struct record *config, bool run_time)
{
    struct record part;
    char text[CONFIG_TEXT_MAX];
    record_init(&part);
    for (uint32_t i = 0; i < s->n_params; i++) {
        struct value v;
        if (s->params[i].run_time == run_time && record_get(config, s->params[i].name, &v)) {
            record_set(&part, s->params[i].name, v, NULL);
        }
    }
    record_format(&part, text, sizeof(text));
    return hash64(text, strlen(text));
}

/* The place of a point in the order: 0 for the reference, else the hash. */
static uint64_t landscape_order_of_point(const struct landscape_recorder *s, uint32_t point,
                                         bool run_time)
{
    struct record config;
    space_config(&s->space, point, &config);
    uint64_t hash = hash_part(&s->space, &config, run_time);
    return hash == hash_part(&s->space, &s->reference, run_time) ? 0 : hash;
}

static bool landscape_share_variant(const struct space *s, uint32_t a, uint32_t b)
{
    uint32_t n = 0;
    while (n < s->n_params && !s->params[n].run_time) { /* run-time parameters are last */
        n++;
    }
    return memcmp(s->points[a].at, s->points[b].at, n) == 0;
}

uint32_t landscape_setting(const struct landscape_recorder *s, uint32_t point)
{
    uint32_t number = 0;
    for (uint32_t i = 0; i < s->space.n_params; i++) {
        const struct param *p = &s->space.params[i];
        number = p->run_time ? number * p->n + s->space.points[point].at[i] : number;
    }
    return number;
}

static int by_order(const void *a, const void *b)
{
    const struct landscape_points *x = a, *y = b;
    if (x->order != y->order) {
        return x->order < y->order ? -1 : 1;
    }
    return (x->first > y->first) - (x->first < y->first);
}

static void list_variants(struct landscape_recorder *s)
{
    for (uint32_t i = 0; i < s->space.n; i++) {
        struct landscape_points *last = s->variants + s->n_variants - 1;
        if (s->n_variants > 0 && landscape_share_variant(&s->space, last->first, i)) {
            last->n++;
        } else {
            s->variants[s->n_variants++] = (struct landscape_points){
                .order = landscape_order_of_point(s, i, false), .first = i, .n = 1};
        }
    }
    qsort(s->variants, s->n_variants, sizeof(*s->variants), by_order);
}

/* Marks as skipped all settings but the order's number of them: the first setting of the space,
 * then those with the smallest hashes. */
static int choose_settings(struct landscape_recorder *s, struct error *err)
{
    uint64_t *hash = calloc(s->n_settings, sizeof(*hash));
    if (!hash) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u settings", s->n_settings);
    }
    for (uint32_t i = 1; i < s->n_settings; i++) {
        hash[i] = UINT64_MAX; /* the first setting has hash 0 */
    }
    for (uint32_t i = 0; i < s->space.n; i++) {
        uint32_t at = landscape_setting(s, i);
        hash[at] = hash[at] == UINT64_MAX ? landscape_order_of_point(s, i, true) : hash[at];
    }
    for (uint32_t i = 0; s->order->settings > 0 && i < s->n_settings; i++) {
        int64_t before = 0;
        for (uint32_t k = 0; k < s->n_settings; k++) {
            before += hash[k] < hash[i] || (hash[k] == hash[i] && k < i);
        }
        s->skipped[i] = before >= s->order->settings;
    }
    free(hash);
    return 0;
}

int landscape_plan(struct landscape_recorder *s, struct error *err)
{
    int r = space_build(&s->space, s->target, &s->problem, &s->device->info, NULL, err);
    if (r == 0 && s->space.n == 0) {
        r = error_set(err, ERROR_NO_CONFIG, "no config is valid for this problem here");
    }
    r = r ? r : s->target->choose(&s->problem, &s->device->info, &s->reference, err);
    if (r) {
        return r;
    }
    s->n_settings = 1;
    for (uint32_t i = 0; i < s->space.n_params; i++) {
        s->n_settings *= s->space.params[i].run_time ? s->space.params[i].n : 1;
    }
    s->variants = calloc(s->space.variants, sizeof(*s->variants));
    s->us = calloc(s->space.n, sizeof(*s->us));
    s->skipped = calloc(s->n_settings, sizeof(*s->skipped));
    if (!s->variants || !s->us || !s->skipped) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u configs", s->space.n);
    }
    for (uint32_t i = 0; i < s->space.n; i++) {
        s->us[i] = NAN;
    }
    list_variants(s);
    return choose_settings(s, err);
}
