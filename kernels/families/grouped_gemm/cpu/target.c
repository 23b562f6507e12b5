/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "cpu" of grouped_gemm: the host side of cpu/kernel.c.in. Tunables and their rules, the
 * analytic default, the model, the compile-time part, and the launch.
 */
#include <math.h>
#include <stdio.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"

/* Limit of a kernel's tile buffers, which lie on the stack (4 MiB) of a pool thread. */
enum { STACK_BYTES_MAX = 3 * 1024 * 1024 };
/* Most vectors of accumulators: AVX-512 and NEON have 32 registers, and operands take some. */
enum { ACCUMULATORS_MAX = 24 };

static const char *const known[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K",
                                    "GROUP_SIZE_M", "vector_width", "unroll_rows",
                                    "unroll_cols",  "transpose_w",  NULL};

/* ---- tunables -------------------------------------------------------------------------------- */

static const struct {
    const char *name, *help;
    int values[4]; /* the values in the space; `rule` allows a user's config more values */
    struct int_rule rule;
    bool run_time;
} tunables[] = {
    {"BLOCK_SIZE_M", "tile of M", {16, 64, 128, -1}, {1, 512, 0, true, "1 to 512"}},
    {"BLOCK_SIZE_N", "tile of N", {32, 64, 128, -1}, {1, 512, 0, true, "1 to 512"}},
    {"BLOCK_SIZE_K", "tile of K", {64, 256, -1}, {1, 512, 0, true, "1 to 512"}},
    {"vector_width", "lanes of a vector", {8, 16, -1}, {4, 16, POWER_OF_TWO, .use = "4, 8 or 16"}},
    {"unroll_rows", "rows held in registers", {4, 8, -1}, {1, 16, .use = "1 to 16"}},
    {"unroll_cols", "vectors per row held in registers", {1, 2, -1}, {1, 4, .use = "1 to 4"}},
    {"GROUP_SIZE_M",
     "row tiles that share a column",
     {1, 8, -1},
     {1, 1 << 20, .use = "1 to 1048576"},
     .run_time = true},
};
enum { TUNABLES = sizeof(tunables) / sizeof(tunables[0]) };

/* True when the rows of both operands lie along the sum: then transpose_w is a tunable. */
static bool has_contiguous_sums(const struct gemm *v)
{
    return v->mode == GEMM_FORWARD || v->quant->is_scaled;
}

/* Cuts the steps of the sum to the block of terms that share their scales. */
static void cut_steps(const struct gemm *v, struct param *p)
{
    const int64_t most = v->quant->sum_block;
    for (uint32_t i = 0; most && i < p->n; i++) {
        p->values[i].integer = p->values[i].integer < most ? p->values[i].integer : most;
    }
}

static uint32_t gemm_cpu_list_params(const struct problem *p, const struct device_info *info,
                                     struct param out[PARAMS_MAX])
{
    struct gemm v;
    gemm_view(p, &v);
    uint32_t n = 0;
    for (int i = 0; i < TUNABLES; i++) {
        if (tunables[i].run_time && has_contiguous_sums(&v)) {
            struct param *t =
                gemm_add_param(out, &n, "transpose_w", false, "lanes along columns, not the sum");
            t->values[t->n++] = VALUE_OF_BOOL(false);
            t->values[t->n++] = VALUE_OF_BOOL(true);
        }
        gemm_add_ints(out, &n, tunables[i].name, tunables[i].run_time, tunables[i].values,
                      tunables[i].help);
        if (i < GEMM_ROLES && gemm_roles[v.mode][i] == GEMM_SUM) {
            cut_steps(&v, &out[n - 1]);
        }
    }
    return n;
}

/* Names and meaning: cpu/kernel.c.in. */
struct cpu_tunables {
    int64_t block_m, block_n, block_k;
    int64_t vector_width, unroll_rows, unroll_cols;
    int64_t group_m;
    bool transpose_w;
    /* Derived: the tile, rows by columns, and the step of the reduction. */
    int64_t tile_r, tile_c, tile_l;
    bool lanes_on_cols;
    bool is_scaled;
    int64_t promote_every; /* terms of a sum between promotions, where is_scaled */
};

/* Reads a config for a problem; absent parameters get their defaults. Values are not checked. */
static void cpu_tunables_read(const struct gemm *v, const struct record *config,
                              struct cpu_tunables *t)
{
    *t = (struct cpu_tunables){
        .block_m = record_int(config, "BLOCK_SIZE_M", 64),
        .block_n = record_int(config, "BLOCK_SIZE_N", 64),
        .block_k = record_int(config, "BLOCK_SIZE_K", 64),
        .vector_width = record_int(config, "vector_width", 16),
        .unroll_rows = record_int(config, "unroll_rows", 4),
        .unroll_cols = record_int(config, "unroll_cols", 1),
        .group_m = record_int(config, "GROUP_SIZE_M", 8),
        .transpose_w = record_bool(config, "transpose_w", true) && has_contiguous_sums(v),
        .is_scaled = v->quant->is_scaled,
        .promote_every = v->quant->sum_block ? v->quant->sum_block : INT64_MAX,
    };
    t->tile_r = v->mode == GEMM_DW ? t->block_n : t->block_m;
    t->tile_c = v->mode == GEMM_FORWARD ? t->block_n : t->block_k;
    t->tile_l = v->mode == GEMM_FORWARD ? t->block_k : v->mode == GEMM_DX ? t->block_n : t->block_m;
    t->lanes_on_cols = !has_contiguous_sums(v) || t->transpose_w;
}

/* Bytes of the tile buffers of a block; with scaled operands the tile has sums and parts. */
static int64_t cpu_tunables_bytes(const struct cpu_tunables *t)
{
    return 4 * (t->tile_r * t->tile_l + t->tile_l * t->tile_c +
                t->tile_r * t->tile_c * (t->is_scaled ? 2 : 1));
}

/* ---- check ----------------------------------------------------------------------------------- */

static int gemm_cpu_check_values(const struct gemm *v, const struct record *config,
                                 struct rejection *why)
{
    for (int i = 0; i < TUNABLES; i++) {
        struct value value = {0};
        record_get(config, tunables[i].name, &value);
        if (gemm_rules_int(&tunables[i].rule, tunables[i].name, &value, "cpu", why)) {
            return 1;
        }
    }
    struct value t;
    if (record_get(config, "transpose_w", &t)) {
        if (t.type != VALUE_BOOL) {
            return rejection_set(why, ERROR_INVALID, "flag_type",
                                 "transpose_w must be true or false");
        }
        if (!has_contiguous_sums(v)) {
            return rejection_set(why, ERROR_INVALID, "transpose_w_forward",
                                 "transpose_w is a parameter of mode forward and of scaled "
                                 "operands: leave it out in mode %s",
                                 gemm_mode_name(v->mode));
        }
    }
    return 0;
}

static int gemm_cpu_check_tile(const struct gemm *v, const struct cpu_tunables *t,
                               const struct device_info *info, struct rejection *why)
{
    const char *rows = v->mode == GEMM_DW ? "BLOCK_SIZE_N" : "BLOCK_SIZE_M";
    const char *cols = v->mode == GEMM_FORWARD ? "BLOCK_SIZE_N" : "BLOCK_SIZE_K";
    const int64_t step = t->unroll_cols * (t->lanes_on_cols ? t->vector_width : 1);
    if (t->tile_r % t->unroll_rows != 0) {
        return rejection_set(why, ERROR_INVALID, "unroll_rows_divides",
                             "%s is %lld, not a multiple of unroll_rows %lld", rows,
                             (long long)t->tile_r, (long long)t->unroll_rows);
    }
    if (t->tile_c % step != 0) {
        return rejection_set(why, ERROR_INVALID, "unroll_cols_divides",
                             "%s is %lld, not a multiple of the %lld columns held in registers",
                             cols, (long long)t->tile_c, (long long)step);
    }
    const int64_t block = v->quant->sum_block;
    const int64_t bytes = cpu_tunables_bytes(t), accumulators = t->unroll_rows * t->unroll_cols;
    const struct rule rules[] = {
        {!t->lanes_on_cols && t->tile_l % t->vector_width != 0, "vector_width_divides",
         "steps of # terms of a sum are not a multiple of vector_width #", t->tile_l,
         t->vector_width},
        {block && block % t->tile_l != 0, "scale_block",
         "steps of # terms of a sum do not divide the # terms that share their scales", t->tile_l,
         block},
        {accumulators > ACCUMULATORS_MAX, "registers",
         "unroll_rows * unroll_cols is # vectors of accumulators: at most # fit the registers",
         accumulators, ACCUMULATORS_MAX, .required = accumulators, .limit = ACCUMULATORS_MAX},
        {bytes > info->smem_optin, "cache", "the tile needs # bytes, the L2 cache of a core has #",
         bytes, info->smem_optin, .required = bytes, .limit = info->smem_optin},
        {bytes > STACK_BYTES_MAX, "stack", "the tile needs # bytes, the stack of a thread has #",
         bytes, STACK_BYTES_MAX, .required = bytes, .limit = STACK_BYTES_MAX},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

enum { ORDER_MAX = sizeof(((struct exactness *)0)->order) };
static const char one_by_one[] = "one by one";

/* Lanes along columns add the terms of a sum one by one. Lanes along the sum each have a sum of
 * their own, and the kernel adds up the lanes at the end of each step. Scales come in after the
 * same terms in all configs. */
static void write_order(const struct cpu_tunables *t, char out[ORDER_MAX])
{
    snprintf(out, ORDER_MAX, t->lanes_on_cols ? one_by_one : "%lld lanes, blocks of %lld",
             (long long)t->vector_width, (long long)t->tile_l);
}

static int gemm_cpu_check(const struct problem *p, const struct record *config,
                          const struct device_info *info, struct rejection *why)
{
    struct gemm v;
    struct cpu_tunables t;
    gemm_view(p, &v);
    int r = gemm_rules_check(&v, config, known, "cpu", why);
    r = r ? r : gemm_cpu_check_values(&v, config, why);
    if (r) {
        return r;
    }
    cpu_tunables_read(&v, config, &t);
    char order[ORDER_MAX];
    write_order(&t, order);
    r = gemm_rules_order(&v, order, one_by_one, "cpu", "set transpose_w=true", why);
    return r ? r : gemm_cpu_check_tile(&v, &t, info, why);
}

static void gemm_cpu_exactness(const struct problem *p, const struct record *config,
                               struct exactness *out)
{
    struct gemm v;
    struct cpu_tunables t;
    char order[ORDER_MAX];
    gemm_view(p, &v);
    cpu_tunables_read(&v, config, &t);
    write_order(&t, order);
    gemm_rules_exactness(&v, order, out);
}

/* ---- choose ---------------------------------------------------------------------------------- */

static void set_tile(struct record *config, int64_t m, int64_t n, int64_t k)
{
    record_put_int(config, "BLOCK_SIZE_M", m);
    record_put_int(config, "BLOCK_SIZE_N", n);
    record_put_int(config, "BLOCK_SIZE_K", k);
}

/* The analytic default. With few rows per expert its tiles have no padding, and it reads W without
 * transposing. With many rows its tiles are large, so that little is converted per multiply-add. */
static int gemm_cpu_choose(const struct problem *p, const struct device_info *info,
                           struct record *config, struct error *err)
{
    struct gemm v;
    gemm_view(p, &v);
    int64_t rows = v.m / v.experts;
    bool few = rows < 32;
    const int64_t most = v.mode == GEMM_FORWARD && v.quant->sum_block ? v.quant->sum_block : 256;
    record_init(config);
    set_tile(config, few ? 16 : rows < 96 ? 64 : 128, 64, v.mode == GEMM_DW ? 64 : most);
    record_put_int(config, "vector_width", 16);
    record_put_int(config, "unroll_rows", few ? 4 : 8);
    record_put_int(config, "unroll_cols", 2);
    record_put_int(config, "GROUP_SIZE_M", 8);
    if (has_contiguous_sums(&v)) {
        record_put_bool(config, "transpose_w", !few || v.batch_invariant);
    }
    struct rejection why;
    while (gemm_cpu_check(p, config, info, &why)) {
        int64_t k = record_int(config, "BLOCK_SIZE_K", 0),
                m = record_int(config, "BLOCK_SIZE_M", 0);
        if (why.code != ERROR_RESOURCE || (k <= 64 && m <= 16)) {
            return error_set(err, ERROR_NO_CONFIG, "no config of the cpu kernel fits: %s",
                             why.text);
        }
        set_tile(config, k <= 64 ? m / 2 : m, 64,
                 k <= 64 ? k : k / 2); /* a smaller tile for a smaller cache */
    }
    return 0;
}

/* ---- model -----------------------------------------------------------------------------------
 *
 * Time = cycles of a tile * tiles / threads, but at least the time that memory needs. The model
 * only ranks configs of a problem, so the constants are round numbers for a wide out-of-order core.
 */

static const double FMA_PER_CYCLE = 2, LOADS_PER_CYCLE = 2, FMA_LATENCY = 4;
/* Cycles per element: to convert along rows; to convert and scatter to columns; to load and
 * store a result. */
static const double CONVERT = 0.2, CONVERT_TRANSPOSED = 1.6, STORE = 0.5;
/* of an fp8 number by a table; of a sum that is scaled and added */
static const double CONVERT_FP8 = 1, PROMOTE = 0.3;
static const double TILE_OVERHEAD = 500;

static double ceil_div(double a, double b)
{
    return ceil(a / b);
}

/* Cycles of a step of the inner loop, which updates UNROLL_ROWS x UNROLL_COLS vectors. */
static double step_cycles(const struct cpu_tunables *t)
{
    double rows = (double)t->unroll_rows, cols = (double)t->unroll_cols;
    double compute = rows * cols / FMA_PER_CYCLE;
    double loads = (rows + cols) / LOADS_PER_CYCLE;
    return fmax(fmax(compute, loads), FMA_LATENCY);
}

static double tile_cycles(const struct cpu_tunables *t, double rows, double cols, double length)
{
    double lanes = (double)t->vector_width, unroll_r = (double)t->unroll_rows;
    double unroll_c = (double)t->unroll_cols * (t->lanes_on_cols ? lanes : 1);
    double pieces = ceil_div(rows, unroll_r) * ceil_div(cols, unroll_c);
    double steps = ceil_div(length, (double)t->tile_l);
    double deep = t->lanes_on_cols ? length : ceil_div(length, lanes);
    double multiply = pieces * (deep * step_cycles(t) + steps * unroll_r * (double)t->unroll_cols *
                                                            (t->lanes_on_cols ? 2 : lanes));
    double each = t->is_scaled ? CONVERT_FP8 : CONVERT;
    double convert =
        length *
        (rows * each + cols * (t->transpose_w ? CONVERT_TRANSPOSED + each - CONVERT : each));
    double promote =
        t->is_scaled ? rows * cols * PROMOTE * ceil_div(length, (double)t->promote_every) : 0;
    return multiply + convert + promote + rows * cols * STORE + TILE_OVERHEAD;
}

struct sum {
    double cycles, tiles, largest;
};

/* Adds an expert's tiles: full tiles, and along rows and columns a last, partial tile. */
static void add_expert(const struct gemm *v, const struct cpu_tunables *t, double m, struct sum *s)
{
    double rows = v->mode == GEMM_DW ? (double)v->n : m;
    double length = v->mode == GEMM_DW ? m : (double)gemm_count_terms(v);
    double tile_r = (double)t->tile_r, tile_c = (double)t->tile_c, cols = (double)v->out_cols;
    double columns = ceil_div(cols, tile_c), full = floor(rows / tile_r);
    double rest = rows - full * tile_r, width = fmin(tile_c, cols);
    double one = full > 0 ? tile_cycles(t, tile_r, width, length) : 0;
    double last = rest > 0 ? tile_cycles(t, rest, width, length) : 0;
    s->cycles += columns * (full * one + last);
    s->tiles += columns * (full + (rest > 0));
    s->largest = fmax(s->largest, fmax(one, last));
}

static double gemm_cpu_predict(const struct problem *p, const struct record *config,
                               const struct device_info *info, const struct workload *w)
{
    struct gemm v;
    struct cpu_tunables t;
    int64_t rows[GEMM_EXPERTS_MAX];
    gemm_view(p, &v);
    cpu_tunables_read(&v, config, &t);
    gemm_rows(&v, w, rows);
    struct sum sum = {0};
    for (int64_t e = 0; e < v.experts; e++) {
        add_expert(&v, &t, (double)rows[e], &sum);
    }
    double threads = info->sm_count > 0 ? (double)info->sm_count : 1;
    double mhz = info->clock_khz > 0 ? (double)info->clock_khz * 1e-3 : 3000;
    /* The threads share the tiles, and the last thread is half a tile late on average. */
    double cycles = sum.cycles / threads + sum.largest / 2;
    double flops, bytes;
    gemm_work(p, &flops, &bytes);
    double memory = info->peak_gbps > 0 ? bytes / (info->peak_gbps * 1e3) : 0;
    return fmax(cycles / mhz, memory);
}

/* ---- variant --------------------------------------------------------------------------------- */

/* The kernel's single argument; the same struct stands in cpu/kernel.c.in. */
struct params {
    uint32_t size;
    uint32_t flags; /* of the launch's args: 1 accumulate, 2 ends */
    const void *x, *w, *dy;
    void *out;
    int64_t x_stride, w_stride, w_stride_expert, dy_stride, out_stride, out_stride_expert;
    const void *m_sizes, *gather, *weights;
    uint32_t m_sizes_64, gather_64, weights_fp32, group;
    int64_t rows, n, k, experts, topk;
    struct gemm_scales scales;
};
_Static_assert(sizeof(struct params) <= LAUNCH_PARAMS_MAX, "too large a launch argument");

static int gemm_cpu_make_variant(const struct problem *p, const struct record *config,
                                 const char *arch, struct variant *out, struct error *err)
{
    struct gemm v;
    struct cpu_tunables t;
    gemm_view(p, &v);
    cpu_tunables_read(&v, config, &t);
    variant_init(out, "grouped_gemm", "cpu", "grouped_gemm_block", grouped_gemm_cpu_source, arch);
    int n = snprintf(out->options, sizeof(out->options),
                     "-DMODE=%d -DDTYPE_IN=%d -DDTYPE_OUT=%d -DGATHER_X=%d -DGATHER_DY=%d "
                     "-DSCATTER=%d -DFUSE_MUL_POST=%d -DBLOCK_SIZE_M=%d -DBLOCK_SIZE_N=%d "
                     "-DBLOCK_SIZE_K=%d -DVECTOR_WIDTH=%d -DUNROLL_ROWS=%d -DUNROLL_COLS=%d "
                     "-DTRANSPOSE_W=%d -DPARAMS_SIZE=%zu -DSCALED=%d",
                     v.mode, v.in, v.out, v.gather_x, v.gather_dy, v.scatter, v.fuse_mul_post,
                     (int)t.block_m, (int)t.block_n, (int)t.block_k, (int)t.vector_width,
                     (int)t.unroll_rows, (int)t.unroll_cols, t.transpose_w, sizeof(struct params),
                     t.is_scaled);
    if (t.is_scaled) {
        n += snprintf(out->options + n, sizeof(out->options) - (size_t)n,
                      " -DSCALE_SUM=%d -DSCALE_W=%d -DCOLUMN_ALIGN=%d", (int)v.quant->sum_block,
                      (int)v.quant->w_block, GEMM_COLUMN_ALIGN);
    }
    if (n < 0 || n >= (int)sizeof(out->options)) {
        return error_set(err, ERROR_INTERNAL, "the options of a variant do not fit");
    }
    return 0;
}

/* ---- plan ------------------------------------------------------------------------------------ */

/* The number of blocks to launch, an upper bound of the output's tiles. m_sizes is not read,
 * because a launch may not wait for it. Each expert may add a partial tile of rows, and blocks
 * past the last tile return at once. */
static double gemm_cpu_count_blocks(const struct gemm *v, const struct cpu_tunables *t,
                                    int64_t rows)
{
    int64_t columns = (v->out_cols + t->tile_c - 1) / t->tile_c;
    int64_t partial = v->experts < rows ? v->experts : rows;
    int64_t tiles = v->mode == GEMM_DW ? v->experts * ((v->n + t->tile_r - 1) / t->tile_r)
                                       : rows / t->tile_r + partial;
    return (double)tiles * (double)columns;
}

static int gemm_cpu_plan(const struct problem *p, const struct record *config,
                         const struct device_info *info, const void *args, struct launch_plan *out,
                         struct error *err)
{
    struct gemm v;
    struct cpu_tunables t;
    struct grouped_gemm_args a;
    gemm_view(p, &v);
    cpu_tunables_read(&v, config, &t);
    int r = gemm_args_read(&v, args, 1, &a, err);
    if (r) {
        return r;
    }
    out->workspace_bytes = 0;
    double n = gemm_cpu_count_blocks(&v, &t, a.rows);
    if (n > UINT32_MAX) {
        return error_set(err, ERROR_INVALID, "the problem has %.3g tiles: use larger BLOCK_SIZE_*",
                         n);
    }
    struct params params = {
        .size = sizeof(params),
        .flags = a.flags,
        .x = a.x,
        .w = a.w,
        .dy = a.dy,
        .out = a.out,
        .x_stride = a.x_stride,
        .w_stride = a.w_stride,
        .w_stride_expert = a.w_stride_expert,
        .dy_stride = a.dy_stride,
        .out_stride = a.out_stride,
        .out_stride_expert = a.out_stride_expert,
        .m_sizes = a.m_sizes,
        .gather = a.gather_indices,
        .weights = a.topk_weights,
        .m_sizes_64 = a.m_sizes_dtype == DTYPE_INT64,
        .gather_64 = a.gather_dtype == DTYPE_INT64,
        .weights_fp32 = a.weights_dtype == DTYPE_FP32,
        .group = (uint32_t)t.group_m,
        .rows = a.rows,
        .n = v.n,
        .k = v.k,
        .experts = v.experts,
        .topk = v.topk,
        .scales = gemm_scales_of(&a),
    };
    out->n = n > 0;
    launch_init(&out->steps[0], "grouped_gemm_block", (int64_t)n, 1, 0, &params, sizeof(params));
    return 0;
}

static const struct notation_word gemm_cpu_words[] = {
    {"v%", "vector_width=%"},   {"ur%", "unroll_rows=%"},
    {"uc%", "unroll_cols=%"},   {"", "transpose_w=false"},
    {"tw", "transpose_w=true"}, {"", "GROUP_SIZE_M=1"},
    {"gm%", "GROUP_SIZE_M=%"},  {NULL},
};

const struct family_target grouped_gemm_cpu = {
    .kind = "cpu",
    .label = "cpu",
    .source = grouped_gemm_cpu_source,
    .words = gemm_cpu_words,
    .tile = gemm_rules_name_tile,
    .params = gemm_cpu_list_params,
    .check = gemm_cpu_check,
    .exactness = gemm_cpu_exactness,
    .choose = gemm_cpu_choose,
    .predict = gemm_cpu_predict,
    .variant = gemm_cpu_make_variant,
    .plan = gemm_cpu_plan,
    .reference = grouped_gemm_cpu_reference,
};
