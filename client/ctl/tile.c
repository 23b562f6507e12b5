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
enum { HOPPER_DEPTH = 64, PORTABLE_DEPTH_LEAST = 32, PORTABLE_DEPTH_MOST = 128, GROUP_DEFAULT = 8 };

/* ---- ours to theirs ------------------------------------------------------------------------- */

/* Parameters that struct tile has, or that the code below checks. */
static const char told[] =
    "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,GROUP_SIZE_M,NUM_KSPLIT,permute_x,"
    "permute_y,fuse_mul_post,use_tma_load_x,use_tma_load_w,use_tma_load_dy,use_tma_store,permute_"
    "copy,cluster_shape_mn,flatten";

static bool read_sizes(const json_t *config, struct tile *out, char why[WHY_MAX])
{
    const struct {
        const char *name;
        int64_t *to;
        bool block;
    } sizes[] = {{"BLOCK_SIZE_M", &out->m, true},
                 {"BLOCK_SIZE_N", &out->n, true},
                 {"BLOCK_SIZE_K", &out->k, true},
                 {"num_warps", &out->warps, false},
                 {"num_stages", &out->stages, false}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const json_t *v = json_object_get(config, sizes[i].name);
        if (!json_is_integer(v)) {
            snprintf(why, WHY_MAX, "its kernel has no %s", sizes[i].name);
            return false;
        }
        int64_t x = *sizes[i].to = json_integer_value(v);
        if (sizes[i].block && (x < BLOCK_LEAST || (x & (x - 1)))) {
            snprintf(why, WHY_MAX, "%s=%lld: their blocks are powers of two from %d on",
                     sizes[i].name, (long long)x, BLOCK_LEAST);
            return false;
        }
    }
    return true;
}

static bool read_switches(const json_t *config, struct tile *out, char why[WHY_MAX])
{
    json_int_t split = field_int(config, "NUM_KSPLIT");
    const char *cluster = field_string(config, "cluster_shape_mn");
    const char *schedule = field_string(config, "schedule");
    const json_t *store = json_object_get(config, "use_tma_store");
    if (cluster && strcmp(cluster, "1x1") != 0) {
        snprintf(why, WHY_MAX, "cluster_shape_mn=%.32s: they have no clusters", cluster);
    } else if (field_is_true(config, "permute_copy")) {
        snprintf(why, WHY_MAX, "permute_copy=true: they do not gather in a kernel of its own");
    } else {
        /* In pingpong each warpgroup has a tile; otherwise those that do not load share one. */
        bool pingpong = schedule && strcmp(schedule, "pingpong") == 0;
        out->warps = pingpong ? PINGPONG_WARPS : out->warps - (schedule ? LOADING_WARPS : 0);
        out->group = field_int(config, "GROUP_SIZE_M");
        out->split = split > 0 ? split : 1;
        out->tma_store = store ? json_is_true(store) : -1;
        return true;
    }
    return false;
}

bool tile_of_config(const json_t *config, struct tile *out, json_t *left_out, char why[WHY_MAX])
{
    *out = (struct tile){.split = 1, .tma_store = -1};
    if (!read_sizes(config, out, why) || !read_switches(config, out, why)) {
        return false;
    }
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)config, name, v) {
        if (!list_has(told, name)) {
            notice_count(left_out, name, 1);
        }
    }
    return true;
}

/* ---- theirs to ours ------------------------------------------------------------------------- */

/* Each returns a block size of the tile: of the dimension that the mode sums over, of the output's
 * rows, and of the output's columns. */
static int64_t *tile_get_depth(struct tile *t, const char *mode)
{
    return strcmp(mode, "dX") == 0 ? &t->n : strcmp(mode, "dW") == 0 ? &t->m : &t->k;
}

static int64_t *tile_get_rows(struct tile *t, const char *mode)
{
    return strcmp(mode, "dW") == 0 ? &t->n : &t->m;
}

static int64_t *cols_of(struct tile *t, const char *mode)
{
    return strcmp(mode, "forward") == 0 ? &t->n : &t->k;
}

/* Values of a kernel's parameter from `least` to `most`, by `step`; step 0: powers of two. */
struct range {
    int64_t least, most, step;
};
static const struct values {
    struct range rows, cols, warps, group, split;
} portable_values = {{16, 256, 0}, {32, 256, 0}, {4, 8, 0}, {1, 32, 0}, {1, 1, 1}},
  hopper_values = {{64, 256, 64}, {64, 256, 64}, {4, 8, 4}, {1, 64, 1}, {1, 8, 0}};

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

/* Sets the block size of the sum (depth). Changes the stages to keep the bytes in flight. */
static void set_depth(struct tile *t, const char *mode, int64_t depth)
{
    int64_t *is = tile_get_depth(t, mode);
    t->stages = t->stages * *is / depth;
    *is = depth;
}

static json_t *blocks_of(const struct tile *t)
{
    return json_pack("{sI, sI, sI, sI, sI}", "BLOCK_SIZE_M", (json_int_t)t->m, "BLOCK_SIZE_N",
                     (json_int_t)t->n, "BLOCK_SIZE_K", (json_int_t)t->k, "num_stages",
                     (json_int_t)t->stages, "GROUP_SIZE_M",
                     (json_int_t)(t->group > 0 ? t->group : GROUP_DEFAULT));
}

static void add_hopper(json_t *out, const struct tile *t)
{
    static const char *const schedules[] = {"cooperative", "pingpong"};
    for (size_t i = 0; i < (t->split > 1 ? 1 : COUNT(schedules)); i++) {
        bool pingpong = i == 1;
        int64_t warps = pingpong ? 2 * PINGPONG_WARPS + LOADING_WARPS : t->warps + LOADING_WARPS;
        json_t *config = blocks_of(t);
        json_object_set_new(config, "num_warps", json_integer(warps));
        json_object_set_new(config, "schedule", json_string(schedules[i]));
        json_object_set_new(config, "NUM_KSPLIT", json_integer(t->split));
        if (t->split > 1) {
            /* With a split reduction, threads add up partial sums: the kernel has no store by TMA,
             * and only the static scheduler. */
            json_object_set_new(config, "use_tma_store", json_false());
            json_object_set_new(config, "tile_scheduler", json_string("static"));
        } else if (t->tma_store >= 0) {
            json_object_set_new(config, "use_tma_store", json_boolean(t->tma_store));
        }
        json_array_append_new(out, config);
    }
}

static void add_portable(json_t *out, const struct tile *t)
{
    json_t *config = blocks_of(t);
    json_object_set_new(config, "num_warps", json_integer(t->warps));
    json_array_append_new(out, config);
}

/* A warp of the portable kernel multiplies at least 16 rows by 32 columns. */
static void fill_warps(struct tile *t, const char *mode)
{
    int64_t *rows = tile_get_rows(t, mode), *cols = cols_of(t, mode);
    const struct values *v = &portable_values;
    while (*rows / v->rows.least * (*cols / v->cols.least) < t->warps && *cols < v->cols.most) {
        if (t->warps > v->warps.least) {
            t->warps = v->warps.least;
        } else {
            *cols *= 2;
        }
    }
}

static void count_changes(const struct tile *a, const struct tile *b, json_t *changed)
{
    const struct {
        const char *name;
        bool differs;
    } values[] = {{"BLOCK_SIZE_M", a->m != b->m},
                  {"BLOCK_SIZE_N", a->n != b->n},
                  {"BLOCK_SIZE_K", a->k != b->k},
                  {"num_warps", a->warps != b->warps},
                  {"GROUP_SIZE_M", a->group > 0 && a->group != b->group},
                  {"NUM_KSPLIT", a->split != b->split}};
    for (size_t i = 0; i < COUNT(values); i++) {
        if (values[i].differs) {
            notice_count(changed, values[i].name, 1);
        }
    }
}

/* The nearest tile that the target's kernels have. */
static struct tile tile_nearest(const struct tile *t, const char *mode, bool hopper)
{
    const struct values *v = hopper ? &hopper_values : &portable_values;
    struct tile near = *t;
    int64_t *const depth = tile_get_depth(&near, mode);
    *tile_get_rows(&near, mode) = tile_find_nearest(*tile_get_rows(&near, mode), &v->rows);
    *cols_of(&near, mode) = tile_find_nearest(*cols_of(&near, mode), &v->cols);
    near.warps = tile_find_nearest(t->warps, &v->warps);
    near.group = t->group > 0 ? tile_find_nearest(t->group, &v->group) : 0;
    near.split = tile_find_nearest(t->split, &v->split);
    const struct range depths = {hopper ? HOPPER_DEPTH : PORTABLE_DEPTH_LEAST,
                                 hopper ? HOPPER_DEPTH : PORTABLE_DEPTH_MOST, 0};
    set_depth(&near, mode, tile_find_nearest(*depth, &depths));
    if (!hopper) {
        fill_warps(&near, mode);
    }
    return near;
}

json_t *tile_configs(const struct tile *t, const char *target, const char *mode, json_t *changed)
{
    json_t *out = json_array();
    bool hopper = strcmp(target, "hopper") == 0;
    if (!hopper && strcmp(target, "portable") != 0) {
        return out;
    }
    struct tile near = tile_nearest(t, mode, hopper);
    count_changes(t, &near, changed);
    near.stages = near.stages > STAGES_MOST    ? STAGES_MOST
                  : near.stages < STAGES_LEAST ? STAGES_LEAST
                                               : near.stages;
    for (; near.stages >= STAGES_LEAST; near.stages--) {
        (hopper ? add_hopper : add_portable)(out, &near);
    }
    return out;
}
