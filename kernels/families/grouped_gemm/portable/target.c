/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "portable" of the cuda device: the tunables of the template, and legal configs.
 * portable.h lists the files of the target.
 *
 * Legality is exact for shared memory, to the byte, and for warps, to the fragment. Registers are
 * an estimate from the accumulators and fragments of a thread. tests/unit/cuda compiles a sample of
 * the legal space for five architectures and checks the estimate.
 */

#include "kernels/families/grouped_gemm/portable/portable.h"

/* ---- tiles ---------------------------------------------------------------------------------- */

/* Arranges the warps of a block in rows and columns over the tile, so that each warp computes an
 * equal rectangle. The sides of a rectangle are multiples of 16 rows (an A fragment) and of 32
 * columns (four B fragments, which a quad of threads turns into whole rows). The rectangle with the
 * least sum of its sides reads the least shared memory. Among equal sums the widest rectangle wins,
 * since it writes longer pieces of rows. A side over 64 would cost too many registers. */
static bool arrange_warps(struct portable_tile *t)
{
    int best = 0;
    for (int rows = 1; rows <= t->warps; rows *= 2) {
        int cols = t->warps / rows;
        if (t->r % (16 * rows) || t->c % (32 * cols)) {
            continue;
        }
        int sum = t->r / rows + t->c / cols;
        if (!best || sum <= best) {
            best = sum;
            t->warps_r = rows;
            t->warps_c = cols;
        }
    }
    return best != 0;
}

/* A thread's registers other than sums and fragments: addresses, cursor, loop state. */
enum { REGISTERS_OTHER = 48 };

/* A thread's copies of each block also use registers, more where each row has an index, and so do
 * the places of scales. ptxas can do without these registers, so they do not decide legality. They
 * decide how many thread blocks an SM shall hold: with too many, the variant spills registers. */
static int copy_registers(const struct gemm *v, const struct portable_tile *t)
{
    enum { OF_SCALES = 64 };
    int chunk = 16 / t->element;
    int a = t->r * t->d / chunk / t->threads, b = t->c * t->d / chunk / t->threads;
    bool gather_a = v->mode == GEMM_FORWARD ? v->gather_x : v->gather_dy;
    bool gather_b = v->mode == GEMM_DW && v->gather_x;
    return (a + b + (gather_a ? 3 * a : 0) + (gather_b ? 3 * b : 0)) / 2 +
           (t->is_scaled ? OF_SCALES : 0);
}

static void estimate_registers(const struct gemm *v, struct portable_tile *t)
{
    int wr = t->r / t->warps_r, wc = t->c / t->warps_c;
    int fragments = wr / 16 * 4 + wc / 8 * 2;
    t->accumulators = wr * wc / 32 * (t->is_scaled ? 2 : 1);
    fragments += v->quant->is_scaled ? wc / 8 * 2 + wr / 8 : 0; /* decoded numbers, and scales */
    /* in dW each column has a scale of its own, too */
    fragments += v->quant->is_scaled && v->mode == GEMM_DW ? wc : 0;
    t->registers = (t->accumulators + 2 * fragments + REGISTERS_OTHER + 7) / 8 * 8;
    /* Every supported SM has 64 Ki registers. */
    int blocks = 65536 / (t->threads * (t->registers + copy_registers(v, t)));
    t->blocks = blocks > 0 ? blocks : 1;
}

bool portable_tile_make(const struct gemm *v, const struct record *config, struct portable_tile *t)
{
    int size[GEMM_ROLES];
    for (int i = 0; i < GEMM_ROLES; i++) {
        size[gemm_roles[v->mode][i]] = (int)record_int(config, gemm_block_names[i], 0);
    }
    *t = (struct portable_tile){
        .r = size[GEMM_ROWS],
        .c = size[GEMM_COLS],
        .d = size[GEMM_SUM],
        .element = (int)dtype_size(v->in),
        .is_scaled = v->quant->is_scaled,
        .warps = (int)record_int(config, "num_warps", 0),
        .stages = (int)record_int(config, "num_stages", 0),
        .group = (int)record_int(config, "GROUP_SIZE_M", 1),
    };
    t->threads = t->warps * 32;
    t->smem = (int64_t)t->stages * (t->r + t->c) * t->d * t->element +
              (2 * v->experts + 1) * PORTABLE_TABLE_BYTES;
    if (!arrange_warps(t)) {
        return false;
    }
    estimate_registers(v, t);
    return true;
}

int portable_resident(const struct portable_tile *t, const struct device_info *info)
{
    /* bytes of shared memory that the system takes for every thread block */
    enum { RESERVED = 1024 };
    int64_t by_smem = info->smem_per_sm / (t->smem + RESERVED);
    int64_t blocks = t->blocks < by_smem ? t->blocks : by_smem;
    return blocks > 0 ? (int)blocks : 1;
}

/* ---- the tunables --------------------------------------------------------------------------- */

static bool portable_supports(const struct device_info *info)
{
    return info->cc_major >= 8;
}

struct block_values {
    int values[6]; /* the values in the space */
    /* a user's config may also have values outside the space */
    struct int_rule rule;
};
static const struct block_values role_of_block[GEMM_ROLES] = {
    [GEMM_ROWS] = {{16, 32, 64, 128, 256, -1},
                   {16, 256, POWER_OF_TWO, true, "16, 32, 64, 128 or 256"}},
    [GEMM_COLS] = {{32, 64, 128, 256, -1}, {32, 256, POWER_OF_TWO, true, "32, 64, 128 or 256"}},
    [GEMM_SUM] = {{32, 64, -1},
                  {32, 128, POWER_OF_TWO, true,
                   "32, 64 or 128 for the dimension that this mode sums over"}},
};
/* A step reads 32 fp8 numbers of a row, and a block has an even number of steps. */
static const struct block_values scaled_sum = {
    {64, 128, -1},
    {64, 128, POWER_OF_TWO, true, "64 or 128 for the dimension that this mode sums over"}};

static const struct block_values *block_values_of(const struct gemm *v, int block)
{
    const enum gemm_role role = gemm_roles[v->mode][block];
    return role == GEMM_SUM && v->quant->is_scaled ? &scaled_sum : &role_of_block[role];
}

static const struct {
    const char *name, *help;
    int values[5]; /* the values in the space; empty: the parameter is not in the space */
    struct int_rule rule;
    bool run_time;
} others[] = {
    {"num_warps", "warps of a block of threads", {4, 8, -1}, {4, 8, POWER_OF_TWO, true, "4 or 8"}},
    {"num_stages", "tiles in flight in shared memory", {2, 3, 4, 5, -1}, {2, 8, 0, true, "2 to 8"}},
    {"GROUP_SIZE_M",
     "row tiles walked before the next column, so that they share it in L2",
     {1, 4, 8, 16, -1},
     {1, 32, POWER_OF_TWO, true, "1, 2, 4, 8, 16 or 32"},
     .run_time = true},
    {"NUM_KSPLIT", NULL, {-1}, {1, 1, .use = "only 1: it does not split sums"}},
};
enum { OTHERS = sizeof(others) / sizeof(others[0]) };

uint32_t portable_params(const struct problem *p, const struct device_info *info,
                         struct param out[PARAMS_MAX])
{
    struct gemm v;
    gemm_view(p, &v);
    uint32_t n = 0;
    for (int i = 0; i < GEMM_ROLES; i++) {
        gemm_add_ints(out, &n, gemm_block_names[i], false, block_values_of(&v, i)->values,
                      gemm_block_help[i]);
    }
    for (int i = 0; i < OTHERS && others[i].help; i++) {
        gemm_add_ints(out, &n, others[i].name, others[i].run_time, others[i].values,
                      others[i].help);
    }
    return n;
}

/* ---- what is legal -------------------------------------------------------------------------- */

static const char *const known[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps",
                                    "num_stages",   "GROUP_SIZE_M", "NUM_KSPLIT",   NULL};

static int portable_check_value(const struct record *config, const char *name,
                                const struct int_rule *rule, struct rejection *why)
{
    struct value value = {0};
    record_get(config, name, &value);
    return gemm_rules_int(rule, name, &value, "portable", why);
}

static int portable_check_values(const struct gemm *v, const struct record *config,
                                 struct rejection *why)
{
    int r = 0;
    for (int i = 0; i < GEMM_ROLES && r == 0; i++) {
        r = portable_check_value(config, gemm_block_names[i], &block_values_of(v, i)->rule, why);
    }
    for (int i = 0; i < OTHERS && r == 0; i++) {
        r = portable_check_value(config, others[i].name, &others[i].rule, why);
    }
    return r;
}

static int portable_check_dtypes(const struct gemm *v, struct rejection *why)
{
    if (v->in == DTYPE_BF16 || v->in == DTYPE_FP16 || v->in == DTYPE_FP8_E4M3) {
        return 0;
    }
    return rejection_set(
        why, ERROR_INVALID, "dtype_in",
        "dtype_in is %s: the portable kernel takes bf16 and fp16, and fp8 with quant",
        dtype_name(v->in));
}

static int portable_check_tile(const struct gemm *v, const struct record *config,
                               const struct device_info *info, struct rejection *why)
{
    struct portable_tile t;
    const bool split = portable_tile_make(v, config, &t);
    const int64_t all = info->regs_per_block / t.threads / 8 * 8;
    const int64_t limit = all < PORTABLE_REGISTERS_MAX ? all : PORTABLE_REGISTERS_MAX;
    const struct rule rules[] = {
        {!split, "warp_tile",
         "a tile of # x # cannot be split among # warps: each needs a multiple of 16 x 32; take "
         "fewer warps or a larger tile",
         t.r, t.c, t.warps},
        {t.smem > info->smem_optin, "shared_memory",
         "tile # x # x # with # stages needs # bytes of shared memory, the device has #: take "
         "fewer stages or a smaller tile",
         t.r, t.c, t.d, t.stages, t.smem, info->smem_optin, .required = t.smem,
         .limit = info->smem_optin},
        {t.registers > limit, "registers",
         "a # x # tile on # warps needs about # registers per thread, the device has #: take more "
         "warps or a smaller tile",
         t.r, t.c, t.warps, t.registers, limit, .required = t.registers, .limit = limit},
    };
    return gemm_rules_reject(rules, sizeof(rules) / sizeof(rules[0]), why);
}

static const char by_16[] = "mma, 16 by 16";

/* mma.sync takes 16 terms at a time, whatever the tile. "": not for these operands. */
static const char *order_of(const struct gemm *v)
{
    return v->quant->is_scaled ? "" : by_16;
}

/* A batch-invariant problem has a single kernel on a device. wgmma and mma.sync need not give the
 * same bits. */
static int portable_check_alone(const struct gemm *v, const struct problem *p,
                                const struct device_info *info, struct rejection *why)
{
    const struct family_target *h = &grouped_gemm_hopper;
    struct rejection other;
    const bool alone = !v->batch_invariant || !h->supports(info) || h->takes(p, info, &other);
    return gemm_rules_order(v, order_of(v), alone ? by_16 : "wgmma", "portable",
                            "take a config of the hopper kernel", why);
}

int portable_check(const struct problem *p, const struct record *config,
                   const struct device_info *info, struct rejection *why)
{
    struct gemm v;
    gemm_view(p, &v);
    int r = gemm_rules_check(&v, config, known, "portable", why);
    r = r ? r : portable_check_dtypes(&v, why);
    r = r ? r : gemm_rules_rows_16(&v, why);
    r = r ? r : portable_check_values(&v, config, why);
    r = r ? r : portable_check_alone(&v, p, info, why);
    return r ? r : portable_check_tile(&v, config, info, why);
}

static void portable_exactness(const struct problem *p, const struct record *config,
                               struct exactness *out)
{
    struct gemm v;
    (void)config;
    gemm_view(p, &v);
    gemm_rules_exactness(&v, order_of(&v), out);
}

static const struct notation_word portable_words[] = {
    {"w%", "num_warps=%"},
    {"s%", "num_stages=%"},
    {"", "GROUP_SIZE_M=1"},
    {"gm%", "GROUP_SIZE_M=%"},
    {NULL},
};

const struct family_target grouped_gemm_cuda = {
    .kind = "cuda",
    .label = "portable",
    .source = grouped_gemm_portable_source,
    .words = portable_words,
    .tile = gemm_rules_name_tile,
    .supports = portable_supports,
    .params = portable_params,
    .check = portable_check,
    .exactness = portable_exactness,
    .choose = portable_choose,
    .predict = portable_predict,
    .variant = portable_variant,
    .plan = portable_plan,
    .reference_source = grouped_gemm_reference_source,
    .reference = portable_reference,
};
