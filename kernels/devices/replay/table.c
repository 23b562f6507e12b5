/* SPDX-License-Identifier: Apache-2.0 */
/* Format 2, in which gemmd-runner --landscape records whole spaces. A config is a list of
 * indices into the values of the tunables, a time is a number of hundredths of a microsecond. One
 * line has all points of a variant. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/reader.h"

enum { SHOTS_MAX = 64 /* samples of a point */, ROWS_SEED = 1 /* without "seed" */ };
static const double UNIT_US = 0.01;

/* ---- tunables -------------------------------------------------------------------------------- */

static struct table *table_free(struct table *t)
{
    for (uint32_t i = 0; t && i < t->n; i++) {
        for (uint32_t k = 0; k < t->tunables[i].n; k++) {
            if (t->tunables[i].values[k].type == VALUE_TEXT) {
                free((void *)t->tunables[i].values[k].text);
            }
        }
    }
    free(t);
    return NULL;
}

static int table_read_value(const struct wire_obj *o, struct value *out, struct error *err)
{
    size_t n;
    if (!value_unpack(o, out, &n) || out->type == VALUE_NONE) {
        return error_set(err, ERROR_INVALID, "params: a value is no scalar");
    }
    if (out->type == VALUE_TEXT && !(out->text = strndup(out->text, n))) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    return 0;
}

static int read_tunable(struct table *t, const struct wire_obj *o, struct error *err)
{
    struct tunable *p = &t->tunables[t->n++];
    const struct wire_obj *values = wire_find(o, "values");
    size_t n = wire_count(values);
    wire_get_bool(wire_find(o, "run_time"), &p->run_time);
    if (!wire_copy_str(wire_find(o, "name"), p->name, sizeof(p->name)) || n == 0 ||
        n > PARAM_VALUES_MAX) {
        return error_set(err, ERROR_INVALID, "params: each has a name and up to %d values",
                         PARAM_VALUES_MAX);
    }
    t->n_settings *= p->run_time ? (uint32_t)n : 1;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        r = table_read_value(wire_at(values, i), &p->values[p->n], err);
        p->n += r == 0;
    }
    return r;
}

static int read_tunables(struct table *t, const struct wire_obj *params, struct error *err)
{
    bool run_time = false;
    int r = 0;
    for (size_t i = 0; i < wire_count(params) && r == 0; i++) {
        if (t->n == PARAMS_MAX || t->n_settings > SETTINGS_MAX) {
            return error_set(err, ERROR_INVALID, "params: there are too many");
        }
        r = read_tunable(t, wire_at(params, i), err);
        const struct tunable *p = &t->tunables[t->n - 1];
        if (r == 0 && run_time && !p->run_time) {
            r = error_set(err, ERROR_INVALID, "params: those at run time must be the last");
        }
        run_time = p->run_time;
    }
    return r;
}

static int read_reference(struct table *t, const struct wire_obj *line, struct error *err)
{
    const struct wire_obj *reference = wire_find(line, "reference");
    record_init(&t->reference);
    wire_get_real(wire_find(line, "reference_us"), &t->reference_us);
    return wire_type_of(reference) == WIRE_NIL ? 0
                                               : replay_read_record(&t->reference, reference, err);
}

int table_begin(struct reader *r, const struct wire_obj *line, struct error *err)
{
    const struct wire_obj *params = wire_find(line, "params");
    struct landscape *l = r->l;
    if (!params) {
        return 0;
    }
    int64_t seed = ROWS_SEED;
    wire_get_int(wire_find(line, "seed"), &seed);
    l->rows_seed = (uint64_t)seed;
    struct table *t = calloc(1, sizeof(*t));
    if (!t) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a landscape");
    }
    t->n_settings = 1;
    t->first_entry = l->n_entries;
    r->table = t;
    int status = read_tunables(t, params, err);
    return status ? status : read_reference(t, line, err);
}

/* ---- configs --------------------------------------------------------------------------------- */

static int set_index(const struct table *t, uint32_t i, int64_t at, struct record *config,
                     struct error *err)
{
    const struct tunable *p = &t->tunables[i];
    if (at < 0 || at >= p->n) {
        return error_set(err, ERROR_INVALID, "%s has %u values, but not number %lld", p->name, p->n,
                         (long long)at);
    }
    return record_set(config, p->name, p->values[at], err);
}

/* Makes a config from a list of indices: of all tunables' values, or only of the compile-time
 * tunables'. */
static int read_indices(const struct table *t, const struct wire_obj *list, bool all,
                        struct record *config, struct error *err)
{
    size_t n = 0;
    while (n < t->n && (all || !t->tunables[n].run_time)) {
        n++;
    }
    if (wire_count(list) != n) {
        return error_set(err, ERROR_INVALID, "a config here has %zu indices, not %zu", n,
                         wire_count(list));
    }
    record_init(config);
    int r = 0;
    for (uint32_t i = 0; i < n && r == 0; i++) {
        int64_t at = -1;
        wire_get_int(wire_at(list, i), &at);
        r = set_index(t, i, at, config, err);
    }
    return r;
}

static void set_settings(const struct table *t, uint32_t number, struct record *config)
{
    for (uint32_t i = t->n; i-- > 0 && t->tunables[i].run_time;) {
        set_index(t, i, number % t->tunables[i].n, config, NULL);
        number /= t->tunables[i].n;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Reads up to SHOTS_MAX times and returns their number; 0: the list is invalid. */
static uint32_t read_times(const struct wire_obj *list, double us[SHOTS_MAX])
{
    size_t n = wire_count(list);
    for (size_t i = 0; i < n && n <= SHOTS_MAX; i++) {
        if (!wire_get_real(wire_at(list, i), &us[i]) || !(us[i] * UNIT_US > 0)) {
            return 0;
        }
        us[i] *= UNIT_US;
    }
    return n <= SHOTS_MAX ? (uint32_t)n : 0;
}

/* The midmean of the samples. Of two samples the smaller: a disturbed sample must not hide a good
 * config. */
static double table_time_of(double *us, uint32_t n)
{
    return n < 3 ? fmin(us[0], us[n - 1]) : reader_midmean(us, n);
}

static int read_point(struct reader *r, const struct wire_obj *point, const struct record *config,
                      double at_ms, struct error *err)
{
    double us[SHOTS_MAX];
    bool failed = wire_type_of(point) == WIRE_MAP;
    uint32_t n = failed ? 0 : read_times(point, us);
    if (wire_type_of(point) == WIRE_NIL) {
        return 0;
    }
    if (!failed && n == 0) {
        return error_set(err, ERROR_INVALID, "times: up to %d of a point, each above 0", SHOTS_MAX);
    }
    struct landscape_entry *e = reader_entry(r->l, config, err);
    if (!e) {
        return ERROR_NO_MEMORY;
    }
    if (failed) {
        int status = reader_failure(&e->why, point, err);
        e->status = e->why.code;
        return status;
    }
    e->us = table_time_of(us, n);
    e->at_ms = at_ms;
    return 0;
}

/* Adds the line's failure as an entry for every point of the variant, also for illegal points,
 * which no search looks up. */
static int fail_points(struct reader *r, const struct wire_obj *line, const struct record *config,
                       struct error *err)
{
    struct rejection why;
    struct record point;
    int status = reader_failure(&why, line, err);
    for (uint32_t i = 0; i < r->table->n_settings && status == 0; i++) {
        record_copy(&point, config);
        set_settings(r->table, i, &point);
        struct landscape_entry *e = reader_entry(r->l, &point, err);
        if (!e) {
            return ERROR_NO_MEMORY;
        }
        e->status = why.code;
        e->why = why;
        e->variant = i ? 0 : reader_variant(r->l, &r->l->problems[e->problem].problem, &point);
    }
    return status;
}

static int remember_variant(struct reader *r, const struct record *config, double compile_ms,
                            struct error *err)
{
    struct landscape *l = r->l;
    struct record first;
    int status = reader_grow(&l->variants, l->n_variants, sizeof(*l->variants), err);
    if (status == 0) {
        record_copy(&first, config);
        set_settings(r->table, 0, &first);
        l->variants[l->n_variants++] = (struct landscape_variant){
            .hash = reader_variant(l, &l->problems[l->n_problems - 1].problem, &first),
            .compile_ms = compile_ms};
    }
    return status;
}

static int read_variant(struct reader *r, const struct wire_obj *line, struct error *err)
{
    const struct wire_obj *times = wire_find(line, "times");
    struct record config, point;
    double compile_ms = 0, at_ms = 0;
    int status = read_indices(r->table, wire_find(line, "variant"), false, &config, err);
    wire_get_real(wire_find(line, "compile_ms"), &compile_ms);
    wire_get_real(wire_find(line, "at_ms"), &at_ms);
    status = status ? status : remember_variant(r, &config, compile_ms, err);
    if (status == 0 && !times) {
        return fail_points(r, line, &config, err);
    }
    if (status == 0 && wire_count(times) != r->table->n_settings) {
        status = error_set(err, ERROR_INVALID, "times: there are %u settings, not %zu",
                           r->table->n_settings, wire_count(times));
    }
    for (uint32_t i = 0; status == 0 && i < r->table->n_settings; i++) {
        record_copy(&point, &config);
        set_settings(r->table, i, &point);
        status = read_point(r, wire_at(times, i), &point, at_ms, err);
    }
    r->table->walked_ms = fmax(r->table->walked_ms, at_ms);
    return status;
}

static int read_block(struct reader *r, const struct wire_obj *list, struct landscape_entry *e,
                      struct error *err)
{
    double us[SHOTS_MAX];
    uint32_t n = read_times(list, us);
    if (n == 0 || (e->each && e->each != n)) {
        return error_set(err, ERROR_INVALID, "blocks: each has as many times, above 0");
    }
    int status = 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        status = reader_sample(r->l, us[i], err);
    }
    e->each = n;
    e->n += n;
    e->sure = true;
    return status;
}

static int read_final(struct reader *r, const struct wire_obj *line, struct error *err)
{
    const struct wire_obj *blocks = wire_find(line, "blocks");
    struct record config;
    int status = read_indices(r->table, wire_find(line, "final"), true, &config, err);
    struct landscape_entry *e = status ? NULL : reader_find(r->l, r->table->first_entry, &config);
    if (status == 0 && (!e || e->status || e->n || !wire_count(blocks))) {
        status = error_set(err, ERROR_INVALID, "final: a config measured above, and blocks");
    }
    if (e) {
        e->first = r->l->n_samples;
        e->n = e->each = 0;
    }
    for (size_t i = 0; status == 0 && i < wire_count(blocks); i++) {
        status = read_block(r, wire_at(blocks, i), e, err);
    }
    return status;
}

static int read_turn(struct reader *r, const struct wire_obj *line, struct error *err)
{
    struct landscape *l = r->l;
    double us[SHOTS_MAX], at_ms = 0;
    uint32_t n = read_times(wire_find(line, "reference"), us);
    if (n == 0 || !wire_get_real(wire_find(line, "at_ms"), &at_ms)) {
        return error_set(err, ERROR_INVALID, "reference: times, and at_ms");
    }
    int status = reader_grow(&l->turns, l->n_turns, sizeof(*l->turns), err);
    if (status == 0) {
        l->turns[l->n_turns++] =
            (struct landscape_turn){.at_ms = at_ms, .slow = reader_midmean(us, n)};
        l->problems[l->n_problems - 1].n_turns++;
    }
    return status;
}

int table_read(struct reader *r, const struct wire_obj *line, struct error *err)
{
    if (wire_find(line, "clocks") || wire_find(line, "end")) {
        return 0; /* the line is only for people */
    }
    if (!r->table) {
        return TABLE_NONE;
    }
    return wire_find(line, "variant")     ? read_variant(r, line, err)
           : wire_find(line, "final")     ? read_final(r, line, err)
           : wire_find(line, "reference") ? read_turn(r, line, err)
                                          : TABLE_NONE;
}

int table_end(struct reader *r, struct error *err)
{
    int status = r->table ? drift_correct(r, err) : 0;
    r->table = table_free(r->table);
    return status;
}
