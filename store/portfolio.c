/* SPDX-License-Identifier: Apache-2.0 */
/* Portfolios from trials (portfolio.h): gathering in order of keys, then the members of
 * each group. */
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
        free(p->trials.data);
        free(p->slots);
        free(p);
    }
    return NULL;
}

/* A zeroed element more; NULL: no memory. */
static void *portfolio_grow_list(struct growing *l, size_t size)
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

static int portfolio_pack_config(const struct record *r, struct packed *out, struct error *err)
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

static bool portfolio_is_same_config(const struct packed *a, const struct packed *b)
{
    return a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0;
}

static void portfolio_index_config(struct portfolio *p, uint32_t config)
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
        portfolio_index_config(p, i);
    }
    return 0;
}

static int portfolio_keep_config(struct portfolio *p, const struct packed *c, struct error *err)
{
    struct packed *kept = portfolio_grow_list(&p->configs, sizeof(*kept));
    uint8_t *copy = kept ? malloc(c->n + 1) : NULL;
    if (!copy) {
        p->configs.n -= kept != NULL;
        return no_memory(err);
    }
    memcpy(copy, c->bytes, c->n);
    copy[c->n] = 0;
    *kept = (struct packed){copy, c->n};
    return 0;
}

/* The index of a config, by its JSON, each once. What wrote it is one code, so equal configs are
 * equal texts. */
static int portfolio_intern_config(struct portfolio *p, const struct packed *c, uint32_t *out,
                                   struct error *err)
{
    int r = 2 * p->configs.n >= p->n_slots ? grow_slots(p, err) : 0;
    size_t at = r ? 0 : hash64(c->bytes, c->n) & (p->n_slots - 1);
    for (; r == 0 && p->slots[at]; at = (at + 1) & (p->n_slots - 1)) {
        if (portfolio_is_same_config(AT(p->configs, struct packed, p->slots[at] - 1), c)) {
            *out = p->slots[at] - 1;
            return 0;
        }
    }
    r = r ? r : portfolio_keep_config(p, c, err);
    if (r == 0) {
        *out = (uint32_t)p->configs.n - 1;
        p->slots[at] = *out + 1;
    }
    return r;
}

/* A key being gathered: what it adds begins at these places. */
struct gathering {
    struct portfolio *p;
    struct group group; /* of the key; its stamp is the trial's */
    const struct best *best;
    size_t first_shape, first_pair;
};

static void begin_key(struct gathering *g, struct portfolio *p, const struct best *b)
{
    *g =
        (struct gathering){.p = p, .best = b, .first_shape = p->shapes.n, .first_pair = p->pairs.n};
    const struct record *f = &b->problem;
    snprintf(g->group.class, sizeof(g->group.class), "%s", b->class);
    snprintf(g->group.op, sizeof(g->group.op), "%s", b->op);
    snprintf(g->group.mode, sizeof(g->group.mode), "%s", record_text(f, "mode", ""));
    snprintf(g->group.dtype_in, sizeof(g->group.dtype_in), "%s", record_text(f, "dtype_in", ""));
    snprintf(g->group.dtype_out, sizeof(g->group.dtype_out), "%s", record_text(f, "dtype_out", ""));
}

/* The same but for the counts behind. */
static bool portfolio_is_same_group(const struct group *a, const struct group *b)
{
    return memcmp(a, b, offsetof(struct group, shapes)) == 0;
}

static int find_group(struct gathering *g, uint32_t *out, struct error *err)
{
    struct growing *groups = &g->p->groups;
    for (*out = 0; *out < groups->n; ++*out) {
        if (portfolio_is_same_group(AT(*groups, struct group, *out), &g->group)) {
            return 0;
        }
    }
    struct group *added = portfolio_grow_list(groups, sizeof(*added));
    if (!added) {
        return no_memory(err);
    }
    *added = g->group;
    return 0;
}

/* The shape of the key and a stamp. */
static int find_shape(struct gathering *g, const char *stamp, uint32_t *out, struct error *err)
{
    struct portfolio *p = g->p;
    uint32_t group;
    memset(g->group.stamp, 0, sizeof(g->group.stamp));
    snprintf(g->group.stamp, sizeof(g->group.stamp), "%s", stamp);
    for (size_t i = g->first_shape; i < p->shapes.n; i++) {
        const struct shape *s = AT(p->shapes, struct shape, i);
        if (portfolio_is_same_group(AT(p->groups, struct group, s->group), &g->group)) {
            *out = (uint32_t)i;
            return 0;
        }
    }
    int r = find_group(g, &group, err);
    struct shape *s = r ? NULL : portfolio_grow_list(&p->shapes, sizeof(*s));
    if (!s) {
        return r ? r : no_memory(err);
    }
    memcpy(s->key, g->best->key, sizeof(s->key));
    s->group = group;
    s->problem = (uint32_t)p->problems.n - 1;
    AT(p->groups, struct group, group)->shapes++;
    *out = (uint32_t)p->shapes.n - 1;
    return 0;
}

/* The newest trial of a shape and config replaces an older one. */
static int add_pair(struct gathering *g, const struct portfolio_pair *pair, int64_t trial,
                    struct error *err)
{
    struct portfolio *p = g->p;
    for (size_t i = g->first_pair; i < p->pairs.n; i++) {
        struct portfolio_pair *known = AT(p->pairs, struct portfolio_pair, i);
        if (known->shape == pair->shape && known->config == pair->config) {
            known->time = pair->time;
            *AT(p->trials, int64_t, i) = trial;
            return 0;
        }
    }
    struct portfolio_pair *added = portfolio_grow_list(&p->pairs, sizeof(*added));
    int64_t *id = added ? portfolio_grow_list(&p->trials, sizeof(*id)) : NULL;
    if (!id) {
        return no_memory(err);
    }
    *added = *pair;
    *id = trial;
    return 0;
}

static int gather_trial(struct gathering *g, sqlite3_stmt *st, struct error *err)
{
    const char *stamp = (const char *)sqlite3_column_text(st, 1);
    struct packed config = {(uint8_t *)(uintptr_t)sqlite3_column_text(st, 2),
                            (size_t)sqlite3_column_bytes(st, 2)};
    struct portfolio_pair pair = {.time = sqlite3_column_double(st, 3)};
    if (!stamp || !config.bytes) {
        return no_memory(err);
    }
    int r = find_shape(g, stamp, &pair.shape, err);
    r = r ? r : portfolio_intern_config(g->p, &config, &pair.config, err);
    return r ? r : add_pair(g, &pair, sqlite3_column_int64(st, 0), err);
}

/* There may be hundreds of thousands of trials: they are read as they are, and those that decide
 * have their checksums looked at afterwards. The statement over all keys is open meanwhile, so both
 * read one state of the database. */
static int gather_key(struct portfolio *p, struct store *s, const struct best *b, struct error *err)
{
    static const char sql[] = "SELECT id, stamp, config, ratio FROM trial WHERE key = ?1 AND"
                              " status = 'ok' AND ratio > 0 AND id NOT IN"
                              " (SELECT row FROM bad_row WHERE tbl = 'trial') ORDER BY id";
    DB_STMT_AUTO *st = NULL;
    struct gathering g;
    begin_key(&g, p, b);
    int r = db_query(&s->db, &st, err, sql, "t", b->key);
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        r = gather_trial(&g, st, err);
    }
    return r;
}

static int portfolio_gather_shapes(struct portfolio *p, struct store *s, struct error *err)
{
    ROWS_AUTO rows = {0};
    struct best *b = malloc(sizeof(*b));
    int r = b ? 0 : no_memory(err);
    r = r ? r : rows_begin(&rows, s, TABLE_BEST, err, "current_best", "ORDER BY key", "");
    while (r == 0 && (r = rows_next(&rows, b, err)) == DB_ROW) {
        struct packed *problem = portfolio_grow_list(&p->problems, sizeof(*problem));
        r = problem ? portfolio_pack_config(&b->problem, problem, err) : no_memory(err);
        r = r ? r : gather_key(p, s, b, err);
    }
    free(b);
    return r;
}

/* ---- members --------------------------------------------------------------------------------- */

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
struct choosing {
    struct portfolio_pair *pairs;
    struct portfolio_choice *choices;
    uint32_t *shapes;  /* of the group, by number in the portfolio */
    uint32_t *numbers; /* the other way */
    uint32_t *rank, *by_rank;
};

static int choose_group_members(struct portfolio *p, struct choosing *x, uint32_t group,
                                struct error *err)
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
        const struct portfolio_pair *pair = AT(p->pairs, struct portfolio_pair, i);
        if (AT(p->shapes, struct shape, pair->shape)->group == group) {
            x->pairs[n++] =
                (struct portfolio_pair){x->numbers[pair->shape], x->rank[pair->config], pair->time};
        }
    }
    int r = portfolio_choose_members(x->pairs, n, n_shapes, (uint32_t)p->configs.n,
                                     p->bound_percent / 100, x->choices,
                                     &AT(p->groups, struct group, group)->members, err);
    for (uint32_t i = 0; r == 0 && i < n_shapes; i++) {
        struct portfolio_choice *choice = &AT(p->shapes, struct shape, x->shapes[i])->choice;
        *choice = x->choices[i];
        choice->config = x->by_rank[choice->config];
    }
    return r;
}

static int choose_all_members(struct portfolio *p, struct error *err)
{
    struct choosing x = {
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
        r = choose_group_members(p, &x, g, err);
    }
    free(x.pairs);
    free(x.choices);
    free(x.shapes);
    free(x.numbers);
    free(x.rank);
    free(x.by_rank);
    return r;
}

/* ---- what it stands on ----------------------------------------------------------------------- */

/* The trial has its checksum; one that has not is known to be bad from now on. */
static int check_trial(struct store *s, int64_t id, struct trial *t, bool *good, struct error *err)
{
    int r = rows_first(s, TABLE_TRIAL, t, err, NULL, "WHERE id = ?1", "i", id);
    *good = *good && r == 0;
    return r < 0 ? r : 0;
}

/* Looks at the trials that decided: of each shape the best one, and its member's. */
static int check_evidence(const struct portfolio *p, struct store *s, bool *good, struct error *err)
{
    double *best = malloc((p->shapes.n + 1) * sizeof(*best));
    struct trial *t = malloc(sizeof(*t));
    int r = best && t ? 0 : no_memory(err);
    *good = true;
    for (size_t i = 0; r == 0 && i < p->shapes.n; i++) {
        best[i] = INFINITY;
    }
    for (size_t i = 0; r == 0 && i < p->pairs.n; i++) {
        const struct portfolio_pair *pair = AT(p->pairs, struct portfolio_pair, i);
        best[pair->shape] = fmin(best[pair->shape], pair->time);
    }
    for (size_t i = 0; r == 0 && i < p->pairs.n; i++) {
        const struct portfolio_pair *pair = AT(p->pairs, struct portfolio_pair, i);
        const struct shape *shape = AT(p->shapes, struct shape, pair->shape);
        if (pair->time == best[pair->shape] || pair->config == shape->choice.config) {
            r = check_trial(s, *AT(p->trials, int64_t, i), t, good, err);
        }
    }
    free(best);
    free(t);
    return r;
}

static int portfolio_make_good(struct store *s, double bound_percent, struct portfolio **out,
                               bool *good, struct error *err)
{
    struct portfolio *p = calloc(1, sizeof(*p));
    if (!p) {
        return no_memory(err);
    }
    p->bound_percent = bound_percent;
    int r = portfolio_gather_shapes(p, s, err);
    r = r ? r : choose_all_members(p, err);
    r = r ? r : check_evidence(p, s, good, err);
    *out = r ? portfolio_free(p) : p;
    return r;
}

int portfolio_make(struct store *s, double bound_percent, struct portfolio **out, struct error *err)
{
    bool good = false;
    int r = portfolio_make_good(s, bound_percent, out, &good, err);
    while (r == 0 && !good) { /* without the bad rows, which are fewer each time */
        *out = portfolio_free(*out);
        r = portfolio_make_good(s, bound_percent, out, &good, err);
    }
    return r;
}
