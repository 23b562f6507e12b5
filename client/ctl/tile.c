/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd's configs as tiles, and tiles as configs of gemmd's kernels. A tile has the parameters that
 * all block-tiled kernels share: three blocks, warps that multiply one tile, stages. Parameters
 * that only steer gemmd's kernel (the order of tiles, output buffers) are left out and counted. A
 * config that needs more than other kernels can do has no counterpart.
 *
 * In the other direction a tile is a wish: each value becomes the nearest value of the kernel, and
 * a changed block of the reduction changes the stages, so that as many bytes are in flight. Further
 * configs follow with ever fewer stages, since only the daemon knows which of them fit.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { BLOCK_LEAST = 16, LOADING_WARPS = 4, PINGPONG_WARPS = 4, STAGES_LEAST = 2, STAGES_MOST = 8 };
enum { GROUP_DEFAULT = 8 };

enum tile_param { BLOCK_M, BLOCK_N, BLOCK_K, WARPS, GROUP, SPLIT, STAGES, PARAMS };
static const char *const names[PARAMS] = {
    [BLOCK_M] = "BLOCK_SIZE_M", [BLOCK_N] = "BLOCK_SIZE_N", [BLOCK_K] = "BLOCK_SIZE_K",
    [WARPS] = "num_warps",      [GROUP] = "GROUP_SIZE_M",   [SPLIT] = "NUM_KSPLIT",
    [STAGES] = "num_stages",
};

/* ---- ours to theirs ------------------------------------------------------------------------- */

/* Parameters that a tile expresses, or that the code below checks; others are counted as left out.
 */
static const char told[] =
    "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,GROUP_SIZE_M,NUM_KSPLIT,permute_x,"
    "permute_y,fuse_mul_post,use_tma_load_x,use_tma_load_w,use_tma_load_dy,use_tma_store,permute_"
    "copy,cluster_shape_mn,flatten";

static bool tile_check_config(const json_t *config, char why[WHY_MAX])
{
    static const enum tile_param sizes[] = {BLOCK_M, BLOCK_N, BLOCK_K, WARPS, STAGES};
    const char *cluster = field_string(config, "cluster_shape_mn");
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const char *name = names[sizes[i]];
        const long long x = field_int(config, name);
        if (!json_is_integer(json_object_get(config, name))) {
            snprintf(why, WHY_MAX, "its kernel has no %s", name);
            return false;
        }
        if (sizes[i] <= BLOCK_K && (x < BLOCK_LEAST || (x & (x - 1)))) {
            snprintf(why, WHY_MAX, "%s=%lld: their blocks are powers of two from %d on", name, x,
                     BLOCK_LEAST);
            return false;
        }
    }
    if (cluster && strcmp(cluster, "1x1") != 0) {
        snprintf(why, WHY_MAX, "cluster_shape_mn=%.32s: they have no clusters", cluster);
        return false;
    }
    if (field_is_true(config, "permute_copy")) {
        snprintf(why, WHY_MAX, "permute_copy=true: they do not gather in a kernel of its own");
        return false;
    }
    return true;
}

json_t *tile_of_config(const json_t *config, json_t *left_out, char why[WHY_MAX])
{
    if (!tile_check_config(config, why)) {
        return NULL;
    }
    json_t *tile = json_object();
    const char *schedule = field_string(config, "schedule");
    notices_add_unknown(left_out, config, told);
    for (int i = 0; i < PARAMS; i++) {
        json_object_set_new(tile, names[i], json_integer(field_int(config, names[i])));
    }
    if (schedule) { /* counts the warps that multiply a tile: in pingpong those of one warpgroup */
        const bool pingpong = strcmp(schedule, "pingpong") == 0;
        json_object_set_new(tile, names[WARPS],
                            json_integer(pingpong
                                             ? PINGPONG_WARPS
                                             : field_int(config, names[WARPS]) - LOADING_WARPS));
    }
    if (field_int(config, names[SPLIT]) <= 0) {
        json_object_set_new(tile, names[SPLIT], json_integer(1));
    }
    json_object_set(tile, "use_tma_store", json_object_get(config, "use_tma_store"));
    return tile;
}

/* ---- theirs to ours ------------------------------------------------------------------------- */

/* A tile as a struct, while tile_configs() changes its values. */
struct tile {
    int64_t v[PARAMS];           /* GROUP 0: not given */
    const json_t *use_tma_store; /* borrowed; NULL: not given */
};

static struct tile tile_read(const json_t *from)
{
    struct tile t = {.use_tma_store = json_object_get(from, "use_tma_store")};
    for (int i = 0; i < PARAMS; i++) {
        t.v[i] = field_int(from, names[i]);
    }
    t.v[SPLIT] += t.v[SPLIT] == 0;
    t.v[STAGES] += t.v[STAGES] == 0;
    return t;
}

/* The blocks of the output's rows and columns, and of the dimension that the mode sums over. */
struct tile_mode {
    const char *name;
    enum tile_param rows, columns, depth;
};

static const struct tile_mode *tile_find_mode(const char *name)
{
    static const struct tile_mode modes[] = {{"dX", BLOCK_M, BLOCK_K, BLOCK_N},
                                             {"dW", BLOCK_N, BLOCK_K, BLOCK_M},
                                             {"forward", BLOCK_M, BLOCK_N, BLOCK_K}};
    const struct tile_mode *m = modes;
    while (m < &modes[COUNT(modes) - 1] && strcmp(m->name, name) != 0) {
        m++;
    }
    return m;
}

/* Values of a kernel's parameter from `least` to `most`, by `step`; step 0: powers of two. */
struct range {
    int64_t least, most, step;
};
static const struct kernels {
    const char *target;
    struct range rows, cols, depth, warps, group, split;
    int schedules; /* of `schedules` below; 0: the kernels have no such parameter */
} kernels[] = {
    {"portable", {16, 256, 0}, {32, 256, 0}, {32, 128, 0}, {4, 8, 0}, {1, 32, 0}, {1, 1, 1}, 0},
    {"hopper", {64, 256, 64}, {64, 256, 64}, {64, 64, 0}, {4, 8, 4}, {1, 64, 1}, {1, 8, 0}, 2},
    {"hopper_fp8", {64, 256, 0}, {64, 256, 64}, {128, 128, 0}, {4, 8, 4}, {1, 64, 1}, {1, 8, 0}, 1},
};
static const char *const schedules[] = {"cooperative", "pingpong"};

/* The value of the range nearest to v. Of two equally near values, the smaller, which needs less of
 * the device. */
static int64_t tile_find_nearest(int64_t v, const struct range *r)
{
    int64_t below = r->least, above = r->least;
    while (above < v && above < r->most) {
        below = above;
        above = r->step ? above + r->step : 2 * above;
    }
    return above < v || above - v < v - below ? above : below;
}

static json_t *tile_make_config(const struct tile *t, int64_t warps)
{
    json_t *config = json_object();
    for (int i = 0; i < PARAMS; i++) {
        json_object_set_new(config, names[i], json_integer(t->v[i]));
    }
    json_object_set_new(config, names[WARPS], json_integer(warps));
    if (t->v[GROUP] == 0) {
        json_object_set_new(config, names[GROUP], json_integer(GROUP_DEFAULT));
    }
    return config;
}

static void add_hopper(json_t *out, const struct tile *t, const struct kernels *k)
{
    const bool split = t->v[SPLIT] > 1;
    for (int i = 0; i < (split ? 1 : k->schedules); i++) {
        const int64_t multiplying = i == 1 ? 2 * PINGPONG_WARPS : t->v[WARPS];
        json_t *config = tile_make_config(t, multiplying + LOADING_WARPS);
        json_object_set_new(config, "schedule", json_string(schedules[i]));
        if (split) {
            /* With a split reduction, threads add up partial sums: the kernel has no store by TMA,
             * and only the static scheduler. */
            json_object_set_new(config, "use_tma_store", json_false());
            json_object_set_new(config, "tile_scheduler", json_string("static"));
        } else if (t->use_tma_store) {
            json_object_set(config, "use_tma_store", (json_t *)(uintptr_t)t->use_tma_store);
        }
        json_array_append_new(out, config);
    }
}

static void add_portable(json_t *out, const struct tile *t)
{
    json_t *config = tile_make_config(t, t->v[WARPS]);
    json_object_del(config, names[SPLIT]);
    json_array_append_new(out, config);
}

/* A warp of the portable kernel multiplies at least 16 rows by 32 columns. For a tile with more
 * warps than that allows: takes the fewest warps, then doubles the columns. */
static void fill_warps(struct tile *t, const struct tile_mode *mode)
{
    const int64_t rows = t->v[mode->rows];
    int64_t *columns = &t->v[mode->columns], *warps = &t->v[WARPS];
    const struct kernels *v = &kernels[0];
    while (rows / v->rows.least * (*columns / v->cols.least) < *warps && *columns < v->cols.most) {
        if (*warps > v->warps.least) {
            *warps = v->warps.least;
        } else {
            *columns *= 2;
        }
    }
}

/* The nearest tile that the target's kernels have. */
static struct tile tile_nearest(const struct tile *t, const struct tile_mode *mode,
                                const struct kernels *v)
{
    const struct {
        enum tile_param at;
        const struct range *legal;
    } params[] = {{mode->rows, &v->rows}, {mode->columns, &v->cols}, {mode->depth, &v->depth},
                  {WARPS, &v->warps},     {GROUP, &v->group},        {SPLIT, &v->split}};
    struct tile near = *t;
    for (size_t i = 0; i < COUNT(params); i++) {
        near.v[params[i].at] = tile_find_nearest(t->v[params[i].at], params[i].legal);
    }
    near.v[GROUP] = t->v[GROUP] > 0 ? near.v[GROUP] : 0;
    /* as many stages as keep the tile's number of bytes in flight (being loaded) */
    near.v[STAGES] = t->v[STAGES] * t->v[mode->depth] / near.v[mode->depth];
    if (!v->schedules) {
        fill_warps(&near, mode);
    }
    return near;
}

json_t *tile_configs(const json_t *wish, const char *target, const char *mode, json_t *changed)
{
    json_t *out = json_array();
    const struct kernels *k = kernels, *end = kernels + COUNT(kernels);
    while (k < end && strcmp(k->target, target) != 0) {
        k++;
    }
    if (k == end) {
        return out;
    }
    const struct tile t = tile_read(wish);
    struct tile near = tile_nearest(&t, tile_find_mode(mode), k);
    for (int i = 0; i < STAGES; i++) {
        if (near.v[i] != t.v[i]) {
            notice_count(changed, names[i], 1);
        }
    }
    int64_t *stages = &near.v[STAGES];
    *stages = *stages > STAGES_MOST ? STAGES_MOST : *stages < STAGES_LEAST ? STAGES_LEAST : *stages;
    for (; *stages >= STAGES_LEAST; (*stages)--) {
        if (k->schedules) {
            add_hopper(out, &near, k);
        } else {
            add_portable(out, &near);
        }
    }
    return out;
}
