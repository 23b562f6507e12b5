/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/cuda/emulated.h"

const struct device_info emulated_info = {
    .kind = "cuda",
    .name = "emulated",
    .arch = "sm_90a",
    .sm_count = 2,
    .cc_major = 9,
    .smem_optin = 232448,
    .smem_per_sm = 233472,
    .regs_per_block = 65536,
    .warp_size = 32,
    .l2_bytes = 1 << 20,
    .clock_khz = 1000000,
    .peak_tflops = 1,
    .peak_gbps = 10,
};

static int64_t pick(struct test_case *c, const int64_t *list, size_t n)
{
    return list[random_next(&c->random) % n];
}
#define PICK(c, ...)                                                                               \
    pick(c, (const int64_t[]){__VA_ARGS__},                                                        \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static void make_matrix(struct test_case *c, struct matrix *m, int64_t rows, int64_t cols,
                        enum dtype t, bool fill)
{
    *m = (struct matrix){.rows = rows,
                         .cols = cols,
                         .dtype = t,
                         .stride = cols + (!c->strided           ? 0
                                           : t == DTYPE_FP8_E4M3 ? PICK(c, 16, 48)
                                                                 : PICK(c, 8, 24, 40))};
    size_t bytes = matrix_bytes(m);
    m->block = aligned_alloc(16, (bytes + 2 * GUARD + 15) / 16 * 16);
    m->data = (char *)m->block + GUARD;
    memset(m->block, 0xff, bytes + 2 * GUARD); /* NaNs in rows, in gaps between rows, in guards */
    for (int64_t i = 0; fill && i < rows * cols; i++) {
        uint16_t v = encode_small(t, (int)(random_next(&c->random) % 33) - 16);
        const int64_t at = i / cols * m->stride + i % cols;
        if (t == DTYPE_FP8_E4M3) {
            ((uint8_t *)m->data)[at] = (uint8_t)v;
        } else {
            ((uint16_t *)m->data)[at] = v;
        }
    }
}

/* ---- scaled operands ------------------------------------------------------------------------- */

/* Makes the scales of an operand: powers of two, so that sums stay exact. Padding and scales that
 * no kernel may read are NaN. Strided cases have the other order of rows and blocks. */
static void make_scales(struct test_case *c, enum gemm_buffer which)
{
    struct case_scales *s = &c->scales[which];
    const struct gemm_operand *o = &s->lies;
    gemm_operand_describe(&c->v, which, c->v.m, &s->lies);
    const bool turned = c->strided && which != GEMM_W;
    s->stride = turned ? o->scale_blocks + 1 : o->scale_stride;
    s->block = turned ? 1 : o->scale_stride_block;
    const size_t n =
        turned ? (size_t)(o->scale_rows * s->stride) : (size_t)gemm_operand_count_scales(o);
    s->data = malloc(n * sizeof(float));
    memset(s->data, 0xff, n * sizeof(float));
    for (int64_t e = 0; e < o->experts; e++) {
        for (int64_t i = 0; i < o->scale_rows * o->scale_blocks; i++) {
            s->data[e * o->scale_stride_expert + i / o->scale_blocks * s->stride +
                    i % o->scale_blocks * s->block] = (float)(1 << random_next(&c->random) % 4) / 2;
        }
    }
}

double case_scaled_at(const struct test_case *c, enum gemm_buffer which, int64_t e, int64_t row,
                      int64_t col)
{
    const struct matrix *m = which == GEMM_X ? &c->x : which == GEMM_W ? &c->w : &c->dy;
    const struct case_scales *s = &c->scales[which];
    const int64_t sum = c->v.quant->sum_block, expert = which == GEMM_W ? e : 0;
    const int64_t block = sum ? col / sum : c->v.mode == GEMM_DW ? e : 0;
    return at(m, expert * s->lies.rows + row, col) *
           (double)s->data[expert * s->lies.scale_stride_expert +
                           row / s->lies.scale_row_block * s->stride + block * s->block];
}

/* Makes the columns behind an expert's last row zeros, and all columns behind the last expert NaN:
 * no kernel may read them. */
static void clear_columns(struct test_case *c, struct matrix *m)
{
    int64_t column = 0;
    for (int64_t e = 0; e < c->v.experts; e++) {
        const int64_t end = column + gemm_columns_of(c->rows[e]);
        c->column[e] = column;
        for (int64_t row = 0; row < m->rows; row++) {
            memset(m->data + row * m->stride + column + c->rows[e], 0,
                   (size_t)(end - column - c->rows[e]));
        }
        column = end;
    }
    for (int64_t row = 0; row < m->rows; row++) {
        memset(m->data + row * m->stride + column, 0xff, (size_t)(m->cols - column));
    }
}

static void fill_scaled(struct test_case *c)
{
    const struct gemm *v = &c->v;
    struct matrix *const all[] = {&c->x, &c->w, &c->dy};
    for (int which = GEMM_X; which <= GEMM_DY; which++) {
        make_scales(c, which);
        const struct gemm_operand *o = &c->scales[which].lies;
        const bool shared = which == GEMM_DY && c->shared_dy;
        make_matrix(c, all[which], shared ? v->tokens : o->experts * o->rows, o->cols, v->in, true);
        if (v->mode == GEMM_DW && which != GEMM_W) {
            clear_columns(c, all[which]);
        }
    }
}

/* ---- problems -------------------------------------------------------------------------------- */

/* `quant`: NULL for problems without quantisation. */
static void make_problem(struct test_case *c, const char *quant)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    struct record fields;
    struct error err = ERROR_NULL;
    char routing[1024] = "rows:";
    size_t mode = random_next(&c->random) % 3, permute = random_next(&c->random) % 3;
    int64_t experts = PICK(c, 1, 2, 3, 5, 33, 66), topk = PICK(c, 1, 2, 3, 6), total = 0;
    topk = topk > experts ? 1 : topk;
    for (int64_t e = 0; e < experts; e++) {
        c->rows[e] = experts > 8 ? PICK(c, 0, 0, 1, 2, 7, 17)
                                 : PICK(c, 0, 1, 15, 16, 17, 63, 64, 65, 130, 257, 256, 360);
        total += c->rows[e];
    }
    c->rows[experts - 1] += total == 0 ? topk : (topk - total % topk) % topk;
    total = 0;
    for (int64_t e = 0; e < experts; e++) {
        total += c->rows[e];
        size_t n = strlen(routing);
        snprintf(routing + n, sizeof(routing) - n, "%s%d", e ? "," : "", (int)c->rows[e]);
    }
    record_init(&fields);
    permute = quant && mode == 2 ? 0 : permute;
    record_put_text(&fields, "mode", modes[mode]);
    record_put_int(&fields, "M", total);
    record_put_int(&fields, "N",
                   quant ? PICK(c, 16, 48, 64, 144, 272, 336)
                         : PICK(c, 8, 24, 40, 64, 104, 136, 264, 328));
    record_put_int(&fields, "K",
                   quant ? PICK(c, 16, 48, 64, 144, 192, 272, 336)
                         : PICK(c, 8, 24, 40, 64, 104, 136, 192, 264, 328));
    record_put_int(&fields, "experts", experts);
    record_put_int(&fields, "topk", topk);
    record_put_text(&fields, "dtype_in", random_next(&c->random) % 2 || quant ? "bf16" : "fp16");
    record_put_text(&fields, "quant", quant ? quant : "none");
    record_put_bool(&fields, "permute_x", permute == 1);
    record_put_bool(&fields, "permute_y", permute == 2);
    record_put_bool(&fields, "fuse_mul_post",
                    mode == 0 && permute == 2 && random_next(&c->random) % 2);
    record_put_bool(&fields, "accumulate", mode == 2 && random_next(&c->random) % 3 == 0);
    if (mode == 2 && random_next(&c->random) % 2) {
        record_put_text(&fields, "dtype_out", "fp32");
    }
    record_put_text(&fields, "routing", routing);
    if (problem_make(&c->problem, "grouped_gemm", &fields, &err)) {
        fail_msg("%s", err.text);
    }
    gemm_view(&c->problem, &c->v);
}

/* Sets parameters to values outside the space, so that legal configs outside it are tested, too. */
static void stray(struct test_case *c)
{
#ifdef TARGET_HOPPER
    if (random_next(&c->random) % 4 == 0) {
        record_put_int(&c->config, "num_stages", PICK(c, 2, 3));
    }
    if (random_next(&c->random) % 8 == 0) {
        record_put_int(&c->config, "staging_buffers", 3);
    }
    if (random_next(&c->random) % 4 == 0) {
        record_put_int(&c->config, "GROUP_SIZE_M", PICK(c, 2, 3));
    }
    if (c->v.mode == GEMM_DW || !(c->v.gather_x || c->v.gather_dy) ||
        record_bool(&c->config, "permute_copy", false)) {
        record_put_int(&c->config, "l2_ahead", PICK(c, 0, 1, 2, 8));
    }
    if (c->v.mode == GEMM_DW) {
        if (record_int(&c->config, "l2_ahead", 0)) {
            record_put_text(&c->config, "expert_order", "index");
        }
        record_put_bool(&c->config, "store_evict_first", random_next(&c->random) % 2);
        if (random_next(&c->random) % 2) {
            record_put_int(&c->config, "store_slabs", PICK(c, 1, 2));
        }
        if (random_next(&c->random) % 2 && !(c->v.gather_x || c->v.gather_dy)) {
            record_put_int(&c->config, "load_warps", PICK(c, 1, 2, 3));
        }
    }
    static const char *const evictions[] = {"evict_first", "evict_normal", "evict_unchanged"};
    if (c->v.mode != GEMM_DW) {
        /* The seed chooses, without a draw: later draws stay the same, and with them the cases
         * that tests name by seed. */
        record_put_text(&c->config, "w_eviction", evictions[c->seed % 3]);
    }
    if (c->v.mode != GEMM_DW && random_next(&c->random) % 2) {
        record_put_bool(&c->config, "swap_ab", true);
        record_put_int(&c->config, "BLOCK_SIZE_M",
                       PICK(c, 32, 64, 96, 128, 144, 160, 192, 224, 256));
        record_put_int(&c->config, "tile_rows", PICK(c, 0, 0, 16, 48, 80, 144));
    }
#else
    const char *depth = c->v.mode == GEMM_FORWARD ? "BLOCK_SIZE_K"
                        : c->v.mode == GEMM_DX    ? "BLOCK_SIZE_N"
                                                  : "BLOCK_SIZE_M";
    if (random_next(&c->random) % 8 == 0) {
        record_put_int(&c->config, depth, 128);
    }
#endif
}

/* Applies another setting to a legal config if the result is legal. Draws no random number, so that
 * later draws stay the same. */
static void try_setting(struct test_case *c, const char *name, struct value value)
{
    struct record other;
    struct rejection why;
    record_copy(&other, &c->config);
    if (record_set(&other, name, value, NULL) == 0 &&
        TARGET.check(&c->problem, &other, &emulated_info, &why) == 0) {
        record_copy(&c->config, &other);
    }
}

/* Every third case has a cluster of two blocks. In dW, half of the cases load stages by halves
 * (stage_rows=32), the rest whole stages. */
static void try_others(struct test_case *c)
{
    if (c->seed % 3 == 1) {
        try_setting(c, "cluster_shape_mn", VALUE_OF_TEXT(c->seed % 2 ? "2x1" : "1x2"));
    }
#ifdef TARGET_HOPPER
    if (c->v.mode == GEMM_DW) {
        try_setting(c, "stage_rows", VALUE_OF_INT(c->seed / 2 % 2 ? 32 : 64));
    }
#endif
}

/* False: no config is legal for this problem. */
static bool choose_config(struct test_case *c)
{
    struct param params[PARAMS_MAX];
    struct rejection why;
    struct error err = ERROR_NULL;
    uint32_t n = TARGET.params(&c->problem, &emulated_info, params);
    for (int i = 0; i < 100000; i++) {
        record_init(&c->config);
        for (uint32_t j = 0; j < n; j++) {
            record_set(&c->config, params[j].name,
                       params[j].values[random_next(&c->random) % params[j].n], &err);
        }
        stray(c);
        /* No split sums here: test_split makes these. The blocks of a cluster then share an
         * operand. */
        record_put_int(&c->config, "NUM_KSPLIT", 1);
        if (TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0) {
            try_others(c);
            return true;
        }
    }
    return false;
}

static void draw_kinds(struct test_case *c)
{
    c->strided = random_next(&c->random) % 3 == 0;
    c->wide_gather = random_next(&c->random) % 2;
    c->wide_rows = random_next(&c->random) % 2;
    c->half_weights = random_next(&c->random) % 2;
    c->shared_dy = c->v.gather_dy && c->v.topk > 1 && random_next(&c->random) % 2;
}

void case_fill(struct test_case *c)
{
    const struct gemm *v = &c->v;
    if (v->quant->is_scaled) {
        fill_scaled(c);
    } else {
        make_matrix(c, &c->x, v->x_rows, v->k, v->in, true);
        make_matrix(c, &c->w, v->experts * v->n, v->k, v->in, true);
        make_matrix(c, &c->dy, c->shared_dy ? v->tokens : v->m, v->n, v->in, true);
    }
    make_matrix(c, &c->out, v->out_rows, v->out_cols, v->out, false);
    for (int64_t i = 0; v->accumulate && i < c->out.rows * c->out.cols; i++) {
        int64_t j = i / c->out.cols * c->out.stride + i % c->out.cols;
        int eighths = (int)(random_next(&c->random) % 33) - 16;
        if (v->out == DTYPE_FP32) {
            ((float *)c->out.data)[j] = (float)eighths / 8;
        } else {
            ((uint16_t *)c->out.data)[j] = encode_small(v->out, eighths);
        }
    }
    assert_true(v->m <= 4096);
    for (int64_t i = 0; i < v->m; i++) {
        int64_t j = (int64_t)(random_next(&c->random) % (uint64_t)(i + 1));
        c->gather[i] = c->gather[j];
        c->gather[j] = i;
        c->weights16[i] = encode_small(v->out == DTYPE_FP32 ? v->in : v->out,
                                       (int)(random_next(&c->random) % 17));
        c->weights[i] = (float)decode(v->out == DTYPE_FP32 ? v->in : v->out, &c->weights16[i], 0);
        if (!c->half_weights) {
            c->weights[i] *= 1.0015f; /* to show the rounding */
        }
    }
    for (int64_t i = 0; i < v->m; i++) {
        c->gather[i] /= c->shared_dy ? v->topk : 1;
        c->gather32[i] = (int32_t)c->gather[i];
    }
    for (int64_t e = 0; e < v->experts; e++) {
        c->rows32[e] = (int32_t)c->rows[e];
        c->ends[e] = c->rows[e] + (e ? c->ends[e - 1] : 0);
        c->ends32[e] = (int32_t)c->ends[e];
    }
}

static struct test_case *draw(uint64_t seed, const char *quant)
{
    struct test_case *c = calloc(1, sizeof(*c));
    c->seed = c->random = seed;
    do {
        make_problem(c, quant);
    } while (!choose_config(c));
    draw_kinds(c);
    return c;
}

struct test_case *case_draw(uint64_t seed)
{
    return draw(seed, NULL);
}

struct test_case *case_draw_scaled(uint64_t seed)
{
    return draw(seed, seed % 2 ? "fp8_row" : "fp8_block");
}

void case_free(struct test_case *c)
{
    free(c->x.block);
    free(c->w.block);
    free(c->dy.block);
    free(c->out.block);
    for (int which = GEMM_X; which <= GEMM_DY; which++) {
        free(c->scales[which].data);
    }
    free(c);
}

const char *case_text(const struct test_case *c)
{
    static char text[4096];
    size_t n =
        (size_t)snprintf(text, sizeof(text), "GEMMD_TEST_SEED=%llu: ", (unsigned long long)c->seed);
    n += problem_format(&c->problem, text + n, sizeof(text) - n);
    n += (size_t)snprintf(text + n, sizeof(text) - n, " | ");
    record_format(&c->config, text + n, sizeof(text) - n);
    return text;
}
