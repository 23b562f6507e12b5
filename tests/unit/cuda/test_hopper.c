/* SPDX-License-Identifier: Apache-2.0 */
/* The target "hopper": legal configs, the error messages for illegal configs, the analytic default,
 * and the planned launches. No GPU, no CUDA. test_emulated.c shows the results of the launches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/host/params.h"
#include "tests/unit/cuda/common.h"

static const struct device_info h200 = {H200_FIELDS};

#define QWEN              "M=32768 N=1536 K=2048 experts=128 topk=8"
#define TILE(m, n, k)     "BLOCK_SIZE_M=" #m " BLOCK_SIZE_N=" #n " BLOCK_SIZE_K=" #k
#define PINGPONG          "num_warps=12 schedule=pingpong num_stages=4 staging_buffers=2"
#define GOOD              TILE(128, 192, 64) " " PINGPONG
#define DENSE             "M=64 N=1024 K=1024"
#define SMALL             "num_warps=8 schedule=cooperative num_stages=8 use_tma_store=false"
#define PAIR_OF_CONSUMERS "num_warps=12 schedule=cooperative num_stages=4"
#define SPLIT(parts)      TILE(64, 64, 64) " " SMALL " NUM_KSPLIT=" #parts
#define PAIRED            TILE(64, 192, 128) " " PINGPONG
#define STAGGERED         "num_warps=12 schedule=staggered num_stages=4 staging_buffers=2"
#define DEFERRED          "num_warps=12 schedule=deferred num_stages=4"
#define DEFERRED_OF(m, n)                                                                          \
    TILE(m, n, 64) " num_warps=12 schedule=deferred swap_ab=true tile_scheduler=dynamic"
#define SWAPPED "num_warps=12 schedule=cooperative num_stages=4 swap_ab=true"

/* ---- legality ------------------------------------------------------------------------------- */

static const struct refusal {
    const char *problem, *config;
    int code;
    const char *rule, *words;
} refusals[] = {
    {QWEN " mode=forward", "BLOCK_SIZE_M=128", ERROR_INVALID, "missing_parameter", "BLOCK_SIZE_N"},
    {QWEN " mode=forward", TILE(128, 128, 64) " num_warps=8 num_stages=3", ERROR_INVALID,
     "missing_parameter", "schedule is missing"},
    {QWEN " mode=forward", GOOD " waves=2", ERROR_INVALID, "unknown_parameter", "waves"},
    {QWEN " mode=forward", GOOD " NUM_KSPLIT=2", ERROR_INVALID, "split_schedule", "cooperative"},
    {DENSE " mode=forward", SPLIT(16), ERROR_INVALID, "parameter_value", "1, 2, 4 or 8"},
    {DENSE " mode=forward", SPLIT(3), ERROR_INVALID, "parameter_value", "1, 2, 4 or 8"},
    {DENSE " mode=forward", SPLIT(0), ERROR_INVALID, "parameter_value", "1, 2, 4 or 8"},
    {DENSE " mode=dW", SPLIT(2), ERROR_INVALID, "split_mode", "forward and dX"},
    {DENSE " mode=dX", SPLIT(2) " tile_scheduler=dynamic", ERROR_INVALID, "split_schedule",
     "tile_scheduler=static"},
    {DENSE " mode=dX",
     TILE(64, 64, 64) " num_warps=8 schedule=cooperative num_stages=4 NUM_KSPLIT=2", ERROR_INVALID,
     "split_store", "set it to false"},
    {"M=64 N=1024 K=192 mode=forward", SPLIT(4), ERROR_INVALID, "split_depth", "take up to 3"},
    {"M=64 N=192 K=1024 mode=dX", SPLIT(4), ERROR_INVALID, "split_depth", "over 3 blocks"},
    {DENSE " mode=forward",
     TILE(256, 192, 64) " num_warps=12 schedule=cooperative num_stages=2 use_tma_store=false "
                        "NUM_KSPLIT=2",
     ERROR_RESOURCE, "shared_memory", "smaller tile"},
    {QWEN " mode=forward", GOOD " cluster_shape_mn=4x1", ERROR_INVALID, "parameter_value",
     "takes 1x1, 2x1 or 1x2"},
    {QWEN " mode=forward", GOOD " cluster_shape_mn=2x1", ERROR_INVALID, "cluster_mode",
     "swap_ab=true"},
    {QWEN " mode=dX", TILE(160, 64, 256) " " SWAPPED " cluster_shape_mn=1x2", ERROR_INVALID,
     "cluster_mode", "is 2x1"},
    {QWEN " mode=forward", TILE(64, 256, 64) " " SWAPPED " cluster_shape_mn=2x1", ERROR_INVALID,
     "cluster_tile", "more than 64 rows"},
    {QWEN " mode=dX",
     TILE(160, 64,
          64) " num_warps=8 schedule=cooperative num_stages=4 swap_ab=true cluster_shape_mn=2x1",
     ERROR_INVALID, "cluster_tile", "128 or 256 columns"},
    {QWEN " mode=forward permute_x=true",
     TILE(144, 256, 64) " " DEFERRED " swap_ab=true cluster_shape_mn=2x1 tile_scheduler=dynamic",
     ERROR_RESOURCE, "registers", "take static, 1x1 or 160 rows"},
    {QWEN " mode=dW permute_x=true", PAIRED " cluster_shape_mn=2x1", ERROR_INVALID,
     "cluster_gather", "shares x, which is gathered"},
    {QWEN " mode=dW",
     TILE(64, 128, 64) " num_warps=12 schedule=pingpong num_stages=4 "
                       "cluster_shape_mn=2x1",
     ERROR_INVALID, "cluster_halves", "128 or 256"},
    {QWEN " mode=forward", GOOD " raster=diagonal", ERROR_INVALID, "parameter_value", "columns"},
    {QWEN " mode=forward", GOOD " skip_rows=2", ERROR_INVALID, "flag_type", "skip_rows"},
    {QWEN " mode=forward", GOOD " use_tma_load_w=false", ERROR_INVALID, "tma_loads", "by TMA only"},
    {QWEN " mode=forward", GOOD " permute_copy=true", ERROR_INVALID, "permute_copy", "no operand"},
    {"M=2794144 N=64 K=65536 experts=179 topk=4 permute_x=true mode=forward", GOOD, ERROR_INVALID,
     "gathered_size", "64 GiB"},
    {QWEN " mode=forward", GOOD " expert_order=size", ERROR_INVALID, "expert_order", "dW"},
    {QWEN " mode=forward", GOOD " store_evict_first=true", ERROR_INVALID, "store_evict_first",
     "is for dW"},
    {QWEN " mode=forward", GOOD " w_eviction=evict_last", ERROR_INVALID, "parameter_value",
     "evict_normal or evict_unchanged"},
    {QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG " w_eviction=evict_first", ERROR_INVALID,
     "w_eviction", "forward and dX"},
    {QWEN " mode=forward", GOOD " l2_ahead=65", ERROR_INVALID, "parameter_value", "0 to 64"},
    {QWEN " mode=forward permute_x=true", GOOD " l2_ahead=1", ERROR_INVALID, "l2_ahead",
     "permute_copy=true"},
    {QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG " l2_ahead=6", ERROR_INVALID, "l2_ahead",
     "power of two"},
    {QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG " l2_ahead=4 expert_order=size",
     ERROR_INVALID, "l2_ahead", "expert_order=index"},
    {QWEN " mode=forward", GOOD " store_slabs=2", ERROR_INVALID, "store_slabs", "is for dW"},
    {QWEN " mode=dW", TILE(64, 128, 128) " " PINGPONG " store_slabs=3", ERROR_INVALID,
     "parameter_value", "1 or 2"},
    {QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG " store_slabs=2", ERROR_INVALID,
     "store_slabs", "BLOCK_SIZE_K of 128"},
    {QWEN " mode=dW dtype_out=fp32",
     TILE(64, 128,
          128) " num_warps=12 schedule=pingpong num_stages=3 staging_buffers=1 store_slabs=2",
     ERROR_INVALID, "store_slabs", "an even number of staging_buffers"},
    {QWEN " mode=forward", GOOD " stage_rows=32", ERROR_INVALID, "stage_rows", "is for dW"},
    {QWEN " mode=dW", PAIRED " stage_rows=16", ERROR_INVALID, "parameter_value", "32 or 64"},
    {QWEN " mode=dW", PAIRED " stage_rows=48", ERROR_INVALID, "parameter_value", "32 or 64"},
    {QWEN " mode=dW", TILE(64, 256, 128) " " STAGGERED " stage_rows=32", ERROR_INVALID,
     "stage_rows", "other than staggered"},
    {QWEN " mode=forward", GOOD " load_warps=2", ERROR_INVALID, "load_warps", "is for dW"},
    {QWEN " mode=forward", GOOD " load_warps=5", ERROR_INVALID, "parameter_value", "1 to 4"},
    {QWEN " mode=dW permute_x=true", TILE(64, 128, 192) " " PINGPONG " load_warps=1", ERROR_INVALID,
     "load_warps", "all four gather"},
    {QWEN " mode=dW",
     TILE(64, 128, 192) " num_warps=12 schedule=pingpong num_stages=3 load_warps=4", ERROR_INVALID,
     "load_warps", "num_stages=3 and stage_rows=32: they take 6 places"},
    {QWEN " mode=dW",
     TILE(64, 128, 128) " num_warps=12 schedule=pingpong num_stages=5 load_warps=4", ERROR_INVALID,
     "load_warps", "divides"},
    {QWEN " mode=dW",
     TILE(64, 128, 128) " num_warps=12 schedule=pingpong num_stages=6 load_warps=4", ERROR_INVALID,
     "load_warps", "divides"},
    {QWEN " mode=dW",
     TILE(64, 256,
          128) " num_warps=12 schedule=cooperative num_stages=3 load_warps=4 cluster_shape_mn=2x1",
     ERROR_INVALID, "load_warps", "cluster_shape_mn"},
    {QWEN " mode=forward permute_x=true", GOOD " use_tma_load_x=true", ERROR_CONFLICT,
     "tma_load_x_excludes_permute_x", "gather"},
    {QWEN " mode=forward permute_y=true", GOOD " use_tma_store=true", ERROR_CONFLICT,
     "tma_store_excludes_permute_y", "scatter"},
    {QWEN " mode=forward permute_y=true", GOOD, ERROR_INVALID, "staging_without_tma",
     "set it to 1"},
    {QWEN " mode=forward dtype_in=fp32", GOOD, ERROR_INVALID, "dtype_in", "bf16 and fp16"},
    {QWEN " mode=dW accumulate=true", TILE(64, 128, 192) " " PINGPONG, ERROR_INVALID,
     "accumulate_fp32", "dtype_out=fp32"},
    {"mode=forward M=64 N=100 K=64", GOOD, ERROR_INVALID, "rows_16_bytes", "N is 100"},
    {QWEN " mode=forward", TILE(96, 192, 64) " " PINGPONG, ERROR_INVALID, "parameter_value",
     "BLOCK_SIZE_M=96"},
    {QWEN " mode=forward", TILE(128, 192, 128) " " PINGPONG, ERROR_INVALID, "parameter_value",
     "sums over"},
    {QWEN " mode=dW", TILE(128, 128, 192) " " PINGPONG, ERROR_INVALID, "parameter_value",
     "BLOCK_SIZE_M=128"},
    {QWEN " mode=forward", TILE(128, 192, 64) " num_warps=8 schedule=pingpong num_stages=4",
     ERROR_INVALID, "pingpong_warps", "num_warps=12"},
    {QWEN " mode=forward", TILE(64, 192, 64) " num_warps=12 schedule=cooperative num_stages=4",
     ERROR_INVALID, "rows_per_warpgroup", "64 rows"},
    {QWEN " mode=forward",
     TILE(64, 256, 64) " num_warps=8 schedule=cooperative num_stages=4 skip_rows=true",
     ERROR_INVALID, "skip_rows", "tiles of 64 rows"},
    {QWEN " mode=forward",
     TILE(128, 64, 64) " num_warps=12 schedule=cooperative num_stages=4 staging_buffers=4",
     ERROR_INVALID, "staging_too_many", "two tiles"},
    {QWEN " mode=dW", TILE(64, 256, 128) " " STAGGERED " cluster_shape_mn=2x1", ERROR_INVALID,
     "stagger_others", "1x1"},
    {QWEN " mode=forward", TILE(128, 256, 64) " " STAGGERED " swap_ab=true", ERROR_INVALID,
     "stagger_others", "swap_ab=false"},
    {QWEN " mode=forward", TILE(128, 128, 64) " " STAGGERED, ERROR_INVALID, "stagger_rows",
     "a tile of 256 rows"},
    {QWEN " mode=forward", GOOD " in_flight=2", ERROR_INVALID, "parameter_value", "0 or 1"},
    {"M=4096 N=1536 K=64 mode=forward", TILE(256, 128, 64) " " STAGGERED, ERROR_INVALID,
     "stagger_short", "there is one"},
    {QWEN " mode=forward permute_x=true",
     TILE(256, 192, 64) " num_warps=12 schedule=staggered num_stages=3 skip_rows=true",
     ERROR_RESOURCE, "registers", "skip_rows=false"},
    {QWEN " mode=forward", TILE(136, 256, 64) " " SWAPPED, ERROR_INVALID, "parameter_value",
     "multiple of 16"},
    {QWEN " mode=dW", TILE(64, 256, 128) " " DEFERRED, ERROR_INVALID, "deferred_mode",
     "is for forward and dX"},
    {QWEN " mode=forward permute_x=true", DEFERRED_OF(256, 128) " num_stages=3", ERROR_RESOURCE,
     "registers", "staging_buffers=2"},
    {QWEN " mode=forward permute_x=true", DEFERRED_OF(128, 256) " num_stages=3", ERROR_RESOURCE,
     "registers", "take static, or staging_buffers=2"},
    {QWEN " mode=forward", DEFERRED_OF(256, 128) " num_stages=3 staging_buffers=2", ERROR_RESOURCE,
     "registers", "a tile of 256 x 128 and staging_buffers=2"},
    {QWEN " mode=forward",
     DEFERRED_OF(176, 256) " num_stages=2 staging_buffers=2 cluster_shape_mn=2x1", ERROR_RESOURCE,
     "registers", "staging_buffers=1"},
    {QWEN " mode=dW", TILE(64, 256, 256) " " PINGPONG, ERROR_RESOURCE, "registers",
     "take cooperative or a smaller tile"},
    {QWEN " mode=forward", TILE(256, 256, 64) " num_warps=12 schedule=cooperative num_stages=2",
     ERROR_RESOURCE, "registers", "fit: take a smaller tile"},
    {"M=40960 N=1536 K=2048 experts=600 topk=8 mode=dW",
     TILE(64, 128, 128) " num_warps=12 schedule=pingpong num_stages=4 expert_order=size",
     ERROR_INVALID, "expert_order", "there are 600: take index"},
    {QWEN " mode=dW dtype_out=fp32",
     TILE(64, 128, 64) " num_warps=8 schedule=cooperative num_stages=4 staging_buffers=5",
     ERROR_INVALID, "staging_too_many", "two tiles"},
    {QWEN " mode=forward", TILE(128, 256, 64) " " DEFERRED, ERROR_INVALID, "deferred_swap",
     "swap_ab=true"},
    {QWEN " mode=forward",
     TILE(192, 256, 64) " num_warps=12 schedule=deferred num_stages=3 swap_ab=true", ERROR_RESOURCE,
     "registers", "192 sums"},
    {QWEN " mode=forward permute_x=true",
     TILE(192, 128, 64) " num_warps=8 schedule=deferred num_stages=3 swap_ab=true", ERROR_RESOURCE,
     "registers", "192 sums"},
    {QWEN " mode=forward", TILE(160, 96, 64) " " SWAPPED, ERROR_INVALID, "parameter_value",
     "BLOCK_SIZE_N=96"},
    {QWEN " mode=forward", TILE(160, 64, 64) " " SWAPPED, ERROR_INVALID, "rows_per_warpgroup",
     "64 columns"},
    {QWEN " mode=forward", TILE(160, 256, 64) " " SWAPPED " skip_rows=true", ERROR_INVALID,
     "skip_rows", "at most 15"},
    {QWEN " mode=forward", GOOD " swap_ab=1", ERROR_INVALID, "flag_type", "swap_ab"},
    {QWEN " mode=forward permute_x=true",
     TILE(192, 128, 64) " num_warps=12 schedule=pingpong "
                        "num_stages=4 use_tma_store=false",
     ERROR_RESOURCE, "registers", "permute_copy=true"},
    {QWEN " mode=forward", TILE(160, 256, 64) " " SWAPPED " tile_rows=176", ERROR_INVALID,
     "tile_rows", "BLOCK_SIZE_M=160"},
    {QWEN " mode=forward", TILE(160, 256, 64) " " SWAPPED " tile_rows=100", ERROR_INVALID,
     "parameter_value", "multiple of 16"},
    {QWEN " mode=forward", GOOD " tile_rows=64", ERROR_INVALID, "tile_rows", "leave it out"},
    {QWEN " mode=forward",
     TILE(160, 256, 64) " " SWAPPED " tile_scheduler=dynamic dynamic_rounds=2", ERROR_INVALID,
     "dynamic_rounds", "cluster_shape_mn=2x1"},
    {QWEN " mode=forward", TILE(160, 256, 64) " " SWAPPED " cluster_shape_mn=2x1 dynamic_rounds=2",
     ERROR_INVALID, "dynamic_rounds", "tile_scheduler=dynamic"},
    {QWEN " mode=forward",
     TILE(160, 256, 64) " " SWAPPED
                        " cluster_shape_mn=2x1 tile_scheduler=dynamic dynamic_rounds=65",
     ERROR_INVALID, "parameter_value", "0 to 64"},
    {DENSE " mode=forward", SPLIT(2) " swap_ab=true", ERROR_INVALID, "swap_split", "one of them"},
    {QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG " swap_ab=true", ERROR_INVALID, "swap_mode",
     "forward and dX"},
    {QWEN " mode=forward", TILE(192, 256, 64) " " SWAPPED, ERROR_RESOURCE, "shared_memory",
     "fewer stages"},
    {QWEN " mode=forward", TILE(256, 256, 64) " num_warps=12 schedule=cooperative num_stages=2",
     ERROR_RESOURCE, "registers", "256 sums"},
    {QWEN " mode=forward",
     TILE(128, 256, 64) " num_warps=12 schedule=cooperative num_stages=4 staging_buffers=4",
     ERROR_RESOURCE, "shared_memory", "fewer stages"},
};

static void test_check(void **state)
{
    (void)state;
    struct rejection why;
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        const struct refusal *f = &refusals[i];
        struct problem p = problem_of(f->problem);
        struct record config = config_of(f->config);
        if (hopper_check(&p, &config, &h200, &why) != 1) {
            fail_msg("%s: accepted", f->config);
        }
        if (why.code != f->code || strcmp(why.rule, f->rule) != 0 || !strstr(why.text, f->words)) {
            fail_msg("%s: %d %s: %s", f->config, why.code, why.rule, why.text);
        }
    }
}

/* Legal configs that differ in one parameter from refused configs: error messages advise the legal
 * configs, and searches use them. */
static void test_legal_neighbours_of_refused_configs(void **state)
{
    (void)state;
    static const char *const taken[][2] = {
        {" mode=forward permute_x=true", DEFERRED_OF(256, 128) " num_stages=3 staging_buffers=2"},
        {" mode=forward permute_x=true", DEFERRED_OF(256, 128) " num_stages=3 use_tma_store=false"},
        {" mode=forward permute_x=true",
         DEFERRED_OF(128, 256) " num_stages=3 cluster_shape_mn=2x1"},
        {" mode=forward permute_x=true", DEFERRED_OF(160, 256) " num_stages=4"},
        {" mode=forward", DEFERRED_OF(256, 128) " num_stages=3"},
        {" mode=forward",
         DEFERRED_OF(256, 128) " num_stages=3 staging_buffers=2 cluster_shape_mn=2x1"},
        {" mode=forward", DEFERRED_OF(176, 256) " num_stages=2 staging_buffers=2"},
        {" mode=dW dtype_out=fp32", /* a staging buffer of fp32 has 32 columns */
         TILE(64, 128, 64) " num_warps=8 schedule=cooperative num_stages=4 staging_buffers=4"},
    };
    struct rejection why;
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), QWEN "%s", taken[i][0]);
        struct problem p = problem_of(text);
        struct record config = config_of(taken[i][1]);
        if (hopper_check(&p, &config, &h200, &why)) {
            fail_msg("%s: %s", taken[i][1], why.text);
        }
    }
}

/* The bytes are exact: 4 stages of 40 KiB, 2 x 2 buffers of 16 KiB, barriers, tables of 128
 * experts. */
static void test_shared_memory(void **state)
{
    (void)state;
    struct rejection why;
    struct problem p = problem_of(QWEN " mode=forward");
    struct record config = config_of(GOOD);
    struct device_info small = h200;
    small.smem_optin = 4 * 40960 + 4 * 16384 + 64 + 257 * 4;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 0);
    small.smem_optin--;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 1);
    assert_string_equal(why.resource, "shared_memory");
    assert_int_equal(why.required, small.smem_optin + 1);
}

/* Each half of a stage needs two barriers. */
static void test_shared_memory_halves(void **state)
{
    (void)state;
    struct rejection why;
    struct problem p = problem_of(QWEN " mode=dW");
    struct record config = config_of(TILE(64, 128, 192) " " PINGPONG);
    struct device_info small = h200;
    small.smem_optin = 4 * 40960 + 4 * 16384 + 128 + 257 * 4;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 0);
    small.smem_optin--;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 1);
    assert_int_equal(why.required, small.smem_optin + 1);
}

/* A split tile needs room for all sums of the tile and two barriers; it needs no staging
 * buffers. */
static void test_shared_memory_split(void **state)
{
    (void)state;
    struct rejection why;
    struct problem p = problem_of(DENSE " mode=forward");
    struct record config = config_of(SPLIT(8));
    struct device_info small = h200;
    small.smem_optin = 8 * 16384 + 64 * 64 * 4 + 128 + 16 + 3 * 4;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 0);
    small.smem_optin--;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 1);
    assert_int_equal(why.required, small.smem_optin + 1);
}

/* With swap_ab a staging buffer holds 64 rows instead of all rows of a consumer warpgroup; shared
 * memory also has the place and the weight of each tile row. */
static void test_shared_memory_swapped(void **state)
{
    (void)state;
    struct rejection why;
    struct problem p = problem_of(QWEN " mode=forward permute_y=true fuse_mul_post=true");
    struct record config = config_of(TILE(160, 256, 64) " " SWAPPED " use_tma_store=false");
    struct device_info small = h200;
    small.smem_optin = 4 * (256 + 160) * 128 + 2 * 64 * 128 + 64 + 2 * 160 * (4 + 2) + 257 * 4;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 0);
    small.smem_optin--;
    assert_int_equal(hopper_check(&p, &config, &small, &why), 1);
    assert_int_equal(why.required, small.smem_optin + 1);
}

static void test_supports(void **state)
{
    (void)state;
    struct device_info other = h200;
    assert_true(grouped_gemm_hopper.supports(&h200));
    other.cc_major = 10;
    assert_false(grouped_gemm_hopper.supports(&other));
    assert_ptr_equal(family_target_find(&grouped_gemm_family, &h200, "hopper"),
                     &grouped_gemm_hopper);
    assert_null(family_target_find(&grouped_gemm_family, &other, "hopper"));
    assert_ptr_equal(family_target_find(&grouped_gemm_family, &h200, NULL), &grouped_gemm_hopper);
}

/* ---- the default ---------------------------------------------------------------------------- */

static void test_choose(void **state)
{
    (void)state;
    static const char *const problems[] = {
        QWEN " mode=forward",
        QWEN " mode=forward permute_x=true",
        QWEN " mode=forward permute_y=true fuse_mul_post=true",
        QWEN " mode=dX",
        QWEN " mode=dX permute_x=true",
        QWEN " mode=dX permute_y=true",
        QWEN " mode=dW",
        QWEN " mode=dW permute_x=true dtype_out=fp32 accumulate=true",
        QWEN " mode=dW permute_y=true",
        "M=8 N=1536 K=2048 experts=128 topk=8 mode=forward",
        "M=8192 N=8192 K=8192 mode=forward",
        "M=1 N=8 K=8 mode=dX",
        "M=2048 N=1024 K=1024 experts=1024 topk=2 mode=forward",
    };
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p = problem_of(problems[i]);
        struct record config;
        struct rejection why;
        struct error err = ERROR_NULL;
        if (hopper_choose(&p, &h200, &config, &err)) {
            fail_msg("%s: %s", problems[i], err.text);
        }
        if (hopper_check(&p, &config, &h200, &why)) {
            fail_msg("%s: %s", problems[i], why.text);
        }
        double us = hopper_predict(&p, &config, &h200, NULL);
        double floor = family_floor_us(&grouped_gemm_family, &p, &h200);
        if (!(us >= 0.9 * floor && us < 20 * floor + 100)) {
            fail_msg("%s: %g us, the floor is %g", problems[i], us, floor);
        }
    }
}

/* Hints and a caller's list may hold any config: an impossible config has no predicted time and
 * does no harm. */
static void test_predict_strange(void **state)
{
    (void)state;
    static const char *const modes[] = {"forward", "dX", "dW", "dW permute_x=true"};
    static const char *const configs[] = {
        "num_stages=4 num_warps=12",
        "BLOCK_SIZE_M=64 num_stages=4 num_warps=12 schedule=pingpong",
        "BLOCK_SIZE_M=64 BLOCK_SIZE_N=-64 BLOCK_SIZE_K=-64 num_stages=4 num_warps=12",
        "BLOCK_SIZE_M=128 BLOCK_SIZE_N=0 BLOCK_SIZE_K=0 num_stages=4 num_warps=8 load_warps=4",
    };
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "M=32768 N=1536 K=2048 experts=128 topk=8 mode=%s", modes[i]);
        const struct problem p = problem_of(text);
        for (size_t k = 0; k < sizeof(configs) / sizeof(configs[0]); k++) {
            const struct record config = config_of(configs[k]);
            assert_true(isnan(hopper_predict(&p, &config, &h200, NULL)));
        }
    }
}

/* ---- launches ------------------------------------------------------------------------------- */

static struct grouped_gemm_args args_for(const struct problem *p)
{
    struct gemm v;
    gemm_view(p, &v);
    return (struct grouped_gemm_args){
        .size = sizeof(struct grouped_gemm_args),
        .x = (void *)0x10000,
        .w = (void *)0x20000,
        .dy = (void *)0x30000,
        .out = (void *)0x40000,
        .m_sizes = (void *)0x50000,
        .gather_indices = (void *)0x60000,
        .m_sizes_dtype = DTYPE_INT32,
        .gather_dtype = DTYPE_INT32,
        .rows = v.m,
    };
}

static int plan_of(const char *problem, const char *config, struct grouped_gemm_args *args,
                   struct launch_plan *plan, struct error *err)
{
    struct problem p = problem_of(problem);
    struct record c = config_of(config);
    return hopper_plan(&p, &c, &h200, args, plan, err);
}

static void test_plan(void **state)
{
    (void)state;
    struct problem p = problem_of(QWEN " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct error err = ERROR_NULL;
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD, &args, &plan, &err), 0);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.workspace_bytes, 0);
    const struct launch *l = &plan.steps[0];
    assert_int_equal(l->grid[0], 132);
    assert_int_equal(l->block[0], 384);
    /* Expected tensor maps: X and W, each in whole boxes and in parts, and the output. */
    const struct {
        const void *base;
        uint32_t rows;
    } maps[] = {{args.x, 128}, {args.x, 64},  {args.x, 48},   {args.x, 32},
                {args.x, 16},  {args.w, 192}, {args.w, 64},   {args.w, 48},
                {args.w, 32},  {args.w, 16},  {args.out, 128}};
    assert_int_equal(l->n_maps, 11);
    for (uint32_t i = 0; i < l->n_maps; i++) {
        assert_ptr_equal(l->maps[i].base, maps[i].base);
        assert_int_equal(l->maps[i].box[1], maps[i].rows);
    }
    for (uint32_t i = 0; i < l->n_maps; i++) {
        assert_int_equal(l->maps[i].offset % TENSOR_MAP_ALIGN, 0);
    }
    struct hopper_params params;
    memcpy(&params, l->params, sizeof(params));
    assert_ptr_equal(params.m_sizes, args.m_sizes);
    assert_int_equal(params.ahead, 0);
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD " l2_ahead=3", &args, &plan, &err), 0);
    memcpy(&params, plan.steps[0].params, sizeof(params));
    assert_int_equal(params.ahead, 3);
    assert_int_equal(params.group, 1);
    /* 8 column tiles of 192 columns. */
    assert_int_equal((UINT64_C(23) * params.cols_mul) >> params.cols_shift, 2);
    assert_int_equal((UINT64_C(24) * params.cols_mul) >> params.cols_shift, 3);
    assert_int_equal(
        plan_of(QWEN " mode=forward", GOOD " GROUP_SIZE_M=16 raster=columns", &args, &plan, &err),
        0);
    memcpy(&params, plan.steps[0].params, sizeof(params));
    assert_int_equal(params.group, 8);
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD " GROUP_SIZE_M=16", &args, &plan, &err), 0);
    memcpy(&params, plan.steps[0].params, sizeof(params));
    assert_int_equal(params.group, 16);
    /* A single expert has all rows: the kernel reads no sizes before its first load. 200 rows are
     * two row tiles, so the group of 16 row tiles shrinks to 2. */
    args.rows = 200;
    assert_int_equal(plan_of(DENSE " mode=forward", GOOD " GROUP_SIZE_M=16", &args, &plan, &err),
                     0);
    memcpy(&params, plan.steps[0].params, sizeof(params));
    assert_null(params.m_sizes);
    assert_int_equal(params.group, 2);
    /* A grid smaller than the GPU: 8 rows are at most 8 row tiles, because each row may belong to
     * another expert, and a row tile has 8 tiles of columns. */
    args.rows = 8;
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD, &args, &plan, &err), 0);
    assert_int_equal(plan.steps[0].grid[0], 8 * 8);
    args.rows = 0;
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD, &args, &plan, &err), 0);
    assert_int_equal(plan.n, 0);
}

/* dW with few rows per expert prefetches the operands of eight experts into L2 at once. */
static void test_plan_ahead(void **state)
{
    (void)state;
    static const char tile[] = TILE(64, 128, 192) " " PINGPONG;
    static const struct {
        const char *problem, *config;
        int32_t ahead, shift;
    } plans[] = {
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", "", 8, 3},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW permute_x=true", "", 8, 3},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", " expert_order=size", 0, 0},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", " l2_ahead=64", 64, 6},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", " l2_ahead=0", 0, 0},
        {"M=8192 N=1536 K=2048 experts=128 topk=8 mode=dW", "", 4, 2},
        {"M=8200 N=1536 K=2048 experts=128 topk=8 mode=dW", "", 0, 0},
        {"M=2048 N=5760 K=2880 experts=32 topk=4 mode=dW", "", 2, 1},
        /* an expert's operands are larger than the prefetch limit */
        {"M=512 N=28672 K=4096 experts=8 topk=2 mode=dW", "", 0, 0},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW", "", 1, 0},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW permute_x=true", "", 0, 0},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW", " expert_order=size", 0, 0},
        {"M=65536 N=1536 K=2048 experts=128 topk=8 mode=dW", "", 0, 0},
        {"M=48 N=1536 K=2048 mode=dW", "", 0, 0},
        {"M=48 N=1536 K=2048 mode=dW", " l2_ahead=8", 0, 3},
    };
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        struct problem p = problem_of(plans[i].problem);
        struct grouped_gemm_args args = args_for(&p);
        struct launch_plan plan;
        struct hopper_params params;
        struct error err = ERROR_NULL;
        char config[512];
        snprintf(config, sizeof(config), "%s%s", tile, plans[i].config);
        assert_int_equal(plan_of(plans[i].problem, config, &args, &plan, &err), 0);
        memcpy(&params, plan.steps[0].params, sizeof(params));
        assert_int_equal(params.ahead, plans[i].ahead);
        assert_int_equal(params.ahead_shift, plans[i].shift);
        assert_ptr_equal(params.a_rows, args.dy);
        assert_ptr_equal(params.b_rows, args.x);
        assert_int_equal(params.a_rows_bytes, record_int(&p.fields, "N", 0) * 2);
        assert_int_equal(params.b_rows_bytes, record_int(&p.fields, "K", 0) * 2);
        assert_int_equal(params.b_rows_stride, record_int(&p.fields, "K", 0) * 2 / 16);
    }
}

static void check_option(const char *problem, const char *config, const char *option)
{
    const struct problem p = problem_of(problem);
    const struct record values = config_of(config);
    struct variant v;
    struct error err = ERROR_NULL;
    assert_int_equal(hopper_variant(&p, &values, "sm_90a", &v, &err), 0);
    assert_non_null(strstr(v.options, option));
}

/* In dW all warps of the producer load if experts have more than two blocks of 64 rows. */
static void test_loaders(void **state)
{
    (void)state;
    static const struct {
        const char *problem, *config, *option;
    } variants[] = {
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW", "", "-DLOADERS=4"},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW", " load_warps=2", "-DLOADERS=2"},
        {"M=16384 N=1536 K=2048 experts=128 topk=8 mode=dW", "", "-DLOADERS=1"},
        {"M=16384 N=1536 K=2048 experts=128 topk=8 mode=dW permute_y=true", "", "-DLOADERS=4"},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=forward", "", "-DLOADERS=1"},
    };
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        const bool dw = strstr(variants[i].problem, "mode=dW") != NULL;
        char text[512];
        snprintf(text, sizeof(text), "%s " PINGPONG "%s",
                 dw ? TILE(64, 128, 192) : TILE(128, 192, 64), variants[i].config);
        check_option(variants[i].problem, text, variants[i].option);
    }
}

/* Wide tiles of dW load their stages by halves, with twice as many stages. */
static void test_stage_rows(void **state)
{
    (void)state;
#define LONG "M=32768 N=1536 K=2048 experts=128 topk=8"
    static const struct {
        const char *problem, *config, *options[2];
    } variants[] = {
        {LONG " mode=dW", PAIRED, {"-DSTAGE_ROWS=32", "-DNUM_STAGES=8"}},
        {LONG " mode=dW", PAIRED " stage_rows=64", {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
        {LONG " mode=dW", PAIRED " in_flight=0", {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
        {LONG " mode=dW", PAIRED " skip_rows=true", {"-DSTAGE_ROWS=32", "-DLOADERS=4"}},
        {"M=512 N=1536 K=2048 experts=128 topk=8 mode=dW",
         PAIRED,
         {"-DSTAGE_ROWS=32", "-DLOADERS=1"}},
        {LONG " mode=dW permute_x=true", PAIRED, {"-DSTAGE_ROWS=32", "-DLOADERS=4"}},
        {LONG " mode=dW permute_x=true",
         PAIRED " permute_copy=true",
         {"-DSTAGE_ROWS=32", "-DNUM_STAGES=8"}},
        {LONG " mode=dW",
         TILE(64, 256, 128) " " PAIR_OF_CONSUMERS,
         {"-DSTAGE_ROWS=32", "-DNUM_STAGES=8"}},
        {LONG " mode=dW", TILE(64, 128, 128) " " PINGPONG, {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
        {LONG " mode=dW",
         TILE(64, 128, 128) " " PINGPONG " stage_rows=32",
         {"-DSTAGE_ROWS=32", "-DNUM_STAGES=8"}},
        {LONG " mode=dW", TILE(64, 64, 256) " " PINGPONG, {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
        {LONG " mode=dW", TILE(64, 256, 128) " " STAGGERED, {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
        {LONG " mode=dX", TILE(128, 64, 192) " " PINGPONG, {"-DSTAGE_ROWS=64", "-DNUM_STAGES=4"}},
    };
#undef LONG
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        for (int k = 0; k < 2; k++) {
            check_option(variants[i].problem, variants[i].config, variants[i].options[k]);
        }
    }
}

/* dW with few rows per expert stores two slabs (128 bytes of a row each) at once if possible. */
static void test_store_slabs(void **state)
{
    (void)state;
    static const struct {
        const char *problem, *config, *option;
    } variants[] = {
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", TILE(64, 128, 128) " " PINGPONG,
         "-DSTAGING_BUFFERS=1 -DSTORE_SLABS=2"},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW",
         TILE(64, 128, 128) " " PINGPONG " store_slabs=1", "-DSTAGING_BUFFERS=2 -DSTORE_SLABS=1"},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=dW", TILE(64, 128, 192) " " PINGPONG,
         "-DSTORE_SLABS=1"},
        {"M=4096 N=1536 K=2080 experts=128 topk=8 mode=dW", TILE(64, 128, 128) " " PINGPONG,
         "-DSTORE_SLABS=1"},
        {"M=4096 N=1536 K=2080 experts=128 topk=8 mode=dW dtype_out=fp32",
         TILE(64, 128, 128) " " PINGPONG, "-DSTORE_SLABS=2"},
        {"M=16384 N=1536 K=2048 experts=128 topk=8 mode=dW", TILE(64, 128, 128) " " PINGPONG,
         "-DSTORE_SLABS=1"},
        {"M=16384 N=1536 K=2048 experts=128 topk=8 mode=dW",
         TILE(64, 128, 128) " num_warps=12 schedule=cooperative num_stages=4 staging_buffers=2",
         "-DSTORE_SLABS=2"},
        {"M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW",
         TILE(64, 128, 128) " num_warps=12 schedule=cooperative num_stages=4 staging_buffers=2",
         "-DSTORE_SLABS=1"},
        {"M=4096 N=1536 K=2048 experts=128 topk=8 mode=forward", TILE(128, 192, 64) " " PINGPONG,
         "-DSTORE_SLABS=1"},
    };
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        check_option(variants[i].problem, variants[i].config, variants[i].option);
    }
}

/* Forward and dX of a single expert have special kernels, except when threads gather rows or sums
 * fill the registers. */
static void test_one_expert(void **state)
{
    (void)state;
    static const struct {
        const char *problem, *config, *option;
    } variants[] = {
        {"M=4096 N=1536 K=2048 mode=forward", TILE(64, 64, 64) " " SMALL, "-DONE_EXPERT=1 "},
        {"M=4096 N=1536 K=2048 mode=dX", TILE(64, 64, 64) " " SMALL, "-DONE_EXPERT=1 "},
        {"M=4096 N=1536 K=2048 mode=dW", TILE(64, 64, 64) " " SMALL, "-DONE_EXPERT=0 "},
        {"M=4096 N=1536 K=2048 experts=2 mode=forward", TILE(64, 64, 64) " " SMALL,
         "-DONE_EXPERT=0 "},
        {"M=4096 N=1536 K=2048 permute_x=true mode=forward", TILE(64, 64, 64) " " SMALL,
         "-DONE_EXPERT=0 "},
        {"M=4096 N=1536 K=2048 permute_x=true mode=forward",
         TILE(64, 64, 64) " " SMALL " permute_copy=true", "-DONE_EXPERT=1 "},
        {"M=4096 N=1536 K=2048 mode=forward", TILE(128, 256, 64) " " PAIR_OF_CONSUMERS,
         "-DONE_EXPERT=1 "},
        {"M=4096 N=1536 K=2048 mode=forward", TILE(128, 192, 64) " " PINGPONG, "-DONE_EXPERT=0 "},
    };
    for (size_t i = 0; i < sizeof(variants) / sizeof(variants[0]); i++) {
        check_option(variants[i].problem, variants[i].config, variants[i].option);
    }
}

/* With the schedule "staggered" the kernel stores half of a consumer warpgroup's 128 rows at once:
 * staging buffers and boxes of TMA have 64 rows. */
static void test_staggered(void **state)
{
    (void)state;
    static const char tile[] = TILE(256, 128, 64) " " STAGGERED;
    struct problem p = problem_of(QWEN " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    struct gemm v;
    struct launch_plan plan;
    struct hopper_tile t, plain;
    struct error err = ERROR_NULL;
    const struct record config = config_of(tile);
    const struct record cooperative =
        config_of(TILE(256, 128, 64) " " PAIR_OF_CONSUMERS " staging_buffers=2");
    gemm_view(&p, &v);
    hopper_tile_make(&v, &config, &t);
    hopper_tile_make(&v, &cooperative, &plain);
    assert_int_equal(plain.smem - t.smem, 2 * 2 * 64 * 128);
    check_option(QWEN " mode=forward", tile, "-DIN_FLIGHT=1 -DSTAGGERED=1 ");
    check_option(QWEN " mode=forward", TILE(256, 128, 64) " " STAGGERED " in_flight=0",
                 "-DIN_FLIGHT=0 -DSTAGGERED=1 ");
    check_option(QWEN " mode=forward", TILE(256, 128, 64) " " PAIR_OF_CONSUMERS, "-DSTAGGERED=0 ");
    assert_int_equal(plan_of(QWEN " mode=forward", tile, &args, &plan, &err), 0);
    const struct launch *l = &plan.steps[0];
    assert_ptr_equal(l->maps[l->n_maps - 1].base, args.out);
    assert_int_equal(l->maps[l->n_maps - 1].box[1], 64);
}

/* With the schedule "deferred" a consumer keeps pieces of 64 x 64 of its last tile in the registers
 * that the next tile's sums leave free: fewer pieces where the producer gathers. */
static void test_deferred(void **state)
{
    (void)state;
    static const struct {
        const char *problem, *config;
        int kept;
    } cases[] = {
        {"", TILE(128, 256, 64) " " DEFERRED " swap_ab=true", 4},
        {"", TILE(144, 256, 64) " " DEFERRED " swap_ab=true", 2},
        {"", TILE(160, 256, 64) " " DEFERRED " swap_ab=true", 2},
        {"", TILE(192, 256, 64) " " DEFERRED " swap_ab=true", 0},
        {"permute_x=true", TILE(160, 256, 64) " " DEFERRED " swap_ab=true", 1},
        {"permute_x=true", TILE(160, 256, 64) " " DEFERRED " swap_ab=true permute_copy=true", 2},
        {"", TILE(64, 256, 64) " " DEFERRED " swap_ab=true", 2}, /* both pieces are kept */
        /* keeps the piece of 64 rows; the rest of the tile has 16 rows */
        {"", TILE(80, 256, 64) " " DEFERRED " swap_ab=true", 1},
        {"", TILE(32, 256, 64) " " DEFERRED " swap_ab=true", 0}, /* 32 rows make no piece */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        struct gemm v;
        struct hopper_tile t;
        snprintf(text, sizeof(text), QWEN " mode=forward %s", cases[i].problem);
        struct problem p = problem_of(text);
        const struct record config = config_of(cases[i].config);
        gemm_view(&p, &v);
        hopper_tile_make(&v, &config, &t);
        assert_int_equal(hopper_kept(&t), cases[i].kept);
        assert_true(isfinite(hopper_predict(&p, &config, &h200,
                                            /* also for tiles whose height is no multiple of 32 */
                                            NULL)));
    }
    check_option(QWEN " mode=forward", TILE(128, 256, 64) " " DEFERRED " swap_ab=true",
                 "-DSTAGGERED=0 -DDEFERRED=1 ");
    check_option(QWEN " mode=forward", TILE(128, 256, 64) " " PAIR_OF_CONSUMERS, "-DDEFERRED=0 ");
}

/* The kernel for one expert divides by the tiles of a group: GROUP_SIZE_M tiles of rows or of
 * columns. */
static void test_plan_one_expert(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t by;
        int cols; /* columns of a tile */
    } plans[] = {
        {TILE(128, 256, 64) " " PAIR_OF_CONSUMERS " GROUP_SIZE_M=4 raster=rows", 4 * 6, 256},
        {TILE(128, 256, 64) " " PAIR_OF_CONSUMERS " GROUP_SIZE_M=4 raster=columns", 4 * 32, 256},
        {TILE(128, 256, 64) " " PAIR_OF_CONSUMERS " GROUP_SIZE_M=16 raster=columns", 6 * 32, 256},
        {TILE(64, 256, 64) " " SWAPPED " tile_rows=48 GROUP_SIZE_M=4 raster=columns", 4 * 86,
         256}, /* 4096 / 48 */
        {TILE(128, 192, 64) " " PINGPONG " GROUP_SIZE_M=4 raster=columns", 8,
         192}, /* the same group as with several experts */
    };
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        static const char problem[] = "M=4096 N=1536 K=2048 mode=forward";
        struct problem p = problem_of(problem);
        struct grouped_gemm_args args = args_for(&p);
        struct launch_plan plan;
        struct hopper_params params;
        struct error err = ERROR_NULL;
        assert_int_equal(plan_of(problem, plans[i].config, &args, &plan, &err), 0);
        memcpy(&params, plan.steps[0].params, sizeof(params));
        assert_int_equal(params.cols, (1536 + plans[i].cols - 1) / plans[i].cols);
        for (uint32_t id = 0; id < 300; id++) {
            assert_int_equal((uint64_t)id * params.cols_mul >> params.cols_shift, id / plans[i].by);
        }
    }
}

/* In ping-pong the number of loading warps divides the number of stages: else a warp could load
 * into a stage that is still in use. */
static void test_loaders_divide(void **state)
{
    (void)state;
    static const int loaders[] = {[2] = 2, [3] = 3, [4] = 4, [5] = 1, [6] = 3, [7] = 1, [8] = 4};
    const struct problem p = problem_of("M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW");
    struct gemm view;
    gemm_view(&p, &view);
    for (int stages = 2; stages <= 8; stages++) {
        struct hopper_tile t;
        char text[256];
        snprintf(text, sizeof(text), "%s num_warps=12 schedule=pingpong num_stages=%d",
                 TILE(64, 128, 64), stages);
        const struct record config = config_of(text);
        hopper_tile_make(&view, &config, &t);
        assert_int_equal(t.loaders, loaders[stages]);
    }
}

/* With swap_ab the weights are operand A: tensor maps of weights and rows change places. The
 * output's boxes have 16 rows, so that no box reaches into the next tile. */
static void test_plan_swapped(void **state)
{
    (void)state;
    static const char config[] = TILE(160, 256, 64) " " SWAPPED;
    struct problem p = problem_of(QWEN " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan, plain;
    struct error err = ERROR_NULL;
    assert_int_equal(plan_of(QWEN " mode=forward", config, &args, &plan, &err), 0);
    assert_int_equal(plan_of(QWEN " mode=forward", GOOD, &args, &plain, &err), 0);
    const struct launch *l = &plan.steps[0], *other = &plain.steps[0];
    assert_int_equal(l->n_maps, 11);
    assert_ptr_equal(l->maps[0].base, args.x);
    assert_int_equal(l->maps[0].box[1], 160);
    assert_int_equal(l->maps[0].offset, other->maps[5].offset);
    assert_ptr_equal(l->maps[5].base, args.w);
    assert_int_equal(l->maps[5].box[1], 256);
    assert_int_equal(l->maps[5].offset, other->maps[0].offset);
    for (int i = 1; i < 5; i++) {
        assert_int_equal(l->maps[i].offset, other->maps[5 + i].offset);
        assert_int_equal(l->maps[5 + i].offset, other->maps[i].offset);
    }
    assert_ptr_equal(l->maps[10].base, args.out);
    assert_int_equal(l->maps[10].box[1], 16);
    /* 8 experts have a row each; a row of the output has 6 tiles of 256 columns. */
    args.rows = 8;
    assert_int_equal(plan_of(QWEN " mode=forward", config, &args, &plan, &err), 0);
    assert_int_equal(plan.steps[0].grid[0], 8 * 6);
}

static void check_split_grid(const char *config, int64_t rows, uint32_t cluster, uint32_t blocks)
{
    struct problem p = problem_of(DENSE " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct error err = ERROR_NULL;
    args.rows = rows;
    assert_int_equal(plan_of(DENSE " mode=forward", config, &args, &plan, &err), 0);
    assert_int_equal(plan.n, 1);
    assert_int_equal(plan.workspace_bytes, 0);
    assert_int_equal(plan.steps[0].cluster[0], cluster);
    assert_int_equal(plan.steps[0].grid[0], blocks);
}

/* With half of an SM's shared memory, twice as many thread blocks fit: clusters of eight need
 * this. */
static void test_plan_split_resident(void **state)
{
    (void)state;
    static const char halves[] =
        TILE(64, 64,
             64) " num_warps=8 schedule=cooperative num_stages=4 use_tma_store=false NUM_KSPLIT=8";
    static const char whole[] =
        TILE(64, 64,
             64) " num_warps=8 schedule=cooperative num_stages=7 use_tma_store=false NUM_KSPLIT=8";
    /* two thread blocks fit into an SM's shared memory, but not into its registers */
    static const char wide[] =
        TILE(64, 128,
             64) " num_warps=8 schedule=cooperative num_stages=3 use_tma_store=false NUM_KSPLIT=4";
    static const char two[] =
        TILE(128, 64,
             64) " num_warps=12 schedule=cooperative num_stages=3 use_tma_store=false NUM_KSPLIT=4";
    check_split_grid(halves, 128, 8, 256);
    check_split_grid(halves, 6400, 8, 264);
    check_split_grid(whole, 128, 8, 128);
    check_split_grid(wide, 6400, 4, 132);
    check_split_grid(two, 6400, 4, 132);
    check_option(DENSE " mode=forward", halves, "-DRESIDENT=2 ");
    check_option(DENSE " mode=forward", whole, "-DRESIDENT=1 ");
    check_option(DENSE " mode=forward", wide, "-DRESIDENT=1 ");
    check_option(DENSE " mode=forward", two, "-DRESIDENT=1 ");
}

/* The grid consists of whole clusters. Each cluster has its own tile as long as there are SMs. */
static void test_plan_split(void **state)
{
    (void)state;
    check_split_grid(SPLIT(1), 64, 0, 16);
    check_split_grid(SPLIT(2), 64, 2, 32);
    check_split_grid(SPLIT(4), 64, 4, 64);
    check_split_grid(SPLIT(8), 64, 8, 128);
    check_split_grid(SPLIT(8), 65, 8, 128);
    check_split_grid(SPLIT(4), 128, 4, 128);
    check_split_grid(SPLIT(4), 6400, 4, 132);
    check_split_grid(SPLIT(2), 6400, 2, 132);
    check_split_grid(SPLIT(1), 6400, 0, 132);
}

/* A caller grants fewer SMs than the GPU has, or more. */
static void test_plan_sms(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t sms, blocks;
    } c[] = {{SPLIT(1), 0, 132},   {SPLIT(1), 120, 120}, {SPLIT(1), 1, 1}, {SPLIT(1), 132, 132},
             {SPLIT(1), 500, 132}, {SPLIT(2), 121, 120}, {SPLIT(2), 1, 2}};
    for (size_t i = 0; i < sizeof(c) / sizeof(*c); i++) {
        struct problem p = problem_of(DENSE " mode=forward");
        struct grouped_gemm_args args = args_for(&p);
        struct launch_plan plan;
        struct error err = ERROR_NULL;
        args.rows = 6400;
        args.sms = c[i].sms;
        assert_int_equal(plan_of(DENSE " mode=forward", c[i].config, &args, &plan, &err), 0);
        assert_int_equal(plan.steps[0].grid[0], c[i].blocks);
    }
}

static void check_pairs(const char *config, uint32_t blocks, int32_t turns)
{
    struct problem p = problem_of(QWEN " mode=dW");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct hopper_params params;
    struct error err = ERROR_NULL;
    assert_int_equal(plan_of(QWEN " mode=dW", config, &args, &plan, &err), 0);
    memcpy(&params, plan.steps[0].params, sizeof(params));
    assert_int_equal(plan.steps[0].cluster[0], 2);
    assert_int_equal(plan.steps[0].grid[0], blocks);
    assert_int_equal(params.height, turns);
}

/* Two thread blocks take a pair of tiles, the last of which may be a single tile; each loads half
 * of the shared operand. The matrix has 1536 / 192 rows of tiles and 2048 / 128 columns. */
static void test_plan_pairs(void **state)
{
    (void)state;
    struct variant v;
    struct error err = ERROR_NULL;
    struct problem p = problem_of(QWEN " mode=dW");
    struct record config = config_of(PAIRED " cluster_shape_mn=2x1");
    check_pairs(PAIRED " cluster_shape_mn=2x1", 132, 4 * 16);
    check_pairs(TILE(64, 128, 192) " " PINGPONG " cluster_shape_mn=1x2", 132, 12 * 6);
    assert_int_equal(hopper_variant(&p, &config, "sm_90a", &v, &err), 0);
    assert_non_null(strstr(v.options, "-DCLUSTER_R=2 -DCLUSTER_C=1 "));
}

/* In forward and dX a cluster of two thread blocks takes two tiles of an expert's rows, and each
 * loads half of their weights. Stores have 8 or 16 rows. A row of tiles has 1536 / 256 tiles. */
static void test_plan_pairs_of_rows(void **state)
{
    (void)state;
    static const char config[] = TILE(160, 256, 64) " " SWAPPED " cluster_shape_mn=2x1";
    struct problem p = problem_of(QWEN " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct hopper_params params;
    struct error err = ERROR_NULL;
    assert_int_equal(plan_of(QWEN " mode=forward", config, &args, &plan, &err), 0);
    const struct launch *l = &plan.steps[0];
    memcpy(&params, l->params, sizeof(params));
    assert_int_equal(l->cluster[0], 2);
    assert_int_equal(l->grid[0], 132);
    assert_int_equal(params.height, 2 * 160);
    assert_int_equal(params.cols, 6);
    assert_int_equal(params.group, 1);
    assert_int_equal(l->maps[5].box[1], 128); /* a map of weights */
    assert_ptr_equal(l->maps[5].base, args.w);
    assert_int_equal(l->n_maps, 12); /* maps of x, the weights and the output */
    assert_int_equal(l->maps[10].box[1], 16);
    assert_int_equal(l->maps[11].box[1], 8);
    assert_int_equal(l->maps[11].offset, offsetof(struct hopper_params, out_wide));
    assert_ptr_equal(l->maps[11].base, args.out);
    check_option(QWEN " mode=forward", config, "-DCLUSTER_R=1 -DCLUSTER_C=2 ");
    /* 8 experts have a row each: there are 8 pairs for each of 6 column tiles. */
    args.rows = 8;
    assert_int_equal(plan_of(QWEN " mode=forward", config, &args, &plan, &err), 0);
    assert_int_equal(plan.steps[0].grid[0], 2 * 8 * 6);
    /* Pairs of thread blocks need the code that a kernel for a single expert leaves out. */
    check_option("M=4096 N=4096 K=4096 mode=forward", config, "-DONE_EXPERT=0 ");
}

/* The plan numbers the places of pairs in order; the launch may replace these numbers. With dynamic
 * schedules, pairs take the last rounds of tiles as they become free. */
static void test_plan_order(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int rounds; /* 0: all */
    } plans[] = {
        {TILE(160, 256, 64) " " SWAPPED " cluster_shape_mn=2x1 tile_scheduler=dynamic",
         HOPPER_ROUNDS_USUAL},
        {TILE(160, 256, 64) " " SWAPPED
                            " cluster_shape_mn=2x1 tile_scheduler=dynamic dynamic_rounds=1",
         1},
        {TILE(160, 256, 64) " " SWAPPED
                            " cluster_shape_mn=2x1 tile_scheduler=dynamic dynamic_rounds=0",
         0},
        {TILE(160, 256, 64) " " SWAPPED " cluster_shape_mn=2x1", 0},
    };
    struct problem p = problem_of(QWEN " mode=forward");
    struct grouped_gemm_args args = args_for(&p);
    args.workspace = (void *)0x70000;
    args.workspace_bytes = HOPPER_COUNTERS;
    struct launch_plan plan;
    struct hopper_params params;
    struct error err = ERROR_NULL;
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        assert_int_equal(plan_of(QWEN " mode=forward", plans[i].config, &args, &plan, &err), 0);
        const struct launch *l = &plan.steps[plan.n - 1];
        assert_int_equal(l->order_at, offsetof(struct hopper_params, order));
        assert_int_equal(l->grid[0], 132);
        memcpy(&params, l->params, sizeof(params));
        for (int c = 0; c < LAUNCH_ORDER_MAX; c++) {
            assert_int_equal(params.order[c], c);
        }
        if (plans[i].rounds) {
            assert_int_equal(params.last_rounds, plans[i].rounds);
        } else {
            assert_true((int64_t)params.last_rounds * 66 > 1 << 25); /* more than all tiles */
        }
    }
    assert_int_equal(
        plan_of(QWEN " mode=forward", TILE(160, 256, 64) " " SWAPPED, &args, &plan, &err), 0);
    assert_int_equal(plan.steps[0].order_at, 0);
}

/* The mode, the number of row tiles that read the weights, and the config decide if L2 keeps
 * weights. */
static void test_plan_eviction(void **state)
{
    (void)state;
#define EXPERTS(m) "M=" #m " N=1536 K=2048 experts=128 topk=8"
#define DX         TILE(160, 64, 256) " " SWAPPED
    static const struct {
        const char *problem, *config;
        uint32_t flags;
    } plans[] = {
        {EXPERTS(32768) " mode=forward", TILE(160, 256, 64) " " SWAPPED, HOPPER_W_UNCHANGED},
        {EXPERTS(32768) " mode=forward", TILE(160, 256, 64) " " SWAPPED " w_eviction=evict_first",
         HOPPER_W_FIRST},
        {EXPERTS(32768) " mode=forward", TILE(160, 256, 64) " " SWAPPED " w_eviction=evict_normal",
         0},
        {EXPERTS(32768) " mode=dX", DX " cluster_shape_mn=2x1",
         HOPPER_W_FIRST}, /* an expert's 256 rows fit a pair of 2 x 160 */
        {EXPERTS(32768) " mode=dX", DX, HOPPER_W_UNCHANGED},
        {EXPERTS(8192) " mode=dX", DX, HOPPER_W_UNCHANGED},
        {EXPERTS(4096) " mode=dX", DX, HOPPER_W_FIRST}, /* 32 rows an expert */
        {EXPERTS(4096) " mode=forward", TILE(160, 256, 64) " " SWAPPED, HOPPER_W_FIRST},
        {EXPERTS(4096) " mode=dX", DX " tile_rows=16", HOPPER_W_UNCHANGED},
        {EXPERTS(4096) " mode=dX", DX " w_eviction=evict_unchanged", HOPPER_W_UNCHANGED},
        {EXPERTS(4096) " mode=dW", TILE(64, 128, 192) " " PINGPONG, 0},
        {"M=64 N=4096 K=1024 mode=forward", TILE(160, 256, 64) " " SWAPPED, HOPPER_W_FIRST},
        {"M=320 N=4096 K=1024 mode=forward", TILE(160, 256, 64) " " SWAPPED, HOPPER_W_UNCHANGED},
    };
    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        struct problem p = problem_of(plans[i].problem);
        struct grouped_gemm_args args = args_for(&p);
        struct launch_plan plan;
        struct hopper_params params;
        struct error err = ERROR_NULL;
        assert_int_equal(plan_of(plans[i].problem, plans[i].config, &args, &plan, &err), 0);
        memcpy(&params, plan.steps[plan.n - 1].params, sizeof(params));
        assert_int_equal(params.flags & (HOPPER_W_FIRST | HOPPER_W_UNCHANGED), plans[i].flags);
    }
#undef DX
#undef EXPERTS
}

/* Writes, as text, the values that the host fills in for settings that the config leaves out. */
static int filled_in(const char *mode, const char *shape, int rows, const char *config, char *out,
                     size_t size)
{
    char text[200];
    struct hopper_tile t;
    struct gemm v;
    snprintf(text, sizeof(text), "M=%d %s mode=%s", rows, shape, mode);
    const struct problem p = problem_of(text);
    const struct record said = config_of(config);
    gemm_view(&p, &v);
    hopper_tile_make(&v, &said, &t);
    return snprintf(out, size, "%d %d %d %d %d %d %d %d %d %d\n", t.loaders, t.stage_rows,
                    t.store_slabs, t.consumer_registers, t.producer_registers, t.ahead,
                    (int)t.w_eviction, t.store_first, t.last_rounds, t.height);
}

/* Hashes the values that the host fills in, for many problems and configs. */
static void hash_filled_in(char hash[HASH_HEX])
{
    enum { MODES = 3, PERMUTES = 3, SHAPES = 4, ROWS = 7, CONFIGS = 4 };
    static const char *const modes[MODES][PERMUTES] = {
        {"forward", "forward permute_x=true", "forward permute_y=true"},
        {"dX", "dX permute_x=true", "dX permute_y=true"},
        {"dW", "dW permute_x=true", "dW permute_y=true dtype_out=fp32"}};
    static const char *const shapes[SHAPES] = {"N=1536 K=2048 experts=128 topk=8",
                                               "N=2880 K=2880 experts=32 topk=4",
                                               "N=4096 K=14336 experts=8 topk=2", "N=1024 K=1024"};
    static const int rows[ROWS] = {16, 512, 4096, 8192, 28672, 32768, 131072};
    static const char *const configs[MODES][CONFIGS] = {
        {GOOD, TILE(160, 256, 64) " " SWAPPED " tile_scheduler=dynamic cluster_shape_mn=2x1",
         TILE(64, 256, 64) " " DEFERRED " swap_ab=true", TILE(128, 128, 64) " " SMALL},
        {TILE(128, 64, 192) " " PINGPONG,
         TILE(160, 64, 256) " " SWAPPED " tile_scheduler=dynamic cluster_shape_mn=2x1",
         TILE(160, 64, 256) " " SWAPPED, TILE(64, 64, 256) " " SWAPPED " tile_rows=16"},
        {PAIRED, PAIRED " cluster_shape_mn=2x1", PAIRED " permute_copy=true expert_order=size",
         TILE(64, 256, 128) " " PAIR_OF_CONSUMERS " use_tma_store=false"}};
    static char all[MODES * PERMUTES * SHAPES * ROWS * CONFIGS * 64];
    size_t n = 0;
    for (int i = 0; i < MODES * PERMUTES * SHAPES * ROWS * CONFIGS; i++) {
        const int problem = i / CONFIGS, kind = problem / ROWS / SHAPES, mode = kind / PERMUTES;
        n += (size_t)filled_in(modes[mode][kind % PERMUTES], shapes[problem / ROWS % SHAPES],
                               rows[problem % ROWS], configs[mode][i % CONFIGS], all + n,
                               sizeof(all) - n);
        assert_true(n < sizeof(all));
    }
    hash128_hex(all, n, hash);
}

/* Stored answers leave out these settings: with other rules the host would launch the answers with
 * values that were not measured. So the template, whose hash is in each answer's stamp, contains a
 * number for the rules. */
static void test_rules(void **state)
{
    (void)state;
    static const struct {
        int number;
        const char *hash;
    } today = {9, "fb3cdef5dd3d4eb3f8510eb04848448a"};
    char hash[HASH_HEX];
    int number = 0;
    hash_filled_in(hash);
    const char *at = strstr(grouped_gemm_hopper.source, "#define LAUNCH_RULES ");
    assert_non_null(at);
    assert_int_equal(sscanf(at, "#define LAUNCH_RULES %d", &number), 1);
    assert_int_equal(number, today.number);
    if (strcmp(hash, today.hash) != 0) {
        fail_msg("what configs leave out is filled in otherwise (%s): add one to LAUNCH_RULES in "
                 "hopper/params.cu, and put both here",
                 hash);
    }
}

/* The host chooses variations at launch. Configs do not name them, the measurement does not cover
 * them, and they need no variant of their own. */
static void test_variations(void **state)
{
    (void)state;
#define ROWS(m) "M=" #m " N=1536 K=2048 experts=128 topk=8"
#define SUMS    TILE(64, 128, 192) " " PINGPONG
    static const struct {
        const char *problem, *config, *settings[5];
    } cases[] = {
        {ROWS(32768) " mode=forward",
         TILE(160, 256, 64) " " SWAPPED,
         {"w_eviction=evict_normal", "w_eviction=evict_first"}},
        {ROWS(32768) " mode=dX",
         TILE(160, 64, 256) " " SWAPPED " cluster_shape_mn=2x1",
         {"w_eviction=evict_normal", "w_eviction=evict_unchanged"}},
        {ROWS(8192) " mode=dX",
         TILE(160, 64, 256) " " SWAPPED,
         {"w_eviction=evict_normal", "w_eviction=evict_first"}},
        {ROWS(32768) " mode=forward",
         TILE(160, 256, 64) " " SWAPPED " w_eviction=evict_first",
         {0}},
        {ROWS(32768) " mode=dW", SUMS, {"GROUP_SIZE_M=2", "l2_ahead=2", "l2_ahead=0"}},
        {ROWS(32768) " mode=dW",
         SUMS " GROUP_SIZE_M=8",
         {"GROUP_SIZE_M=12", "GROUP_SIZE_M=6", "l2_ahead=2", "l2_ahead=0"}},
        {ROWS(131072) " mode=dW", SUMS " GROUP_SIZE_M=6", {"l2_ahead=1"}},
        {ROWS(4096) " mode=dW", SUMS " GROUP_SIZE_M=3", {"l2_ahead=16", "l2_ahead=4"}},
        {ROWS(4096) " mode=dW", SUMS " GROUP_SIZE_M=3 l2_ahead=0", {0}},
        {ROWS(4096) " mode=dW",
         SUMS " GROUP_SIZE_M=4 expert_order=size",
         {"GROUP_SIZE_M=6", "GROUP_SIZE_M=3"}},
        {DENSE " mode=dW", SUMS " GROUP_SIZE_M=16", {"GROUP_SIZE_M=24", "GROUP_SIZE_M=12"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct problem p = problem_of(cases[i].problem);
        const struct record config = config_of(cases[i].config);
        struct variant one, other;
        struct record varied;
        struct error err = ERROR_NULL;
        uint32_t n = 0;
        assert_int_equal(hopper_variant(&p, &config, "sm_90a", &one, &err), 0);
        for (; grouped_gemm_hopper.variation(&p, &config, n, &varied); n++) {
            struct rejection why;
            struct record expected = config;
            assert_non_null(cases[i].settings[n]);
            const struct record setting = config_of(cases[i].settings[n]);
            assert_int_equal(
                record_set(&expected, setting.fields[0].name, record_at(&setting, 0), &err), 0);
            assert_true(record_equal(&varied, &expected));
            assert_int_equal(hopper_check(&p, &varied, &h200, &why), 0);

            assert_int_equal(hopper_variant(&p, &varied, "sm_90a", &other, &err), 0);
            assert_string_equal(one.options, other.options);
        }
        assert_true(n < 5 && !cases[i].settings[n]);
    }
#undef ROWS
#undef SUMS
}

/* Splits into 2, 4 and 8 parts share a module: the launch sets the cluster's size. */
static void test_variant_split(void **state)
{
    (void)state;
    struct problem p = problem_of(DENSE " mode=forward");
    struct variant one, two, eight;
    struct error err = ERROR_NULL;
    const struct record configs[] = {config_of(SPLIT(1)), config_of(SPLIT(2)), config_of(SPLIT(8))};
    assert_int_equal(hopper_variant(&p, &configs[0], "sm_90a", &one, &err), 0);
    assert_int_equal(hopper_variant(&p, &configs[1], "sm_90a", &two, &err), 0);
    assert_int_equal(hopper_variant(&p, &configs[2], "sm_90a", &eight, &err), 0);
    assert_string_equal(two.options, eight.options);
    assert_string_not_equal(one.options, two.options);
}

/* Empty tensors often have no address; the output is to be zeroed all the same. */
static void test_plan_no_rows(void **state)
{
    (void)state;
    struct problem p = problem_of(QWEN " mode=dW");
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct error err = ERROR_NULL;
    args.rows = 0;
    args.x = args.dy = NULL;
    assert_int_equal(plan_of(QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG, &args, &plan, &err),
                     0);
    assert_int_equal(plan.n, 1);
    for (uint32_t i = 0; i < plan.steps[0].n_maps; i++) {
        assert_non_null(plan.steps[0].maps[i].base);
    }
}

static void test_plan_copy(void **state)
{
    (void)state;
    static const char problem[] = QWEN " mode=forward permute_x=true";
    static const char config[] = GOOD " permute_copy=true";
    struct problem p = problem_of(problem);
    struct grouped_gemm_args args = args_for(&p);
    struct launch_plan plan;
    struct error err = ERROR_NULL;
    assert_int_equal(plan_of(problem, config, &args, &plan, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "workspace"));
    assert_int_equal(plan.workspace_bytes, 32768 * 2048 * 2 + 32768 * 4);
    args.workspace = (void *)0x70000;
    args.workspace_bytes = plan.workspace_bytes;
    assert_int_equal(plan_of(problem, config, &args, &plan, &err), 0);
    assert_int_equal(plan.n, 3);
    assert_string_equal(plan.steps[0].entry, "grouped_gemm_places");
    assert_string_equal(plan.steps[1].entry, "grouped_gemm_permute");
    struct permute_params copy;
    memcpy(&copy, plan.steps[1].params, sizeof(copy));
    assert_int_equal(copy.topk, 8);
    assert_ptr_equal((char *)copy.places, (char *)args.workspace + 32768 * 2048 * 2);
    assert_memory_equal(plan.steps[0].params, &copy, sizeof(copy));
    assert_ptr_equal(plan.steps[2].maps[0].base, args.workspace);
    args.workspace_bytes--;
    assert_int_equal(plan_of(problem, config, &args, &plan, &err), ERROR_INVALID);

    /* With few rows, or with one routed row per token, rows are copied singly: the launch has no
     * kernel that finds the places of a token's rows. */
    args.rows = 4096;
    assert_int_equal(plan_of(problem, config, &args, &plan, &err), 0);
    assert_int_equal(plan.workspace_bytes, 4096 * 2048 * 2);
    assert_int_equal(plan.n, 2);
    memcpy(&copy, plan.steps[0].params, sizeof(copy));
    assert_int_equal(copy.topk, 0);
    static const char down[] = QWEN " mode=dX permute_y=true";
    p = problem_of(down);
    args = args_for(&p);
    args.workspace = (void *)0x70000;
    args.workspace_bytes = 32768 * 1536 * 2;
    assert_int_equal(
        plan_of(down, TILE(128, 64, 192) " " PINGPONG " permute_copy=true", &args, &plan, &err), 0);
    assert_int_equal(plan.n, 2);
}

static void test_plan_refuses(void **state)
{
    (void)state;
    struct problem p = problem_of(QWEN " mode=dW");
    struct launch_plan plan;
    struct error err = ERROR_NULL;
    struct grouped_gemm_args args = args_for(&p);
    args.flags = GROUPED_GEMM_ACCUMULATE;
    assert_int_equal(plan_of(QWEN " mode=dW", TILE(64, 128, 192) " " PINGPONG, &args, &plan, &err),
                     ERROR_CONFLICT);
    assert_non_null(strstr(err.text, "fp32"));

    static const char gather[] = QWEN " mode=dX permute_y=true";
    p = problem_of(gather);
    args = args_for(&p);
    args.dy_stride = INT64_C(1) << 22; /* 8 MiB x 32768 rows */
    assert_int_equal(plan_of(gather, TILE(128, 64, 192) " " PINGPONG, &args, &plan, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "permute_copy"));
    args.dy_stride = 0;
    args.gather_indices = (void *)0x60002;
    assert_int_equal(plan_of(gather, TILE(128, 64, 192) " " PINGPONG, &args, &plan, &err),
                     ERROR_INVALID);
    assert_non_null(strstr(err.text, "gather_indices"));
}

static int setup(void **state)
{
    (void)state;
    families_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_check),
        cmocka_unit_test(test_legal_neighbours_of_refused_configs),
        cmocka_unit_test(test_shared_memory),
        cmocka_unit_test(test_shared_memory_halves),
        cmocka_unit_test(test_supports),
        cmocka_unit_test(test_choose),
        cmocka_unit_test(test_plan),
        cmocka_unit_test(test_plan_no_rows),
        cmocka_unit_test(test_plan_copy),
        cmocka_unit_test(test_plan_refuses),
        cmocka_unit_test(test_plan_split),
        cmocka_unit_test(test_plan_split_resident),
        cmocka_unit_test(test_plan_sms),
        cmocka_unit_test(test_one_expert),
        cmocka_unit_test(test_staggered),
        cmocka_unit_test(test_deferred),
        cmocka_unit_test(test_plan_one_expert),
        cmocka_unit_test(test_plan_pairs),
        cmocka_unit_test(test_plan_pairs_of_rows),
        cmocka_unit_test(test_plan_order),
        cmocka_unit_test(test_plan_eviction),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_variations),
        cmocka_unit_test(test_variant_split),
        cmocka_unit_test(test_shared_memory_split),
        cmocka_unit_test(test_shared_memory_swapped),
        cmocka_unit_test(test_plan_ahead),
        cmocka_unit_test(test_predict_strange),
        cmocka_unit_test(test_stage_rows),
        cmocka_unit_test(test_store_slabs),
        cmocka_unit_test(test_loaders),
        cmocka_unit_test(test_loaders_divide),
        cmocka_unit_test(test_plan_swapped),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
