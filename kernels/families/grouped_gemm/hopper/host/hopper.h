/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The target "hopper" inside: how a config maps onto the template in hopper/.
 *
 *   target.c               the tunables;
 *   tile.c                 a config as the template sees it
 *   validity.c             legal configs
 *   space.c                legal configs that are in the space;
 *   ../model/              predicted time, and the analytic default
 *   launch.c               compile-time options, launch geometry and arguments
 *   tensor_maps.c          tensor maps.
 *
 * A config as the template sees it, in r, c and d (grouped_gemm.h):
 *
 * "256x192 cooperative" is a tile of 256 r and 192 c. With swap_ab, in forward and dX, r and c
 * change places: c = M. Then a tile has only as many rows as its expert, rounded up to 16, and at
 * most tile_rows. This run-time parameter tunes the number of rounds of tiles.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_HOPPER_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_HOST_HOPPER_H

#include "kernels/families/grouped_gemm/grouped_gemm.h"

enum {
    HOPPER_ROW_BYTES = 16, /* alignment of rows and pointers */
    /* length of a block of the reduction: rows of 128 bytes, as wide as TMA's widest swizzle */
    HOPPER_DEPTH = 64,
    HOPPER_HALF = HOPPER_DEPTH / 2, /* dW: stage_rows may be half a block */
    /* most stages in the space; a config that a user asks for may have more */
    HOPPER_STAGES_MOST = 8,
    /* most stages in the space for tiles of at most 64 x 64 */
    HOPPER_STAGES_DEEP = 12,
    HOPPER_PARTS = 4,        /* boxes of 64, 48, 32, 16 rows for an expert's last rows (PARTS) */
    HOPPER_GRAIN = 16,       /* swap_ab: a tile has a multiple of 16 rows (GRAIN in hopper/) */
    HOPPER_GRAIN_PAIRED = 8, /* swap_ab in a cluster: a tile has a multiple of 8 rows */
    HOPPER_TICKETS = 4,      /* places for drawn tile numbers (TICKETS in hopper/) */
    HOPPER_KSPLIT_MOST = 8,  /* thread blocks of the largest cluster that every device allows */
    /* bytes of counters at the begin of the workspace when tiles are dynamic */
    HOPPER_COUNTERS = 256,
    HOPPER_AHEAD_MOST = 64,
    HOPPER_AHEAD_USUAL = 8, /* usual l2_ahead, in experts, in dW of few rows */
    HOPPER_ROUNDS_MOST = 64,
    HOPPER_ROUNDS_USUAL = 3, /* usual dynamic_rounds in clusters of two */
    HOPPER_LOADERS_MOST = 4, /* largest load_warps: all warps of the producer */
    HOPPER_SORT_MAX = 512,   /* experts that expert_order=size can rank in reasonable time */
    /* a consumer's thread with more fp32 accumulators has no register to spare */
    HOPPER_ACCUMULATORS_MANY = 160,
    /* SUMS_MOST in hopper/: most registers for sums and for pieces that wait to be written */
    HOPPER_SUMS_MOST = 192,
    HOPPER_SUMS_GATHERED = 176, /* SUMS_MOST where the producer gathers */
    HOPPER_PAIRS = 16,          /* PIECE_PAIRS in hopper/: a thread's registers for such a piece */
};

/* The parameters of a config, in the order of a record's fields. hopper_values looks them up
 * once, because the rules read each parameter several times, for tens of thousands of configs
 * before a search begins. */
#define HOPPER_FIELDS(X)                                                                           \
    X(BLOCK_SIZE_K)                                                                                \
    X(BLOCK_SIZE_M)                                                                                \
    X(BLOCK_SIZE_N)                                                                                \
    X(GROUP_SIZE_M)                                                                                \
    X(NUM_KSPLIT)                                                                                  \
    X(cluster_shape_mn)                                                                            \
    X(dynamic_rounds)                                                                              \
    X(expert_order)                                                                                \
    X(in_flight)                                                                                   \
    X(l2_ahead)                                                                                    \
    X(load_warps)                                                                                  \
    X(num_stages)                                                                                  \
    X(num_warps)                                                                                   \
    X(permute_copy)                                                                                \
    X(raster)                                                                                      \
    X(schedule)                                                                                    \
    X(skip_rows)                                                                                   \
    X(stage_rows)                                                                                  \
    X(staging_buffers)                                                                             \
    X(store_evict_first)                                                                           \
    X(store_slabs)                                                                                 \
    X(swap_ab)                                                                                     \
    X(tile_rows)                                                                                   \
    X(tile_scheduler)                                                                              \
    X(use_tma_load_dy)                                                                             \
    X(use_tma_load_w)                                                                              \
    X(use_tma_load_x)                                                                              \
    X(use_tma_store)                                                                               \
    X(w_eviction)

#define HOPPER_FIELD(name) FIELD_##name,
enum hopper_field { HOPPER_FIELDS(HOPPER_FIELD) FIELDS };
#undef HOPPER_FIELD

extern const char *const hopper_field_names[FIELDS + 1]; /* the last is NULL */

struct hopper_values {
    /* by enum hopper_field; VALUE_NONE: the config lacks it. Texts are borrowed from the config */
    struct value of[FIELDS];
};

/* Reads the config's fields by name; ignores fields of other names, for example the problem's
 * flags. */
void hopper_values_read(const struct record *config, struct hopper_values *out);

/* As record_int(): returns the fallback when the field is absent or of another type. */
static inline int hopper_int(const struct hopper_values *v, enum hopper_field f, int fallback)
{
    return v->of[f].type == VALUE_INT ? (int)v->of[f].integer : fallback;
}

static inline bool hopper_bool(const struct hopper_values *v, enum hopper_field f, bool fallback)
{
    return v->of[f].type == VALUE_BOOL ? v->of[f].flag : fallback;
}

bool hopper_says(const struct hopper_values *v, enum hopper_field f, const char *word);

extern const enum hopper_field hopper_blocks[GEMM_ROLES]; /* BLOCK_SIZE_M, N and K */

/* w_eviction: how long L2 keeps loaded weights. */
enum hopper_eviction { HOPPER_EVICT_NORMAL, HOPPER_EVICT_FIRST, HOPPER_EVICT_UNCHANGED };

/* Scales of fp8 operands (SCALES_* in hopper/params.cu, one less). */
enum hopper_scales {
    HOPPER_NO_SCALES,    /* the operands are not fp8 */
    HOPPER_SCALE_BLOCKS, /* rows: 1 x 128 elements; weights: 128 x 128 */
    HOPPER_SCALE_LINES,  /* both operands: 1 x 128 */
    HOPPER_SCALE_ROWS,   /* a scale for each row of both operands */
};

struct hopper_tile {
    int r, c, d;
    enum hopper_scales scales;
    int consumers; /* warpgroups that multiply */
    bool pingpong;
    /* number of stages of operands; number of output buffers of each consumer */
    int stages, staging;
    int stage_rows;  /* how much of the reduction is loaded, multiplied and given back at a time */
    int resident;    /* number of thread blocks that an SM holds at once */
    int store_slabs; /* a store writes so many times 128 bytes of a row: 1 or 2 */
    int in_flight;
    bool staggered; /* a consumer multiplies one half of its rows a block ahead of the other */
    bool deferred;  /* a finished tile waits in registers, rounded, and is written while the
                       next tile is multiplied */
    bool tma_store;
    int loaders;    /* load_warps: number of warps that load; blocks are dealt to them */
    bool skip_rows; /* consumers skip groups of 64 rows in which no row exists */
    bool swap_ab;   /* the weights are the template's A: c is cut to the rows that exist */
    /* numbers of thread blocks that have tiles adjacent along r (c), and share an operand */
    int cluster_r, cluster_c;
    /* number of thread blocks (a cluster) that share each tile's sums; 1: not shared */
    int ksplit;
    bool dynamic;      /* a free thread block takes the next tile, instead of every n-th tile;
                          clusters do so only in the last rounds (last_rounds) */
    bool permute_copy; /* another kernel first copies the gathered rows into order */
    bool gather;       /* the producer's threads fetch the gathered rows */
    int threads;
    int rows_each;                              /* rows of a tile that a consumer multiplies */
    int rows_written;                           /* how many of rows_each are written at once */
    int accumulators;                           /* registers of a thread for sums */
    int consumer_registers, producer_registers; /* of a thread; 0: as launched */
    int64_t smem;                               /* dynamic, bytes */
    /* tunables of run time, and what follows from them: */
    int group;  /* GROUP_SIZE_M */
    int height; /* most routed rows of a tile: tile_rows; if left out, r, or c with swap_ab */
    /* dynamic_rounds: number of last rounds of tiles that clusters take as they come free; 0:
     * all rounds */
    int last_rounds;
    bool raster_columns, sort_experts;
    bool store_first; /* store_evict_first: the output is the first to leave L2 */
    enum hopper_eviction w_eviction;
    /* l2_ahead: number of blocks, in dW of experts, that are requested into L2 before their
     * loads */
    int ahead;
};

/* Makes the tile of a config in which each value by itself is legal. */
void hopper_tile_make(const struct gemm *v, const struct record *config, struct hopper_tile *t);
/* hopper_tile_make() with values already looked up. */
void hopper_tile_of(const struct gemm *v, const struct hopper_values *h, struct hopper_tile *t);

/* Number of thread blocks that share an operand; 1: no operand is shared. */
static inline int hopper_sharers(const struct hopper_tile *t)
{
    return t->cluster_r * t->cluster_c;
}

/* True if consumers only stage the output, and a warp of the producer stores it by TMA (SENDS in
 * hopper/params.cu): forward and dX of fp8. `v`: the twin. */
static inline bool hopper_sends(const struct gemm *v, const struct hopper_tile *t)
{
    return t->scales != HOPPER_NO_SCALES && t->tma_store && v->mode != GEMM_DW && !t->gather &&
           !t->swap_ab;
}

/* Number of places in the ring of operands: stages, or half stages where stage_rows is half a
 * block. */
static inline int hopper_places(const struct hopper_tile *t)
{
    return t->stage_rows > 0 ? t->stages * (HOPPER_DEPTH / t->stage_rows) : t->stages;
}

/* The tiles of a cluster: how many lie below each other in the output; how many side by side. */
static inline int hopper_rows_together(const struct hopper_tile *t)
{
    return t->swap_ab ? t->cluster_c : t->cluster_r;
}

static inline int hopper_cols_together(const struct hopper_tile *t)
{
    return t->swap_ab ? t->cluster_r : t->cluster_c;
}

static inline int hopper_grain(const struct hopper_tile *t)
{
    return t->swap_ab && hopper_sharers(t) > 1 ? HOPPER_GRAIN_PAIRED : HOPPER_GRAIN;
}

static inline int hopper_tile_cols(const struct hopper_tile *t)
{
    return t->swap_ab ? t->r : t->c;
}

/* l2_ahead where the config leaves the parameter out: depends on the tile, its loaders and the
 * order of experts. */
int hopper_usual_ahead(const struct gemm *v, const struct hopper_tile *t);

/* Columns of the output in a slab. A slab is 128 bytes wide. */
static inline int hopper_slab_cols(const struct gemm *v)
{
    return 128 / (int)dtype_size(v->out);
}

/* schedule=deferred: the number of 64 x 64 pieces that each consumer keeps in registers until the
 * next tile is multiplied. */
int hopper_kept(const struct hopper_tile *t);

/* True if threads write a tile's rows sooner than TMA does: deferred tiles, and the two tiles of a
 * cluster, which share weights. Not measured for dense products. */
bool hopper_threads_write(const struct gemm *v, const struct hopper_tile *t);

/* True if two slabs of the output (256 bytes of each row) can be stored at once. */
bool hopper_can_pair(const struct gemm *v, const struct hopper_tile *t);

/* True if `loaders` warps can load blocks in turn (hopper/producer.cu gives the limits). */
bool hopper_loaders_fit(const struct hopper_tile *t, int loaders);

/* In dW: the number of clusters of tiles of each expert; each thread block of a cluster has a
 * tile. */
static inline int64_t hopper_expert_turns(const struct gemm *v, const struct hopper_tile *t)
{
    const int64_t r = t->r * t->cluster_r, c = t->c * t->cluster_c;
    return (v->n + r - 1) / r * ((v->k + c - 1) / c);
}

/* Dynamic shared memory, as t->smem. */
int64_t hopper_shared_bytes(const struct gemm *v, const struct hopper_tile *t);

/* The number of blocks of 64 along the reduction; 0 in dW, where each expert has its own number. */
int64_t hopper_depth_blocks(const struct gemm *v);

/* The values of tunables that are words; each list ends with NULL. */
extern const char *const hopper_schedules[],
    *const hopper_clusters[], *const hopper_rasters[], *const hopper_orders[],
                                                           *const hopper_evictions[],
                                                               *const hopper_schedulers[];

/* Add a tunable to a space. `no` and `yes`: whether false and true are in the space. */
void hopper_add_texts(struct param out[], uint32_t *n, const char *name, bool run_time,
                      const char *const values[], const char *help);
void hopper_add_bool(struct param out[], uint32_t *n, const char *name, bool no, bool yes,
                     const char *help);
/* The last tunables, which both targets have: of loads, stores and the order of tiles. A contiguous
 * operand comes by TMA, and a gathered operand cannot. Users know the parameters of loads, so each
 * is in the space, with a single value. `copies`: permute_copy is a tunable, too. */
void hopper_add_common(const struct gemm *v, bool copies, struct param out[], uint32_t *n);
/* Adds NUM_KSPLIT where a launch can have few tiles. In other spaces three more values would make
 * the walk over the space four times as long. */
void hopper_add_split(const struct gemm *v, const struct device_info *info, struct param out[],
                      uint32_t *n);

/* The rules of a target for single values; both targets share all other rules. */
struct hopper_value_rules {
    const char *target;                /* for messages */
    struct int_rule roles[GEMM_ROLES]; /* of the tile's sides */
    struct int_rule swapped_rows;      /* with swap_ab, of the routed rows */
    const char *const *schedules;
};
/* Check each value by itself, and whether the mode has the value's parameter. */
int hopper_check_values(const struct gemm *v, const struct hopper_values *h,
                        const struct hopper_value_rules *rules, struct rejection *why);
int hopper_check_mode(const struct gemm *v, const struct hopper_values *h, struct rejection *why);

/* The number of stages, as many as the space has, that fit beside `staging` buffers. */
int hopper_fit_stages(const struct gemm *v, const struct hopper_tile *t,
                      const struct device_info *info, int staging);
/* The number of tiles of r x c if all experts have equally many rows. */
int64_t hopper_expect_tiles(const struct gemm *v, int r, int c);
/* True if NUM_KSPLIT = `ksplit` can help tiles of r x c: with half as many parts of each sum, a
 * launch has fewer thread blocks than the device has SMs. */
bool hopper_split_pays(const struct gemm *v, const struct device_info *info, int r, int c,
                       int ksplit);
/* True if experts have enough rows for schedule=staggered. */
bool hopper_stagger_pays(const struct gemm *v);
/* True if experts have enough rows for schedule=deferred, and not too many. */
bool hopper_defer_pays(const struct gemm *v);
/* True if experts have enough rows for two thread blocks to share weights. */
bool hopper_pair_pays(const struct gemm *v);

/* Begins a config: the tile's rows, columns and block of the sum, warps, stages, schedule. */
void hopper_put_tile(const struct gemm *v, const int size[GEMM_ROLES], int warps, int stages,
                     const char *schedule, struct record *config);

bool hopper_supports(const struct device_info *info);
int hopper_takes(const struct problem *p, const struct device_info *info, struct rejection *why);
uint32_t hopper_tunables(const struct problem *p, const struct device_info *info,
                         struct param out[PARAMS_MAX]);
int hopper_check(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
void hopper_exactness(const struct problem *p, const struct record *config, struct exactness *out);
int hopper_worth(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
int hopper_choose(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err);
double hopper_predict(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w);
int hopper_variant(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err);
int hopper_plan(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err);

#endif
