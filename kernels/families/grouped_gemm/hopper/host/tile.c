/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A config of the target "hopper" as the template sees it: the tile, its shared memory, to the
 * byte, and the registers of producer and consumers.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

#define HOPPER_NAME(name) #name,
const char *const hopper_field_names[FIELDS + 1] = {HOPPER_FIELDS(HOPPER_NAME) NULL};

void hopper_values_read(const struct record *config, struct hopper_values *out)
{
    gemm_read_values(config, hopper_field_names, FIELDS, out->of);
}

bool hopper_says(const struct hopper_values *v, enum hopper_field f, const char *word)
{
    return v->of[f].type == VALUE_TEXT && strcmp(v->of[f].text, word) == 0;
}

enum { ROW = 128 /* bytes of a row in shared memory */ };

const enum hopper_field hopper_blocks[GEMM_ROLES] = {FIELD_BLOCK_SIZE_M, FIELD_BLOCK_SIZE_N,
                                                     FIELD_BLOCK_SIZE_K};
/* setmaxnreg: one producer and two consumer warpgroups share 3 x 168 = 504 registers per lane. If
 * their shares exceeded that, the last warpgroup would wait for registers for ever. These shares
 * avoid nearly all spills. In forward and dX a gathering producer keeps an offset for each row. */
static void share_registers(const struct gemm *v, struct hopper_tile *t)
{
    bool many = t->accumulators > HOPPER_ACCUMULATORS_MANY;
    /* In dW a consumer with all these registers would leave the producer too few, and the
     * producer would find tiles late. */
    bool full = v->mode == GEMM_DW && many &&
                (!t->tma_store || (t->pingpong && t->skip_rows && t->staging > 1));
    if (t->consumers == 1) {
        t->consumer_registers = t->producer_registers = 0;
    } else if (t->gather && !full) {
        const bool offsets = v->mode != GEMM_DW && !many;
        t->consumer_registers = offsets ? 216 : 224;
        t->producer_registers = offsets ? 72 : 56;
    } else {
        t->consumer_registers = 232;
        t->producer_registers = 40;
    }
}

/* With swap_ab: rows of the output that a staging buffer holds. */
static int piece_rows(const struct hopper_tile *t)
{
    return t->c < 64 ? t->c : 64;
}

/* Bytes of the scales of a stage (SCALES_BYTES in hopper/params.cu). */
static int hopper_scale_bytes(const struct hopper_tile *t)
{
    const int rows = t->swap_ab ? t->c : t->r, weights = t->swap_ab ? t->r : t->c;
    switch (t->scales) {
    case HOPPER_SCALE_BLOCKS:
        return rows * (weights % 128 ? (weights + 63) / 64 : weights / 128) * 4;
    case HOPPER_SCALE_LINES:
        return (t->r + t->c) * 4;
    default:
        return 0;
    }
}

int64_t hopper_shared_bytes(const struct gemm *v, const struct hopper_tile *t)
{
    int64_t stages = (int64_t)t->stages * ((t->r + t->c) * ROW + hopper_scale_bytes(t));
    bool split = t->ksplit > 1;
    int64_t buffer = (t->swap_ab ? piece_rows(t) : t->rows_written) * ROW;
    int64_t staging =
        split ? (int64_t)t->r * t->c * 4 : (int64_t)t->consumers * t->staging * buffer;
    int64_t barriers =
        (int64_t)hopper_places(t) * 16 + (t->dynamic ? HOPPER_TICKETS * 20 : 0) + (split ? 16 : 0);
    int64_t rows =
        t->swap_ab ? (int64_t)t->consumers * t->c * (v->scatter * 4 + v->fuse_mul_post * 2) : 0;
    int64_t tables = (2 * v->experts + 1) * 4;
    /* fp8: two mbarriers for each staging buffer (SENDS and LOADS_OUTPUT in hopper/params.cu) */
    const bool loads =
        t->scales != HOPPER_NO_SCALES && t->tma_store && v->mode == GEMM_DW && v->out == DTYPE_FP32;
    int64_t slots = loads || hopper_sends(v, t) ? (int64_t)t->consumers * t->staging * 16 : 0;
    return stages + staging + barriers + rows + tables + slots;
}

int hopper_kept(const struct hopper_tile *t)
{
    const int room = (t->gather ? HOPPER_SUMS_GATHERED : HOPPER_SUMS_MOST) - t->accumulators;
    const int whole = t->c % 64
                          ? t->c / 64
                          : t->rows_each / 64 * (t->c / 64); /* as KEPT_WHOLE in hopper/params.cu */
    return room < 0 ? 0 : room / HOPPER_PAIRS < whole ? room / HOPPER_PAIRS : whole;
}

int64_t hopper_depth_blocks(const struct gemm *v)
{
    return (gemm_count_terms(v) + HOPPER_DEPTH - 1) / HOPPER_DEPTH;
}

/* ---- parameters that a config leaves out --------------------------------------------------------
 *
 * A change here means another kernel or launch for stored configs: see LAUNCH_RULES in
 * hopper/params.cu. Compiled-in values follow the rows of the tuned bucket, and arguments
 * (l2_ahead) the rows of the launched problem. So a launch must not rely on a value that these
 * rules compiled in (hopper/host/tensor_maps.c). */

/* dW: true if experts have fewer than `blocks` blocks of rows on average. */
static bool few_rows(const struct gemm *v, int blocks)
{
    return v->mode == GEMM_DW && v->experts > 1 && v->m < v->experts * HOPPER_DEPTH * blocks;
}

/* Two consumers, or another thread block, may give stages back in another order than loaded. There
 * each loading warp has its own stages, so the number of warps must divide them. */
bool hopper_loaders_fit(const struct hopper_tile *t, int loaders)
{
    const bool own = t->pingpong || hopper_sharers(t) > 1;
    return loaders <= hopper_places(t) && (!own || hopper_places(t) % loaders == 0);
}

/* Only three or four stages of wide tiles fit. In halves, the released half of a stage is filled
 * while the consumers multiply the rest: dW takes 1 to 6 % less time than with whole stages.
 * Smaller tiles, with more stages, take up to a tenth longer in halves; without a block in flight
 * the effect varies. Depends only on the tile, because a map's boxes have the same height
 * (hopper/host/tensor_maps.c). */
static int usual_stage_rows(const struct gemm *v, const struct hopper_tile *t)
{
    const bool wide = t->r >= 128 && t->c >= 128 && t->r * t->c >= 128 * 192;
    const bool halves =
        v->mode == GEMM_DW && !t->staggered && t->in_flight > 0 && t->consumers > 1 && wide;
    return halves ? HOPPER_HALF : HOPPER_DEPTH;
}

/* With few rows an expert, dW's consumers multiply a tile sooner than a single warp finds and loads
 * the next: from 256 rows an expert on, four warps are 2 to 4 % faster than one. With 128 or fewer
 * rows the launch mostly writes, and four warps are up to 3 % slower. */
static int usual_loaders(const struct gemm *v, const struct hopper_tile *t)
{
    if (t->gather) {
        return HOPPER_LOADERS_MOST;
    }
    if (v->mode != GEMM_DW || few_rows(v, 3)) {
        return 1;
    }
    int n = HOPPER_LOADERS_MOST;
    while (n > 1 && !hopper_loaders_fit(t, n)) {
        n--;
    }
    return n;
}

bool hopper_threads_write(const struct gemm *v, const struct hopper_tile *t)
{
    return v->experts > 1 && t->swap_ab && !t->pingpong && (t->deferred || hopper_sharers(t) > 1);
}

bool hopper_can_pair(const struct gemm *v, const struct hopper_tile *t)
{
    const int cols = hopper_slab_cols(v);
    return v->mode == GEMM_DW && t->tma_store && t->staging % 2 == 0 && v->k % cols == 0 &&
           t->c % (2 * cols) == 0;
}

/* With few rows an expert a launch mostly writes, and stores of 256 bytes of a row are up to a
 * tenth faster than of 128. In ping-pong each consumer then has one buffer instead of two: hardly
 * faster with 64 rows an expert, and not faster with 128. */
static int usual_store_slabs(const struct gemm *v, const struct hopper_tile *t)
{
    return hopper_can_pair(v, t) && few_rows(v, t->pingpong ? 2 : 3) ? 2 : 1;
}

/* Returns the number of experts whose rows are requested into L2 in one burst. Single reads between
 * writes cost memory more time than their bytes would take. In a burst that is too large, L2 drops
 * the first rows before they are needed. Bursts of 2 MB to 3 MB were best: 4 % faster than no
 * burst, up to 3 % faster than twice as many bytes. */
static int hopper_count_burst_experts(const struct gemm *v)
{
    const int64_t most = 2900000;
    const int64_t bytes = (v->m + v->experts - 1) / v->experts * (v->n + v->k) * dtype_size(v->in);
    int experts = HOPPER_AHEAD_USUAL;
    while (experts > 0 && experts * bytes > most) {
        experts /= 2;
    }
    return experts;
}

/* dW's l2_ahead. With at most a block of rows an expert a launch mostly writes, and reads should
 * come in bursts. With more rows bursts cost as much as they gain. But where nearly every tile of a
 * thread block has another expert, L2 should already have the next expert's rows: this saves 1 to 4
 * % of the time with 256 rows an expert, and costs 3 % in larger problems. */
int hopper_usual_ahead(const struct gemm *v, const struct hopper_tile *t)
{
    enum { TILES_MOST = 192, BLOCKS_MOST = 6 };
    if (v->mode != GEMM_DW || t->sort_experts || t->r < 1 || t->c < 1) {
        /* legal configs with reads ahead have neither expert_order=size nor an empty tile */
        return 0;
    }
    if (v->experts > 1 && v->m <= v->experts * HOPPER_DEPTH) {
        return hopper_count_burst_experts(v);
    }
    return !t->gather && t->loaders > 1 && few_rows(v, BLOCKS_MOST) &&
           (v->n + t->r - 1) / t->r * ((v->k + t->c - 1) / t->c) <= TILES_MOST;
}

/*
 * Memory delivers more of a row at once than the 128 bytes of a block in forward; the rest belongs
 * to the next block.
 * - evict_first: L2 drops the rest before it is read. Qwen3's down projection read 10 % more bytes
 * and took 7 to 11 % longer.
 * - evict_normal: the weights push out rows that other tiles read, the more so the more row tiles
 *   read the weights.
 * - evict_unchanged does neither.
 *
 * dX has pieces of a row side by side in a block, 512 bytes in a pair. There evict_first is best in
 * pairs whose weights no other tile reads. In half of dX's single tiles evict_normal is best on an
 * H100, by up to 4 %, but on an H200 it costs up to 26 %; evict_unchanged costs at most 4 % on
 * either.
 *
 * With few rows an expert evict_first is best in forward, too. The rest of a row is read before L2
 * drops it, and the output stays in L2 instead of being stored while weights are loaded, up to 5 %
 * of all bytes. The same holds for dense products of one row tile. docs/kernel-notes.md has the
 * figures. A config may name a value, and searches also try the other values.
 */
static enum hopper_eviction usual_w_eviction(const struct gemm *v, const struct hopper_tile *t)
{
    enum { FEW = 48 /* most mean rows of an expert; measured were 32 and 64 */ };
    const bool once = v->m <= v->experts * t->height * hopper_rows_together(t);
    if (v->mode == GEMM_DW) {
        return HOPPER_EVICT_NORMAL; /* dW loads no weights */
    }
    const bool leaves = v->experts == 1 || v->m <= v->experts * FEW ||
                        (v->mode == GEMM_DX && hopper_sharers(t) > 1);
    return once && leaves ? HOPPER_EVICT_FIRST : HOPPER_EVICT_UNCHANGED;
}

static enum hopper_eviction w_eviction_of(const struct hopper_values *h, enum hopper_eviction usual)
{
    return hopper_says(h, FIELD_w_eviction, "evict_first")       ? HOPPER_EVICT_FIRST
           : hopper_says(h, FIELD_w_eviction, "evict_normal")    ? HOPPER_EVICT_NORMAL
           : hopper_says(h, FIELD_w_eviction, "evict_unchanged") ? HOPPER_EVICT_UNCHANGED
                                                                 : usual;
}

/* Clusters of four and eight find no room for as many thread blocks as the device has SMs, unless
 * two fit on an SM. Tiles whose sums leave registers for two are compiled for two; not yet tiles of
 * 32 columns. */
static int hopper_count_resident_blocks(const struct hopper_tile *t)
{
    enum { SMEM_OF_SM = 228 << 10, SMEM_OF_SYSTEM = 1 << 10 };
    const bool few = t->ksplit > 1 && t->consumers == 1 && t->r <= 128 && t->c == 64;
    return few && 2 * (t->smem + SMEM_OF_SYSTEM) <= SMEM_OF_SM ? 2 : 1;
}

void hopper_tile_of(const struct gemm *v, const struct hopper_values *h, struct hopper_tile *t)
{
    int size[GEMM_ROLES];
    for (int i = 0; i < GEMM_ROLES; i++) {
        size[gemm_roles[v->mode][i]] = hopper_int(h, hopper_blocks[i], 0);
    }
    const bool copy = hopper_bool(h, FIELD_permute_copy, false);
    const bool swap = hopper_bool(h, FIELD_swap_ab, false);
    *t = (struct hopper_tile){
        .r = size[swap ? GEMM_COLS : GEMM_ROWS],
        .c = size[swap ? GEMM_ROWS : GEMM_COLS],
        .d = size[GEMM_SUM],
        .swap_ab = swap,
        .consumers = hopper_int(h, FIELD_num_warps, 0) / 4 - 1,
        .pingpong = hopper_says(h, FIELD_schedule, "pingpong"),
        .stages = hopper_int(h, FIELD_num_stages, 0),
        .staging = hopper_int(h, FIELD_staging_buffers, 1),
        .in_flight = hopper_int(h, FIELD_in_flight, 1),
        .staggered = hopper_says(h, FIELD_schedule, "staggered"),
        .deferred = hopper_says(h, FIELD_schedule, "deferred"),
        .tma_store = hopper_bool(h, FIELD_use_tma_store, !v->scatter),
        .skip_rows = hopper_bool(h, FIELD_skip_rows, false),
        .dynamic = hopper_says(h, FIELD_tile_scheduler, "dynamic"),
        .cluster_r = hopper_says(h, FIELD_cluster_shape_mn, swap ? "1x2" : "2x1") ? 2 : 1,
        .cluster_c = hopper_says(h, FIELD_cluster_shape_mn, swap ? "2x1" : "1x2") ? 2 : 1,
        .ksplit = hopper_int(h, FIELD_NUM_KSPLIT, 1),
        .permute_copy = copy,
        .gather = !copy && (v->gather_x || v->gather_dy),
        .group = hopper_int(h, FIELD_GROUP_SIZE_M, 1),
        .raster_columns = hopper_says(h, FIELD_raster, "columns"),
        .sort_experts = hopper_says(h, FIELD_expert_order, "size"),
    };
    /* dW's output is larger than L2, so L2 cannot keep it for the optimizer: evict_first. Stores by
     * threads are slower with evict_first. */
    t->store_first = hopper_bool(h, FIELD_store_evict_first, v->mode == GEMM_DW && t->tma_store);
    const int height = hopper_int(h, FIELD_tile_rows, 0);
    t->height = height != 0 ? height : swap ? t->c : t->r;
    t->last_rounds = hopper_int(h, FIELD_dynamic_rounds,
                                t->dynamic && hopper_sharers(t) > 1 ? HOPPER_ROUNDS_USUAL : 0);
    t->threads = 128 * (1 + t->consumers);
    t->rows_each = t->pingpong || t->consumers < 1 ? t->r : t->r / t->consumers;
    t->rows_written = t->staggered ? 64 : t->rows_each;
    t->accumulators = t->rows_each / 64 * (t->c / 2);
    share_registers(v, t);
    t->stage_rows = hopper_int(h, FIELD_stage_rows, usual_stage_rows(v, t));
    t->store_slabs = hopper_int(h, FIELD_store_slabs, usual_store_slabs(v, t));
    t->loaders = hopper_int(h, FIELD_load_warps, usual_loaders(v, t));
    t->ahead = hopper_int(h, FIELD_l2_ahead, hopper_usual_ahead(v, t));
    t->w_eviction = w_eviction_of(h, usual_w_eviction(v, t));
    t->smem = hopper_shared_bytes(v, t);
    t->resident = hopper_count_resident_blocks(t);
}

void hopper_tile_make(const struct gemm *v, const struct record *config, struct hopper_tile *t)
{
    struct hopper_values h;
    hopper_values_read(config, &h);
    hopper_tile_of(v, &h, t);
}

void hopper_put_tile(const struct gemm *v, const int size[GEMM_ROLES], int warps, int stages,
                     const char *schedule, struct record *config)
{
    record_init(config);
    for (int i = 0; i < GEMM_ROLES; i++) {
        record_put_int(config, gemm_block_names[i], size[gemm_roles[v->mode][i]]);
    }
    record_put_int(config, "num_warps", warps);
    record_put_int(config, "num_stages", stages);
    record_put_text(config, "schedule", schedule);
}
