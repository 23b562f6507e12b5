/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem made concrete. The routing is drawn from the profile with a seed, so that every machine
 * measures the same rows per expert. Operands are random, scaled so that results are near 1. Check
 * rows are where kernels go wrong: at the ends of experts, and inside.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* Bounds of the reference's cost: number of check rows, of multiply-adds and of expected values. */
enum { CHECKS_MAX = 512, CHECKS_MIN = 4 };
static const double CHECK_WORK_MAX = 0x1p33, CHECK_RESULTS_MAX = 0x1p25;

/* Tests for a cancel every few million rows. */
static bool is_stopped(int64_t row)
{
    enum { EVERY = 1 << 22 };
    return (row + 1) % EVERY == 0 && host_work_check(NULL) != 0;
}

/* ---- drawing the routing --------------------------------------------------------------------- */

/* Each token goes to the topk experts with the largest keys u^(1/weight): sampling without
 * replacement by weight (Efraimidis and Spirakis). log(u)/weight has the same order. */
static void draw_token_weighted(uint64_t *random, const double weight[], int64_t experts,
                                int64_t topk, int32_t chosen[])
{
    double key[GEMM_TOPK_MAX];
    for (int64_t e = 0; e < experts; e++) {
        double k = log(1 - random_unit(random)) / weight[e];
        int64_t at = e < topk ? e : topk - 1;
        if (e >= topk && k <= key[at]) {
            continue;
        }
        for (; at > 0 && key[at - 1] < k; at--) {
            key[at] = key[at - 1];
            chosen[at] = chosen[at - 1];
        }
        key[at] = k;
        chosen[at] = (int32_t)e;
    }
}

static void draw_zipf(const struct routing *r, const struct gemm *v, uint64_t *random, int32_t *ids)
{
    double weight[GEMM_EXPERTS_MAX];
    for (int64_t e = 0; e < v->experts; e++) {
        weight[e] = pow((double)(e + 1), -r->skew);
    }
    /* Drawing all tokens could take seconds. With very many tokens, the rest repeats the experts
     * of the first tokens, which by then show the whole profile. */
    const int64_t draws_most = 1 << 28, most = draws_most / v->experts,
                  drawn = v->tokens < most ? v->tokens : most;
    for (int64_t t = 0; t < drawn && !is_stopped(t); t++) {
        draw_token_weighted(random, weight, v->experts, v->topk, ids + t * v->topk);
    }
    for (int64_t i = drawn * v->topk; i < v->tokens * v->topk; i++) {
        ids[i] = ids[i - drawn * v->topk];
    }
}

/* Draws each token's experts by the first topk steps of a shuffle. `order` stays shuffled from
 * token to token, which does not matter. */
static void draw_uniform(const struct gemm *v, uint64_t *random, int32_t *ids)
{
    int32_t order[GEMM_EXPERTS_MAX];
    for (int64_t e = 0; e < v->experts; e++) {
        order[e] = (int32_t)e;
    }
    for (int64_t i = 0; i < v->m && !is_stopped(i); i++) {
        int64_t slot = i % v->topk;
        int64_t other = slot + (int64_t)(random_next(random) % (uint64_t)(v->experts - slot));
        ids[i] = order[other];
        order[other] = order[slot];
        order[slot] = ids[i];
    }
}

static int64_t most_rows(const struct gemm *v, const int32_t *ids)
{
    int64_t rows[GEMM_EXPERTS_MAX] = {0}, most = 0;
    for (int64_t i = 0; i < v->m; i++) {
        rows[ids[i]]++;
    }
    for (int64_t e = 0; e < v->experts; e++) {
        most = rows[e] > most ? rows[e] : most;
    }
    return most;
}

/*
 * Draws eight uniform routings, ranks them by the rows of their largest expert, and returns the
 * seed of the second. A job routes differently at each step. For Llama 4 Scout with 4096 tokens,
 * two tiles of 144 rows just held every expert of one routing and won by 1 %. In routings with a
 * larger expert they were up to 9 % slower than two tiles of 160.
 */
uint64_t gemm_wary_seed(const struct problem *p, uint64_t asked)
{
    enum {
        ROUTINGS = 8,
        ALIKE = 1 << 14 /* with more rows per expert, routings hardly differ */
    };
    struct gemm v;
    gemm_view(p, &v);
    const bool unlike =
        strcmp(v.routing, "uniform") == 0 && v.topk < v.experts && v.m / v.experts < ALIKE;
    int32_t *ids = unlike ? calloc((size_t)v.m, sizeof(*ids)) : NULL;
    if (!ids) {
        return asked;
    }
    uint64_t next = asked, first = asked, second = asked;
    int64_t most = -1, below = -1;
    for (int i = 0; i < ROUTINGS; i++) {
        uint64_t random = next;
        draw_uniform(&v, &random, ids);
        const int64_t rows = most_rows(&v, ids);
        if (rows > most) {
            below = most;
            second = first;
            most = rows;
            first = next;
        } else if (rows > below) {
            below = rows;
            second = next;
        }
        next = random; /* the generator's state after a draw is the next draw's seed */
    }
    free(ids);
    return second;
}

/* Gives each expert its given rows, shuffled over tokens and slots. */
static void draw_rows(const struct routing *r, const struct gemm *v, uint64_t *random, int32_t *ids)
{
    int64_t n = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        for (int64_t i = 0; i < r->rows[e]; i++) {
            ids[n++] = (int32_t)e;
        }
    }
    for (int64_t i = n - 1; i > 0 && !is_stopped(i); i--) {
        int64_t j = (int64_t)(random_next(random) % (uint64_t)(i + 1));
        int32_t swap = ids[i];
        ids[i] = ids[j];
        ids[j] = swap;
    }
}

/* Computes m_sizes, start and gather (the stable argsort) from the expert of each (token, slot). */
static void sort_rows(struct gemm_state *s, const int32_t *ids)
{
    int64_t next[GEMM_EXPERTS_MAX];
    for (int64_t i = 0; i < s->view.m; i++) {
        s->m_sizes[ids[i]]++;
    }
    for (int64_t e = 0; e < s->view.experts; e++) {
        next[e] = s->start[e];
        s->start[e + 1] = s->start[e] + s->m_sizes[e];
    }
    for (int64_t i = 0; i < s->view.m && !is_stopped(i); i++) {
        s->gather[next[ids[i]]++] = (int32_t)i;
    }
}

static int workload_draw_rows(struct gemm_state *s, uint64_t *random, struct error *err)
{
    const struct gemm *v = &s->view;
    struct routing routing;
    int r = routing_parse(&routing, v->routing, v->experts, v->m, err);
    if (r) {
        return r;
    }
    int32_t *ids = calloc((size_t)v->m, sizeof(*ids));
    if (!ids) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to route %lld rows", (long long)v->m);
    }
    switch (routing.kind) {
    case ROUTING_UNIFORM:
        draw_uniform(v, random, ids);
        break;
    case ROUTING_ZIPF:
        draw_zipf(&routing, v, random, ids);
        break;
    case ROUTING_ROWS:
        draw_rows(&routing, v, random, ids);
        break;
    }
    sort_rows(s, ids);
    free(ids);
    r = host_work_check(err);
    if (r) {
        return r;
    }
    for (int64_t i = 0; s->weights && i < v->m; i++) {
        s->weights[i] = (float)(0.05 + 0.95 * random_unit(random));
    }
    for (int64_t e = 0, column = 0; s->column && e < v->experts; e++) {
        s->column[e] = column;
        memset(s->routed + column, 1, (size_t)s->m_sizes[e]);
        column += gemm_columns_of(s->m_sizes[e]);
    }
    return 0;
}

/* ---- check rows ------------------------------------------------------------------------------ */

struct checks {
    const struct gemm_state *state;
    int64_t max, n;
    int64_t *row; /* the checked rows: rows in expert order, or in dW e * N + n */
    int64_t n_experts;
    int32_t experts[GEMM_EXPERTS_MAX];
};

/* The rows of an expert that can be checked: in dW each expert has N, even without input. */
static int64_t workload_rows_of_expert(const struct gemm_state *s, int64_t e)
{
    return s->view.mode == GEMM_DW ? s->view.n : s->m_sizes[e];
}

static int64_t first_of(const struct gemm_state *s, int64_t e)
{
    return s->view.mode == GEMM_DW ? e * s->view.n : s->start[e];
}

static void take_expert(struct checks *c, int64_t e)
{
    if (e < 0 || workload_rows_of_expert(c->state, e) == 0) {
        return;
    }
    for (int64_t i = 0; i < c->n_experts; i++) {
        if (c->experts[i] == e) {
            return;
        }
    }
    c->experts[c->n_experts++] = (int32_t)e;
}

/* Chooses the first and the last expert, the most and the least loaded, and an expert without
 * rows (dW must write its zeros). The other choices are evenly spread among the experts with
 * elements to check. */
static void choose_experts(struct checks *c)
{
    const struct gemm_state *s = c->state;
    int64_t most = -1, least = -1, empty = -1, n = 0;
    int32_t eligible[GEMM_EXPERTS_MAX];
    for (int64_t e = 0; e < s->view.experts; e++) {
        int32_t rows = s->m_sizes[e];
        if (workload_rows_of_expert(s, e) > 0) {
            eligible[n++] = (int32_t)e;
        }
        most = most < 0 || rows > s->m_sizes[most] ? e : most;
        least = rows > 0 && (least < 0 || rows < s->m_sizes[least]) ? e : least;
        empty = rows == 0 ? e : empty;
    }
    const int64_t must[] = {eligible[0], eligible[n - 1], most, least, empty};
    for (size_t i = 0; i < sizeof(must) / sizeof(must[0]); i++) {
        take_expert(c, must[i]);
    }
    int64_t wanted = c->max / 3 < n ? c->max / 3 : n;
    for (int64_t i = 0; i < wanted; i++) {
        take_expert(c, eligible[i * n / wanted]);
    }
}

static void workload_take_row(struct checks *c, int64_t row)
{
    if (c->n < c->max) {
        c->row[c->n++] = row;
    }
}

static int workload_compare_rows(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void choose_rows(struct checks *c, uint64_t *random)
{
    const struct gemm_state *s = c->state;
    for (int64_t i = 0; i < c->n_experts; i++) {
        int64_t e = c->experts[i];
        workload_take_row(c, first_of(s, e));
        workload_take_row(c, first_of(s, e) + workload_rows_of_expert(s, e) - 1);
    }
    for (int64_t i = 0; c->n < c->max; i++) {
        int64_t e = c->experts[i % c->n_experts];
        workload_take_row(c, first_of(s, e) + (int64_t)(random_next(random) %
                                                        (uint64_t)workload_rows_of_expert(s, e)));
    }
    qsort(c->row, (size_t)c->n, sizeof(c->row[0]), workload_compare_rows);
    int64_t unique = 0;
    for (int64_t i = 0; i < c->n; i++) {
        if (unique == 0 || c->row[i] != c->row[unique - 1]) {
            c->row[unique++] = c->row[i];
        }
    }
    c->n = unique;
}

/* Scaled operands: rounding to bf16 leaves rows of many terms and columns below 2.1e-3, where the
 * wrong scale of a single block shows. Short rows may lie almost wholly in a few elements, whose
 * rounding is up to 3.9e-3: there the device's own limit holds. */
static double workload_rel_norm(const struct workload *w, const struct gemm *v)
{
    enum { COLUMNS = 512, TERMS = 1024 };
    static const double ROUNDED = 2.5e-3, FP32 = 8e-4;
    const bool is_long = v->mode == GEMM_DW || w->check_terms >= TERMS;
    if (!v->quant->is_scaled) {
        return 0;
    }
    return v->out == DTYPE_FP32 ? FP32 : v->out_cols >= COLUMNS && is_long ? ROUNDED : 0;
}

static int64_t checks_wanted(const struct gemm *v)
{
    double reduction =
        v->mode == GEMM_DW ? (double)v->m / (double)v->experts : (double)gemm_count_terms(v);
    double n = CHECKS_MAX, length = (double)v->out_cols;
    n = fmin(n, CHECK_WORK_MAX / (length * fmax(reduction, 1)));
    n = fmin(n, CHECK_RESULTS_MAX / length);
    n = fmax(n, CHECKS_MIN);
    return (int64_t)fmin(n, (double)v->out_rows);
}

/* The number of terms of the longest sum of an output element. */
static int64_t most_terms(const struct gemm_state *s)
{
    const struct gemm *v = &s->view;
    int64_t most = gemm_count_terms(v);
    for (int64_t e = 0; v->mode == GEMM_DW && e < v->experts; e++) {
        most = s->m_sizes[e] > most ? s->m_sizes[e] : most;
    }
    return most;
}

static int choose_checks(struct workload *w, struct gemm_state *s, uint64_t *random,
                         struct error *err)
{
    const struct gemm *v = &s->view;
    struct checks c = {.state = s, .max = checks_wanted(v)};
    c.row = s->check_row = calloc((size_t)c.max, sizeof(*c.row));
    s->check_expert = calloc((size_t)c.max, sizeof(*s->check_expert));
    w->check_at = calloc((size_t)c.max, sizeof(*w->check_at));
    if (!c.row || !s->check_expert || !w->check_at) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the check rows");
    }
    choose_experts(&c);
    choose_rows(&c, random);
    w->n_checks = (uint32_t)c.n;
    w->check_length = v->out_cols;
    w->check_terms = most_terms(s);
    w->rel_norm = workload_rel_norm(w, v);
    for (int64_t i = 0, e = 0; i < c.n; i++) {
        int64_t row = c.row[i];
        while (row >= first_of(s, e) + workload_rows_of_expert(s, e)) {
            e++;
        }
        s->check_expert[i] = (int32_t)e;
        w->check_at[i] = (v->scatter ? s->gather[row] : row) * v->out_cols;
    }
    return 0;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static struct buffer *add_buffer(struct workload *w, enum gemm_buffer which, const char *name,
                                 enum dtype dtype, int64_t count)
{
    struct gemm_state *s = w->state;
    assert(w->n_buffers < BUFFERS_MAX);
    struct buffer *b = &w->buffers[w->n_buffers];
    s->index[which] = (int)w->n_buffers++;
    *b = (struct buffer){.name = name, .dtype = dtype, .count = count};
    return b;
}

static struct buffer *add_random(struct workload *w, enum gemm_buffer which, const char *name,
                                 enum dtype dtype, int64_t count, double scale)
{
    struct buffer *b = add_buffer(w, which, name, dtype, count);
    b->init = BUFFER_RANDOM;
    b->scale = scale;
    b->rotate = true;
    return b;
}

/* Adds an operand of standard deviation `scale`, and its scales. The numbers of a scaled operand
 * are spread as by a quantiser: about one of 128 is the largest, 448. The scales do not depend on
 * the numbers: a kernel that takes another block's scale is wrong. */
static void add_operand(struct workload *w, enum gemm_buffer which, const char *name,
                        const char *scale_name, double scale)
{
    /* SPREAD: the root of the mean square of BUFFER_SCALES around 1 */
    static const double DEVIATION = 170, SPREAD = 1.76;
    const struct gemm_state *s = w->state;
    struct gemm_operand o;
    gemm_operand_describe(&s->view, which, s->view.m, &o);
    const int64_t count = o.experts * o.rows * o.cols, scales = gemm_operand_count_scales(&o);
    struct buffer *b = add_random(w, which, name, s->view.in, count, scales ? DEVIATION : scale);
    b->columns = (uint32_t)(s->index[GEMM_COLUMNS] + 1);
    if (scales) {
        b = add_random(w, GEMM_X_SCALE + (which - GEMM_X), scale_name, DTYPE_FP32, scales,
                       scale / (DEVIATION * SPREAD));
        b->init = BUFFER_SCALES;
    }
}

static void add_list(struct workload *w, enum gemm_buffer which, const char *name, enum dtype dtype,
                     int64_t count, const void *host)
{
    struct buffer *b = add_buffer(w, which, name, dtype, count);
    b->init = BUFFER_HOST;
    b->host = host;
}

/* Operands x and dy have standard deviation 1, and w is scaled such that results have 1, too. dW
 * sums m_e products of deviation 1, so dy is scaled instead, by the mean rows of an expert. */
static void add_buffers(struct workload *w, const struct gemm_state *s)
{
    const struct gemm *v = &s->view;
    const double reduction = v->mode == GEMM_DX ? (double)v->n : (double)v->k;
    const double mean_rows = fmax(1, (double)v->m / (double)v->experts);
    if (s->routed) {
        add_list(w, GEMM_COLUMNS, "columns", DTYPE_FP8_E4M3, gemm_columns(v, v->m), s->routed);
    }
    if (v->mode != GEMM_DX) {
        add_operand(w, GEMM_X, "x", "x_scale", 1);
    }
    if (v->mode != GEMM_DW) {
        add_operand(w, GEMM_W, "w", "w_scale", 1 / sqrt(reduction));
    }
    if (v->mode != GEMM_FORWARD) {
        add_operand(w, GEMM_DY, "dy", "dy_scale", v->mode == GEMM_DW ? 1 / sqrt(mean_rows) : 1);
    }
    w->output = w->n_buffers;
    struct buffer *out = add_buffer(w, GEMM_OUT, "out", v->out, v->out_rows * v->out_cols);
    out->init = BUFFER_OUTPUT;
    out->scale = 0.5;
    out->rotate = true;
    out->accumulate = v->accumulate;
    add_list(w, GEMM_M_SIZES, "m_sizes", DTYPE_INT32, v->experts, s->m_sizes);
    if (v->permute_x || v->permute_y) {
        add_list(w, GEMM_GATHER, "gather_indices", DTYPE_INT32, v->m, s->gather);
    }
    if (v->fuse_mul_post) {
        add_list(w, GEMM_WEIGHTS, "topk_weights", DTYPE_FP32, v->m, s->weights);
    }
}

void gemm_rows(const struct gemm *v, const struct workload *w, int64_t rows[])
{
    if (!w) {
        gemm_expected_rows(v, rows);
        return;
    }
    const struct gemm_state *s = w->state;
    for (int64_t e = 0; e < v->experts; e++) {
        rows[e] = s->m_sizes[e];
    }
}

void *gemm_buffer(const struct workload *w, void *const buffers[], enum gemm_buffer which)
{
    const struct gemm_state *s = w->state;
    return s->index[which] < 0 ? NULL : buffers[s->index[which]];
}

/* ---- the life of a workload ------------------------------------------------------------------ */

static int make_state(struct workload *w, struct error *err)
{
    struct gemm_state *s = w->state = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workload");
    }
    gemm_view(&w->problem, &s->view);
    for (int i = 0; i < GEMM_BUFFERS; i++) {
        s->index[i] = -1;
    }
    size_t experts = (size_t)s->view.experts, rows = (size_t)s->view.m;
    s->m_sizes = calloc(experts, sizeof(*s->m_sizes));
    s->start = calloc(experts + 1, sizeof(*s->start));
    s->gather = calloc(rows, sizeof(*s->gather));
    s->weights = s->view.fuse_mul_post ? calloc(rows, sizeof(*s->weights)) : NULL;
    const bool columns = s->view.quant->is_scaled && s->view.mode == GEMM_DW;
    s->column = columns ? calloc(experts, sizeof(*s->column)) : NULL;
    s->routed = columns ? calloc((size_t)gemm_columns(&s->view, s->view.m), 1) : NULL;
    if (!s->m_sizes || !s->start || !s->gather || (s->view.fuse_mul_post && !s->weights) ||
        (columns && (!s->column || !s->routed))) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workload of %zu rows", rows);
    }
    return 0;
}

double gemm_workload_bytes(const struct problem *p)
{
    struct gemm v;
    gemm_view(p, &v);
    /* Bytes for each row: its expert while rows are sorted, its place in the sorted rows, and
     * its weight. */
    return (double)v.m * (2 * sizeof(int32_t) + (v.fuse_mul_post ? sizeof(float) : 0)) +
           (v.quant->is_scaled && v.mode == GEMM_DW ? (double)gemm_columns(&v, v.m) : 0);
}

int gemm_workload_init(struct workload *w, const struct problem *p, uint64_t seed,
                       struct error *err)
{
    *w = (struct workload){.family = &grouped_gemm_family, .problem = *p, .seed = seed};
    uint64_t random = seed;
    int r = make_state(w, err);
    r = r ? r : workload_draw_rows(w->state, &random, err);
    if (!r) {
        add_buffers(w, w->state);
        r = choose_checks(w, w->state, &random, err);
    }
    if (r) {
        gemm_workload_deinit(w);
    }
    return r;
}

void gemm_workload_deinit(struct workload *w)
{
    struct gemm_state *s = w->state;
    if (s) {
        free(s->m_sizes);
        free(s->start);
        free(s->gather);
        free(s->weights);
        free(s->column);
        free(s->routed);
        free(s->check_row);
        free(s->check_expert);
        free(s);
    }
    free(w->check_at);
    w->state = NULL;
    w->check_at = NULL;
}

void gemm_bind(const struct workload *w, void *const buffers[], void *workspace,
               int64_t workspace_bytes, void *stream, void *args)
{
    const struct gemm_state *s = w->state;
    struct grouped_gemm_args a = {
        .size = sizeof(a),
        .flags = s->view.accumulate ? GROUPED_GEMM_ACCUMULATE : 0,
        .x = gemm_buffer(w, buffers, GEMM_X),
        .w = gemm_buffer(w, buffers, GEMM_W),
        .dy = gemm_buffer(w, buffers, GEMM_DY),
        .out = gemm_buffer(w, buffers, GEMM_OUT),
        .m_sizes = gemm_buffer(w, buffers, GEMM_M_SIZES),
        .gather_indices = gemm_buffer(w, buffers, GEMM_GATHER),
        .topk_weights = gemm_buffer(w, buffers, GEMM_WEIGHTS),
        .m_sizes_dtype = DTYPE_INT32,
        .gather_dtype = DTYPE_INT32,
        .weights_dtype = DTYPE_FP32,
        .rows = s->view.m,
        .workspace = workspace,
        .workspace_bytes = workspace_bytes,
        .stream = stream,
        .x_scale = gemm_buffer(w, buffers, GEMM_X_SCALE),
        .w_scale = gemm_buffer(w, buffers, GEMM_W_SCALE),
        .dy_scale = gemm_buffer(w, buffers, GEMM_DY_SCALE),
    };
    _Static_assert(sizeof(a) <= ARGS_MAX, "ARGS_MAX is too small");
    memcpy(args, &a, sizeof(a));
}
