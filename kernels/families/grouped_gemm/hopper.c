/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper" of the cuda device: what can be tuned in hopper/ and what is legal. See
 * hopper.h for how its files share the work.
 *
 * Legality is exact for shared memory, to the byte. Registers follow two rules that ptxas enforces:
 * one wgmma must fit into what a thread has at launch, and a consumer's accumulators into what it
 * has after it took the producer's registers. What a variant really spills, its compiler's log
 * says.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper_model.h"
#include "kernels/families/grouped_gemm/portable.h"

/* ---- tiles
 * ---------------------------------------------------------------------------------------- */

/* What BLOCK_SIZE_M, N, K tile in each mode. */
enum role { ROWS, COLS, DEPTH, ROLES };
static const char *const block_names[ROLES] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"};
static const enum role roles[][ROLES] = {
    [GEMM_FORWARD] = {ROWS, COLS, DEPTH},
    [GEMM_DX] = {ROWS, DEPTH, COLS},
    [GEMM_DW] = {DEPTH, ROWS, COLS},
};

enum {
    ROW = 128, /* bytes of a row in shared memory */
    REGISTERS_SM = 65536,
    ACCUMULATORS_MAX = 192,  /* 240 registers, less what else a consumer needs */
    ACCUMULATORS_MANY = 160, /* from here on a consumer needs all it can get */
};

/* One producer and two consumer warpgroups share 504 registers per lane (384 threads of 168; more
 * together would wait for ever). Chosen so that nothing spills, or next to nothing: a producer that
 * gathers rows of A keeps an offset for each. */
static void share_registers(const struct grouped_gemm_problem *v, struct hopper_tile *t)
{
    bool many = t->accumulators > ACCUMULATORS_MANY;
    if (t->consumers == 1) {
        t->consumer_registers = t->producer_registers = 0;
    } else if (t->gather && v->mode != GEMM_DW) {
        t->consumer_registers = many ? 224 : 216;
        t->producer_registers = many ? 56 : 72;
    } else {
        t->consumer_registers = 232;
        t->producer_registers = 40;
    }
}

int64_t hopper_shared_bytes(const struct grouped_gemm_problem *v, const struct hopper_tile *t)
{
    int64_t stages = (int64_t)t->stages * (t->r + t->c) * ROW;
    bool split = t->ksplit > 1;
    int64_t staging = split ? (int64_t)t->r * t->c * 4
                            : (int64_t)t->consumers * t->staging * t->rows_each * ROW;
    int64_t barriers = (int64_t)t->stages * 16 + (t->dynamic ? HOPPER_TICKETS * 20 : 0) +
                       (split ? 16 : 0);
    int64_t tables = (2 * v->experts + 1) * 4;
    return stages + staging + barriers + tables;
}

int64_t hopper_depth_blocks(const struct grouped_gemm_problem *v)
{
    int64_t depth = v->mode == GEMM_FORWARD ? v->k : v->mode == GEMM_DX ? v->n : 0;
    return (depth + HOPPER_DEPTH - 1) / HOPPER_DEPTH;
}

void hopper_tile_make(const struct grouped_gemm_problem *v, const struct record *config,
                      struct hopper_tile *t)
{
    int size[ROLES];
    for (int i = 0; i < ROLES; i++) {
        size[roles[v->mode][i]] = (int)record_int(config, block_names[i], 0);
    }
    bool copy = record_bool(config, "permute_copy", false);
    *t = (struct hopper_tile){
        .r = size[ROWS],
        .c = size[COLS],
        .d = size[DEPTH],
        .consumers = (int)record_int(config, "num_warps", 0) / 4 - 1,
        .pingpong = strcmp(record_text(config, "schedule", ""), "pingpong") == 0,
        .stages = (int)record_int(config, "num_stages", 0),
        .staging = (int)record_int(config, "staging_buffers", 1),
        .in_flight = (int)record_int(config, "in_flight", 1),
        .tma_store = record_bool(config, "use_tma_store", !v->scatter),
        .skip_rows = record_bool(config, "skip_rows", false),
        .dynamic = strcmp(record_text(config, "tile_scheduler", ""), "dynamic") == 0,
        .ksplit = (int)record_int(config, "NUM_KSPLIT", 1),
        .permute_copy = copy,
        .gather = !copy && (v->gather_x || v->gather_dy),
        .group = (int)record_int(config, "GROUP_SIZE_M", 1),
        .raster_columns = strcmp(record_text(config, "raster", ""), "columns") == 0,
        .sort_experts = strcmp(record_text(config, "expert_order", ""), "size") == 0,
    };
    t->threads = 128 * (1 + t->consumers);
    t->rows_each = t->pingpong || t->consumers < 1 ? t->r : t->r / t->consumers;
    t->accumulators = t->rows_each / 64 * (t->c / 2);
    share_registers(v, t);
    t->smem = hopper_shared_bytes(v, t);
}

/* ---- the tunables
 * ---------------------------------------------------------------------------------- */

/* wgmma and setmaxnreg exist in sm_90a alone. */
bool hopper_supports(const struct device_info *info)
{
    return info->cc_major == 9 && info->cc_minor == 0;
}

static struct param *add_param(struct param out[], uint32_t *n, const char *name, bool run_time,
                               const char *help)
{
    struct param *p = &out[(*n)++];
    *p = (struct param){.name = name, .run_time = run_time, .help = help};
    return p;
}

static void add_ints(struct param out[], uint32_t *n, const char *name, bool run_time,
                     const int values[], const char *help)
{
    struct param *p = add_param(out, n, name, run_time, help);
    for (const int *v = values; *v >= 0; v++) {
        p->values[p->n++] = VALUE_OF_INT(*v);
    }
}

static void add_texts(struct param out[], uint32_t *n, const char *name, bool run_time,
                      const char *const values[], const char *help)
{
    struct param *p = add_param(out, n, name, run_time, help);
    for (const char *const *v = values; *v; v++) {
        p->values[p->n++] = VALUE_OF_TEXT(*v);
    }
}

/* `no` and `yes` say which of the two are part of the space. */
static void add_bool(struct param out[], uint32_t *n, const char *name, bool no, bool yes,
                     const char *help)
{
    struct param *p = add_param(out, n, name, false, help);
    if (no) {
        p->values[p->n++] = VALUE_OF_BOOL(false);
    }
    if (yes) {
        p->values[p->n++] = VALUE_OF_BOOL(true);
    }
}

static const int rows_values[] = {64, 128, 192, 256, -1};
static const int cols_values[] = {64, 128, 192, 256, -1};
static const int depth_values[] = {HOPPER_DEPTH, -1};
static const int warps_values[] = {8, 12, -1};
static const int stages_values[] = {3, 4, 5, 6, 7, HOPPER_STAGES_MOST, -1};
static const int staging_values[] = {1, 2, 4, -1};
static const int in_flight_values[] = {0, 1, -1};
static const int group_values[] = {1, 4, 8, 16, -1};
static const char *const schedules[] = {"cooperative", "pingpong", NULL};
static const char *const clusters[] = {"1x1", NULL};
static const char *const rasters[] = {"rows", "columns", NULL};
static const char *const orders[] = {"index", "size", NULL};
static const char *const schedulers[] = {"static", "dynamic", NULL};

static const int *const role_values[ROLES] = {rows_values, cols_values, depth_values};
static const char *const block_help[ROLES] = {"tile of the routed rows", "tile of N", "tile of K"};

/* A contiguous operand comes by TMA, a gathered one cannot: no choice, but users know the names. */
static void add_loads(const struct grouped_gemm_problem *v, struct param out[], uint32_t *n)
{
    if (v->mode != GEMM_DX) {
        add_bool(out, n, "use_tma_load_x", v->gather_x, !v->gather_x, "X is loaded by TMA");
    }
    if (v->mode != GEMM_DW) {
        add_bool(out, n, "use_tma_load_w", false, true, "W is loaded by TMA");
    }
    if (v->mode != GEMM_FORWARD) {
        add_bool(out, n, "use_tma_load_dy", v->gather_dy, !v->gather_dy, "dY is loaded by TMA");
    }
}

/* Only where tiles can be so few: other spaces would be walked four times for nothing. */
static void add_split(const struct grouped_gemm_problem *v, const struct device_info *info,
                      struct param out[], uint32_t *n)
{
    enum { LARGEST = 128 }; /* tiles: they are the fewest */
    struct param *p = add_param(out, n, "NUM_KSPLIT", false,
                                "thread blocks, a cluster, that share the sums of each tile");
    p->values[p->n++] = VALUE_OF_INT(1);
    for (int i = 2; i <= HOPPER_KSPLIT_MOST; i *= 2) {
        if (hopper_split_pays(v, info, LARGEST, LARGEST, i)) {
            p->values[p->n++] = VALUE_OF_INT(i);
        }
    }
}

uint32_t hopper_tunables(const struct problem *p, const struct device_info *info,
                         struct param out[PARAMS_MAX])
{
    struct grouped_gemm_problem v;
    grouped_gemm_view(p, &v);
    bool gathers = v.gather_x || v.gather_dy;
    uint32_t n = 0;
    for (int i = 0; i < ROLES; i++) {
        add_ints(out, &n, block_names[i], false, role_values[roles[v.mode][i]], block_help[i]);
    }
    add_ints(out, &n, "num_warps", false, warps_values, "4 that load, the rest multiplies");
    add_texts(out, &n, "schedule", false, schedules,
              "multiplying warpgroups share a tile, or have one each and take turns");
    add_ints(out, &n, "num_stages", false, stages_values, "blocks of operands in shared memory");
    add_ints(out, &n, "staging_buffers", false, staging_values,
             "pieces of the output in shared memory, per multiplying warpgroup");
    add_ints(out, &n, "in_flight", false, in_flight_values,
             "blocks being multiplied when the next is issued");
    add_bool(out, &n, "skip_rows", true, true,
             "64 rows of a tile that do not exist are not multiplied");
    if (v.mode != GEMM_DW) {
        add_texts(out, &n, "tile_scheduler", false, schedulers,
                  "tiles are dealt in turn, or taken as thread blocks come free");
        add_split(&v, info, out, &n);
    }
    add_texts(out, &n, "cluster_shape_mn", false, clusters, "thread blocks that share operands");
    add_loads(&v, out, &n);
    add_bool(out, &n, "use_tma_store", true, !v.scatter, "the output is written by TMA");
    if (gathers) {
        add_bool(out, &n, "permute_copy", true, true, "gather in a kernel of its own, before");
    }
    add_ints(out, &n, "GROUP_SIZE_M", true, group_values, "tiles walked before turning");
    add_texts(out, &n, "raster", true, rasters, "the direction that these tiles are walked in");
    if (v.mode == GEMM_DW) {
        add_texts(out, &n, "expert_order", true, orders, "experts as numbered, or largest first");
    }
    return n;
}

/* ---- what is legal
 * --------------------------------------------------------------------------------- */

static const char *const known[] = {
    "BLOCK_SIZE_M", "BLOCK_SIZE_N",     "BLOCK_SIZE_K",    "num_warps",
    "schedule",     "num_stages",       "staging_buffers", "in_flight",
    "skip_rows",    "cluster_shape_mn", "permute_copy",    "GROUP_SIZE_M",
    "raster",       "expert_order",     "NUM_KSPLIT",      "tile_scheduler",
    NULL,
};

struct int_rule {
    const char *name;
    int least, most, multiple;
    bool required;
    const char *use;
};

static int check_int(const struct record *config, const struct int_rule *rule,
                     struct rejection *why)
{
    struct value value;
    if (!record_get(config, rule->name, &value)) {
        return !rule->required ? 0
                               : rejection_set(why, ERROR_INVALID, "missing_parameter",
                                               "%s is missing: the hopper kernel needs it, %s",
                                               rule->name, rule->use);
    }
    int64_t v = value.type == VALUE_INT ? value.integer : -1;
    if (v < rule->least || v > rule->most || v % rule->multiple) {
        char text[64];
        value_format(&value, text, sizeof(text));
        return rejection_set(why, ERROR_INVALID, "parameter_value",
                             "%s=%s: the hopper kernel takes %s", rule->name, text, rule->use);
    }
    return 0;
}

static int check_text(const struct record *config, const char *name, const char *const values[],
                      bool required, struct rejection *why)
{
    struct value value;
    if (!record_get(config, name, &value)) {
        return !required ? 0
                         : rejection_set(why, ERROR_INVALID, "missing_parameter",
                                         "%s is missing: the hopper kernel needs it, %s or %s",
                                         name, values[0], values[1]);
    }
    for (const char *const *v = values; *v; v++) {
        if (value.type == VALUE_TEXT && strcmp(*v, value.text) == 0) {
            return 0;
        }
    }
    char text[64];
    value_format(&value, text, sizeof(text));
    return rejection_set(why, ERROR_INVALID, "parameter_value",
                         "%s=%s: the hopper kernel takes %s%s%s", name, text, values[0],
                         values[1] ? " or " : "", values[1] ? values[1] : "");
}

static const struct int_rule role_rules[ROLES] = {
    [ROWS] = {NULL, 64, 256, 64, true, "64, 128, 192 or 256"},
    [COLS] = {NULL, 64, 256, 64, true, "64, 128, 192 or 256"},
    [DEPTH] = {NULL, HOPPER_DEPTH, HOPPER_DEPTH, 64, true,
               "64 for the dimension that this mode sums over"},
};
static const struct int_rule int_rules[] = {
    {"num_warps", 8, 12, 4, true, "8 or 12: 4 that load and 4 or 8 that multiply"},
    {"num_stages", 2, 16, 1, true, "2 to 16, as shared memory allows"},
    {"staging_buffers", 1, 8, 1, false, "1 to 8, as shared memory allows"},
    {"in_flight", 0, 1, 1, false, "0 or 1"},
    {"GROUP_SIZE_M", 1, 64, 1, false, "1 to 64"},
    {"NUM_KSPLIT", 1, HOPPER_KSPLIT_MOST, 1, false, "1, 2, 4 or 8"},
};

static int check_values(const struct grouped_gemm_problem *v, const struct record *config,
                        struct rejection *why)
{
    int r = 0;
    for (int i = 0; i < ROLES && r == 0; i++) {
        struct int_rule rule = role_rules[roles[v->mode][i]];
        rule.name = block_names[i];
        r = check_int(config, &rule, why);
    }
    for (size_t i = 0; i < sizeof(int_rules) / sizeof(int_rules[0]) && r == 0; i++) {
        r = check_int(config, &int_rules[i], why);
    }
    /* Required, so that no config of the portable kernel passes for one of this. */
    r = r ? r : check_text(config, "schedule", schedules, true, why);
    r = r ? r : check_text(config, "cluster_shape_mn", clusters, false, why);
    r = r ? r : check_text(config, "raster", rasters, false, why);
    r = r ? r : check_text(config, "tile_scheduler", schedulers, false, why);
    return r ? r : check_text(config, "expert_order", orders, false, why);
}

static int check_load(const struct record *config, const char *name, bool here, bool gathered,
                      struct rejection *why)
{
    if (!here || gathered || record_bool(config, name, true)) {
        return 0; /* a true one for a gathered operand, the rules of the modes refuse */
    }
    return rejection_set(why, ERROR_INVALID, "tma_loads",
                         "%s=false: the hopper kernel loads "
                         "contiguous operands by TMA only; leave it out or set it to true",
                         name);
}

static int check_bool(const struct record *config, const char *name, struct rejection *why)
{
    struct value value;
    if (!record_get(config, name, &value) || value.type == VALUE_BOOL) {
        return 0;
    }
    return rejection_set(why, ERROR_INVALID, "flag_type", "%s must be true or false", name);
}

static int check_switches(const struct grouped_gemm_problem *v, const struct record *config,
                          struct rejection *why)
{
    int r = check_bool(config, "skip_rows", why);
    r = r ? r : check_bool(config, "permute_copy", why);
    r = r ? r : check_load(config, "use_tma_load_x", v->mode != GEMM_DX, v->gather_x, why);
    r = r ? r : check_load(config, "use_tma_load_w", v->mode != GEMM_DW, false, why);
    r = r ? r : check_load(config, "use_tma_load_dy", v->mode != GEMM_FORWARD, v->gather_dy, why);
    if (r) {
        return r;
    }
    if (record_bool(config, "permute_copy", false) && !v->gather_x && !v->gather_dy) {
        return rejection_set(why, ERROR_INVALID, "permute_copy",
                             "permute_copy=true: this problem "
                             "gathers no operand, there is nothing to copy");
    }
    if (strcmp(record_text(config, "tile_scheduler", "static"), "dynamic") == 0 &&
        v->mode == GEMM_DW) {
        return rejection_set(why, ERROR_INVALID, "tile_scheduler",
                             "tile_scheduler=dynamic is for forward and dX: in dW use "
                             "expert_order=size");
    }
    if (strcmp(record_text(config, "expert_order", "index"), "size") == 0 &&
        (v->mode != GEMM_DW || v->experts > HOPPER_SORT_MAX)) {
        return rejection_set(why, ERROR_INVALID, "expert_order",
                             "expert_order=size is for dW with "
                             "up to %d experts: only there tiles differ in length",
                             HOPPER_SORT_MAX);
    }
    return 0;
}

static int check_problem(const struct grouped_gemm_problem *v, struct rejection *why)
{
    if (v->in != DTYPE_BF16 && v->in != DTYPE_FP16) {
        return rejection_set(why, ERROR_INVALID, "dtype_in",
                             "dtype_in is %s: the hopper kernel "
                             "takes bf16 and fp16",
                             dtype_name(v->in));
    }
    if (v->accumulate && v->out != DTYPE_FP32) {
        return rejection_set(why, ERROR_INVALID, "accumulate_fp32",
                             "accumulate with dtype_out %s: "
                             "the hopper kernel adds in fp32 only; set dtype_out=fp32, or use the "
                             "portable kernel",
                             dtype_name(v->out));
    }
    return grouped_gemm_rules_rows_16(v, why);
}

static int check_arrangement(const struct hopper_tile *t, struct rejection *why)
{
    if (t->pingpong && t->consumers != 2) {
        return rejection_set(why, ERROR_INVALID, "pingpong_warps",
                             "schedule=pingpong needs num_warps=12: two warpgroups take turns");
    }
    if (!t->pingpong && t->r % (64 * t->consumers)) {
        return rejection_set(why, ERROR_INVALID, "rows_per_warpgroup",
                             "a tile of %d rows cannot be split among %d warpgroups of 64: take "
                             "num_warps=8, schedule=pingpong or a taller tile",
                             t->r, t->consumers);
    }
    if (t->skip_rows && t->r == 64) {
        return rejection_set(why, ERROR_INVALID, "skip_rows",
                             "skip_rows=true with tiles of 64 rows: it leaves out whole 64 of more "
                             "rows that do not exist; set it to false");
    }
    if (!t->tma_store && t->staging != 1) {
        return rejection_set(why, ERROR_INVALID, "staging_without_tma",
                             "staging_buffers=%d without use_tma_store: threads store what they "
                             "staged at once; set it to 1",
                             t->staging);
    }
    if (t->tma_store && t->staging > t->c / 64 * 2) {
        return rejection_set(why, ERROR_INVALID, "staging_too_many",
                             "staging_buffers=%d is more than two tiles of %d columns fill",
                             t->staging, t->c);
    }
    return 0;
}

/* One tile by the thread blocks of a cluster. */
static int check_split(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                       struct rejection *why)
{
    const int64_t blocks = hopper_depth_blocks(v);
    if (t->ksplit == 1) {
        return 0;
    }
    if (t->ksplit & (t->ksplit - 1)) {
        return rejection_set(why, ERROR_INVALID, "parameter_value",
                             "NUM_KSPLIT=%d: the hopper kernel takes 1, 2, 4 or 8", t->ksplit);
    }
    if (v->mode == GEMM_DW) {
        return rejection_set(why, ERROR_INVALID, "split_mode",
                             "NUM_KSPLIT=%d is for forward and dX: dW sums over each expert's "
                             "rows, which may be none; set it to 1",
                             t->ksplit);
    }
    if (t->pingpong || t->dynamic) {
        return rejection_set(why, ERROR_INVALID, "split_schedule",
                             "NUM_KSPLIT=%d needs schedule=cooperative and tile_scheduler=static: "
                             "the thread blocks that share a tile walk the tiles in step",
                             t->ksplit);
    }
    if (t->tma_store) {
        return rejection_set(why, ERROR_INVALID, "split_store",
                             "NUM_KSPLIT=%d with use_tma_store=true: threads add up the parts and "
                             "store them; set it to false",
                             t->ksplit);
    }
    if (blocks < t->ksplit) {
        return rejection_set(why, ERROR_INVALID, "split_depth",
                             "NUM_KSPLIT=%d parts of a sum over %lld blocks of %d: each part has "
                             "one at least; take up to %lld",
                             t->ksplit, (long long)blocks, HOPPER_DEPTH, (long long)blocks);
    }
    return 0;
}

/* Where ptxas was seen to spill more than 16 bytes (tests/compile/compile_space says it again). */
static bool spills(const struct grouped_gemm_problem *v, const struct hopper_tile *t)
{
    const bool dw = v->mode == GEMM_DW, tall = t->rows_each == 192;
    if (t->accumulators <= ACCUMULATORS_MANY) {
        return false;
    }
    if (t->tma_store) {
        return t->gather && !dw && t->pingpong && t->skip_rows && !tall;
    }
    return (t->gather && !dw) || (tall && (t->gather || dw || v->fuse_mul_post)) ||
           (t->skip_rows && (dw || (v->fuse_mul_post && t->pingpong)));
}

static int check_resources(const struct grouped_gemm_problem *v, const struct hopper_tile *t,
                           const struct device_info *info, struct rejection *why)
{
    if (t->smem > info->smem_optin) {
        return rejection_resource(why, "shared_memory", t->smem, info->smem_optin,
                                  "tile %d x %d with %d stages and %d staging buffers needs %lld "
                                  "bytes of shared memory, the device has %lld: take fewer stages "
                                  "or buffers, or a smaller tile",
                                  t->r, t->c, t->stages, t->staging, (long long)t->smem,
                                  (long long)info->smem_optin);
    }
    if (t->accumulators > ACCUMULATORS_MAX) {
        return rejection_resource(why, "registers", t->accumulators, ACCUMULATORS_MAX,
                                  "a warpgroup with %d x %d of the tile holds %d sums per thread, "
                                  "%d fit: take more warps or a smaller tile",
                                  t->rows_each, t->c, t->accumulators, ACCUMULATORS_MAX);
    }
    if (spills(v, t)) {
        return rejection_resource(why, "registers", t->accumulators, ACCUMULATORS_MANY,
                                  "what threads keep of the rows that they load, store or skip does "
                                  "not fit into registers beside %d sums each: set "
                                  "use_tma_store=true, permute_copy=true or skip_rows=false, or "
                                  "take a smaller tile",
                                  t->accumulators);
    }
    return 0;
}

int hopper_check(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why)
{
    struct grouped_gemm_problem v;
    grouped_gemm_view(p, &v);
    int r = grouped_gemm_rules_check(&v, config, known, why);
    r = r ? r : check_problem(&v, why);
    r = r ? r : check_values(&v, config, why);
    r = r ? r : check_switches(&v, config, why);
    if (r) {
        return r;
    }
    struct hopper_tile t;
    hopper_tile_make(&v, config, &t);
    r = check_arrangement(&t, why);
    r = r ? r : check_split(&v, &t, why);
    return r ? r : check_resources(&v, &t, info, why);
}

const struct family_target grouped_gemm_hopper = {
    .kind = "cuda",
    .label = "hopper",
    .source = grouped_gemm_hopper_source,
    .supports = hopper_supports,
    .takes = grouped_gemm_hopper_takes,
    .params = hopper_tunables,
    .check = hopper_check,
    .worth = hopper_worth,
    .choose = hopper_choose,
    .predict = hopper_predict,
    .predict_space = hopper_predict_space,
    .variant = hopper_variant,
    .plan = hopper_plan,
    .reference_source = grouped_gemm_reference_source,
    .reference = portable_reference,
};
