/* SPDX-License-Identifier: Apache-2.0 */
/* ---- scales: the producer's part of fp8 ---------------------------------------------------------------- */
/*
 * Scales come through shared memory, in each stage beside the operands (SCALES in params.cu). Threads of the producer
 * load them into registers, SCALES_AHEAD blocks before their stage is free, and multiply a row's scale by that of each
 * group of weights: the consumers have less time to multiply. Scales may have any strides. fp8.cu says what a scale is
 * for.
 */
#if FP8
#if TILE_D != 64 || MODE == MODE_DX || PINGPONG || STAGGERED || DEFERRED || GATHER_DY
#error "fp8 has cooperative tiles, in forward (also for dX) and dW"
#endif
#if SWAP_AB && SCALES != SCALES_BLOCKS
#error "swapped tiles are for weights with scales of 128 x 128"
#endif
#if MODE == MODE_DW && (GATHER || SCALES == SCALES_BLOCKS || LOADERS > 1)
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

/* Returns x of this lane. The compiler keeps it in registers: it would compute x anew in each block. */
INLINE i64 kept(i64 x)
{
    return __shfl_sync(~0u, x, LANE);
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

#define LINES_EACH ((LINES + SCALERS - 1) / SCALERS) /* lines of a thread */
#define LINES_A ((MODE == MODE_DW ? TILE_R : TILE_ROWS) / SCALERS) /* dW: of these, rows of A */
/* blocks whose scales are on their way, as registers allow */
#define SCALES_FIT (GATHER ? 1 : LINES_EACH <= 4 ? CONSUMERS == 1 ? 8 : 4 : LINES_EACH <= 8 ? 2 : 1)
#define SCALES_AHEAD (SCALES_FIT < NUM_STAGES ? SCALES_FIT : NUM_STAGES)

/* Scales of a block that a thread has loaded. */
struct carried {
    float line[LINES_EACH], group[GROUPS];
};

/* The first line of this thread; it also has every SCALERS-th after it. Of eight threads that gather the same rows each
 * has the scales of other rows. */
INLINE int first_line(void)
{
    return GATHER ? (THREAD >> 3) + 16 * (THREAD & 7) : (THREAD & 127) - (128 - SCALERS);
}

/* Where the scales of this thread's lines are, and those of the groups of weights. A line or a group that does not exist
 * has the place of one that does: its scale is never used. */
struct lines {
    const char *a, *b;                   /* the next block's first scale of A; of B, or of the first group */
    i64 line[GATHER ? 1 : LINES_EACH];   /* bytes from there */
    int token[GATHER ? LINES_EACH : 1];  /* of each gathered row */
    i64 group[GROUPS];                   /* bytes from the first group */
};

INLINE struct lines lines_of(const struct hopper_params *p, const struct tile *t)
{
    const struct scales *a = &p->a_scales, *b = &p->b_scales;
    const int first = first_line(), dw = MODE == MODE_DW, column = SWAP_AB ? t->r0 : t->c0;
    const int row = dw ? t->r0 : t->first + (SWAP_AB ? t->c0 : t->r0);
    const int left = SWAP_AB ? t->width : output_rows(p, t) - t->r0;
    const i64 block = dw ? t->first / TILE_D : FIRST_BLOCK(p);
    struct lines l;
    l.a = a->data + block * a->block;
    l.b = b->data + block * b->block;
    if (!dw)
        l.b += t->expert * b->expert + (i64)(column < p->tile_cols ? column / 128 : 0) * b->row;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++)
        l.token[GATHER ? i : 0] = 0;
#pragma unroll
    for (int i = 0; !GATHER && i < LINES_EACH; i++) {
        const int n = first + SCALERS * i, nth_b = column + n - LINES_A * SCALERS;
        if (dw && i >= LINES_A)
            l.line[i] = kept((i64)(nth_b < p->tile_cols ? nth_b : 0) * b->row);
        else
            l.line[i] = kept((i64)(n < left ? row + n : 0) * a->row);
    }
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        l.group[g] = column + g * GROUP < p->tile_cols ? ((column + g * GROUP) / 128 - column / 128) * b->row : 0;
    return l;
}

#if GATHER
/* `index`: gather indices of this thread's rows, THREAD / 8 + 16 j. */
INLINE void find_tokens(const struct hopper_params *p, const int *index, struct lines *l)
{
#pragma unroll
    for (int j = 0; j < TILE_ROWS / 16; j++)
        if ((THREAD & 7) == (j & 7))
            l->token[j / 8] = index[j] < 0 ? 0 : token_of(p, index[j]);
}
#endif

/* Loads this thread's scales of a block, and goes on to the next. */
INLINE void load_scales(const struct hopper_params *p, struct lines *l, struct carried *c)
{
    if (SCALES == SCALES_ROWS)
        return;
#pragma unroll
    for (int i = 0; i < LINES_EACH; i++)
        c->line[i] = global_scale(GATHER                             ? l->a + l->token[GATHER ? i : 0] * p->a_scales.row
                                  : MODE == MODE_DW && i >= LINES_A ? l->b + l->line[GATHER ? 0 : i]
                                                                    : l->a + l->line[GATHER ? 0 : i]);
#pragma unroll
    for (int g = 0; SCALES == SCALES_BLOCKS && g < GROUPS; g++)
        c->group[g] = global_scale(l->b + l->group[g]);
    l->a += p->a_scales.block;
    l->b += p->b_scales.block;
}

/* Writes a block's scales to its stage. Each thread arrives at the "full" mbarrier for its own writes: if a lane arrived
 * for its warp, racecheck would not see the order. */
INLINE void give_scales(const struct carried *c, u32 to, u32 bar)
{
    const int first = first_line();
    if (SCALES == SCALES_ROWS)
        return;
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
#pragma unroll
        for (int i = 0; i < LINES_EACH; i++) {
            const int by_columns = SWAP_AB || (MODE == MODE_DW && i >= LINES_A);
            const int place = (by_columns ? column_place(first) : row_place(first)) + SCALERS * i;
            const float scale = SCALES == SCALES_BLOCKS ? c->line[i] * c->group[g] : c->line[i];
            if (LINES % SCALERS == 0 || first + SCALERS * i < LINES)
                shared_store4(to + (g * LINES + place) * 4, (int)float_bits(scale));
        }
    barrier_arrive(bar, 1);
}

/* The loop of a warp that brings scales. Its first loads do not wait for the mbarriers. */
INLINE void produce_scales(const struct hopper_params *p, const struct tables *s, u32 shared, int tiles,
                           const struct tile *first)
{
    struct walk w = walk_begin(p, tiles);
    struct place at = place_of(0);
    struct carried ahead[SCALES_AHEAD];
    int begun = 0;
#pragma unroll 1
    while (w.id < tiles) {
        const struct tile t = ONE_EXPERT && !begun ? *first : locate_tile(p, s, w.id);
        const int blocks = blocks_of(p, t.rows);
        struct lines l = lines_of(p, &t);
#pragma unroll
        for (int i = 0; i < SCALES_AHEAD; i++)
            if (i < blocks)
                load_scales(p, &l, &ahead[i]);
        if (!begun)
            set_up_for_scales();
        begun = 1;
#pragma unroll 1
        for (int block = 0; block < blocks; block += SCALES_AHEAD) {
            if (block == 0 && uniform(THREAD >> 5) == 3)
                ask_for_output(p, &t);
#pragma unroll
            for (int i = 0; i < SCALES_AHEAD; i++) {
                if (block + i >= blocks)
                    break;
                barrier_wait(empty_barrier(shared, at.stage), at.phase ^ 1);
                give_scales(&ahead[i], scales_at(shared, at.stage), full_barrier(shared, at.stage));
                place_next(&at);
                if (block + i + SCALES_AHEAD < blocks)
                    load_scales(p, &l, &ahead[i]);
            }
        }
        walk_next(shared, &w);
    }
    if (!begun)
        set_up_for_scales();
}
#endif
