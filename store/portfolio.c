/* SPDX-License-Identifier: Apache-2.0 */
/* Portfolios from trials (portfolio.h): gathering in order of keys, then one cover for each group. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "store/portfolio.h"

struct portfolio *portfolio_free(struct portfolio *p)
{
    if (p) {
        struct growing *lists[] = {&p->problems, &p->configs};
        for (size_t i = 0; i < 2; i++) {
            for (size_t k = 0; k < lists[i]->n; k++) {
                free(((struct packed *)lists[i]->data)[k].bytes);
            }
        }
        free(p->groups.data);
        free(p->shapes.data);
        free(p->problems.data);
        free(p->configs.data);
        free(p->pairs.data);
        free(p->slots);
        free(p);
    }
    return NULL;
}

/* A zeroed element more; NULL: no memory. */
static void *add(struct growing *l, size_t size)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        void *grown = realloc(l->data, room * size);
        if (!grown) {
            return NULL;
        }
        l->data = grown;
        l->room = room;
    }
    return memset((char *)l->data + l->n++ * size, 0, size);
}

static int no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio");
}

/* ---- gathering ------------------------------------------------------------------------------- */

static int pack(const struct record *r, struct packed *out, struct error *err)
{
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    record_pack(&b, r);
    out->bytes = b.failed ? NULL : malloc(b.len);
    if (!out->bytes) {
        return no_memory(err);
    }
    memcpy(out->bytes, b.data, b.len);
    out->n = b.len;
    return 0;
}

static bool same(const struct packed *a, const struct packed *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static void place(struct portfolio *p, uint32_t config)
{
    const struct packed *c = AT(p->configs, struct packed, config);
    size_t at = hash64(c->bytes, c->n) & (p->n_slots - 1);
    while (p->slots[at]) {
        at = (at + 1) & (p->n_slots - 1);
    }
    p->slots[at] = config + 1;
}

static int grow_slots(struct portfolio *p, struct error *err)
{
    size_t n = p->n_slots ? 2 * p->n_slots : 256;
    uint32_t *slots = calloc(n, sizeof(*slots));
    if (!slots) {
        return no_memory(err);
    }
    free(p->slots);
    p->slots = slots;
    p->n_slots = n;
    for (uint32_t i = 0; i < p->configs.n; i++) {
        place(p, i);
    }
    return 0;
}

/* The index of a config, each once. */
static int intern(struct portfolio *p, const struct record *config, uint32_t *out,
                  struct error *err)
{
    struct packed c;
    int r = 2 * p->configs.n >= p->n_slots ? grow_slots(p, err) : 0;
    r = r ? r : pack(config, &c, err);
    if (r) {
        return r;
    }
    size_t at = hash64(c.bytes, c.n) & (p->n_slots - 1);
    for (; p->slots[at]; at = (at + 1) & (p->n_slots - 1)) {
        if (same(AT(p->configs, struct packed, p->slots[at] - 1), &c)) {
            *out = p->slots[at] - 1;
            free(c.bytes);
            return 0;
        }
    }
    struct packed *kept = add(&p->configs, sizeof(*kept));
    if (!kept) {
        free(c.bytes);
        return no_memory(err);
    }
    *kept = c;
    *out = (uint32_t)p->configs.n - 1;
    p->slots[at] = *out + 1;
    return 0;
}

static int find_group(struct portfolio *p, const struct best *b, const char *stamp, uint32_t *out,
                      struct error *err)
{
    struct group g = {0};
    snprintf(g.class, sizeof(g.class), "%s", b->class);
    snprintf(g.op, sizeof(g.op), "%s", b->op);
    snprintf(g.mode, sizeof(g.mode), "%s", record_text(&b->problem, "mode", ""));
    snprintf(g.dtype_in, sizeof(g.dtype_in), "%s", record_text(&b->problem, "dtype_in", ""));
    snprintf(g.dtype_out, sizeof(g.dtype_out), "%s", record_text(&b->problem, "dtype_out", ""));
    snprintf(g.stamp, sizeof(g.stamp), "%s", stamp);
    for (*out = 0; *out < p->groups.n; ++*out) {
        struct group known = *AT(p->groups, struct group, *out);
        known.shapes = 0;
        if (memcmp(&known, &g, sizeof(g)) == 0) {
            return 0;
        }
    }
    struct group *added = add(&p->groups, sizeof(*added));
    if (!added) {
        return no_memory(err);
    }
    *added = g;
    return 0;
}

/* The shape of a key and stamp: one of those from `first` on, or a new one. */
static int find_shape(struct portfolio *p, const struct best *b, const char *stamp, size_t first,
                      uint32_t *out, struct error *err)
{
    uint32_t group;
    int r = find_group(p, b, stamp, &group, err);
    for (size_t i = first; r == 0 && i < p->shapes.n; i++) {
        if (AT(p->shapes, struct shape, i)->group == group) {
            *out = (uint32_t)i;
            return 0;
        }
    }
    struct shape *s = r ? NULL : add(&p->shapes, sizeof(*s));
    if (!s) {
        return r ? r : no_memory(err);
    }
    memcpy(s->key, b->key, sizeof(s->key));
    s->group = group;
    s->problem = (uint32_t)p->problems.n - 1;
    AT(p->groups, struct group, group)->shapes++;
    *out = (uint32_t)p->shapes.n - 1;
    return 0;
}

/* The newest trial of a shape and config replaces an older one: those of a key lie together. */
static int add_pair(struct portfolio *p, uint32_t shape, uint32_t config, double ratio,
                    size_t first, struct error *err)
{
    for (size_t i = first; i < p->pairs.n; i++) {
        struct cover_pair *known = AT(p->pairs, struct cover_pair, i);
        if (known->shape == shape && known->config == config) {
            known->time = ratio;
            return 0;
        }
    }
    struct cover_pair *pair = add(&p->pairs, sizeof(*pair));
    if (!pair) {
        return no_memory(err);
    }
    *pair = (struct cover_pair){shape, config, ratio};
    return 0;
}

/* All trials of a key. The statement over all keys is open meanwhile, so both read one state of the
 * database. */
static int gather_key(struct portfolio *p, struct store *s, const struct best *b, struct trial *t,
                      struct error *err)
{
    ROWS_AUTO rows = {0};
    size_t first_shape = p->shapes.n, first_pair = p->pairs.n;
    int r = rows_begin(&rows, s, TABLE_TRIAL, err, NULL,
                       "WHERE key = ?1 AND status = 'ok' AND ratio > 0 ORDER BY id", "t", b->key);
    while (r == 0 && (r = rows_next(&rows, t, err)) == DB_ROW) {
        uint32_t shape = 0, config = 0;
        r = find_shape(p, b, t->stamp, first_shape, &shape, err);
        r = r ? r : intern(p, &t->config, &config, err);
        r = r ? r : add_pair(p, shape, config, t->ratio, first_pair, err);
    }
    return r;
}

static int gather(struct portfolio *p, struct store *s, struct error *err)
{
    ROWS_AUTO rows = {0};
    struct best *b = malloc(sizeof(*b));
    struct trial *t = malloc(sizeof(*t));
    int r = b && t ? 0 : no_memory(err);
    r = r ? r : rows_begin(&rows, s, TABLE_BEST, err, "current_best", "ORDER BY key", "");
    while (r == 0 && (r = rows_next(&rows, b, err)) == DB_ROW) {
        struct packed *problem = add(&p->problems, sizeof(*problem));
        r = problem ? pack(&b->problem, problem, err) : no_memory(err);
        r = r ? r : gather_key(p, s, b, t, err);
    }
    free(b);
    free(t);
    return r;
}

/* ---- covering -------------------------------------------------------------------------------- */

static int compare_packed(const struct packed *a, const struct packed *b)
{
    int c = memcmp(a->bytes, b->bytes, a->n < b->n ? a->n : b->n);
    return c ? c : (a->n > b->n) - (a->n < b->n);
}

struct ranked {
    const struct packed *config;
    uint32_t index;
};

static int compare_ranked(const void *a, const void *b)
{
    return compare_packed(((const struct ranked *)a)->config, ((const struct ranked *)b)->config);
}

/* The place of each config by its bytes, so that no tie depends on what was measured first. */
static int rank_configs(const struct portfolio *p, uint32_t *rank, uint32_t *by_rank,
                        struct error *err)
{
    struct ranked *all = malloc((p->configs.n + 1) * sizeof(*all));
    if (!all) {
        return no_memory(err);
    }
    for (uint32_t i = 0; i < p->configs.n; i++) {
        all[i] = (struct ranked){AT(p->configs, struct packed, i), i};
    }
    qsort(all, p->configs.n, sizeof(*all), compare_ranked);
    for (uint32_t i = 0; i < p->configs.n; i++) {
        rank[all[i].index] = i;
        by_rank[i] = all[i].index;
    }
    free(all);
    return 0;
}

/* What one group needs, with numbers of its own. */
struct covering {
    struct cover_pair *pairs;
    struct cover_choice *choices;
    uint32_t *shapes;       /* of the group, by number in the portfolio */
    uint32_t *numbers;      /* the other way */
    uint32_t *rank, *by_rank;
};

static int cover_group(struct portfolio *p, struct covering *x, uint32_t group, struct error *err)
{
    uint32_t n_shapes = 0;
    size_t n = 0;
    for (uint32_t i = 0; i < p->shapes.n; i++) {
        if (AT(p->shapes, struct shape, i)->group == group) {
            x->numbers[i] = n_shapes;
            x->shapes[n_shapes++] = i;
        }
    }
    for (size_t i = 0; i < p->pairs.n; i++) {
        const struct cover_pair *pair = AT(p->pairs, struct cover_pair, i);
        if (AT(p->shapes, struct shape, pair->shape)->group == group) {
            x->pairs[n++] = (struct cover_pair){x->numbers[pair->shape], x->rank[pair->config],
                                                pair->time};
        }
    }
    int r = cover_make(x->pairs, n, n_shapes, (uint32_t)p->configs.n, p->bound_percent / 100,
                       x->choices, &AT(p->groups, struct group, group)->members, err);
    for (uint32_t i = 0; r == 0 && i < n_shapes; i++) {
        struct cover_choice *choice = &AT(p->shapes, struct shape, x->shapes[i])->choice;
        *choice = x->choices[i];
        choice->config = x->by_rank[choice->config];
    }
    return r;
}

static int cover_all(struct portfolio *p, struct error *err)
{
    struct covering x = {
        .pairs = malloc((p->pairs.n + 1) * sizeof(*x.pairs)),
        .choices = malloc((p->shapes.n + 1) * sizeof(*x.choices)),
        .shapes = malloc((p->shapes.n + 1) * sizeof(*x.shapes)),
        .numbers = malloc((p->shapes.n + 1) * sizeof(*x.numbers)),
        .rank = malloc((p->configs.n + 1) * sizeof(*x.rank)),
        .by_rank = malloc((p->configs.n + 1) * sizeof(*x.by_rank)),
    };
    bool all = x.pairs && x.choices && x.shapes && x.numbers && x.rank && x.by_rank;
    int r = all ? rank_configs(p, x.rank, x.by_rank, err) : no_memory(err);
    for (uint32_t g = 0; r == 0 && g < p->groups.n; g++) {
        r = cover_group(p, &x, g, err);
    }
    free(x.pairs);
    free(x.choices);
    free(x.shapes);
    free(x.numbers);
    free(x.rank);
    free(x.by_rank);
    return r;
}

int portfolio_make(struct store *s, double bound_percent, struct portfolio **out,
                   struct error *err)
{
    struct portfolio *p = calloc(1, sizeof(*p));
    if (!p) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a portfolio");
    }
    p->bound_percent = bound_percent;
    int r = gather(p, s, err);
    r = r ? r : cover_all(p, err);
    *out = r ? portfolio_free(p) : p;
    return r;
}
