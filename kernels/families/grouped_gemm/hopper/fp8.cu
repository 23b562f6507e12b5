/* SPDX-License-Identifier: Apache-2.0 */
/* ---- fp8: operands of one byte, with scales ------------------------------------------------------------ */
/*
 * FP8: the operands are e4m3, and lie with contiguous d in every mode. All other parts count their bytes in pairs, as
 * if they were 16-bit elements: 128 elements are a block of TILE_D 64, a row of 128 bytes. Rows, boxes, swizzle and
 * descriptors are then those of bf16. A wgmma takes 32 elements.
 *
 *   MODE 0 forward  also serves dX, with W transposed: the host exchanges n and k
 *   MODE 2 dW       A is dy transposed, B is x transposed. Each expert's tokens begin at a multiple of 128; the gap
 *                   after its last token holds zeros
 *
 * wgmma keeps only 14 bits of an fp8 sum. So a consumer sums a block of 128 into a temporary, and adds the temporary,
 * times the block's scales, to sums in fp32 ("promotes"). While one consumer promotes, the other multiplies; where
 * registers allow, a consumer has two temporaries, and multiplies into one while it promotes the other.
 *
 * scales.cu brings the scales. With SCALES_ROWS a row has a single scale, by which the finished sums are multiplied.
 */
#if FP8
#ifndef HOPPER_EMULATED
/* Adds the temporary sums 8 g to 8 g + 7 of a wgmma of n columns, each times its scale, to d. `set`: see TEMPORARIES. */
#define PROMOTE_8(set, n, g)                                                                       \
    asm volatile("fma.rn.f32 %0, " set #n "_" g "0, %8, %0;\n\tfma.rn.f32 %1, " set #n "_" g "1, %9, %1;\n\t"   \
                 "fma.rn.f32 %2, " set #n "_" g "2, %10, %2;\n\tfma.rn.f32 %3, " set #n "_" g "3, %11, %3;\n\t" \
                 "fma.rn.f32 %4, " set #n "_" g "4, %12, %4;\n\tfma.rn.f32 %5, " set #n "_" g "5, %13, %5;\n\t" \
                 "fma.rn.f32 %6, " set #n "_" g "6, %14, %6;\n\tfma.rn.f32 %7, " set #n "_" g "7, %15, %7;"      \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]),         \
                   "+f"(d[6]), "+f"(d[7])                                                          \
                 : "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]), "f"(s[4]), "f"(s[5]), "f"(s[6]),    \
                   "f"(s[7]))

/* The same for the last 4 of a width that is no multiple of 16. */
#define PROMOTE_4(set, n, g)                                                                       \
    asm volatile("fma.rn.f32 %0, " set #n "_" g "0, %4, %0;\n\tfma.rn.f32 %1, " set #n "_" g "1, %5, %1;\n\t"   \
                 "fma.rn.f32 %2, " set #n "_" g "2, %6, %2;\n\tfma.rn.f32 %3, " set #n "_" g "3, %7, %3;"        \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                  \
                 : "f"(s[0]), "f"(s[1]), "f"(s[2]), "f"(s[3]))

#define EACH_GROUP(X, n)                                                                           \
    X(n, 0, "0") X(n, 1, "1") X(n, 2, "2") X(n, 3, "3") X(n, 4, "4") X(n, 5, "5") X(n, 6, "6")     \
    X(n, 7, "7") X(n, 8, "8") X(n, 9, "9") X(n, 10, "A") X(n, 11, "B") X(n, 12, "C")               \
    X(n, 13, "D") X(n, 14, "E") X(n, 15, "F")

/* set, g and width are constants: of all statements the compiler keeps one. The last of a width that is no multiple of
 * 16 has 4 sums. */
INLINE void promote_8(float *d, int set, int g, const float s[8], int width)
{
#define NTH(n, nth, name)                                                                          \
    if (nth < n / 16 && g == nth && set == 0)                                                      \
        PROMOTE_8("s", n, name);                                                                   \
    if (nth < n / 16 && g == nth && TEMPORARIES > 1 && set == 1)                                   \
        PROMOTE_8("t", n, name);                                                                   \
    if (n % 16 && nth == n / 16 && g == nth && set == 0)                                           \
        PROMOTE_4("s", n, name);                                                                   \
    if (n % 16 && nth == n / 16 && g == nth && TEMPORARIES > 1 && set == 1)                        \
        PROMOTE_4("t", n, name);
#define OF(n)                                                                                      \
    if (n <= TILE_C && width == n) {                                                               \
        EACH_GROUP(NTH, n)                                                                         \
    }
    EACH_WIDTH(OF)
#undef OF
#undef NTH
}
#endif

/* The first row of this lane among the 64 rows of a wgmma; the second row is 8 below. */
#define LANE_ROW ((THREAD >> 5 & 3) * 16 + (LANE >> 2))

/* Scales of a lane's rows of a wgmma: of the rows r and r + 8, for each group of columns. */
struct row_scales {
    float of[ROW_SCALES ? GROUPS : 1][2];
};

INLINE void load_row_scales(struct row_scales *s, u32 scales, int row)
{
#pragma unroll
    for (int g = 0; ROW_SCALES && g < GROUPS; g++)
        shared_scales(scales + (g * LINES + row_place(row)) * 4, &s->of[g][0], &s->of[g][1]);
}

/* Scales of B's columns, of groups of 16 columns: this lane has two of every 8. A lane reads them COLUMNS_AHEAD groups
 * ahead, the first while wgmma runs. */
#define COLUMNS_AHEAD (MODE == MODE_DW && MMAS > 1 ? 1 : 2) /* as registers allow */
struct column_scales {
    u32 of[COLUMNS_AHEAD][4];
};

INLINE void load_column_scales(struct column_scales *s, int g, u32 scales, int width)
{
    if (COLUMN_SCALES && g * 16 < width)
        shared_load16(s->of[g % COLUMNS_AHEAD], scales + (g * 16 + (LANE & 3) * 4) * 4);
}

/* Adds the temporary sums of 64 rows, times the scales of their rows and columns, to `acc`; `from`: the first column. */
INLINE void promote(float *acc, int set, const struct row_scales *r, struct column_scales *c, u32 scales, int width,
                    int from)
{
#pragma unroll
    for (int g = 0; g < (width + 15) / 16; g++) { /* 16 columns */
        const float *row = r->of[SCALES == SCALES_BLOCKS && !SWAP_AB ? (from + g * 16) / GROUP : 0];
        float s[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float column = COLUMN_SCALES ? bits_float(c->of[g % COLUMNS_AHEAD][i / 4 * 2 + (i & 1)]) : 1.0f;
            s[i] = !ROW_SCALES ? column : COLUMN_SCALES ? row[i >> 1 & 1] * column : row[i >> 1 & 1];
        }
        load_column_scales(c, g + COLUMNS_AHEAD, scales, width);
        promote_8(acc + g * 8, set, g, s, width);
    }
}

/* Issues the wgmmas `from` to `to` of a block of 128, as a group, which adds to the set of temporaries `set`. */
INLINE void multiply_part(float acc[MMAS][ACCUMULATORS], int set, u32 a, u32 b, int width, int from, int to)
{
    const u32 low_a = DESCRIPTOR_LOW(0, SLAB_BYTES) | a >> 4, low_b = DESCRIPTOR_LOW(0, SLAB_BYTES) | b >> 4;
#pragma unroll
    for (int step = from; step < to; step++)
        wgmma(acc, set, descriptor(low_a + step * STEP_UNITS(0)), descriptor(low_b + step * STEP_UNITS(0)), step > 0, width);
    wgmma_commit();
}

#if TEMPORARIES > 1
/* A unit is what one temporary takes: 64 rows and a strip of columns, of a block. A block's units go by rows, then by
 * strips. */
struct unit {
    u32 stage;
    struct row_scales rows;
};

struct multiplying {
    u32 shared, operands;       /* operands: the same address, as descriptors take it */
    int consumer, units, width; /* number of a block's units; columns of a unit */
    struct place at;
};

/* Takes the nth unit of a block into a temporary: waits for its operands, and reads its rows' scales. */
INLINE void take_unit(struct multiplying *m, struct unit of[2], int set, int nth)
{
    struct unit *u = &of[set];
    if (nth == 0)
        wait_full(m->shared, &m->at);
    u->stage = m->at.stage;
    if (nth % STRIPS == 0)
        load_row_scales(&u->rows, scales_at(m->shared, u->stage), m->consumer * ROWS_EACH + nth / STRIPS * 64 + LANE_ROW);
    else
        u->rows = of[set ^ 1].rows;
    if (nth == m->units - 1)
        place_next(&m->at);
    wgmma_fence();
}

INLINE void multiply_half(float acc[MMAS][ACCUMULATORS], const struct multiplying *m, const struct unit *u, int set, int nth,
                          int half)
{
    const u32 stage = m->operands + u->stage * STAGE_BYTES;
    multiply_part(acc, set, stage + m->consumer * ROWS_EACH * ROW_BYTES + nth / STRIPS * SLAB_BYTES,
                  stage + A_BYTES + nth % STRIPS * m->width * ROW_BYTES, m->width, half * STEPS / 2, (half + 1) * STEPS / 2);
}

/* Promotes a unit. The last one gives its stage back, unless it is to be kept. */
INLINE void promote_unit(float acc[MMAS][ACCUMULATORS], const struct multiplying *m, const struct unit *u, int set, int nth,
                         int keep)
{
    const int i = nth / STRIPS, from = nth % STRIPS * m->width, give = nth == m->units - 1 && !keep;
    const u32 of_columns = scales_at(m->shared, u->stage) +
                           (SWAP_AB ? (m->consumer * ROWS_EACH + i * 64) / GROUP * LINES : TILE_R + from) * 4;
    struct column_scales columns;
#pragma unroll
    for (int g = 0; g < COLUMNS_AHEAD; g++)
        load_column_scales(&columns, g, of_columns, m->width);
    if (!COLUMN_SCALES && give) {
        warp_barrier(); /* all lanes have read the rows' scales */
        give_stage(m->shared, u->stage);
    }
    promote(acc[i] + from / 2, set, &u->rows, &columns, of_columns, m->width, from);
    if (COLUMN_SCALES && give) { /* all lanes have read B's scales */
        warp_barrier();
        give_stage(m->shared, u->stage);
    }
}

/* Issues half of a unit's wgmmas, promotes the unit before, and issues the other half. A warp waits when it issues more
 * wgmmas than the tensor cores' queue holds. Tiles of 128 x 128 took 7 to 11 % longer where all four wgmmas came
 * before the promotion, and 2 to 7 % where one of four did (H200). */
INLINE void multiply_and_promote(float acc[MMAS][ACCUMULATORS], struct multiplying *m, struct unit of[2], int set, int nth)
{
    take_unit(m, of, set, nth);
    multiply_half(acc, m, &of[set], set, nth, 0);
    WGMMA_WAIT(1);
    promote_unit(acc, m, &of[set ^ 1], set ^ 1, nth > 0 ? nth - 1 : m->units - 1, 0);
    multiply_half(acc, m, &of[set], set, nth, 1);
}

/* mainloop_of() with two temporaries. */
INLINE u32 mainloop_ahead(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 shared, int consumer, u32 from, int blocks,
                          struct walk *w)
{
    const int units = mmas * STRIPS, round = units > 1 ? units : 2; /* a round is even: sets are constants */
    int left = blocks * units - 1;
    struct multiplying m;
    struct unit of[2]; /* by temporary */
    m.shared = shared;
    m.operands = KSPLIT || CLUSTER > 1 ? shared & DESCRIPTOR_ADDRESS : shared;
    m.consumer = consumer;
    m.units = units;
    m.width = width / STRIPS;
    m.at = place_of(from);
    if (blocks < 1) {
        walk_ahead(shared, w);
        return 0;
    }
    take_unit(&m, of, 0, 0);
    multiply_half(acc, &m, &of[0], 0, 0, 0);
    multiply_half(acc, &m, &of[0], 0, 0, 1);
#pragma unroll 1
    for (; left >= round; left -= round)
#pragma unroll
        for (int i = 1; i <= round; i++)
            multiply_and_promote(acc, &m, of, i & 1, i % units);
    if (left == 0) { /* An odd number. Without this way out ptxas serialised the wgmmas of even numbers, too (C7514). */
        walk_ahead(shared, w);
        WGMMA_WAIT(0);
        promote_unit(acc, &m, &of[0], 0, 0, KSPLIT);
        return of[0].stage;
    }
#pragma unroll
    for (int i = 1; i < round; i++)
        multiply_and_promote(acc, &m, of, i & 1, i % units);
    walk_ahead(shared, w);
    WGMMA_WAIT(0);
    promote_unit(acc, &m, &of[1], 1, units - 1, KSPLIT);
    return of[1].stage;
}
#endif

/* Multiplies a tile, and gives back all its stages; with KSPLIT all but the last, through which the sums are sent.
 * Returns the last stage. An expert without tokens has no block: dW's sums are zeros. */
INLINE u32 mainloop_of(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 shared, int consumer, u32 from, int steps,
                       struct walk *w)
{
    struct place at = place_of(from);
    const u32 operands = KSPLIT || CLUSTER > 1 ? shared & DESCRIPTOR_ADDRESS : shared;
    const u32 consumer_a = operands + consumer * ROWS_EACH * ROW_BYTES;
    const int blocks = blocks_in(steps);
    u32 last = 0;
#pragma unroll
    for (int i = 0; i < MMAS; i++)
#pragma unroll
        for (int j = 0; j < width / 2; j++)
            acc[i][j] = 0.0f;
#if TEMPORARIES > 1
    return mainloop_ahead(acc, mmas, width, shared, consumer, from, blocks, w);
#endif
#pragma unroll 1
    for (int block = 0; block < blocks; block++) {
        const u32 scales = scales_at(shared, at.stage);
        struct row_scales rows[MMAS];
        wait_full(shared, &at);
        /* Before wgmma: a load between two wgmmas would delay the second. Where a gathering producer takes registers,
         * those of 64 rows at a time. */
#pragma unroll
        for (int i = 0; i < mmas && !GATHER; i++)
            load_row_scales(&rows[i], scales, consumer * ROWS_EACH + i * 64 + LANE_ROW);
#pragma unroll
        for (int i = 0; i < mmas; i++) {
            if (GATHER)
                load_row_scales(&rows[i], scales, consumer * ROWS_EACH + i * 64 + LANE_ROW);
            /* SWAP_AB: rows are weights */
            const u32 of_columns = scales + (SWAP_AB ? (consumer * ROWS_EACH + i * 64) / GROUP * LINES : TILE_R) * 4;
            struct column_scales columns;
            wgmma_fence();
            multiply_part(acc, 0, consumer_a + at.stage * STAGE_BYTES + i * SLAB_BYTES,
                          operands + at.stage * STAGE_BYTES + A_BYTES, width, 0, STEPS);
            /* The latency of the first columns' scales passes while wgmma runs. */
#pragma unroll
            for (int g = 0; g < COLUMNS_AHEAD; g++)
                load_column_scales(&columns, g, of_columns, width);
            if (i == mmas - 1 && block == blocks - 1)
                walk_ahead(shared, w);
            WGMMA_WAIT(0);
            if (!COLUMN_SCALES && i == mmas - 1) {
                warp_barrier(); /* all lanes have read the rows' scales */
                if (!KSPLIT || block < blocks - 1)
                    give_stage(shared, at.stage);
            }
            promote(acc[i], 0, &rows[i], &columns, of_columns, width, 0);
        }
        if (COLUMN_SCALES) { /* all lanes have read B's scales */
            warp_barrier();
            give_stage(shared, at.stage);
        }
        last = at.stage;
        place_next(&at);
    }
    return last;
}

/* Waits for the stages of a tile in which the consumer has no rows, and gives them back. The lanes meet at each block,
 * because one lane gives a stage back for all. */
INLINE u32 mainloop_idle(u32 shared, u32 from, int blocks, struct walk *w)
{
    struct place at = place_of(from);
    u32 last = 0;
#pragma unroll 1
    for (int block = 0; any_lane(block < blocks); block++) {
        barrier_wait(full_barrier(shared, at.stage), at.phase);
        warp_barrier();
        if (!KSPLIT || block < blocks - 1)
            give_stage(shared, at.stage);
        last = at.stage;
        place_next(&at);
    }
    walk_ahead(shared, w); /* the loading warp hands the next tile out when it has loaded this one */
    return last;
}

/* SCALES_ROWS: multiplies the finished sums of 64 rows, from r0 on, by the scales of their rows and columns. An expert
 * without tokens has zeros in dW, whatever its scales are. */
INLINE void scale_rows(const struct hopper_params *p, const struct tile *t, int r0, float acc[ACCUMULATORS])
{
    const struct scales *sa = &p->a_scales, *sb = &p->b_scales;
    const int c0 = t->c0 + (LANE & 3) * 2;
    const char *b_from = sb->data + t->expert * sb->expert + c0 * sb->row;
    float a[2];
    if (SCALES != SCALES_ROWS || (MODE == MODE_DW && t->rows == 0))
        return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = r0 + LANE_ROW + half * 8;
        a[half] = 0.0f;
        if (r < output_rows(p, t)) {
            int row = MODE == MODE_DW ? r : t->first + r;
            if (GATHER)
                row = token_of(p, gather_index(p, row));
            a[half] = global_scale(sa->data + (MODE == MODE_DW ? t->expert * sa->expert : 0) + row * sa->row);
        }
    }
#pragma unroll
    for (int j = 0; j < ACCUMULATORS; j += 4) { /* of every 8 columns this lane has two; columns are a multiple of 8 */
        float b0 = 0.0f, b1 = 0.0f;
        if (c0 + j * 2 < p->tile_cols) {
            b0 = global_scale(b_from);
            b1 = global_scale(b_from + sb->row);
        }
        b_from += 8 * sb->row;
        acc[j] *= a[0] * b0;
        acc[j + 1] *= a[0] * b1;
        acc[j + 2] *= a[1] * b0;
        acc[j + 3] *= a[1] * b1;
    }
}
#endif
