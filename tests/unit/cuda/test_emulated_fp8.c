/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target hopper_fp8 on the CPU: problems and configs go through check, variant and plan as on a
 * GPU, and the emulated kernel's output is compared with sums in double over the dequantised
 * operands. Numbers are small whole numbers and scales have few bits, so that every sum is exact in
 * fp32, but not in the 14 bits that wgmma keeps of more than 128 products.
 *
 * Bytes that no kernel may use are NaN: gaps between rows, scales of rows that do not exist.
 * Kernels with a fault on purpose ("mutants") must give wrong results.
 * GEMMD_TEST_CASE: the number of a single case; GEMMD_TEST_SEED: the first seed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/fp8.h"
#include "tests/unit/cuda/emulated_numbers.h"
#include "tests/unit/cuda/emulated_run.h"

#define TARGET      grouped_gemm_hopper_fp8
#define RAGGED_ROWS "rows:190,0,1,9" /* of the four experts of a case */

enum { EXPERTS_MOST = 16, ROWS_MOST = 2048, GUARD_BYTES = 256 };

static const struct device_info info = {
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
    .peak_tflops = 1,
    .peak_gbps = 10,
};

/* An operand with its scales: number (i, k) times scale[i / rows_each * row + k / 128 * block]. */
struct operand {
    uint8_t *codes;
    float *scales;
    double *values;             /* dense, with their scales */
    int64_t rows, cols, stride; /* of all experts */
    int64_t each;               /* rows of an expert */
    int64_t scale_rows, scale_blocks, rows_each, row, block, expert;
    size_t n_codes, n_scales;
};

struct fp8_case {
    struct problem problem;
    struct record config;
    struct gemm v;
    struct gemm_state state;
    int64_t rows[EXPERTS_MOST], start[EXPERTS_MOST + 1], column[EXPERTS_MOST + 1];
    int32_t sizes[EXPERTS_MOST], gather[ROWS_MOST];
    float weights[ROWS_MOST];
    struct operand a, b; /* x or dy; w or, in dW, x */
    char *out;
    size_t out_bytes;
    uint64_t random;
    int most;      /* numbers are between this and its negative */
    bool positive; /* numbers are this or up to 3 less */
};

static char message[1024];

/* ---- operands -------------------------------------------------------------------------------- */

static int64_t round_up_to(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static uint8_t draw_code(struct fp8_case *c)
{
    const int span = c->positive ? 4 : 2 * c->most + 1;
    return fp8_encode((float)(c->most - (int)(random_next(&c->random) % (uint64_t)span)));
}

static float draw_scale(struct fp8_case *c)
{
    return c->v.quant->sum_block ? (float)(1 + random_next(&c->random) % 15) / 8
                                 : ldexpf(1, (int)(random_next(&c->random) % 7) - 3);
}

/* Makes the operand's memory, all NaN. `major`: [row][block] instead of [block][row]. */
static void operand_make(struct fp8_case *c, struct operand *o, int64_t rows, int64_t cols,
                         int64_t experts, bool major)
{
    const int64_t sum = c->v.quant->sum_block, blocks = sum ? (cols + sum - 1) / sum : 1;
    o->rows = rows * experts;
    o->cols = cols;
    o->each = rows;
    o->stride = round_up_to(cols, 16) + (random_next(&c->random) % 2 ? 32 : 0);
    o->rows_each = o->rows_each ? o->rows_each : 1;
    o->scale_rows = (rows + o->rows_each - 1) / o->rows_each;
    o->scale_blocks = o->scale_blocks ? o->scale_blocks : blocks;
    o->row = major ? o->scale_blocks + 1 : 1;
    o->block = major ? 1 : round_up_to(o->scale_rows, 4) + 4;
    o->expert = o->scale_rows * o->row + o->scale_blocks * o->block;
    o->n_codes = (size_t)(o->rows * o->stride) + GUARD_BYTES;
    o->n_scales = (size_t)((experts - 1) * o->expert + (o->scale_rows - 1) * o->row +
                           (o->scale_blocks - 1) * o->block) +
                  1; /* a read beyond ends the test */
    o->codes = aligned_alloc(64, (size_t)round_up_to((int64_t)o->n_codes, 64));
    o->scales = aligned_alloc(64, (size_t)round_up_to((int64_t)o->n_scales * 4, 64));
    memset(o->codes, 0xff, o->n_codes);
    memset(o->scales, 0xff, o->n_scales * 4);
}

static float *scale_of(const struct operand *o, int64_t row, int64_t block)
{
    const int64_t expert = row / o->each, own = row % o->each;
    return &o->scales[expert * o->expert + own / o->rows_each * o->row + block * o->block];
}

static void operand_fill(struct fp8_case *c, struct operand *o)
{
    for (int64_t i = 0; i < o->rows; i++) {
        for (int64_t k = 0; k < o->cols; k++) {
            o->codes[i * o->stride + k] = draw_code(c);
        }
        for (int64_t b = 0; b < o->scale_blocks; b++) {
            *scale_of(o, i, b) = draw_scale(c);
        }
    }
}

/* dW: only existing columns have numbers; the gap up to the next block of an expert is zeros.
 * Scales of an expert without rows stay NaN. */
static void operand_fill_tokens(struct fp8_case *c, struct operand *o)
{
    for (int64_t e = 0; e < c->v.experts; e++) {
        for (int64_t k = c->column[e]; k < c->column[e + 1]; k++) {
            for (int64_t i = 0; i < o->rows; i++) {
                o->codes[i * o->stride + k] = k - c->column[e] < c->rows[e] ? draw_code(c) : 0;
                if (c->v.quant->sum_block && k % 128 == 0) {
                    *scale_of(o, i, k / 128) = draw_scale(c);
                }
            }
        }
        for (int64_t i = 0; i < o->rows && !c->v.quant->sum_block && c->rows[e]; i++) {
            *scale_of(o, i, e) = draw_scale(c);
        }
    }
}

static double value_of(const struct fp8_case *c, const struct operand *o, int64_t row, int64_t k,
                       int64_t expert)
{
    const int64_t block = c->v.quant->sum_block ? k / 128 : c->v.mode == GEMM_DW ? expert : 0;
    return (double)fp8_decode(o->codes[row * o->stride + k]) * (double)*scale_of(o, row, block);
}

/* Of dW, only an expert's own columns have values. */
static void operand_widen(const struct fp8_case *c, struct operand *o)
{
    const bool dw = c->v.mode == GEMM_DW;
    o->values = calloc((size_t)(o->rows * o->cols), sizeof(*o->values));
    for (int64_t e = 0; e < (dw ? c->v.experts : 1); e++) {
        const int64_t from = dw ? c->column[e] : 0, to = dw ? from + c->rows[e] : o->cols;
        for (int64_t i = 0; i < o->rows; i++) {
            for (int64_t k = from; k < to; k++) {
                o->values[i * o->cols + k] = value_of(c, o, i, k, e);
            }
        }
    }
}

/* ---- cases ----------------------------------------------------------------------------------- */

static void shuffle_rows(struct fp8_case *c)
{
    for (int32_t i = 0; i < c->v.m; i++) {
        const int32_t j = (int32_t)(random_next(&c->random) % (uint64_t)(i + 1));
        c->gather[i] = c->gather[j];
        c->gather[j] = i;
        c->weights[i] = (float)(1 + random_next(&c->random) % 15) / 8;
    }
}

static void case_make(struct fp8_case *c, const char *problem, const char *config, uint64_t seed)
{
    struct error err = ERROR_NULL;
    struct rejection why;
    struct routing routing;
    *c = (struct fp8_case){.random = seed, .most = 4};
    struct record fields;
    int r = problem_parse(&c->problem, problem, &err);
    record_copy(&fields, &c->problem.fields);
    if (record_int(&fields, "experts", 1) > 1) {
        record_put_text(&fields, "routing", RAGGED_ROWS);
    }
    r = r ? r : problem_make(&c->problem, "grouped_gemm", &fields, &err);
    if (r || record_parse(&c->config, config, &err)) {
        fail_msg("%s | %s: %s", problem, config, err.text);
    }
    if (TARGET.check(&c->problem, &c->config, &info, &why)) {
        fail_msg("%s | %s: %s", problem, config, why.text);
    }
    gemm_view(&c->problem, &c->v);
    const struct gemm *v = &c->v;
    assert_true(v->experts <= EXPERTS_MOST && v->m <= ROWS_MOST);
    if (v->experts == 1) {
        routing.rows[0] = v->m;
    } else {
        assert_int_equal(routing_parse(&routing, v->routing, v->experts, v->m, &err), 0);
    }
    for (int64_t e = 0; e < v->experts; e++) {
        c->rows[e] = routing.rows[e];
        c->sizes[e] = (int32_t)c->rows[e];
        c->start[e + 1] = c->start[e] + c->rows[e];
        c->column[e + 1] = c->column[e] + round_up_to(c->rows[e], 128);
    }
    shuffle_rows(c);
}

static void case_fill(struct fp8_case *c)
{
    const struct gemm *v = &c->v;
    const bool forward = v->mode == GEMM_FORWARD, dw = v->mode == GEMM_DW;
    if (dw) {
        c->a.scale_blocks = c->b.scale_blocks = v->quant->sum_block ? 0 : v->experts;
        operand_make(c, &c->a, v->n, gemm_columns(v, v->m), 1, false);
        operand_make(c, &c->b, v->k, gemm_columns(v, v->m), 1, false);
        operand_fill_tokens(c, &c->a);
        operand_fill_tokens(c, &c->b);
    } else {
        const bool gathers = v->gather_x || v->gather_dy;
        c->b.rows_each = v->quant->w_block;
        operand_make(c, &c->a, forward ? v->x_rows : v->m, forward ? v->k : v->n, 1,
                     gathers || random_next(&c->random) % 2);
        operand_make(c, &c->b, v->out_cols, forward ? v->k : v->n, v->experts,
                     v->mode == GEMM_FORWARD);
        operand_fill(c, &c->a);
        operand_fill(c, &c->b);
    }
    operand_widen(c, &c->a);
    operand_widen(c, &c->b);
    c->out_bytes = (size_t)(v->out_rows * v->out_cols) * dtype_size(v->out);
    c->out = aligned_alloc(64, (size_t)round_up_to((int64_t)c->out_bytes + GUARD_BYTES, 64));
    memset(c->out, 0xff, c->out_bytes + GUARD_BYTES);
    for (int64_t i = 0; v->accumulate && i < v->out_rows * v->out_cols; i++) {
        ((float *)c->out)[i] = (float)(i % 17) / 8;
    }
}

static void case_free(struct fp8_case *c)
{
    free(c->a.codes);
    free(c->a.scales);
    free(c->b.codes);
    free(c->b.scales);
    free(c->a.values);
    free(c->b.values);
    free(c->out);
    *c = (struct fp8_case){0};
}

static struct grouped_gemm_args args_of(struct fp8_case *c)
{
    const struct gemm *v = &c->v;
    const struct operand *a = &c->a, *b = &c->b;
    struct grouped_gemm_args args = {
        .size = sizeof(args),
        .flags = v->accumulate ? GROUPED_GEMM_ACCUMULATE : 0,
        .out = c->out,
        .m_sizes = c->sizes,
        .m_sizes_dtype = DTYPE_INT32,
        .gather_indices = c->gather,
        .gather_dtype = DTYPE_INT32,
        .topk_weights = c->weights,
        .weights_dtype = DTYPE_FP32,
        .rows = v->m,
    };
    if (v->mode == GEMM_FORWARD) {
        args.x = a->codes;
        args.x_stride = a->stride;
        args.x_scale = a->scales;
        args.x_scale_stride = a->row;
        args.x_scale_stride_block = a->block;
    } else {
        args.dy = a->codes;
        args.dy_stride = a->stride;
        args.dy_scale = a->scales;
        args.dy_scale_stride = a->row;
        args.dy_scale_stride_block = a->block;
    }
    if (v->mode == GEMM_DW) {
        args.x = b->codes;
        args.x_stride = b->stride;
        args.x_scale = b->scales;
        args.x_scale_stride = b->row;
        args.x_scale_stride_block = b->block;
    } else {
        args.w = b->codes;
        args.w_stride = b->stride;
        args.w_scale = b->scales;
        args.w_scale_stride = b->row;
        args.w_scale_stride_block = b->block;
        args.w_scale_stride_expert = b->expert;
    }
    return args;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static void allow(struct emulate_launch *e, const void *data, size_t bytes)
{
    e->ranges[e->n_ranges++] = (struct emulate_range){data, (const char *)data + bytes};
}

/* Returns NULL, or the emulator's error. */
static const char *case_launch(struct fp8_case *c, const char *first)
{
    struct variant variant;
    struct error err = ERROR_NULL;
    struct launch_plan *plan = calloc(1, sizeof(*plan));
    struct grouped_gemm_args args = args_of(c);
    const char *wrong = NULL;
    static _Alignas(256) char workspace[1024];
    assert_int_equal(TARGET.variant(&c->problem, &c->config, "sm_90a", &variant, &err), 0);
    args.workspace = workspace;
    args.workspace_bytes = sizeof(workspace);
    if (TARGET.plan(&c->problem, &c->config, &info, &args, plan, &err)) {
        fail_msg("%s", err.text);
    }
    void *so = emulated_compile(first, "emulate_hopper.c", variant.options);
    for (uint32_t i = 0; i < plan->n && !wrong; i++) {
        struct emulate_launch e = {.seed = c->random};
        if (plan->steps[i].zero_bytes) {
            memset(workspace, 0, sizeof(workspace));
            continue;
        }
        allow(&e, c->a.codes, c->a.n_codes);
        allow(&e, c->a.scales, c->a.n_scales * 4);
        allow(&e, c->b.codes, c->b.n_codes);
        allow(&e, c->b.scales, c->b.n_scales * 4);
        allow(&e, c->out, c->out_bytes);
        allow(&e, c->gather, sizeof(c->gather));
        allow(&e, workspace, sizeof(workspace));
        wrong = emulated_try(so, &plan->steps[i], &e);
    }
    free(plan);
    return wrong;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

static double want_rows(const struct fp8_case *c, int64_t expert, int64_t row, int64_t to,
                        int64_t col)
{
    const struct gemm *v = &c->v;
    const int64_t depth = v->mode == GEMM_FORWARD ? v->k : v->n;
    const int64_t from = v->gather_x    ? c->gather[row] / v->topk
                         : v->gather_dy ? c->gather[row]
                                        : row;
    double sum =
        dot(c->a.values + from * depth, c->b.values + (expert * v->out_cols + col) * depth, depth);
    if (v->fuse_mul_post) {
        sum = round_to(v->out, sum) * round_to(v->out, (double)c->weights[to]);
    }
    return round_to(v->out, sum);
}

static double want_sums(const struct fp8_case *c, int64_t expert, int64_t row, int64_t col)
{
    const int64_t first = c->column[expert];
    const double sum = dot(c->a.values + row * c->a.cols + first,
                           c->b.values + col * c->b.cols + first, c->rows[expert]);
    return c->v.out == DTYPE_FP32 ? sum : round_to(c->v.out, sum);
}

static bool is_wrong(const struct fp8_case *c, int64_t row, int64_t col, double want)
{
    const double got = decode(c->v.out, c->out, row * c->v.out_cols + col);
    if (got == want) {
        return false;
    }
    snprintf(message, sizeof(message), "row %d column %d: %g, not %g", (int)row, (int)col, got,
             want);
    return true;
}

/* Returns NULL if the output is right. */
static const char *case_judge(const struct fp8_case *c)
{
    const struct gemm *v = &c->v;
    for (int64_t e = 0; e < v->experts; e++) {
        const int64_t n = v->mode == GEMM_DW ? v->n : c->rows[e];
        for (int64_t r = 0; r < n; r++) {
            for (int64_t col = 0; col < v->out_cols; col++) {
                const int64_t row = v->mode == GEMM_DW ? e * v->n + r : c->start[e] + r;
                const int64_t to = v->scatter ? c->gather[row] : row;
                const int64_t place = row * v->out_cols + col;
                const double before = v->accumulate ? (double)(place % 17) / 8 : 0;
                const double want = v->mode == GEMM_DW ? want_sums(c, e, r, col) + before
                                                       : want_rows(c, e, row, to, col);
                if (is_wrong(c, to, col, want)) {
                    return message;
                }
            }
        }
    }
    for (size_t i = c->out_bytes; i < c->out_bytes + GUARD_BYTES; i++) {
        if ((uint8_t)c->out[i] != 0xff) {
            return "a byte behind the output was written";
        }
    }
    return NULL;
}

static const char *case_run(struct fp8_case *c, const char *first)
{
    case_fill(c);
    const char *wrong = case_launch(c, first);
    return wrong ? wrong : case_judge(c);
}

/* ---- tests ----------------------------------------------------------------------------------- */

#define ROWS   "schedule=cooperative BLOCK_SIZE_K=128 "
#define DX     "schedule=cooperative BLOCK_SIZE_N=128 "
#define SUMS   "schedule=cooperative BLOCK_SIZE_M=128 "
#define RAGGED "experts=4 M=200 "

static const struct {
    const char *problem, *config;
} cases[] = {
    {"mode=forward " RAGGED "N=328 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 staging_buffers=2"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=192 num_warps=12 num_stages=4"},
    {"mode=forward " RAGGED "N=136 K=144 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=256 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 tile_scheduler=dynamic "
          "skip_rows=true"},
    {"mode=forward M=70 N=136 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8 num_stages=2"},
    {"mode=forward M=65 N=72 K=656 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8 num_stages=2 NUM_KSPLIT=2 "
          "use_tma_store=false"},
    {"mode=forward " RAGGED "topk=2 permute_x=true N=200 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 use_tma_load_x=false"},
    {"mode=forward " RAGGED "topk=2 permute_x=true N=72 K=272 quant=fp8_row",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8 num_stages=3 use_tma_load_x=false"},
    {"mode=forward " RAGGED "permute_y=true fuse_mul_post=true N=136 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 use_tma_store=false"},
    {"mode=forward " RAGGED "N=136 K=272 quant=fp8_row",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3"},
    {"mode=dX " RAGGED "N=272 K=328 quant=fp8_block",
     DX "BLOCK_SIZE_M=128 BLOCK_SIZE_K=192 num_warps=12 num_stages=3"},
    {"mode=dX " RAGGED "permute_x=true N=272 K=136 quant=fp8_block",
     DX "BLOCK_SIZE_M=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=3 use_tma_store=false"},
    {"mode=dX " RAGGED "permute_y=true N=272 K=136 quant=fp8_block",
     DX "BLOCK_SIZE_M=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=3 use_tma_load_dy=false"},
    {"mode=dX " RAGGED "N=272 K=136 quant=fp8_row",
     DX "BLOCK_SIZE_M=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=3 skip_rows=true"},
    {"mode=dW " RAGGED "N=136 K=200 quant=fp8_block dtype_out=fp32 accumulate=true",
     SUMS "BLOCK_SIZE_N=128 BLOCK_SIZE_K=128 num_warps=12 num_stages=3 staging_buffers=3"},
    {"mode=dW " RAGGED "N=328 K=200 quant=fp8_block dtype_out=fp32 accumulate=true",
     SUMS "BLOCK_SIZE_N=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=2 use_tma_store=false"},
    {"mode=dW " RAGGED "N=72 K=456 quant=fp8_block",
     SUMS "BLOCK_SIZE_N=128 BLOCK_SIZE_K=192 num_warps=12 num_stages=3 expert_order=size"},
    {"mode=dW " RAGGED "N=72 K=104 quant=fp8_row dtype_out=fp32 accumulate=true",
     SUMS "BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 num_warps=8 num_stages=3"},
    {"mode=dW M=300 N=72 K=104 quant=fp8_block dtype_out=fp32 accumulate=true",
     SUMS "BLOCK_SIZE_N=64 BLOCK_SIZE_K=128 num_warps=8 num_stages=3 use_tma_store=false"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=96 BLOCK_SIZE_N=256 num_warps=12 num_stages=3 swap_ab=true"},
    {"mode=forward " RAGGED "topk=2 permute_x=true N=200 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=144 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 swap_ab=true "
          "use_tma_load_x=false use_tma_store=false"},
    {"mode=dX " RAGGED "permute_x=true N=272 K=136 quant=fp8_block",
     DX "BLOCK_SIZE_M=64 BLOCK_SIZE_K=128 num_warps=8 num_stages=4 use_tma_store=false "
        "swap_ab=true tile_scheduler=dynamic"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=112 BLOCK_SIZE_N=256 num_warps=12 num_stages=3 swap_ab=true "
          "cluster_shape_mn=2x1 tile_scheduler=dynamic"},
    {"mode=forward " RAGGED "topk=2 permute_x=true N=200 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=80 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 swap_ab=true "
          "cluster_shape_mn=2x1 use_tma_load_x=false use_tma_store=false"},
    {"mode=forward M=70 N=200 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=32 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 swap_ab=true "
          "tile_scheduler=dynamic"},
    {"mode=forward M=300 N=136 K=272 quant=fp8_row",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 use_tma_store=false"},
    {"mode=dX M=70 N=400 K=200 quant=fp8_block",
     DX "BLOCK_SIZE_M=256 BLOCK_SIZE_K=64 num_warps=12 num_stages=3 tile_scheduler=dynamic"},
    {"mode=forward " RAGGED "N=456 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=256 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 cluster_shape_mn=1x2 "
          "tile_scheduler=dynamic skip_rows=true"},
    {"mode=dX " RAGGED "permute_x=true N=272 K=456 quant=fp8_row",
     DX "BLOCK_SIZE_M=128 BLOCK_SIZE_K=128 num_warps=12 num_stages=3 cluster_shape_mn=1x2 "
        "use_tma_store=false"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=256 num_warps=12 num_stages=3 swap_ab=true"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=192 num_warps=8 num_stages=3 swap_ab=true"},
    {"mode=forward " RAGGED "N=136 K=400 quant=fp8_row",
     ROWS "BLOCK_SIZE_M=192 BLOCK_SIZE_N=64 num_warps=8 num_stages=3 skip_rows=true"},
    {"mode=forward " RAGGED "N=200 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=256 BLOCK_SIZE_N=64 num_warps=8 num_stages=3"},
    {"mode=forward " RAGGED "N=328 K=400 quant=fp8_block", /* a pair whose second tile is empty */
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=2 cluster_shape_mn=1x2"},
    /* dW that takes units ahead */
    {"mode=dW " RAGGED "N=328 K=200 quant=fp8_block dtype_out=fp32 accumulate=true",
     SUMS "BLOCK_SIZE_N=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=2 staging_buffers=2"},
    {"mode=dW " RAGGED "N=328 K=200 quant=fp8_block",
     SUMS "BLOCK_SIZE_N=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=2 use_tma_store=false"},
    {"mode=dW " RAGGED "N=328 K=200 quant=fp8_row",
     SUMS "BLOCK_SIZE_N=256 BLOCK_SIZE_K=64 num_warps=12 num_stages=2"},
    {"mode=dW M=900 N=328 K=200 quant=fp8_block",
     SUMS "BLOCK_SIZE_N=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=2"},
    /* rounds of a sender: a consumer's whole part of a tile, or a piece; one, two or three slots */
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=256 BLOCK_SIZE_N=128 num_warps=12 num_stages=2 staging_buffers=4 "
          "cluster_shape_mn=1x2 tile_scheduler=dynamic skip_rows=true"},
    {"mode=dX " RAGGED "N=272 K=456 quant=fp8_block",
     DX "BLOCK_SIZE_M=128 BLOCK_SIZE_K=192 num_warps=12 num_stages=3 staging_buffers=3 "
        "skip_rows=true"},
    {"mode=forward M=600 N=328 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=256 BLOCK_SIZE_N=128 num_warps=12 num_stages=2 staging_buffers=3"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_row",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8 num_stages=3 staging_buffers=2"},
    {"mode=forward " RAGGED "N=456 K=272 quant=fp8_block", /* two slots of three pieces */
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=192 num_warps=12 num_stages=2 staging_buffers=6"},
    {"mode=forward " RAGGED "N=2056 K=144 quant=fp8_block", /* the ring of tickets goes round */
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 cluster_shape_mn=1x2 "
          "tile_scheduler=dynamic skip_rows=true"},
    /* gathered rows: the consumer stores all its pieces at once */
    {"mode=forward " RAGGED "topk=2 permute_x=true N=328 K=272 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12 num_stages=3 staging_buffers=2 "
          "use_tma_load_x=false"},
    /* tiles of 32 columns */
    {"mode=forward M=130 N=1096 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=64 BLOCK_SIZE_N=32 num_warps=8 num_stages=3 use_tma_store=false"},
    {"mode=dX M=20 N=656 K=200 quant=fp8_row",
     DX "BLOCK_SIZE_M=64 BLOCK_SIZE_K=32 num_warps=8 num_stages=3 use_tma_store=false"},
    {"mode=forward M=65 N=72 K=656 permute_y=true fuse_mul_post=true quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=32 num_warps=12 num_stages=3 NUM_KSPLIT=4 "
          "use_tma_store=false"},
    /* large tiles of one expert */
    {"mode=forward M=300 N=584 K=400 quant=fp8_block",
     ROWS "BLOCK_SIZE_M=128 BLOCK_SIZE_N=192 num_warps=12 num_stages=3 staging_buffers=3"},
    {"mode=dX M=600 N=272 K=328 quant=fp8_row",
     DX "BLOCK_SIZE_M=256 BLOCK_SIZE_K=128 num_warps=12 num_stages=2 use_tma_store=false "
        "tile_scheduler=dynamic skip_rows=true"},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static void case_number(struct fp8_case *c, int i, uint64_t seed)
{
    char problem[512];
    snprintf(problem, sizeof(problem), "grouped_gemm %s", cases[i].problem);
    case_make(c, problem, cases[i].config, seed);
}

static void test_products(void **state)
{
    (void)state;
    const char *only = getenv("GEMMD_TEST_CASE"), *seed = getenv("GEMMD_TEST_SEED");
    const uint64_t from = seed ? strtoull(seed, NULL, 10) : 100;
    for (int i = 0; i < CASES; i++) {
        static struct fp8_case c;
        if (only && atoi(only) != i) {
            continue;
        }
        case_number(&c, i, from + (uint64_t)i);
        const char *wrong = case_run(&c, NULL);
        if (wrong) {
            fail_msg("case %d: %s | %s: %s", i, cases[i].problem, cases[i].config, wrong);
        }
        case_free(&c);
    }
}

/* Sums of 128 products of numbers from 8 to 11 are exact in 14 bits, longer sums are not. */
static void test_promotion(void **state)
{
    (void)state;
    static const int chosen[] = {3, 16};
    for (size_t i = 0; i < sizeof(chosen) / sizeof(chosen[0]); i++) {
        static struct fp8_case c;
        case_number(&c, chosen[i], 7);
        c.most = 11;
        c.positive = true;
        const char *wrong = case_run(&c, NULL);
        if (wrong) {
            fail_msg("%s: %s", cases[chosen[i]].problem, wrong);
        }
        case_free(&c);
    }
}

/* A fault in a part of the template, as replaced texts, and a case whose result shows the fault. */
static const struct {
    const char *file, *text[10]; /* each text is followed by its replacement */
    int at;
    bool positive;
} mutants[] = {
    {"fp8", {"step > 0, m->width)", "1, m->width)"}, 3, false},
    {"fp8", /* does not promote the last block */
     {"&u, 0, nth, &columns", "&u, last ? -1 : 0, nth, &columns", "g < (width + 15)",
      "set >= 0 && g < (width + 15)"},
     13,
     false},
    {"fp8",
     {"promote_unit(acc, m, &of[set ^ 1], set ^ 1", "promote_unit(acc, m, &of[set], set"},
     3,
     false},
    {"fp8", {"nth * 64 * 4", "0"}, 31, false},
    {"fp8", {"nth * 64 * 4", "0"}, 2, false},
    {"fp8", {"next = take_unit(m, (nth + 1) % m->mmas)", "next = take_unit(m, nth)"}, 2, false},
    {"fp8", {"u = TAKE_AHEAD ? next", "u = TAKE_AHEAD && last ? next"}, 1, false},
    {"fp8", {"[g][0], &s->of[g][1]", "[g][1], &s->of[g][0]"}, 3, false},
    {"fp8", {"g * 16 / GROUP", "0"}, 1, false},
    {"fp8", {"i / 4 * 2 + (i & 1)", "(i & 1)"}, 17, false},
    {"fp8", /* promotes every second block only */
     {"wgmma(acc, set, descriptor", "wgmma(acc, 0, descriptor", "step > 0, m->width)",
      "step > 0 || set, m->width)", "multiply_unit(acc, m, &u, 0,",
      "multiply_unit(acc, m, &u, block % 2,", "&u, 0, nth, &columns",
      "&u, block % 2 || last ? 0 : -1, nth, &columns", "g < (width + 15)",
      "set >= 0 && g < (width + 15)"},
     16,
     true},
    {"fp8", {"WGMMA_WAIT(1);", ""}, 3, false},
    {"fp8", {"            WGMMA_WAIT(0);", ""}, 13, false},
    {"scales", {"FIRST_BLOCK(p);", "FIRST_BLOCK(p) + 1;"}, 3, false},
    {"scales", {"if (block + i + SCALES_AHEAD < blocks)", "if (0)"}, 3, false},
    {"scales", {"t->expert * b->expert", "0"}, 7, false},
    {"scales", {"(column + g * GROUP) / 128 -", "column / 128 -"}, 1, false},
    {"scales", {"t->first + (SWAP_AB", "(SWAP_AB"}, 7, false},
    {"scales", {"column < p->tile_cols ? column / 128 : 0", "column / 128"}, 32, false},
    {"fp8", {"(m->consumer * ROWS_EACH + nth * 64) / GROUP", "0"}, 18, false},
    {"fp8", {"(m->consumer * ROWS_EACH + nth * 64) / GROUP", "0"}, 28, false},
    {"scales", {"t->first / TILE_D", "0"}, 13, false},
    {"producer", {"from = RANK * half", "from = 0"}, 26, false},
    {"scheduler", {"(u32)size + 127) / 128 * 64", "(u32)size + 63) / 64 * 32"}, 16, false},
    {"scheduler", {"return (p->depth + TILE_D - 1)", "return p->depth"}, 3, false},
    {"output", {"d[q * 4] + old[0]", "d[q * 4] + 2 * old[0]"}, 13, false},
    {"output", {"n / STAGING_BUFFERS & 1);", "0);"}, 13, false},
    {"sender", {"(*round / SLOTS & 1) ^ 1", "1"}, 0, false},
    {"sender", {"round / SLOTS & 1);", "0);"}, 0, false},
    {"sender", {"n / PIECES * 64", "0"}, 2, false},
    {"sender", {"STORES_WAIT_READ(SENT_AHEAD)", "STORES_WAIT_READ(4)"}, 1, false},
    {"sender", {"STORES_WAIT_READ(SENT_AHEAD)", "STORES_WAIT_READ(SENT_AHEAD + 1)"}, 39, false},
    {"sender", {"STORES_WAIT_READ(0)", "(void)0"}, 39, false},
    {"sender", {"warp_barrier(); /* all lanes", "/* all lanes"}, 39, false},
    {"scheduler", {"SCALE_WARPS + SENDS)", "SCALE_WARPS)"}, 42, false},
    {"sender", {"+ piece % ROUND)", ")"}, 0, false},
    {"epilogue",
     {"send_piece(p, t, staging + piece * BUFFER_BYTES", "send_piece(p, t, staging"},
     43,
     false},
    {"epilogue", /* weights a sum that is not rounded */
     {"round_pair(d[q * 8 + i * 2], d[q * 8 + i * 2 + 1])",
      "round_pair(d[q * 8 + i * 2] * bits_float(weight[i & 1] << 16),\n"
      "d[q * 8 + i * 2 + 1] * bits_float(weight[i & 1] << 16))",
      "v[i] = multiply_pair(v[i], weight[i & 1]);", ";"},
     7,
     false},
};

/* Copies a part of the template with a fault to `folder`. */
static void write_mutant(const char *folder, const char *file, const char *const text[10])
{
    static char before[65536], after[65536];
    char path[512], command[1024];
    snprintf(path, sizeof(path), "%s/kernels/families/grouped_gemm/hopper/%s.cu", SOURCE_ROOT,
             file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    before[fread(before, 1, sizeof(before) - 1, f)] = '\0';
    fclose(f);
    for (int i = 0; i < 10 && text[i]; i += 2) {
        const char *at = strstr(before, text[i]);
        if (!at) {
            fail_msg("%s.cu has no \"%s\"", file, text[i]);
        }
        snprintf(after, sizeof(after), "%.*s%s%s", (int)(at - before), before, text[i + 1],
                 at + strlen(text[i]));
        memcpy(before, after, sizeof(before));
    }
    snprintf(command, sizeof(command), "mkdir -p %s/kernels/families/grouped_gemm/hopper", folder);
    assert_int_equal(system(command), 0);
    snprintf(path, sizeof(path), "%s/kernels/families/grouped_gemm/hopper/%s.cu", folder, file);
    f = fopen(path, "w");
    fputs(before, f);
    assert_int_equal(fclose(f), 0);
}

static void test_mutants(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(mutants) / sizeof(mutants[0]); i++) {
        static struct fp8_case c;
        char folder[] = "/tmp/gemmd-mutant-XXXXXX", command[256];
        assert_non_null(mkdtemp(folder));
        write_mutant(folder, mutants[i].file, mutants[i].text);
        case_number(&c, mutants[i].at, 55);
        c.positive = mutants[i].positive;
        c.most = c.positive ? 11 : c.most;
        const char *wrong = case_run(&c, folder);
        case_free(&c);
        snprintf(command, sizeof(command), "rm -r %s", folder);
        assert_int_equal(system(command), 0);
        if (!wrong) {
            fail_msg("%s.cu with \"%s\" in place of \"%s\" gave right results", mutants[i].file,
                     mutants[i].text[1], mutants[i].text[0]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),
                                       cmocka_unit_test(test_promotion),
                                       cmocka_unit_test(test_mutants)};
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("SKIP: no C compiler (cc) to build the emulated kernels with");
        return 77;
    }
    families_register();
    cmocka_set_test_filter(getenv("GEMMD_TEST_ONLY"));
    if (!emulated_begin()) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    emulated_end();
    return r;
}
