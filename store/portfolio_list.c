/* SPDX-License-Identifier: Apache-2.0 */
/* A portfolio's rows in pages, and when it is made anew (portfolio.h). */
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "store/portfolio.h"

static const double BOUND_PERCENT = 5, BOUND_PERCENT_MAX = 1000;

/* ---- keeping it ------------------------------------------------------------------------------ */

/* One that is up to date, of this bound. */
static int portfolio_refresh_rows(struct store *s, double bound_percent, struct error *err)
{
    struct portfolio *p = s->portfolio;
    int64_t version, changes = s->db.h ? sqlite3_total_changes(s->db.h) : 0;
    if (!s->db.h) {
        return error_set(err, ERROR_STORE, "the database is closed: its rebuild failed");
    }
    int r = db_int(&s->db, "PRAGMA data_version", &version, err); /* changes by others */
    if (r == 0 && p && p->version == version && p->changes == changes &&
        p->bound_percent == bound_percent) {
        return 0;
    }
    s->portfolio = portfolio_free(p);
    r = r ? r : portfolio_make(s, bound_percent, &s->portfolio, err);
    if (r == 0) {
        s->portfolio->version = version;
        s->portfolio->changes = changes;
    }
    return r;
}

/* ---- listing --------------------------------------------------------------------------------- */

struct portfolio_filter {
    const char *class, *op, *mode, *stamp; /* NULL: any; borrowed from the filter */
    double bound_percent;
    int64_t limit, offset;
};

static int portfolio_refuse_filter(const char *name, const char *what, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s of a portfolio must be %s", name, what);
}

static int read_one(struct portfolio_filter *w, const char *name, const struct value *v,
                    struct error *err)
{
    const struct {
        const char *name, **text;
    } texts[] = {{"class", &w->class}, {"op", &w->op}, {"mode", &w->mode}, {"stamp", &w->stamp}};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].text = v->type == VALUE_TEXT ? v->text : "";
            return 0;
        }
    }
    if (strcmp(name, "bound") == 0) {
        w->bound_percent = v->type == VALUE_INT    ? (double)v->integer
                           : v->type == VALUE_REAL ? v->real
                                                   : -1;
        bool good = w->bound_percent >= 0 && w->bound_percent <= BOUND_PERCENT_MAX;
        return good ? 0 : portfolio_refuse_filter(name, "percent from 0 to 1000", err);
    }
    int64_t *number = strcmp(name, "limit") == 0    ? &w->limit
                      : strcmp(name, "offset") == 0 ? &w->offset
                                                    : NULL;
    if (!number) {
        return error_set(
            err, ERROR_UNKNOWN_FIELD,
            "portfolio has no filter '%s'; it has class, op, mode, stamp, bound, limit, "
            "offset",
            name);
    }
    *number = v->type == VALUE_INT ? v->integer : -1;
    return *number >= (number == &w->limit)
               ? 0
               : portfolio_refuse_filter(name, "an integer from 0 on", err);
}

static int portfolio_read_filter(struct portfolio_filter *w, const struct record *filter,
                                 struct error *err)
{
    int r = 0;
    *w = (struct portfolio_filter){.bound_percent = BOUND_PERCENT, .limit = PAGE_ROWS_MAX};
    for (size_t i = 0; r == 0 && filter && i < filter->n; i++) {
        struct value v = record_at(filter, i);
        r = read_one(w, filter->fields[i].name, &v, err);
    }
    w->limit = w->limit < PAGE_ROWS_MAX ? w->limit : PAGE_ROWS_MAX;
    return r;
}

static bool portfolio_is_wanted(const char *wanted, const char *text)
{
    return !wanted || strcmp(wanted, text) == 0;
}

static bool portfolio_matches_filter(const struct portfolio_filter *w, const struct group *g)
{
    return portfolio_is_wanted(w->class, g->class) && portfolio_is_wanted(w->op, g->op) &&
           portfolio_is_wanted(w->mode, g->mode) && portfolio_is_wanted(w->stamp, g->stamp);
}

static void portfolio_put_row(struct wire_buf *b, const struct portfolio *p, const struct shape *s)
{
    const struct group *g = AT(p->groups, struct group, s->group);
    const struct packed *problem = AT(p->problems, struct packed, s->problem);
    wire_put_map(b, 15);
    wire_put_kv_str(b, "class", g->class);
    wire_put_kv_str(b, "op", g->op);
    wire_put_kv_str(b, "mode", g->mode);
    wire_put_kv_str(b, "dtype_in", g->dtype_in);
    wire_put_kv_str(b, "dtype_out", g->dtype_out);
    wire_put_kv_str(b, "stamp", g->stamp);
    wire_put_kv_real(b, "bound_percent", p->bound_percent);
    wire_put_kv_int(b, "shapes", g->shapes);
    wire_put_kv_int(b, "members", g->members);
    wire_put_kv_int(b, "member", (int64_t)s->choice.place + 1);
    wire_put_str(b, "config");
    if (wire_from_json(b, (const char *)AT(p->configs, struct packed, s->choice.config)->bytes,
                       NULL) < 0) {
        wire_put_nil(b);
    }
    wire_put_kv_str(b, "key", s->key);
    wire_put_str(b, "problem");
    wire_put_raw(b, problem->bytes, problem->n);
    wire_put_kv_real(b, "regret_percent", 100 * s->choice.regret);
    wire_put_kv_real(b, "ratio", s->choice.time);
}

struct page {
    const struct portfolio_filter *w;
    size_t max_bytes;
    struct wire_buf rows; /* owned */
    int64_t matching;     /* before it */
    uint32_t n;
    bool full;
};

static void portfolio_page_row(struct page *page, const struct portfolio *p, const struct shape *s)
{
    int64_t number = page->matching++;
    if (page->full || number < page->w->offset || page->n >= page->w->limit) {
        return;
    }
    size_t before = page->rows.len;
    portfolio_put_row(&page->rows, p, s);
    if (page->rows.len > page->max_bytes) {
        page->rows.len = before;
        page->full = true;
    } else {
        page->n++;
    }
}

/* Rows by group, member and key. Shapes are gathered in order of keys. */
static void portfolio_fill_page(struct page *page, const struct portfolio *p)
{
    for (uint32_t g = 0; g < p->groups.n; g++) {
        const struct group *group = AT(p->groups, struct group, g);
        for (uint32_t m = 0; portfolio_matches_filter(page->w, group) && m < group->members; m++) {
            for (size_t i = 0; i < p->shapes.n; i++) {
                const struct shape *s = AT(p->shapes, struct shape, i);
                if (s->group == g && s->choice.place == m) {
                    portfolio_page_row(page, p, s);
                }
            }
        }
    }
}

int portfolio_list(struct store *s, const struct record *filter, size_t max_bytes,
                   struct wire_buf *out, int64_t *total, struct error *err)
{
    enum { ARRAY_HEADER_MAX = 5 };
    struct portfolio_filter w;
    int r = portfolio_read_filter(&w, filter, err);
    r = r ? r : portfolio_refresh_rows(s, w.bound_percent, err);
    if (r) {
        return r;
    }
    struct page page = {.w = &w, .max_bytes = max_bytes - ARRAY_HEADER_MAX};
    portfolio_fill_page(&page, s->portfolio);
    *total = page.matching;
    wire_put_array(out, page.n);
    wire_put_raw(out, page.rows.data, page.rows.len);
    bool failed = page.rows.failed || out->failed;
    wire_buf_deinit(&page.rows);
    return failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a page") : 0;
}
