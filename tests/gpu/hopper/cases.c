/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/cases.h"

#include <stdio.h>
#include <string.h>

/* The first set, and neighbours of it. */
const struct tile tiles[] = {
    {"128x192 pp s4 nb2", 128, 192, 12, true, 4, 2, 1},
    {"128x192 pp s4 nb1", 128, 192, 12, true, 4, 1, 1},
    {"128x256 c2 s4 nb2", 128, 256, 12, false, 4, 2, 1},
    {"128x256 c2 s4 nb2 f0", 128, 256, 12, false, 4, 2, 0},
    {"128x256 c2 s3 nb4", 128, 256, 12, false, 3, 4, 1},
    {"256x192 c2 s3 nb1", 256, 192, 12, false, 3, 1, 1},
    {"256x128 c2 s4 nb1", 256, 128, 12, false, 4, 1, 1},
    {"192x128 pp s4 nb1", 192, 128, 12, true, 4, 1, 1},
    {"128x128 pp s5 nb2", 128, 128, 12, true, 5, 2, 1},
    {"128x128 c2 s6 nb2", 128, 128, 12, false, 6, 2, 1},
    {"64x256 pp s4 nb2", 64, 256, 12, true, 4, 2, 1},
    {"64x192 pp s5 nb2", 64, 192, 12, true, 5, 2, 1},
    {"64x256 c1 s5 nb1", 64, 256, 8, false, 5, 1, 1},
    {"64x128 c1 s8 nb2", 64, 128, 8, false, 8, 2, 1},
    {"64x64 c1 s8 nb1", 64, 64, 8, false, 8, 1, 1},
    {"128x192 pp s4 nb1 f0", 128, 192, 12, true, 4, 1, 0},
    {"128x192 pp s4 nb1 skip", 128, 192, 12, true, 4, 1, 1, true},
    {"256x128 c2 s4 nb1 skip", 256, 128, 12, false, 4, 1, 1, true},
    {"128x128 pp s5 nb2 skip", 128, 128, 12, true, 5, 2, 1, true},
};
const int n_tiles = sizeof(tiles) / sizeof(tiles[0]);

const struct kind kinds[] = {
    {"fwd", GEMM_FORWARD, .soak = 1},
    {"dX", GEMM_DX, .soak = 1},
    {"dW", GEMM_DW, .soak = 1},
    {"fwd px", GEMM_FORWARD, .permute_x = true, .soak = 2},
    {"fwd px copy", GEMM_FORWARD, .permute_x = true, .copy = true},
    {"fwd py", GEMM_FORWARD, .permute_y = true, .soak = 1},
    {"fwd py mul", GEMM_FORWARD, .permute_y = true, .fuse = true},
    {"dX px", GEMM_DX, .permute_x = true, .soak = 1},
    {"dX py", GEMM_DX, .permute_y = true, .soak = 2},
    {"dX py copy", GEMM_DX, .permute_y = true, .copy = true},
    {"dW px", GEMM_DW, .permute_x = true, .soak = 2},
    {"dW px copy", GEMM_DW, .permute_x = true, .copy = true},
    {"dW py", GEMM_DW, .permute_y = true, .soak = 2},
    {"dW f32", GEMM_DW, .out_fp32 = true, .soak = 1},
    {"dW f32 add", GEMM_DW, .out_fp32 = true, .accumulate = true},
    {"dW f32 add st", GEMM_DW, .out_fp32 = true, .accumulate = true, .no_tma_store = true},
    {"fwd st", GEMM_FORWARD, .no_tma_store = true, .soak = 1},
    {"dW st", GEMM_DW, .no_tma_store = true},
    {"fwd py mul h", GEMM_FORWARD, .permute_y = true, .fuse = true, .fp16 = true},
    {"dX h", GEMM_DX, .fp16 = true},
    {"dW px h", GEMM_DW, .permute_x = true, .fp16 = true},
};
const int n_kinds = sizeof(kinds) / sizeof(kinds[0]);

static const int rows_all[] = {0, 1, 15, 16, 63, 64, 65, 1000};
static const int rows_short[] = {0, 1, 15, 16, 63, 64, 65, 130};
static const int rows_seven[] = {1, 0, 64, 15, 0, 130, 65};
static const int rows_one[] = {1000};
static const int rows_soak[] = {130, 0, 63, 300, 1, 64, 0, 65};

#define ROWS(list) list, sizeof(list) / sizeof(list[0])
const struct shape shapes[] = {
    {8, 584, 328, 2, ROWS(rows_soak), .soak = true},
    {1, 584, 328, 1, ROWS(rows_one)},
    {7, 8, 8, 3, ROWS(rows_seven), .strided = true},
    {8, 1096, 520, 2, ROWS(rows_all), .strided = true, .wide = true},
    {128, 264, 136, 8, ROWS(rows_short), .wide = true},
    {257, 72, 200, 6, ROWS(rows_short)},
};
const int n_shapes = sizeof(shapes) / sizeof(shapes[0]);

int case_problem(const struct kind *kind, const struct shape *shape, struct problem *p)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    struct record f;
    struct error err = ERROR_NULL;
    char routing[4096] = "rows:";
    int64_t total = 0;
    for (int e = 0; e < shape->experts; e++) {
        int rows = shape->rows[e % shape->n_rows];
        total += rows;
        if (e == shape->experts - 1) {
            int more = (int)((shape->topk - total % shape->topk) % shape->topk);
            rows += more;
            total += more;
        }
        size_t n = strlen(routing);
        snprintf(routing + n, sizeof(routing) - n, "%s%d", e ? "," : "", rows);
    }
    record_init(&f);
    record_put_text(&f, "mode", modes[kind->mode]);
    record_put_int(&f, "M", total);
    record_put_int(&f, "N", shape->n);
    record_put_int(&f, "K", shape->k);
    record_put_int(&f, "experts", shape->experts);
    record_put_int(&f, "topk", shape->topk);
    record_put_text(&f, "dtype_in", kind->fp16 ? "fp16" : "bf16");
    record_put_text(&f, "dtype_out", kind->out_fp32 ? "fp32" : "same");
    record_put_bool(&f, "permute_x", kind->permute_x);
    record_put_bool(&f, "permute_y", kind->permute_y);
    record_put_bool(&f, "fuse_mul_post", kind->fuse);
    record_put_bool(&f, "accumulate", kind->accumulate);
    record_put_text(&f, "routing", routing);
    if (problem_make(p, "grouped_gemm", &f, &err)) {
        printf("FAULT problem %s: %s\n", kind->name, err.text);
        return -1;
    }
    return 0;
}

void case_config(const struct grouped_gemm_problem *v, const struct kind *kind,
                 const struct tile *tile, struct record *config)
{
    static const char *const names[][3] = {
        [GEMM_FORWARD] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"},
        [GEMM_DX] = {"BLOCK_SIZE_M", "BLOCK_SIZE_K", "BLOCK_SIZE_N"},
        [GEMM_DW] = {"BLOCK_SIZE_N", "BLOCK_SIZE_K", "BLOCK_SIZE_M"},
    };
    const bool tma_store = !v->scatter && !kind->no_tma_store;
    record_init(config);
    record_put_int(config, names[v->mode][0], tile->r);
    record_put_int(config, names[v->mode][1], tile->c);
    record_put_int(config, names[v->mode][2], HOPPER_DEPTH);
    record_put_int(config, "num_warps", tile->warps);
    record_put_text(config, "schedule", tile->pingpong ? "pingpong" : "cooperative");
    record_put_int(config, "num_stages", tile->stages);
    record_put_int(config, "staging_buffers", tma_store ? tile->staging : 1);
    record_put_int(config, "in_flight", tile->in_flight);
    record_put_bool(config, "skip_rows", tile->skip_rows);
    record_put_bool(config, "use_tma_store", tma_store);
    if (kind->copy) {
        record_put_bool(config, "permute_copy", true);
    }
    record_put_int(config, "GROUP_SIZE_M", v->mode == GEMM_DW ? 1 : 8);
}
