/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls any method with JSON params and a JSON result, for tools. Assembles listings from pages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "client/clock.h"
#include "client/handle.h"

void gemmd_free(void *p)
{
    free(p);
}

static bool takes_long(const char *method)
{
    return strcmp(method, "get") == 0 || strcmp(method, "tune") == 0 ||
           strcmp(method, "pin") == 0 || strcmp(method, "acquire") == 0;
}

static int end_call(struct gemmd *g, int r, struct error *err)
{
    const struct wire_obj *result;
    r = r ? r : session_decode(&g->session, &g->steps.request, &result, err);
    return r ? r : wire_to_json(result, g->steps.json, err);
}

static int check_call(const char *method, char **result_json, struct error *err)
{
    if (!method || !result_json) {
        return error_set(err, ERROR_INVALID, "method and result_json may not be NULL");
    }
    *result_json = NULL;
    return 0;
}

static int call_run_method(struct gemmd *g, const char *method, const char *params_json,
                           int deadline_ms, char **result_json,
                           void (*progress)(void *ctx, const struct gemmd_progress *p), void *ctx,
                           struct error *err)
{
    int64_t deadline = handle_deadline(g, deadline_ms, takes_long(method));
    int r = steps_begin(g, method, deadline, end_call, err);
    if (r) {
        return r;
    }
    struct steps *s = &g->steps;
    s->request.progress = progress;
    s->request.ctx = ctx;
    s->json = result_json;
    if (wire_from_json(&s->params, params_json ? params_json : "{}", err)) {
        r = error_prefix(err, "params");
    }
    return steps_run(g, r, err);
}

int gemmd_call(struct gemmd *g, const char *method, const char *params_json, int deadline_ms,
               char **result_json, void (*progress)(void *ctx, const struct gemmd_progress *p),
               void *ctx, struct gemmd_error *err)
{
    struct error e;
    int r = check_call(method, result_json, &e);
    if (r == 0 && deadline_ms < 0) {
        r = error_set(&e, ERROR_INVALID, "deadline_ms is %d: use 0 (the default) or more",
                      deadline_ms);
    }
    r = r ? r
          : call_run_method(g, method, params_json, deadline_ms, result_json, progress, ctx, &e);
    return handle_result(r, &e, err);
}

/* ---- listings ------------------------------------------------------------------------------- */

struct listing {
    struct gemmd *g;
    const char *what;
    /* the column by which the list is sorted: each page continues behind the last row's value of
     * it; NULL: each page has an offset */
    const char *order;
    json_t *filter;  /* owned */
    json_int_t want; /* most rows that the caller wants: the filter's "limit" */
    int64_t got, offset;
    bool more;  /* more pages follow */
    FILE *text; /* owned: the rows so far, "[row,row" */
};

/* The column by which a list is sorted (docs/protocol.md); NULL: not by a single column. */
static const char *call_find_order(const char *what)
{
    return strcmp(what, "portfolio") == 0 || strcmp(what, "modules") == 0 ? NULL
           : strcmp(what, "best") == 0                                    ? "key"
           : strcmp(what, "history") == 0                                 ? "generation"
           : strcmp(what, "devices") == 0                                 ? "uuid"
                                                                          : "id";
}

static int call_read_filter(struct listing *l, const char *filter_json, struct error *err)
{
    json_error_t why;
    json_int_t offset = 0;
    l->want = INT64_MAX;
    l->filter = json_loads(filter_json ? filter_json : "{}", JSON_REJECT_DUPLICATES, &why);
    if (!l->filter) {
        return error_set(err, ERROR_INVALID, "the filter is not JSON: %s", why.text);
    }
    if (!json_is_object(l->filter)) {
        return error_set(err, ERROR_INVALID,
                         "the filter is not a JSON object: {\"column\": value}");
    }
    if (json_unpack(l->filter, "{s?I, s?I}", "limit", &l->want, "offset", &offset) || l->want < 0 ||
        offset < 0) {
        return error_set(err, ERROR_INVALID, "limit and offset of a filter are integers from 0 on");
    }
    l->offset = offset;
    l->order = json_object_get(l->filter, "sort") ? NULL : call_find_order(l->what);
    return 0;
}

/* Appends a page's rows "[a,b]" to the text "[x,y", which gives "[x,y,a,b". */
static int append_rows(struct listing *l, const struct wire_obj *rows, struct error *err)
{
    char *page = NULL;
    int r = wire_to_json(rows, &page, err);
    if (r == 0) {
        page[0] = l->got > 0 ? ',' : '[';
        fwrite(page, 1, strlen(page) - 1, l->text);
    }
    free(page);
    return r;
}

static int does_not_advance(const struct listing *l, struct error *err)
{
    return error_set(err, ERROR_MALFORMED, "gemmd's pages of %s do not advance", l->what);
}

/* True when `value` comes after `before` in the list's ascending order. */
static bool is_behind(const json_t *value, const json_t *before)
{
    return !before || (json_is_string(value) && json_is_string(before)
                           ? strcmp(json_string_value(value), json_string_value(before)) > 0
                           : json_integer_value(value) > json_integer_value(before));
}

/* Sets the filter so that the next page begins after this row. */
static int go_behind(struct listing *l, const struct wire_obj *row, struct error *err)
{
    const struct wire_obj *value = wire_find(row, l->order);
    const char *text;
    int64_t number;
    size_t n;
    json_t *after = wire_get_int(value, &number)     ? json_integer(number)
                    : wire_get_str(value, &text, &n) ? json_stringn(text, n)
                                                     : NULL;
    if (!after) {
        return error_set(err, ERROR_MALFORMED, "gemmd's row of %s has no %s", l->what, l->order);
    }
    bool stands = !is_behind(after, json_object_get(l->filter, "after"));
    l->offset = 0;
    if (json_object_set_new(l->filter, "after", after)) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a filter");
    }
    return stands ? does_not_advance(l, err) : 0;
}

static int call_append_page(void *ctx, const struct wire_obj *result, struct error *err)
{
    struct listing *l = ctx;
    const struct wire_obj *rows = wire_find(result, "rows");
    if (wire_type_of(rows) != WIRE_ARRAY) {
        return error_set(err, ERROR_MALFORMED, "gemmd's page of %s has no rows", l->what);
    }
    int64_t n = (int64_t)wire_count(rows);
    int r = n > 0 ? append_rows(l, rows, err) : 0;
    if (r) {
        return r;
    }
    l->got += n;
    int64_t next = 0;
    l->more = wire_get_int(wire_find(result, "next"), &next) && l->got < l->want;
    if (l->more && (next <= l->offset || n == 0)) {
        return does_not_advance(l, err);
    }
    l->offset = next;
    return l->more && l->order ? go_behind(l, wire_at(rows, (size_t)n - 1), err) : 0;
}

/* Each page has the default deadline, because a long list does not mean a slow daemon. */
static int fetch_page(struct listing *l, struct error *err)
{
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    int64_t left = l->want - l->got, rows = left < PAGE_ROWS_MAX ? left : PAGE_ROWS_MAX;
    json_object_set_new(l->filter, "limit", json_integer(rows));
    json_object_set_new(l->filter, "offset", json_integer(l->offset));
    char *filter = json_dumps(l->filter, JSON_REAL_PRECISION(17));
    if (!filter) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a filter");
    }
    wire_put_map(&params, 2);
    wire_put_kv_str(&params, "what", l->what);
    wire_put_str(&params, "filter");
    int r = wire_from_json(&params, filter, err);
    free(filter);
    return r ? r : handle_call(l->g, "list", &params, 0, call_append_page, l, err);
}

static int fetch_all(struct listing *l, const char *filter_json, char **rows_json,
                     struct error *err)
{
    size_t length;
    l->text = open_memstream(rows_json, &length);
    if (!l->text) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for rows");
    }
    int r = call_read_filter(l, filter_json, err);
    l->more = l->want != 0;
    while (r == 0 && l->more) {
        r = fetch_page(l, err);
    }
    json_decref(l->filter);
    fputs(l->got > 0 ? "]" : "[]", l->text);
    bool whole = !ferror(l->text);
    whole = fclose(l->text) == 0 && whole;
    if (r == 0 && !whole) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for rows");
    }
    if (r) {
        free(*rows_json);
        *rows_json = NULL;
    }
    return r;
}

int gemmd_list(struct gemmd *g, const char *what, const char *filter_json, char **rows_json,
               struct gemmd_error *err)
{
    struct error e;
    struct listing l = {.g = g, .what = what};
    int r = check_call(what, rows_json, &e);
    r = r ? r : fetch_all(&l, filter_json, rows_json, &e);
    return handle_result(r, &e, err);
}

/* ---- why ------------------------------------------------------------------------------------- */

static int why_pack_params(struct wire_buf *b, const struct ask *a, struct error *err)
{
    const struct gemmd_query *q = &a->query;
    wire_put_map(b, 1 + (q->target != NULL) + (q->atol > 0) + (q->rtol > 0));
    wire_put_str(b, "problem");
    int r = ask_pack_problem(b, &a->problem, err);
    if (q->target) {
        wire_put_kv_str(b, "target", q->target);
    }
    if (q->atol > 0) {
        wire_put_kv_real(b, "atol", q->atol);
    }
    if (q->rtol > 0) {
        wire_put_kv_real(b, "rtol", q->rtol);
    }
    return r;
}

static int why_take_result(void *json, const struct wire_obj *result, struct error *err)
{
    return wire_to_json(result, json, err);
}

int gemmd_why(struct gemmd *g, const struct gemmd_problem *problem, const struct gemmd_query *query,
              char **result_json, struct gemmd_error *err)
{
    struct ask a;
    struct error e;
    WIRE_BUF_AUTO params = WIRE_BUF_NULL;
    int r = check_call("why", result_json, &e);
    r = r ? r : ask_problem(&a, problem, &e);
    r = r ? r : ask_query(&a, query, &e);
    r = r ? r : why_pack_params(&params, &a, &e);
    r = r ? r
          : handle_call(g, "why", &params, handle_deadline(g, a.query.deadline_ms, false),
                        why_take_result, result_json, &e);
    return handle_result(r, &e, err);
}
