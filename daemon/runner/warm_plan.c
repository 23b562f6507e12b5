/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which variants, and in which order. First the device's own kernels, which every tuning waits for;
 * then of each problem those that a tuning would ask for first (ranking.h). The problems take
 * turns, so that stopping early leaves every problem its best candidates.
 *
 * The usual problems are every mode with each of its permutes, in four sizes: what is legal and
 * worth a place depends a little on sizes, and nothing else of them is in a variant.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/runner/ranking.h"
#include "daemon/runner/warm.h"
#include "kernels/device.h"

static const struct {
    const char *mode, *fields;
    bool rare; /* with --all only */
} usual_modes[] = {
    {"forward", "mode=forward", false},
    {"forward", "mode=forward permute_x=true", false},
    {"forward", "mode=forward permute_y=true", false},
    {"forward", "mode=forward permute_y=true fuse_mul_post=true", true},
    {"dX", "mode=dX", false},
    {"dX", "mode=dX permute_x=true", false},
    {"dX", "mode=dX permute_y=true", false},
    {"dW", "mode=dW", false},
    {"dW", "mode=dW permute_x=true", false},
    {"dW", "mode=dW permute_y=true", false},
};
static const struct {
    const char *fields;
    bool rare;
} usual_types[] = {
    {"dtype_in=bf16", false},
    {"dtype_in=fp16", true},
    {"dtype_in=fp32", true},
    {"dtype_in=bf16 dtype_out=fp32", true},
    {"dtype_in=fp16 dtype_out=fp32", true},
};
static const char *const usual_sizes[] = {
    "M=65536 N=8192 K=8192 experts=8 topk=2",
    "M=65536 N=8192 K=8192 experts=128 topk=8",
    "M=65536 N=2048 K=2048 experts=1024 topk=8",
    "M=64 N=2048 K=2048 experts=8 topk=2",
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- items ----------------------------------------------------------------------------------- */

static int add_item(struct warm_plan *p, const struct warm_item *item, struct error *err)
{
    if (p->n == p->room) {
        uint32_t room = p->room ? p->room * 2 : 4096;
        struct warm_item *more = realloc(p->items, room * sizeof(*more));
        if (!more) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for %u variants", room);
        }
        p->items = more;
        p->room = room;
    }
    p->items[p->n++] = *item;
    return 0;
}

static int add_variant(struct warm_plan *p, struct warm_item *item, struct error *err)
{
    struct variant v;
    item->problem = p->n_problems - 1;
    int r = warm_plan_variant(p, item, &v, err);
    if (r) {
        return r;
    }
    variant_hash(&v, p->compiler, item->hash);
    return add_item(p, item, err);
}

static int add_helpers(struct warm_plan *p, const struct family_target *t, struct error *err)
{
    struct variant all[DEVICE_HELPERS_MAX];
    uint32_t n = device_helpers(p->device, &p->info, t, all);
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = add_variant(p, &(struct warm_item){.helper = true, .rank = i}, err);
    }
    return r;
}

/* ---- the variants of a problem --------------------------------------------------------------- */

/* One point a variant: run-time tunables keep their first value, by which a variant is judged. */
static bool first_at_run_time(const void *ctx, const struct record *config)
{
    const struct space *s = ctx;
    for (uint32_t i = 0; i < s->n_params; i++) {
        const struct param *p = &s->params[i];
        struct value v;
        if (p->run_time && record_get(config, p->name, &v) && !value_equal(&v, &p->values[0])) {
            return false;
        }
    }
    return true;
}

static int add_points(struct warm_plan *p, const struct space *s, const struct ranked *order,
                      uint32_t n, struct error *err)
{
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        r = add_variant(p, &(struct warm_item){.rank = i, .at = s->points[order[i].point]}, err);
    }
    return r;
}

static int add_ranked(struct warm_plan *p, const struct space *s, const struct warm_problem *of,
                      int64_t each, struct error *err)
{
    const struct ranking_setup ranking = {
        .space = s, .target = of->target, .problem = &of->problem, .info = &p->info};
    struct ranked *order;
    uint32_t n;
    int r = ranking_make(&ranking, &order, &n, err);
    if (r == 0) {
        r = add_points(p, s, order, each > 0 && each < n ? (uint32_t)each : n, err);
        free(order);
    }
    return r;
}

static int room_for_problem(struct warm_plan *p, struct error *err)
{
    if (p->n_problems < p->room_problems) {
        return 0;
    }
    uint32_t room = p->room_problems ? p->room_problems * 2 : 64;
    struct warm_problem *more = realloc(p->problems, room * sizeof(*more));
    if (!more) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u problems", room);
    }
    p->problems = more;
    p->room_problems = room;
    return 0;
}

/* ERROR_NO_CONFIG: no target of the device takes it, or not the one that is asked for. */
static int add_problem(struct warm_plan *p, const struct problem *problem,
                       const struct warm_setup *setup, struct error *err)
{
    const struct family *f = family_of_problem(problem);
    int r = f ? room_for_problem(p, err)
              : error_set(err, ERROR_NO_CONFIG, "no kernels for op %s are known here",
                          problem->op_name);
    if (r) {
        return r;
    }
    struct warm_problem *w = &p->problems[p->n_problems];
    *w = (struct warm_problem){.problem = *problem};
    r = family_target_choose(f, problem, &p->info, setup->target, &w->target, err);
    if (r) {
        return r;
    }
    struct space s;
    w->space.n_params = w->target->params(problem, &p->info, w->space.params);
    r = space_build(&s, w->target, problem, &p->info, first_at_run_time, &w->space, err);
    if (r == 0) { /* the points follow its order of params */
        w->space.n_params = s.n_params;
        memcpy(w->space.params, s.params, sizeof(s.params));
        p->n_problems++;
        r = add_helpers(p, w->target, err);
        r = r ? r : add_ranked(p, &s, w, setup->each, err);
    }
    space_deinit(&s);
    return r;
}

static int helper_variant(const struct warm_plan *p, const struct family_target *t, uint32_t number,
                          struct variant *out, struct error *err)
{
    struct variant all[DEVICE_HELPERS_MAX];
    if (number >= device_helpers(p->device, &p->info, t, all)) {
        return error_set(err, ERROR_INTERNAL, "the device has no kernel %u of its own", number);
    }
    *out = all[number];
    return 0;
}

int warm_plan_variant(struct warm_plan *p, const struct warm_item *item, struct variant *out,
                      struct error *err)
{
    struct warm_problem *w = &p->problems[item->problem];
    if (item->helper) {
        return helper_variant(p, w->target, item->rank, out, err);
    }
    struct space_point at = item->at;
    struct record config;
    w->space.points = &at;
    w->space.n = 1;
    space_config(&w->space, 0, &config);
    w->space.points = NULL;
    w->space.n = 0;
    return w->target->variant(&w->problem, &config, p->info.arch, out, err);
}

/* ---- all problems --------------------------------------------------------------------------- */

static bool list_names(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n])) {
            return true;
        }
    }
    return !list;
}

static int check_modes(const char *modes, struct error *err)
{
    for (const char *at = modes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = (int)strcspn(at, ",");
        char word[16];
        snprintf(word, sizeof(word), "%.*s", n, at);
        if (n > 15 || !list_names("forward,dX,dW", word)) {
            return error_set(err, ERROR_INVALID, "mode \"%.*s\": it is forward, dX or dW", n, at);
        }
    }
    return 0;
}

/* What the op or the target refuses is no usual problem. */
static int add_usual(struct warm_plan *p, const struct warm_setup *s, const char *mode,
                     const char *type, const char *size, struct error *err)
{
    char text[512];
    struct problem problem;
    struct error why = ERROR_NULL;
    snprintf(text, sizeof(text), "grouped_gemm %s %s %s", mode, type, size);
    if (problem_parse(&problem, text, NULL) != 0) {
        return 0;
    }
    int r = add_problem(p, &problem, s, &why);
    return r == 0 || r == ERROR_NO_CONFIG ? 0 : error_set(err, r, "%s", why.text);
}

static int add_all_usual(struct warm_plan *p, const struct warm_setup *s, struct error *err)
{
    int r = check_modes(s->modes, err);
    for (size_t i = 0; i < COUNT(usual_modes) * COUNT(usual_types) && r == 0; i++) {
        size_t m = i % COUNT(usual_modes), t = i / COUNT(usual_modes);
        bool rare = usual_modes[m].rare || usual_types[t].rare;
        bool wanted = list_names(s->modes, usual_modes[m].mode) && (!rare || s->all);
        for (size_t k = 0; wanted && k < COUNT(usual_sizes) && r == 0; k++) {
            r = add_usual(p, s, usual_modes[m].fields, usual_types[t].fields, usual_sizes[k], err);
        }
    }
    if (r == 0 && p->n == 0) {
        r = error_set(err, ERROR_NO_CONFIG, "target %s has no kernels for %s of %s",
                      s->target ? s->target : "", s->modes ? s->modes : "any mode", p->info.name);
    }
    return r;
}

static int add_lines(struct warm_plan *p, const struct warm_setup *s, struct error *err)
{
    char *line = NULL;
    size_t room = 0;
    int r = 0;
    for (ssize_t n; r == 0 && (n = getline(&line, &room, s->problems)) > 0;) {
        struct problem problem;
        line[n - (line[n - 1] == '\n')] = '\0';
        if (line[0]) {
            r = problem_parse(&problem, line, err);
            r = r ? r : add_problem(p, &problem, s, err);
        }
    }
    if (r == 0 && p->n_problems == 0) {
        r = error_set(err, ERROR_INVALID, "no problem is given: one line of text for each");
    }
    free(line);
    return r;
}

/* ---- the order ------------------------------------------------------------------------------ */

static int by_turn(const void *a, const void *b)
{
    const struct warm_item *x = a, *y = b;
    if (x->helper != y->helper) {
        return x->helper ? -1 : 1;
    }
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    return (x->problem > y->problem) - (x->problem < y->problem);
}

static int by_hash(const void *a, const void *b)
{
    int order = strcmp(((const struct warm_item *)a)->hash, ((const struct warm_item *)b)->hash);
    return order ? order : by_turn(a, b);
}

static void put_in_order(struct warm_plan *p)
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

int warm_plan_init(struct warm_plan *p, const struct warm_setup *s, struct error *err)
{
    *p = (struct warm_plan){.device = s->device};
    snprintf(p->compiler, sizeof(p->compiler), "%s", s->compiler);
    int r = device_probe(s->device, &p->info, err);
    r = r ? r : s->problems ? add_lines(p, s, err) : add_all_usual(p, s, err);
    if (r) {
        warm_plan_deinit(p);
    } else {
        put_in_order(p);
    }
    return r;
}

void warm_plan_deinit(struct warm_plan *p)
{
    free(p->items);
    free(p->problems);
    p->items = NULL;
    p->problems = NULL;
    p->n = p->n_problems = 0;
}
