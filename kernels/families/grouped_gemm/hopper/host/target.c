/* SPDX-License-Identifier: Apache-2.0 */
/* The target "hopper" of the cuda device: its tunables. hopper.h lists the files of the target. */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "kernels/families/grouped_gemm/portable/portable.h"

/* wgmma and setmaxnreg exist in sm_90a alone. */
bool hopper_supports(const struct device_info *info)
{
    return info->cc_major == 9 && info->cc_minor == 0;
}

void hopper_add_texts(struct param out[], uint32_t *n, const char *name, bool run_time,
                      const char *const values[], const char *help)
{
    struct param *p = gemm_add_param(out, n, name, run_time, help);
    for (const char *const *v = values; *v; v++) {
        p->values[p->n++] = VALUE_OF_TEXT(*v);
    }
}

void hopper_add_bool(struct param out[], uint32_t *n, const char *name, bool no, bool yes,
                     const char *help)
{
    struct param *p = gemm_add_param(out, n, name, false, help);
    if (no) {
        p->values[p->n++] = VALUE_OF_BOOL(false);
    }
    if (yes) {
        p->values[p->n++] = VALUE_OF_BOOL(true);
    }
}

static const int rows_values[] = {64, 128, 192, 256, -1};
static const int routed_rows_values[] = {64, 128, 160, 192, 256, -1}; /* 160 needs swap_ab */
/* 144 needs schedule=deferred */
static const int deferred_rows_values[] = {64, 128, 144, 160, 192, 256, -1};
static const int cols_values[] = {64, 128, 192, 256, -1};
static const int depth_values[] = {HOPPER_DEPTH, -1};
static const int warps_values[] = {8, 12, -1};
static const int stages_values[] = {3, 4, 5, 6, 7, HOPPER_STAGES_MOST, -1};
static const int routed_stages_values[] = {3, 4, 5, 6, 7, HOPPER_STAGES_MOST, HOPPER_STAGES_DEEP,
                                           -1};
static const int staging_values[] = {1, 2, 4, -1};
static const int in_flight_values[] = {0, 1, -1};
static const int group_values[] = {1, 4, 8, 16, -1};
const char *const hopper_schedules[] = {"cooperative", "pingpong", "staggered", "deferred", NULL};
static const char *const many_rows_schedules[] = {"cooperative", "pingpong", "staggered", NULL};
static const char *const some_rows_schedules[] = {"cooperative", "pingpong", "deferred", NULL};
static const char *const other_schedules[] = {"cooperative", "pingpong", NULL};
const char *const hopper_clusters[] = {"1x1", "2x1", "1x2", NULL};
/* Shared operands gain nothing in dW of few rows, whose stores are wide, and cost time with many
 * rows (tests/gpu/clusters.py). So in dW only a config that names a cluster shape has one. Shared
 * weights save time in forward and dX. */
static const char *const no_clusters[] = {"1x1", NULL};
static const char *const clusters_of_rows[] = {"1x1", "2x1", NULL};
const char *const hopper_rasters[] = {"rows", "columns", NULL};
const char *const hopper_orders[] = {"index", "size", NULL};
const char *const hopper_evictions[] = {"evict_first", "evict_normal", "evict_unchanged", NULL};
const char *const hopper_schedulers[] = {"static", "dynamic", NULL};

static const char *const *schedules_of(const struct gemm *v)
{
    return hopper_stagger_pays(v) ? many_rows_schedules
           : hopper_defer_pays(v) ? some_rows_schedules
                                  : other_schedules;
}

static const int *const role_values[GEMM_ROLES] = {rows_values, cols_values, depth_values};

void hopper_add_common(const struct gemm *v, bool copies, struct param out[], uint32_t *n)
{
    if (v->mode != GEMM_DX) {
        hopper_add_bool(out, n, "use_tma_load_x", v->gather_x, !v->gather_x, "X is loaded by TMA");
    }
    if (v->mode != GEMM_DW) {
        hopper_add_bool(out, n, "use_tma_load_w", false, true, "W is loaded by TMA");
    }
    if (v->mode != GEMM_FORWARD) {
        hopper_add_bool(out, n, "use_tma_load_dy", v->gather_dy, !v->gather_dy,
                        "dY is loaded by TMA");
    }
    hopper_add_bool(out, n, "use_tma_store", true, !v->scatter, "the output is written by TMA");
    if (copies) {
        hopper_add_bool(out, n, "permute_copy", true, true,
                        "gather in a kernel of its own, before");
    }
    gemm_add_ints(out, n, "GROUP_SIZE_M", true, group_values, "tiles walked before turning");
    hopper_add_texts(out, n, "raster", true, hopper_rasters,
                     "the direction that these tiles are walked in");
    if (v->mode == GEMM_DW) {
        hopper_add_texts(out, n, "expert_order", true, hopper_orders,
                         "experts as numbered, or largest first");
    }
}

void hopper_add_split(const struct gemm *v, const struct device_info *info, struct param out[],
                      uint32_t *n)
{
    enum { LARGEST = 128 }; /* rows and columns of the largest tile, which gives the fewest tiles */
    struct param *p = gemm_add_param(out, n, "NUM_KSPLIT", false,
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
    struct gemm v;
    gemm_view(p, &v);
    uint32_t n = 0;
    for (int i = 0; i < GEMM_ROLES; i++) {
        const enum gemm_role role = gemm_roles[v.mode][i];
        const bool routed = role == GEMM_ROWS && v.mode != GEMM_DW;
        gemm_add_ints(out, &n, gemm_block_names[i], false,
                      !routed                 ? role_values[role]
                      : hopper_defer_pays(&v) ? deferred_rows_values
                                              : routed_rows_values,
                      gemm_block_help[i]);
    }
    if (v.mode != GEMM_DW) {
        hopper_add_bool(
            out, &n, "swap_ab", true, true,
            "weights are wgmma's A, and tiles are cut to 16 (2x1: 8) of the routed rows");
    }
    gemm_add_ints(out, &n, "num_warps", false, warps_values, "4 that load, the rest multiplies");
    hopper_add_texts(
        out, &n, "schedule", false, schedules_of(&v),
        "multiplying warpgroups share a tile, have one each and take turns, or share one and write "
        "half of it while they multiply the other, or all of it while they multiply the next");
    gemm_add_ints(out, &n, "num_stages", false,
                  v.mode == GEMM_DW ? stages_values : routed_stages_values,
                  "blocks of operands in shared memory");
    gemm_add_ints(out, &n, "staging_buffers", false, staging_values,
                  "pieces of the output in shared memory, per multiplying warpgroup");
    gemm_add_ints(out, &n, "in_flight", false, in_flight_values,
                  "blocks being multiplied when the next is issued");
    hopper_add_bool(out, &n, "skip_rows", true, true,
                    "64 rows of a tile that do not exist are not multiplied");
    if (v.mode != GEMM_DW) {
        hopper_add_texts(out, &n, "tile_scheduler", false, hopper_schedulers,
                         "tiles are dealt in turn, or taken as thread blocks come free");
        hopper_add_split(&v, info, out, &n);
    }
    hopper_add_texts(out, &n, "cluster_shape_mn", false,
                     hopper_pair_pays(&v) ? clusters_of_rows : no_clusters,
                     "thread blocks that share operands");
    hopper_add_common(&v, v.gather_x || v.gather_dy, out, &n);
    return n;
}

/* As WIDTH_ABOVE in hopper/params.cu. */
static int width_above(const struct hopper_tile *t)
{
    return hopper_grain(t) == HOPPER_GRAIN ? t->c / 2 : t->c > 160 ? t->c * 3 / 4 : t->c * 11 / 16;
}

/* Compile time grows with the sums that the kernel's loops keep in registers. With swap_ab
 * each width above half the tile has a loop, and so have two more widths. With clusters, widths
 * above 11/16 or 12/16 of the tile have loops (HAS_WIDTH in hopper/params.cu). */
static double hopper_effort(const struct problem *p, const struct record *config)
{
    const double sum = 0.0024, swapped_sum = 0.0018; /* NVRTC 13.0, recorded landscapes */
    /* factor of the compile time: the kernel has a loop for half of the rows and a loop for both
     * halves */
    const double staggered = 1.7;
    const double deferred = 1.15; /* factor, too: loops also write */
    struct gemm v;
    struct hopper_tile t;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    if (!t.swap_ab) {
        return (1 + sum * t.accumulators) * (t.staggered ? staggered : 1);
    }
    const bool fine = hopper_grain(&t) < HOPPER_GRAIN;
    int columns = fine ? 0 : t.c / 2 + t.c / 4;
    for (int width = t.c; width > width_above(&t); width -= hopper_grain(&t)) {
        columns += width;
    }
    return (1 + swapped_sum * (columns / 2) * (t.rows_each / 64)) * (t.deferred ? deferred : 1);
}

/* ---- variations ------------------------------------------------------------------------------ */

struct setting {
    const char *field;
    struct value value;
};

/* Variations in forward and dX: the other values of w_eviction (how long L2 keeps the weights). */
static uint32_t settings_of_weights(const struct hopper_tile *t, struct setting out[])
{
    static const char *const of[] = {[HOPPER_EVICT_NORMAL] = "evict_normal",
                                     [HOPPER_EVICT_FIRST] = "evict_first",
                                     [HOPPER_EVICT_UNCHANGED] = "evict_unchanged"};
    uint32_t n = 0;
    for (int e = 0; e < (int)(sizeof(of) / sizeof(of[0])); e++) {
        if (e != (int)t->w_eviction) {
            out[n++] = (struct setting){"w_eviction", VALUE_OF_TEXT(of[e])};
        }
    }
    return n;
}

static bool in_space(int group)
{
    for (const int *of = group_values; *of >= 0; of++) {
        if (*of == group) {
            return true;
        }
    }
    return false;
}

/* Variations in dW: values of GROUP_SIZE_M between the values of the space; and values of
 * l2_ahead (experts whose rows are requested into L2 at once) beside the usual value. */
static uint32_t settings_of_sums(const struct gemm *v, const struct hopper_tile *t,
                                 struct setting out[])
{
    uint32_t n = 0;
    if (in_space(t->group)) {
        out[n++] = (struct setting){"GROUP_SIZE_M", VALUE_OF_INT((3 * t->group + 1) / 2)};
        if (t->group > 1) {
            out[n++] = (struct setting){"GROUP_SIZE_M", VALUE_OF_INT(3 * t->group / 4)};
        }
    }
    if (v->experts > 1 && !t->sort_experts) {
        const int more = t->ahead ? 2 * t->ahead : 1;
        if (more <= HOPPER_AHEAD_MOST) {
            out[n++] = (struct setting){"l2_ahead", VALUE_OF_INT(more)};
        }
        if (t->ahead) {
            out[n++] = (struct setting){"l2_ahead", VALUE_OF_INT(t->ahead / 2)};
        }
    }
    return n;
}

static bool hopper_variation(const struct problem *p, const struct record *config, uint32_t i,
                             struct record *out)
{
    struct gemm v;
    struct hopper_tile t;
    struct setting settings[VARIATIONS_MAX];
    struct value said;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    const uint32_t n =
        v.mode == GEMM_DW ? settings_of_sums(&v, &t, settings) : settings_of_weights(&t, settings);
    for (uint32_t k = 0; k < n; k++) {
        const bool free = strcmp(settings[k].field, "GROUP_SIZE_M") == 0 ||
                          !record_get(config, settings[k].field, &said);
        if (free && i-- == 0) {
            record_copy(out, config);
            return record_set(out, settings[k].field, settings[k].value, NULL) == 0;
        }
    }
    return false;
}

/* docs/kernel-notes.md explains the words. */
static const struct notation_word hopper_words[] = {
    {"c1", "num_warps=8 schedule=cooperative"},
    {"c2", "num_warps=12 schedule=cooperative"},
    {"pp", "num_warps=12 schedule=pingpong"},
    {"sg", "num_warps=12 schedule=staggered"},
    {"df", "num_warps=12 schedule=deferred"},
    {"sg1", "num_warps=8 schedule=staggered"},
    {"df1", "num_warps=8 schedule=deferred"},
    {"s%", "num_stages=%"},
    {"", "staging_buffers=1"},
    {"nb%", "staging_buffers=%"},
    {"", "in_flight=1"},
    {"f%", "in_flight=%"},
    {"", "skip_rows=false"},
    {"skip", "skip_rows=true"},
    {"", "swap_ab=false"},
    {"swap", "swap_ab=true"},
    {"", "tile_scheduler=static"},
    {"dyn", "tile_scheduler=dynamic"},
    {"", "cluster_shape_mn=1x1"},
    {"2x1", "cluster_shape_mn=2x1"},
    {"1x2", "cluster_shape_mn=1x2"},
    {"", "NUM_KSPLIT=1"},
    {"k%", "NUM_KSPLIT=%"},
    {"", "use_tma_store=true"},
    {"tst", "use_tma_store=false"},
    {"", "permute_copy=false"},
    {"copy", "permute_copy=true"},
    {"", "GROUP_SIZE_M=1"},
    {"gm%", "GROUP_SIZE_M=%"},
    {"", "raster=rows"},
    {"cols", "raster=columns"},
    {"", "expert_order=index"},
    {"size", "expert_order=size"},
    {"h%", "tile_rows=%"},
    {"x%", "store_slabs=%"},
    {"a%", "l2_ahead=%"},
    {"w%", "load_warps=%"},
    {"r%", "stage_rows=%"},
    {"dr%", "dynamic_rounds=%"},
    {"ef", "w_eviction=evict_first"},
    {"en", "w_eviction=evict_normal"},
    {"eu", "w_eviction=evict_unchanged"},
    {NULL},
};

const struct family_target grouped_gemm_hopper = {
    .kind = "cuda",
    .label = "hopper",
    .source = grouped_gemm_hopper_source,
    .words = hopper_words,
    .tile = gemm_rules_name_tile,
    .supports = hopper_supports,
    .takes = hopper_takes,
    .params = hopper_tunables,
    .check = hopper_check,
    .exactness = hopper_exactness,
    .worth = hopper_worth,
    .effort = hopper_effort,
    .choose = hopper_choose,
    .predict = hopper_predict,
    .predict_space = hopper_predict_space,
    .variation = hopper_variation,
    .variant = hopper_variant,
    .plan = hopper_plan,
    .reference_source = grouped_gemm_reference_source,
    .reference = portable_reference,
};
