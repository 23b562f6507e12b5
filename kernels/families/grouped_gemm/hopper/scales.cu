/* SPDX-License-Identifier: Apache-2.0 */
/* ---- scales: the producer's part of fp8 ---------------------------------------------------------------- */
/*
 * Scales come through shared memory, in each stage beside the operands (SCALES in params.cu). Threads of the producer
 * load them into registers, SCALES_AHEAD blocks before their stage is free, and multiply a row's scale by that of each
 * group of weights: the consumers have less time to multiply. Scales may have any strides. fp8.cu says what a scale is
 * for.
 */
#if FP8
#if TILE_D != 64 || MODE == MODE_DX || PINGPONG || STAGGERED || DEFERRED || GATHER_DY || (CLUSTER > 1 && !SWAP_AB)
#error "fp8 has cooperative tiles, in forward (also for dX) and dW"
#endif
#if SWAP_AB && SCALES != SCALES_BLOCKS
#error "swapped tiles are for weights with scales of 128 x 128"
#endif
#if MODE == MODE_DW && (GATHER || SCALES == SCALES_BLOCKS || LOADERS > 2)
#error "in dW both operands have a scale for each row, and come by TMA"
#endif
#if MODE != MODE_DW && SCALES == SCALES_LINES
#error "in forward the weights have scales of 128 x 128 or of rows"
#endif

#ifndef HOPPER_EMULATED
INLINE void shared_scales(u32 at, float *a, float *b)
{
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(*a), "=f"(*b) : "r"(at) : "memory");
}

INLINE float global_scale(const char *from)
{
    float r;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(r) : "l"(from));
    return r;
}

/* Requests a box of the output into L2. */
INLINE void ask_output(const struct tensor_map *map, int x, int y, int z)
{
    ask_3d(map, x, y, z);
}
#endif

INLINE u32 scales_at(u32 shared, u32 stage)
{
    return shared + SCALES_AT + stage * SCALES_BYTES;
}

/* dW that threads add to the output: requests the tile's output into L2, while the tile is multiplied. An addition by
 * TMA took as long as if L2 added two numbers a cycle in each of its slices (H200). */
INLINE void ask_for_output(const struct hopper_params *p, const struct tile *t)
{
    if (MODE != MODE_DW || !OUT_FP32 || TMA_STORE || !(p->flags & FLAG_ACCUMULATE) || !elected())
        return;
#pragma unroll 1
    for (int r = t->r0; r < t->r0 + TILE_R && r < p->tile_rows; r += 64)
#pragma unroll 1
        for (int c = t->c0; c < t->c0 + TILE_C && c < p->tile_cols; c += SLAB_COLS)
            ask_output(&p->out, c, r, t->expert);
}

/* Where a stage keeps the scales of 16 rows of A: a lane reads rows r and r + 8 at once. */
INLINE int row_place(int r)
{
    return (r & ~15) + (r & 7) * 2 + (r >> 3 & 1);
}

/* The same of 16 columns, or rows of B: a lane reads columns c, c + 1, c + 8 and c + 9 at once. */
INLINE int column_place(int c)
{
    return (c & ~15) + (c >> 1 & 3) * 4 + (c >> 3 & 1) * 2 + (c & 1);
}

#define SCALERS (SCALE_WARPS ? SCALE_WARPS * 32 : 32) /* threads that share a block's lines */
#define LINES_EACH ((LINES + SCALERS - 1) / SCALERS) /* lines of a thread */
/* blocks whose scales are on their way, as registers allow */
#define SCALES_FIT (GATHER ? 1 : LINES_EACH <= 2 ? 8 : LINES_EACH <= 4 ? 4 : LINES_EACH <= 8 ? 2 : 1)
#define SCALES_AHEAD (SCALES_FIT < NUM_STAGES ? SCALES_FIT : NUM_STAGES)

/* Scales of a block that a thread has loaded. */
struct carried {
    float line[LINES_EACH], group[GROUPS];
};

/* The tile's lines: where their scales are. Gathered rows have tokens. */
struct lines {
    int row, exist;  /* the first line, and how many exist */
    int token[GATHER ? LINES_EACH : 1];
};

/* The i-th line of this thread. Of eight threads that gather the same rows each has the scales of other rows. */
INLINE int line_of(int i)
{
    return GATHER ? (THREAD >> 3) + 16 * ((THREAD & 7) + 8 * i) : (THREAD & (SCALERS - 1)) + SCALERS * i;
}

INLINE struct lines lines_of(const struct hopper_params *p, const struct tile *t)
{
    struct lines l;
    l.row = MODE == MODE_DW ? t->r0 : t->first + (SWAP_AB ? t->c0 : t->r0);
    l.exist = SWAP_AB ? t->width : at_most(output_rows(p, t) - t->r0, TILE_ROWS);
    return l;
}

#if GATHER
/* `index`: gather indices of this thread's rows, THREAD / 8 + 16 j. */
INLINE void find_tokens(const struct hopper_params *p, const int *index, struct lines *l)
{
#pragma unroll
    for (int j = 0; j < TILE_ROWS / 16; j++)
        if ((THREAD & 7) == (j & 7))
            l->token[j / 8] = index[j] < 0 ? -1 : token_of(p, index[j]);
}
#endif

/* Loads the scale of a line in dW's B: column c of the tile. */
INLINE void load_column_scale(const struct hopper_params *p, const struct tile *t, int c, int block, float *to)
{
    const struct scales *s = &p->b_scales;
    if (t->c0 + c < p->tile_cols)
        *to = global_scale(s->data + (i64)(t->c0 + c) * s->row + (i64)block * s->block);
}

/* Loads this thread's scales of a block of the reduction. Scales of what does not exist are never used. */
INLINE void load_scales(const struct hopper_params *p, const struct tile *t, const struct lines *l, int block,
                        struct carried *c)
{
    const struct scales *sa = &p->a_scales, *sb = &p->b_scales;
    const char *a = sa->data + (i64)block * sa->block;
    const char *b = sb->data + t->expert * sb->expert + (i64)block * sb->block;
    if (SCALES == SCALES_ROWS)
        return;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++) {
        c->line[i] = 0.0f;
        if (MODE == MODE_DW && i * SCALERS >= TILE_R)
            load_column_scale(p, t, line_of(i) - TILE_R, block, &c->line[i]);
        else if (GATHER ? line_of(i) < TILE_ROWS && l->token[GATHER ? i : 0] >= 0 : line_of(i) < l->exist)
            c->line[i] = global_scale(a + (i64)(GATHER ? l->token[GATHER ? i : 0] : l->row + line_of(i)) * sa->row);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const int column = (SWAP_AB ? t->r0 : t->c0) + g * GROUP;
        c->group[g] = 1.0f;
        if (SCALES == SCALES_BLOCKS && column < p->tile_cols)
            c->group[g] = global_scale(b + (i64)(column / 128) * sb->row);
    }
}

/* Writes a block's scales to its stage, and arrives at the "full" mbarrier: once for each warp. */
INLINE void give_scales(const struct carried *c, u32 to, u32 bar)
{
    if (SCALES == SCALES_ROWS)
        return;
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int i = 0; i < LINES_EACH; i++) {
            const int line = line_of(i), in_b = MODE == MODE_DW && i * SCALERS >= TILE_R;
            const int place = in_b      ? TILE_R + column_place(line - TILE_R)
                              : SWAP_AB ? column_place(line)
                                        : row_place(line);
            if (line < LINES)
                shared_store4(to + (g * LINES + place) * 4, (int)float_bits(c->line[i] * c->group[g]));
        }
    warp_barrier();
    barrier_arrive(bar, LANE == 0);
}

/* The loop of a warp that brings scales. */
INLINE void produce_scales(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles)
{
    struct walk w = walk_begin(p, tiles);
    struct place at = place_of(0);
    set_up_for_loader();
#pragma unroll 1
    while (w.id < tiles) {
        const struct tile t = locate_tile(p, s, w.id);
        const struct lines l = lines_of(p, &t);
        const int blocks = blocks_of(p, t.rows);
        const int first = MODE == MODE_DW ? t.first / TILE_D : FIRST_BLOCK(p);
#pragma unroll 1
        for (int block = 0; block < blocks; block += SCALES_AHEAD) {
            struct carried ahead[SCALES_AHEAD];
#pragma unroll
            for (int i = 0; i < SCALES_AHEAD; i++)
                if (block + i < blocks)
                    load_scales(p, &t, &l, first + block + i, &ahead[i]);
#pragma unroll
            for (int i = 0; i < SCALES_AHEAD; i++) {
                if (block + i >= blocks)
                    break;
                barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
                give_scales(&ahead[i], scales_at(shared, at.stage), full_barrier(shared, at.stage));
                place_next(&at);
            }
            if (block == 0 && uniform(THREAD >> 5) == 3)
                ask_for_output(p, &t);
        }
        walk_next(shared, &w);
    }
}
#endif
