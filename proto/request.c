/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/record.h"
#include "proto/request.h"
#include "proto/text.h"
#include "proto/wire.h"

void request_deinit(struct request *r)
{
    free(r->restrict_);
    free(r->configs);
    free(r->text);
    r->restrict_ = NULL;
    r->configs = NULL;
    r->text = NULL;
    r->n_restrict = r->n_configs = 0;
}

/* ---- checks ---------------------------------------------------------------------------------- */

static const char *const waits[] = {"tuned", "now", "cached", "boundary", NULL};
static const char *const strategies[] = {"ranked",  "exhaustive", "random",
                                         "genetic", "given",      NULL};

/* Checks that `known` has the word; an empty word becomes the first of `known`. */
static int check_word(const char *name, char *word, const char *const *known, struct error *err)
{
    if (!word[0]) {
        strcpy(word, known[0]);
    }
    if (text_find(known, word, strlen(word)) >= 0) {
        return 0;
    }
    char list[80];
    struct text_out o = text_out_begin(list, sizeof(list));
    text_put_choices(&o, known);
    return error_set(err, ERROR_INVALID, "%s is '%s', but takes %s", name,
                     text_show(word, strlen(word)).text, list);
}

static int check_tolerance(const char *name, double *v, struct error *err)
{
    if (*v == 0 || isnan(*v)) {
        *v = 1e-2;
    }
    if (*v > 0 && *v <= 1) {
        return 0;
    }
    return error_set(err, ERROR_INVALID, "%s is %g, but takes 0..1 (0: 1e-2)", name, *v);
}

static int request_check_numbers(const struct query *q, struct error *err)
{
    const struct {
        const char *name;
        int64_t v, max;
    } ranges[] = {
        {"deadline_ms", q->deadline_ms, INT64_C(1) << 40},
        {"budget", q->budget, 1000000},
        {"budget_ms", q->budget_ms, INT64_C(1) << 40},
        {"wall_ms", q->wall_ms, INT64_C(1) << 40},
        {"iters", q->iters, 100000},
        {"warmup", q->warmup, 10000},
    };
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        if (ranges[i].v < 0 || ranges[i].v > ranges[i].max) {
            return error_set(err, ERROR_INVALID, "%s is %" PRId64 ", but takes 0..%" PRId64,
                             ranges[i].name, ranges[i].v, ranges[i].max);
        }
    }
    return 0;
}

static int check_strategy(struct request *r, struct error *err)
{
    struct query *q = &r->query;
    if (r->n_configs > 0 && !q->strategy[0]) {
        strcpy(q->strategy, "given");
    }
    int done = check_word("strategy", q->strategy, strategies, err);
    if (done < 0) {
        return done;
    }
    bool given = strcmp(q->strategy, "given") == 0;
    if (given && r->n_configs == 0) {
        return error_set(err, ERROR_INVALID,
                         "strategy 'given' needs configs; add them, or leave strategy out");
    }
    if (!given && r->n_configs > 0) {
        return error_set(
            err, ERROR_CONFLICT,
            "configs are given, but strategy is '%s'; use strategy 'given', or restrict",
            q->strategy);
    }
    return 0;
}

static int request_check_query(struct request *r, struct error *err)
{
    struct query *q = &r->query;
    enum bucket_scheme scheme;
    int done = check_word("wait", q->wait, waits, err);
    done = done < 0 ? done : check_strategy(r, err);
    done = done < 0 || !q->bucket[0] ? done : bucket_scheme_parse(q->bucket, &scheme, err);
    done = done < 0 ? done : request_check_numbers(q, err);
    done = done < 0 ? done : check_tolerance("atol", &q->atol, err);
    return done < 0 ? done : check_tolerance("rtol", &q->rtol, err);
}

int request_default(struct request *r, struct error *err)
{
    r->query = (struct query){0};
    return request_check_query(r, err);
}

/* ---- both ways ------------------------------------------------------------------------------- */

int request_unpack_beside(struct request *r, const struct wire_obj *params,
                          const char *const *others, struct error *err)
{
    r->problem.op = NULL;
    r->problem.op_name[0] = 0;
    record_init(&r->problem.fields);
    r->n_restrict = r->n_configs = 0;
    r->restrict_ = NULL;
    r->configs = NULL;
    r->text = NULL;
    int done = schema_decode_beside(&query_schema, SCHEMA_STRICT, params, others, &r->query, err);
    if (done < 0) {
        return done;
    }
    const struct wire_obj *problem = wire_find(params, "problem");
    if (!problem) {
        return error_set(err, ERROR_INVALID,
                         "'problem' is missing: "
                         "{\"problem\": {\"op\": \"grouped_gemm\", ...}}");
    }
    done = problem_unpack(&r->problem, problem, err);
    done = done < 0 ? done : restrict_unpack(r, wire_find(params, "restrict"), err);
    done = done < 0 ? done : configs_unpack(r, wire_find(params, "configs"), err);
    done = done < 0 ? done : request_check_query(r, err);
    if (done < 0) {
        request_deinit(r);
    }
    return done;
}

int request_unpack(struct request *r, const struct wire_obj *params, struct error *err)
{
    static const char *const others[] = {"problem", "restrict", "configs", NULL};
    return request_unpack_beside(r, params, others, err);
}

static void put_restrictions(struct wire_buf *b, const struct request *r)
{
    wire_put_map(b, r->n_restrict);
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        const struct restriction *t = &r->restrict_[i];
        wire_put_str(b, t->name);
        wire_put_array(b, t->n);
        for (uint32_t j = 0; j < t->n; j++) {
            value_pack(b, &t->values[j]);
        }
    }
}

void request_pack(struct wire_buf *b, const struct request *r)
{
    wire_put_map(b, query_schema.n + 1 + (r->n_restrict > 0) + (r->n_configs > 0));
    wire_put_str(b, "problem");
    problem_pack(b, &r->problem);
    schema_encode_fields(b, &query_schema, &r->query);
    if (r->n_restrict > 0) {
        wire_put_str(b, "restrict");
        put_restrictions(b, r);
    }
    if (r->n_configs > 0) {
        wire_put_str(b, "configs");
        wire_put_array(b, r->n_configs);
        for (uint32_t i = 0; i < r->n_configs; i++) {
            record_pack(b, &r->configs[i]);
        }
    }
}

bool request_is_restricted(const struct request *r)
{
    return r->n_restrict > 0 || r->n_configs > 0 || r->query.target[0];
}

/* True when two values are equal in a restriction, where 64 equals 64.0. */
static bool request_is_same_value(const struct value *a, const struct value *b)
{
    if (a->type == VALUE_INT && b->type == VALUE_REAL) {
        return (double)a->integer == b->real;
    }
    if (a->type == VALUE_REAL && b->type == VALUE_INT) {
        return a->real == (double)b->integer;
    }
    return value_equal(a, b);
}

bool restriction_allows(const struct restriction *t, const struct value *v)
{
    for (uint32_t i = 0; i < t->n; i++) {
        if (request_is_same_value(&t->values[i], v)) {
            return true;
        }
    }
    return false;
}

bool request_allows(const struct request *r, const struct record *config)
{
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        struct value v;
        if (!record_get(config, r->restrict_[i].name, &v) ||
            !restriction_allows(&r->restrict_[i], &v)) {
            return false;
        }
    }
    return true;
}
