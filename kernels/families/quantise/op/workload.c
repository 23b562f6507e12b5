/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem made concrete. The outputs are parts of a single buffer of bytes, so that every byte is
 * known to be written, and check runs of 128 bytes are compared exactly. Half of the check runs are
 * evenly spaced, the ends of all parts included; the others lie where the special rows of x go.
 *
 * A right output has no byte 0xff, which marks unwritten bytes: NaN is 0x7f, and no bf16 divided by
 * 448 has such a byte as fp32 (test_quantise.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/quantise/quantise.h"

enum { RUN = 128, SPECIAL_ROWS = 256, SPREAD = 64, CHECKS_MAX = 4 * (SPREAD + SPECIAL_ROWS) };
enum { SPECIAL_MOST = 1 << 22 }; /* elements */

/* As the libraries whose formula each scale type is: DeepGEMM and torchao, Transformer Engine. */
static float workload_eps(const struct quantise *v)
{
    return v->pow2 ? 0 : 1e-12f;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t workload_padded(const struct quantise_state *s)
{
    int64_t padded = 0;
    for (int64_t e = 0; e < s->view.experts; e++) {
        padded += quantise_blocks(s->m_sizes[e]) * QUANTISE_BLOCK;
    }
    return padded;
}

static void workload_fill_parts(struct quantise_state *s)
{
    const struct quantise *v = &s->view;
    struct quantise_parts *p = &s->parts;
    const bool weights = v->mode == QUANTISE_WEIGHTS;
    p->padded = weights ? v->m / v->experts : workload_padded(s);
    p->q_t = v->row_side ? v->m * v->k : 0;
    p->scales = p->q_t + (!v->column_side ? 0 : weights ? v->m * v->k : v->k * p->padded);
    const int64_t rows = weights ? v->experts * quantise_blocks(p->padded) : v->m;
    p->scales_t = p->scales + (v->row_side ? 4 * rows * v->row_scales : 0);
    p->end = p->scales_t + (v->column_side && !weights ? p->padded / QUANTISE_BLOCK * v->k * 4 : 0);
}

/* Fewer special rows where they are very long: drawing them shall take a tenth of a second. */
static int64_t workload_special_rows(const struct quantise *v)
{
    const int64_t rows = v->m / v->topk, most = SPECIAL_MOST / v->k;
    const int64_t wanted = most < SPECIAL_ROWS ? most : SPECIAL_ROWS;
    return rows < wanted ? rows : wanted;
}

double quantise_workload_bytes(const struct problem *p)
{
    struct quantise v;
    quantise_view(p, &v);
    return 4.0 * (double)(v.permute_x ? v.m : 0) + 2.0 * (double)(workload_special_rows(&v) * v.k);
}

/* ---- check runs ------------------------------------------------------------------------------ */

struct runs {
    struct workload *workload;
    const struct quantise_state *state;
};

/* Adds the run that begins at a byte of a part, moved back where the part ends before. */
static void runs_add(struct runs *r, int64_t begin, int64_t end, int64_t at)
{
    struct workload *w = r->workload;
    at = begin + at + w->check_length > end ? end - w->check_length : begin + at;
    if (at >= 0 && w->n_checks < CHECKS_MAX) {
        w->check_at[w->n_checks++] = at;
    }
}

/* Evenly over a part, from its first to its last byte. */
static void runs_spread(struct runs *r, int64_t begin, int64_t end)
{
    for (int64_t i = 0; i < SPREAD && end > begin; i++) {
        runs_add(r, begin, end, (int64_t)((double)(end - begin) * (double)i / (SPREAD - 1)));
    }
}

/* A run of each part that the routed row `row`, at column `padded_row` of q_t, goes to. `i` counts
 * the special rows, and chooses the column. */
static void runs_add_special(struct runs *r, int64_t row, int64_t padded_row, int64_t i)
{
    const struct quantise *v = &r->state->view;
    const struct quantise_parts *p = &r->state->parts;
    const int64_t blocks = quantise_blocks(v->k), column = i * 37 % v->k;
    const int64_t token_block = padded_row / QUANTISE_BLOCK;
    if (v->mode == QUANTISE_WEIGHTS) {
        const int64_t n = p->padded, expert = row / n;
        runs_add(r, 0, p->q_t, row * v->k + i % blocks * QUANTISE_BLOCK);
        runs_add(r, p->q_t, p->scales, (expert * v->k + column) * n + row % n);
        return;
    }
    if (v->row_side) {
        runs_add(r, 0, p->q_t, row * v->k + i % blocks * QUANTISE_BLOCK);
        runs_add(r, p->scales, p->scales_t, (i % v->row_scales * v->m + row) * 4);
    }
    if (v->column_side) {
        runs_add(r, p->q_t, p->scales, column * p->padded + token_block * QUANTISE_BLOCK);
        runs_add(r, p->scales_t, p->end, (token_block * v->k + column) * 4);
    }
}

static void runs_find_special(struct runs *r)
{
    const struct quantise_state *s = r->state;
    int64_t found = 0, row = 0, padded = 0;
    for (int64_t e = 0; e < s->view.experts && found < SPECIAL_ROWS; e++) {
        const int64_t rows = s->view.mode == QUANTISE_WEIGHTS ? s->parts.padded : s->m_sizes[e];
        for (int64_t i = 0; i < rows && found < SPECIAL_ROWS; i++) {
            const int64_t source = s->gather ? s->gather[row + i] / s->view.topk : row + i;
            if (source < s->special_rows) {
                runs_add_special(r, row + i, padded + i, found++);
            }
        }
        row += rows;
        padded += quantise_blocks(rows) * QUANTISE_BLOCK;
    }
}

static void workload_choose_runs(struct workload *w)
{
    const struct quantise_state *s = w->state;
    struct runs r = {w, s};
    runs_spread(&r, 0, s->parts.q_t);
    runs_spread(&r, s->parts.q_t, s->parts.scales);
    runs_spread(&r, s->parts.scales, s->parts.scales_t);
    runs_spread(&r, s->parts.scales_t, s->parts.end);
    runs_find_special(&r);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static void workload_fill_buffers(struct workload *w, const struct quantise_state *s)
{
    const struct quantise *v = &s->view;
    w->n_buffers = QUANTISE_BUFFERS;
    w->output = QUANTISE_OUT;
    w->buffers[QUANTISE_X] = (struct buffer){.name = "x",
                                             .dtype = DTYPE_BF16,
                                             .init = BUFFER_RANDOM,
                                             .count = v->m / v->topk * v->k,
                                             .scale = 1,
                                             .host = s->special,
                                             .host_count = s->special_rows * v->k,
                                             .rotate = true};
    w->buffers[QUANTISE_M_SIZES] =
        (struct buffer){.name = "m_sizes",
                        .dtype = DTYPE_INT32,
                        .init = BUFFER_HOST,
                        .count = v->mode == QUANTISE_WEIGHTS ? 0 : v->experts,
                        .host = s->m_sizes};
    w->buffers[QUANTISE_GATHER] = (struct buffer){.name = "gather_indices",
                                                  .dtype = DTYPE_INT32,
                                                  .init = BUFFER_HOST,
                                                  .count = s->gather ? v->m : 0,
                                                  .host = s->gather};
    w->buffers[QUANTISE_OUT] = (struct buffer){.name = "out",
                                               .dtype = DTYPE_UINT8,
                                               .init = BUFFER_OUTPUT,
                                               .count = s->parts.end,
                                               .rotate = true};
}

static int workload_allocate(struct workload *w, struct quantise_state *s, struct error *err)
{
    const struct quantise *v = &s->view;
    s->special_rows = workload_special_rows(v);
    s->special = malloc((size_t)(s->special_rows * v->k + 1) * sizeof(*s->special));
    s->m_sizes = calloc((size_t)v->experts, sizeof(*s->m_sizes));
    s->gather = v->permute_x ? malloc((size_t)v->m * sizeof(*s->gather)) : NULL;
    w->check_at = calloc(CHECKS_MAX, sizeof(*w->check_at));
    if (!s->special || !s->m_sizes || !w->check_at || (v->permute_x && !s->gather)) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the special rows and the gather");
    }
    return 0;
}

int quantise_workload_init(struct workload *w, const struct problem *p, uint64_t seed,
                           struct error *err)
{
    struct quantise_state *s = calloc(1, sizeof(*s));
    if (!s) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a workload");
    }
    *w = (struct workload){.family = &quantise_family, .problem = *p, .seed = seed, .state = s};
    quantise_view(p, &s->view);
    int r = workload_allocate(w, s, err);
    r = r ? r : quantise_draw(s, seed, err);
    if (r) {
        quantise_workload_deinit(w);
        return r;
    }
    workload_fill_parts(s);
    w->check_length = s->parts.end < RUN ? s->parts.end : RUN;
    workload_fill_buffers(w, s);
    workload_choose_runs(w);
    return 0;
}

void quantise_workload_deinit(struct workload *w)
{
    struct quantise_state *s = w->state;
    free(s->special);
    free(s->m_sizes);
    free(s->gather);
    free(s);
    free(w->check_at);
    w->state = NULL;
    w->check_at = NULL;
}

/* ---- use ------------------------------------------------------------------------------------- */

void quantise_bind(const struct workload *w, void *const buffers[], void *workspace,
                   int64_t workspace_bytes, void *stream, void *args)
{
    const struct quantise_state *s = w->state;
    const struct quantise *v = &s->view;
    char *out = buffers[QUANTISE_OUT];
    const bool weights = v->mode == QUANTISE_WEIGHTS;
    struct quantise_args a = {
        .size = sizeof(a),
        .x = buffers[QUANTISE_X],
        .q = v->row_side ? out : NULL,
        .scales = v->row_side ? out + s->parts.scales : NULL,
        .q_t = v->column_side ? out + s->parts.q_t : NULL,
        .scales_t = v->column_side && !weights ? out + s->parts.scales_t : NULL,
        /* dense, without the padding of rows to 4, which no kernel writes */
        .scales_row_stride = weights ? 0 : 1,
        .scales_block_stride = weights ? 0 : v->m,
        .padded = weights ? 0 : s->parts.padded,
        .m_sizes = buffers[QUANTISE_M_SIZES],
        .gather_indices = buffers[QUANTISE_GATHER],
        .m_sizes_dtype = DTYPE_INT32,
        .gather_dtype = DTYPE_INT32,
        .eps = workload_eps(v),
        .rows = v->m,
        .workspace = workspace,
        .workspace_bytes = workspace_bytes,
        .stream = stream,
    };
    memcpy(args, &a, sizeof(a));
}

void quantise_fill_reference(const struct workload *w, void *const buffers[],
                             const int64_t *check_at, double *out, struct quantise_reference *r)
{
    const struct quantise_state *s = w->state;
    const struct quantise *v = &s->view;
    *r = (struct quantise_reference){
        .x = buffers[QUANTISE_X],
        .m_sizes = buffers[QUANTISE_M_SIZES],
        .gather = buffers[QUANTISE_GATHER],
        .check_at = check_at,
        .out = out,
        .m = v->m,
        .k = v->k,
        .experts = v->experts,
        .topk = v->topk,
        .padded = s->parts.padded,
        .length = w->check_length,
        .eps = (double)workload_eps(v),
        .mode = (int32_t)v->mode,
        .pow2 = v->pow2,
    };
}

void quantise_write_place(const struct workload *w, uint32_t check, char *out, size_t size)
{
    const struct quantise_state *s = w->state;
    const struct quantise_parts *p = &s->parts;
    const struct {
        const char *name;
        int64_t begin, end, row;
    } parts[] = {
        {"q", 0, p->q_t, s->view.k},
        {"q_t", p->q_t, p->scales, p->padded},
        {"scales", p->scales, p->scales_t, 4},
        {"scales_t", p->scales_t, p->end, 4 * s->view.k},
    };
    const int64_t at = w->check_at[check];
    size_t i = 0;
    while (at >= parts[i].end) {
        i++;
    }
    snprintf(out, size, "%s, row %lld, from byte %lld of it on", parts[i].name,
             (long long)((at - parts[i].begin) / parts[i].row),
             (long long)((at - parts[i].begin) % parts[i].row));
}
