/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The variants of a plan, and their order. First the device's own kernels, which every tuning waits
 * for; then of each search those that it would ask for first (search.c). The searches take
 * turns, so that stopping early leaves every problem its best candidates; openings do not: they are
 * of searches that wait in a queue, and the next one begins soon. A variant of several stands at
 * its first place.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/precompile/plan.h"

/* ---- items ----------------------------------------------------------------------------------- */

/* The array with room for one more element; NULL: no memory, and it stays as it was. */
static void *with_room(void *array, uint32_t n, uint32_t *room, size_t size, struct error *err)
{
    if (n < *room) {
        return array;
    }
    uint32_t wanted = *room ? *room * 2 : 64;
    void *more = realloc(array, wanted * size);
    if (!more) {
        error_set(err, ERROR_NO_MEMORY, "no memory for a plan of %u variants", wanted);
        return NULL;
    }
    *room = wanted;
    return more;
}

static int precompile_append_item(struct precompile_plan *p, struct precompile_item item,
                                  struct error *err)
{
    struct variant v;
    item.problem = p->n_problems - 1;
    int r = precompile_plan_variant(p, &item, &v, err);
    if (r) {
        return r;
    }
    struct precompile_item *items = with_room(p->items, p->n, &p->room, sizeof(*items), err);
    if (!items) {
        return ERROR_NO_MEMORY;
    }
    variant_hash(&v, p->compiler, item.hash);
    p->items = items;
    p->items[p->n++] = item;
    return 0;
}

int precompile_add_point(struct precompile_plan *p, const struct space_point *at, uint32_t rank,
                         struct error *err)
{
    return precompile_append_item(
        p, (struct precompile_item){.origin = PRECOMPILE_POINT, .rank = rank, .at = *at}, err);
}

int precompile_add_config(struct precompile_plan *p, const struct record *config, uint32_t rank,
                          struct error *err)
{
    struct record *all = with_room(p->configs, p->n_configs, &p->room_configs, sizeof(*all), err);
    if (!all) {
        return ERROR_NO_MEMORY;
    }
    p->configs = all;
    record_copy(&all[p->n_configs], config);
    return precompile_append_item(p,
                                  (struct precompile_item){.origin = PRECOMPILE_CONFIG,
                                                           .rank = rank,
                                                           .number = p->n_configs++},
                                  err);
}

int precompile_add_problem(struct precompile_plan *p, const struct precompile_problem *w,
                           struct error *err)
{
    struct variant helpers[DEVICE_HELPERS_MAX];
    struct precompile_problem *all =
        with_room(p->problems, p->n_problems, &p->room_problems, sizeof(*all), err);
    if (!all) {
        return ERROR_NO_MEMORY;
    }
    p->problems = all;
    p->problems[p->n_problems++] = *w;
    uint32_t n = device_helpers(p->device, &p->info, w->target, helpers);
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = precompile_append_item(
            p, (struct precompile_item){.origin = PRECOMPILE_HELPER, .rank = i, .number = i}, err);
    }
    return r;
}

/* ---- their variants -------------------------------------------------------------------------- */

static int helper_variant(const struct precompile_plan *p, const struct family_target *t,
                          uint32_t number, struct variant *out, struct error *err)
{
    struct variant all[DEVICE_HELPERS_MAX];
    if (number >= device_helpers(p->device, &p->info, t, all)) {
        return error_set(err, ERROR_INTERNAL, "the device has no kernel %u of its own", number);
    }
    *out = all[number];
    return 0;
}

void precompile_plan_config(struct precompile_plan *p, const struct precompile_item *item,
                            struct record *out)
{
    struct space *space = &p->problems[item->problem].space;
    struct space_point at = item->at;
    if (item->origin == PRECOMPILE_CONFIG) {
        record_copy(out, &p->configs[item->number]);
        return;
    }
    space->points = &at;
    space->n = 1;
    space_config(space, 0, out);
    space->points = NULL;
    space->n = 0;
}

int precompile_plan_variant(struct precompile_plan *p, const struct precompile_item *item,
                            struct variant *out, struct error *err)
{
    const struct precompile_problem *w = &p->problems[item->problem];
    struct record config;
    if (item->origin == PRECOMPILE_HELPER) {
        return helper_variant(p, w->target, item->number, out, err);
    }
    precompile_plan_config(p, item, &config);
    return w->target->variant(&w->problem, &config, p->info.arch, out, err);
}

/* ---- the order ------------------------------------------------------------------------------- */

static int by_turn(const void *a, const void *b)
{
    const struct precompile_item *x = a, *y = b;
    bool helper = x->origin == PRECOMPILE_HELPER;
    if (helper != (y->origin == PRECOMPILE_HELPER)) {
        return helper ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->problem > y->problem) - (x->problem < y->problem);
}

static int by_hash(const void *a, const void *b)
{
    int order = strcmp(((const struct precompile_item *)a)->hash,
                       ((const struct precompile_item *)b)->hash);
    return order ? order : by_turn(a, b);
}

void precompile_put_in_order(struct precompile_plan *p)
{
    uint32_t n = 0;
    if (p->n == 0) {
        return;
    }
    qsort(p->items, p->n, sizeof(*p->items), by_hash);
    for (uint32_t i = 0; i < p->n; i++) {
        if (n == 0 || strcmp(p->items[n - 1].hash, p->items[i].hash) != 0) {
            p->items[n++] = p->items[i];
        }
    }
    p->n = n;
    qsort(p->items, p->n, sizeof(*p->items), by_turn);
}

void precompile_plan_deinit(struct precompile_plan *p)
{
    free(p->items);
    free(p->problems);
    free(p->configs);
    p->items = NULL;
    p->problems = NULL;
    p->configs = NULL;
    p->n = p->n_problems = p->n_configs = 0;
}
