/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The legal configs of a problem on a device: the product of the target's tunables, in
 * lexicographic order (the last tunable varies fastest), less the points that a restriction or a
 * rule drops. Each rule has a count and the text of its first rejection, which explain the size of
 * the space to users. Run-time tunables come last, in any order of the target, so that the points
 * of one variant are adjacent and countable without remembering them.
 *
 * The walk calls check() for every point, except:
 * - other run-time settings of a variant whose first setting is illegal or not worth a place
 * - points that a rule settled with the first few tunables (rejection.settled_by)
 * - values that a restriction excludes
 *
 * check() is pure arithmetic, about half a microsecond. But spaces have up to a million points, so
 * callers that must not block for long use space_more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/space.h"

enum { RULES_MAX = sizeof(((struct space *)0)->rules) / sizeof(((struct space *)0)->rules[0]) };

/* ---- counting -------------------------------------------------------------------------------- */

static void space_count_rule(struct space *s, const char *rule, const char *text, bool legal,
                             uint64_t points)
{
    uint32_t i = 0;
    while (i < s->n_rules && (s->rules[i].legal != legal || strcmp(s->rules[i].rule, rule) != 0)) {
        i++;
    }
    if (i == RULES_MAX) { /* the array is full: its last element counts all further rules */
        i = RULES_MAX - 1;
    } else if (i == s->n_rules) {
        struct space_rule *r = &s->rules[s->n_rules++];
        snprintf(r->rule, sizeof(r->rule), "%s", rule);
        snprintf(r->text, sizeof(r->text), "%s", text);
        r->legal = legal;
    }
    s->rules[i].dropped += points;
}

static bool space_shares_variant(const struct space *s, const struct space_point *a,
                                 const struct space_point *b)
{
    for (uint32_t i = 0; i < s->n_params && !s->params[i].run_time; i++) {
        if (a->at[i] != b->at[i]) {
            return false;
        }
    }
    return true;
}

static void count_legal(struct space *s)
{
    bool fresh = s->n == 0 || !space_shares_variant(s, &s->at, &s->last);
    s->variants += fresh;
    s->in_variant = fresh ? 1 : s->in_variant + 1;
    s->settings = s->in_variant > s->settings ? s->in_variant : s->settings;
    s->last = s->at;
}

static int add_point(struct space *s, struct error *err)
{
    if (s->keep && s->n == s->room) {
        uint32_t more = s->room ? s->room * 2 : 256;
        struct space_point *points = realloc(s->points, more * sizeof(*points));
        if (!points) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for a space of %u configs", more);
        }
        s->points = points;
        s->room = more;
    }
    if (s->keep) {
        s->points[s->n] = s->at;
    }
    count_legal(s);
    s->n++;
    return 0;
}

/* ---- restrictions ---------------------------------------------------------------------------- */

/* A value of another type than the tunable's is an error. A value that this problem's space lacks
 * is allowed: a client may use its list of values for several problems. */
static int space_check_values(const struct restriction *r, const struct param *p, struct error *err)
{
    for (uint32_t i = 0; i < r->n; i++) {
        char asked[48], one[48];
        if (p->n && r->values[i].type != p->values[0].type) {
            value_format(&r->values[i], asked, sizeof(asked));
            value_format(&p->values[0], one, sizeof(one));
            return error_set(err, ERROR_INVALID, "restrict: %s takes values such as %s, not %s",
                             r->name, one, asked);
        }
    }
    return 0;
}

static int space_check_restrictions(const struct param params[], uint32_t n,
                                    const struct request *r, struct error *err)
{
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        char known[400] = "";
        size_t at = 0;
        const struct param *found = NULL;
        for (uint32_t k = 0; k < n; k++) {
            found = strcmp(r->restrict_[i].name, params[k].name) == 0 ? &params[k] : found;
            if (at < sizeof(known)) {
                at += (size_t)snprintf(known + at, sizeof(known) - at, "%s%s", k ? ", " : "",
                                       params[k].name);
            }
        }
        if (!found) {
            return error_set(err, ERROR_UNKNOWN_FIELD,
                             "restrict: %s is no tunable here; these are: %s", r->restrict_[i].name,
                             known);
        }
        int status = space_check_values(&r->restrict_[i], found, err);
        if (status < 0) {
            return status;
        }
    }
    return 0;
}

int space_check_request(const struct family_target *t, const struct request *r,
                        const struct device_info *info, struct error *err)
{
    struct param params[PARAMS_MAX];
    const uint32_t n = t->params(&r->problem, info, params);
    return space_check_restrictions(params, n, r, err);
}

/* ---- walking --------------------------------------------------------------------------------- */

static uint64_t space_values(const struct space *s, uint32_t param)
{
    return (uint64_t)__builtin_popcount(s->allowed[param]);
}

static uint8_t space_first(const struct space *s, uint32_t param)
{
    return (uint8_t)__builtin_ctz(s->allowed[param]);
}

static int set_value(const struct space *s, uint32_t param, uint32_t at, struct record *config,
                     struct error *err)
{
    return record_set(config, s->params[param].name, s->params[param].values[at], err);
}

/* Goes to the next point; false after the last, and the first is next. Sets only the changed values
 * in `config`. */
static bool space_step(struct space *s)
{
    for (uint32_t i = s->n_params; i-- > 0;) {
        const uint32_t later = s->allowed[i] >> s->at.at[i] >> 1;
        const int next = later ? s->at.at[i] + 1 + __builtin_ctz(later) : space_first(s, i);
        s->at.at[i] = (uint8_t)next;
        set_value(s, i, s->at.at[i], &s->config, NULL);
        if (later) {
            return true;
        }
    }
    return false;
}

/* Moves run-time params last; otherwise keeps the target's order. */
static void run_time_last(struct space *s)
{
    for (uint32_t i = 1; i < s->n_params; i++) {
        struct param p = s->params[i];
        uint32_t k = i;
        for (; !p.run_time && k > 0 && s->params[k - 1].run_time; k--) {
            s->params[k] = s->params[k - 1];
        }
        s->params[k] = p;
    }
}

/* Excludes the values that the request does not allow. */
static void space_restrict(struct space *s, const struct restriction *r)
{
    for (uint32_t i = 0; i < s->n_params; i++) {
        const struct param *p = &s->params[i];
        const bool same = strcmp(p->name, r->name) == 0;
        for (uint32_t k = 0; same && k < p->n; k++) {
            s->allowed[i] &= restriction_allows(r, &p->values[k]) ? UINT32_MAX : ~(1u << k);
        }
    }
}

/* Starts a walk at the first allowed point. */
static int space_begin_walk(struct space *s, struct error *err)
{
    uint64_t all = 1, allowed = 1;
    int r = 0;
    s->raw = s->unworthy = s->n_rules = 0;
    memset(s->rules, 0, sizeof(s->rules));
    for (uint32_t i = 0; i < s->n_params; i++) {
        all *= s->params[i].n;
        allowed *= space_values(s, i);
    }
    for (uint32_t i = 0; i < s->n_params && allowed && r == 0; i++) {
        s->at.at[i] = space_first(s, i);
        r = set_value(s, i, s->at.at[i], &s->config, err);
    }
    if (all > allowed) {
        s->raw = all - allowed;
        space_count_rule(s, "restricted", "the restriction excludes it", false, s->raw);
    }
    s->ended = allowed == 0;
    return r;
}

int space_begin(struct space *s, const struct space_setup *setup, bool keep, struct error *err)
{
    memset(s, 0, sizeof(*s));
    s->setup = *setup;
    s->keep = keep;
    s->n_params = setup->target->params(setup->problem, setup->info, s->params);
    record_init(&s->config);
    int r =
        setup->request ? space_check_restrictions(s->params, s->n_params, setup->request, err) : 0;
    if (r) {
        return r;
    }
    run_time_last(s);
    for (uint32_t i = 0; i < s->n_params; i++) {
        s->allowed[i] = (uint32_t)((UINT64_C(1) << s->params[i].n) - 1);
    }
    for (uint32_t i = 0; setup->request && i < setup->request->n_restrict; i++) {
        space_restrict(s, &setup->request->restrict_[i]);
    }
    return space_begin_walk(s, err);
}

/* The index of the first tunable that the rejecting rule does not look at. A rule without
 * settled_by is taken to look at all compile-time tunables. */
static uint32_t settled_from(const struct space *s, const struct rejection *why)
{
    uint32_t from = s->n_params;
    while (from > 0 && s->params[from - 1].run_time) {
        from--;
    }
    for (uint32_t i = 0; why->settled_by && i < from; i++) {
        if (strcmp(s->params[i].name, why->settled_by) == 0) {
            return i + 1;
        }
    }
    return from;
}

/* When `at` is the first of the points that differ only in the tunables from `from` on: goes to the
 * last of these points and returns their number. Otherwise returns 1. */
static uint64_t space_pass_points(struct space *s, uint32_t from)
{
    uint64_t points = 1;
    for (uint32_t i = from; i < s->n_params; i++) {
        points *= space_values(s, i);
        if (s->at.at[i] != space_first(s, i)) {
            return 1;
        }
    }
    for (uint32_t i = from; i < s->n_params; i++) {
        s->at.at[i] = (uint8_t)(31 - __builtin_clz(s->allowed[i]));
    }
    return points;
}

/* Drops the point and all points that are dropped for the same reason. At a variant's first setting
 * these are all settings of the variant (struct param); for a settled rule, all of its points. */
static void space_drop_point(struct space *s, const struct rejection *why, bool legal)
{
    const uint64_t points = space_pass_points(s, settled_from(s, why));
    s->raw += points - 1;
    s->unworthy += legal ? points : 0;
    space_count_rule(s, why->rule, why->text, legal, points);
}

static int space_check_point(struct space *s, struct error *err)
{
    const struct space_setup *u = &s->setup;
    struct rejection why = {0};
    s->raw++;
    if (u->target->check(u->problem, &s->config, u->info, &why)) {
        space_drop_point(s, &why, false);
    } else if (!s->all && u->target->worth &&
               u->target->worth(u->problem, &s->config, u->info, &why)) {
        space_drop_point(s, &why, true);
    } else {
        return add_point(s, err);
    }
    return 0;
}

int space_more(struct space *s, uint32_t n, struct error *err)
{
    for (; n > 0 && !s->ended; n--) {
        int r = space_check_point(s, err);
        if (r) {
            space_deinit(s);
            return r;
        }
        s->ended = !space_step(s);
        if (s->ended && s->n == 0 && s->unworthy > 0) {
            s->all = true; /* the restriction left only these points: walks again and keeps them */
            space_begin_walk(s, NULL);
        }
    }
    return s->ended ? 0 : SPACE_MORE;
}

void space_deinit(struct space *s)
{
    free(s->points);
    s->points = NULL;
    s->n = 0;
}

void space_config(const struct space *s, uint32_t point, struct record *config)
{
    record_init(config);
    for (uint32_t i = 0; i < s->n_params; i++) {
        set_value(s, i, s->points[point].at[i], config, NULL);
    }
}

void space_predict(const struct space *s, const struct family_target *t, const struct problem *p,
                   const struct device_info *info, const struct workload *w, double us[])
{
    if (t->predict_space) {
        t->predict_space(p, info, w, s, us);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        space_config(s, i, &config);
        us[i] = t->predict(p, &config, info, w);
    }
}

int space_build(struct space *s, const struct family_target *t, const struct problem *p,
                const struct device_info *info, const struct request *request, struct error *err)
{
    const struct space_setup setup = {t, p, info, request};
    int r = space_begin(s, &setup, true, err);
    r = r ? r : SPACE_MORE;
    while (r == SPACE_MORE) {
        r = space_more(s, UINT32_MAX, err);
    }
    return r;
}
