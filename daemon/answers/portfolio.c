/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches the portfolio from the ledger page by page, then replaces the old one as a whole
 * (portfolio.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/answers/portfolio.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"

enum {
    LONG_MS = 50,     /* when the last fetch took longer, the next waits while a job tunes */
    WAIT_FACTOR = 20, /* the wait after a fetch is 20 times as long as the fetch took */
    PAGE_ROWS = 32,   /* the loop handles a page at once: longer pages delay hits */
};

static void set_free(struct portfolio_set *s)
{
    for (size_t i = 0; i < s->n_members; i++) {
        free(s->members[i].config);
    }
    free(s->members);
    free(s->shapes);
    *s = (struct portfolio_set){0};
}

/* Returns the hash of op, mode, types, quantisation and restrictions: problems of one group can use
 * each other's configs. */
static uint64_t portfolio_group_of(const struct problem *p)
{
    static const char *const names[] = {"mode", "dtype_in", "dtype_out", "quant"};
    uint64_t h = hash64(p->op_name, strlen(p->op_name));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = record_text(&p->fields, names[i], "");
        h = (h ^ hash64(text, strlen(text))) * UINT64_C(0x9e3779b97f4a7c15);
    }
    for (size_t i = 0; i < p->op->n_fields; i++) {
        const struct op_field *f = &p->op->fields[i];
        h += f->restricts && record_bool(&p->fields, f->name, false)
                 ? hash64(f->name, strlen(f->name))
                 : 0;
    }
    return h;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void *portfolio_grow_array(void *array, size_t n, size_t size)
{
    return n & (n - 1) ? array : realloc(array, (n ? 2 * n : 1) * size);
}

/* Returns the last member if this row is also of that member, since the rows of a member follow
 * each other; else adds a member. NULL when out of memory. */
static struct portfolio_member *find_member(struct portfolio_set *s, uint64_t group, int64_t place,
                                            const char *stamp, const struct wire_obj *config)
{
    struct portfolio_member *last = s->n_members ? &s->members[s->n_members - 1] : NULL;
    if (last && last->group == group && last->place == place && strcmp(last->stamp, stamp) == 0) {
        return last;
    }
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    wire_put_obj(&b, config);
    struct portfolio_member *members =
        portfolio_grow_array(s->members, s->n_members, sizeof(*members));
    uint8_t *copy = b.failed || !members ? NULL : malloc(b.len);
    s->members = members ? members : s->members;
    if (!copy) {
        return NULL;
    }
    memcpy(copy, b.data, b.len);
    last = &s->members[s->n_members++];
    *last = (struct portfolio_member){.group = group, .place = place, .config = copy, .len = b.len};
    snprintf(last->stamp, sizeof(last->stamp), "%s", stamp);
    return last;
}

static int add_shape(struct portfolio_set *s, const struct problem *p, const char *key,
                     const struct portfolio_member *member, double ratio)
{
    struct portfolio_shape *shapes = portfolio_grow_array(s->shapes, s->n_shapes, sizeof(*shapes));
    if (!shapes) {
        return ERROR_NO_MEMORY;
    }
    s->shapes = shapes;
    struct portfolio_shape *shape = &shapes[s->n_shapes++];
    shape->group = member->group;
    shape->member = (uint32_t)(member - s->members);
    shape->ratio = (float)ratio;
    memcpy(shape->key, key, sizeof(shape->key));
    entry_group(p, shape->dims);
    return 0;
}

static int portfolio_take_row(struct learn_pages *x, const struct wire_obj *row)
{
    struct portfolio *l = LIST_OF(x, struct portfolio, pages);
    struct daemon *d = l->daemon;
    struct problem *p = &d->scratch->learned;
    struct record *fields = &d->scratch->config;
    char op[OP_NAME_MAX], stamp[STAMP_MAX], key[HASH_HEX];
    int64_t place;
    double ratio = NAN;
    bool read = wire_copy_str(wire_find(row, "op"), op, sizeof(op)) &&
                wire_copy_str(wire_find(row, "stamp"), stamp, sizeof(stamp)) &&
                wire_copy_str(wire_find(row, "key"), key, sizeof(key)) &&
                wire_get_int(wire_find(row, "member"), &place) &&
                record_unpack(fields, wire_find(row, "problem"), NULL) == 0 &&
                problem_make(p, op, fields, NULL) == 0;
    wire_get_real(wire_find(row, "bound_percent"), &l->bound_percent);
    wire_get_real(wire_find(row, "ratio"), &ratio);
    if (!read || !family_of_problem(p) || !target_is_of_today(d, p, stamp)) {
        return 0; /* today's kernels cannot use this row */
    }
    const struct portfolio_member *m =
        find_member(&l->next, portfolio_group_of(p), place, stamp, wire_find(row, "config"));
    return m ? add_shape(&l->next, p, key, m, ratio) : ERROR_NO_MEMORY;
}

/* ---- fetching -------------------------------------------------------------------------------- */

static void portfolio_filter(struct learn_pages *x, struct record *filter)
{
    record_put_text(filter, "class", x->daemon->device.class);
    record_put_int(filter, "limit", PAGE_ROWS);
}

static void portfolio_end_fetch(struct learn_pages *x, int status, const struct error *err)
{
    struct portfolio *l = LIST_OF(x, struct portfolio, pages);
    if (status == 0) {
        set_free(&l->now);
        l->now = l->next;
        l->next = (struct portfolio_set){0};
    } else if (!l->daemon->stopping) {
        log_warning("the portfolio could not be made: %s", err->text);
    }
    set_free(&l->next);
    l->asking = false;
    l->took_ms = uv_now(&l->daemon->loop) - l->began_ms;
}

void portfolio_init(struct portfolio *l, struct daemon *d)
{
    *l = (struct portfolio){.daemon = d};
    l->pages = (struct learn_pages){.daemon = d,
                                    .what = "portfolio",
                                    .uid = LEDGER_OURS,
                                    .filter = portfolio_filter,
                                    .row = portfolio_take_row,
                                    .end = portfolio_end_fetch};
}

void portfolio_tick(struct portfolio *l)
{
    struct daemon *d = l->daemon;
    uint64_t now = uv_now(&d->loop);
    bool in_the_way = l->took_ms > LONG_MS && d->tuning;
    bool rests = now < l->began_ms + l->took_ms * (1 + WAIT_FACTOR);
    if (d->learned && !l->asking && !in_the_way && !rests) {
        d->learned = false;
        l->asking = true;
        l->pages.offset = 0;
        l->began_ms = now;
        learn_pages(&l->pages);
    }
}

static void drop_shape(struct portfolio_set *s, const char *key)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_shapes; i++) {
        if (strcmp(s->shapes[i].key, key) != 0) {
            s->shapes[kept++] = s->shapes[i];
        }
    }
    s->n_shapes = kept;
}

void portfolio_evicted(struct portfolio *l, const char *key)
{
    drop_shape(&l->now, key);
    /* the pages of a running fetch may have been read before the evict */
    drop_shape(&l->next, key);
    l->daemon->learned = true;
}

void portfolio_deinit(struct portfolio *l)
{
    set_free(&l->now);
    set_free(&l->next);
}

/* ---- lookup ---------------------------------------------------------------------------------- */

/* Orders shapes by distance, then by key so that every run agrees. */
static bool is_nearer(const struct portfolio_shape *a, const struct portfolio_shape *b,
                      const float dims[CACHE_DIMS])
{
    double x = entry_distance(a->dims, dims), y = entry_distance(b->dims, dims);
    return x != y ? x < y : strcmp(a->key, b->key) < 0;
}

/* Returns the nearest shape whose member is not in `found`. */
static const struct portfolio_shape *
portfolio_find_nearest(const struct portfolio_set *s, uint64_t group, const float dims[CACHE_DIMS],
                       const struct portfolio_shape *const found[], size_t n)
{
    const struct portfolio_shape *best = NULL;
    for (size_t i = 0; i < s->n_shapes; i++) {
        const struct portfolio_shape *shape = &s->shapes[i];
        bool taken = shape->group != group;
        for (size_t k = 0; k < n && !taken; k++) {
            taken = found[k]->member == shape->member;
        }
        best = !taken && (!best || is_nearer(shape, best, dims)) ? shape : best;
    }
    return best;
}

size_t portfolio_near(const struct portfolio *l, const struct problem *bucket, size_t max,
                      const struct portfolio_shape *out[])
{
    float dims[CACHE_DIMS];
    size_t n = 0;
    entry_group(bucket, dims);
    uint64_t group = portfolio_group_of(bucket);
    while (n < max && (out[n] = portfolio_find_nearest(&l->now, group, dims, out, n))) {
        n++;
    }
    return n;
}

int portfolio_answer(const struct portfolio *l, const struct portfolio_shape *s, struct answer *a)
{
    const struct portfolio_member *m = &l->now.members[s->member];
    const struct wire_obj *map;
    answer_init(a);
    snprintf(a->stamp, sizeof(a->stamp), "%s", m->stamp);
    snprintf(a->source, sizeof(a->source), "tuned");
    a->saved = true;
    int status = wire_decode(l->daemon->cache.entries.doc, m->config, m->len, &map, NULL);
    return status ? status : record_unpack(&a->config, map, NULL);
}
