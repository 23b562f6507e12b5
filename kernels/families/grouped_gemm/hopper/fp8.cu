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

INLINE void load_row_scales(struct row_scales *s, u32 from)
{
#pragma unroll
    for (int g = 0; ROW_SCALES && g < GROUPS; g++)
        shared_scales(from + g * LINES * 4, &s->of[g][0], &s->of[g][1]);
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

/* Adds the temporary sums of 64 rows, times the scales of their rows and columns, to `acc`. */
INLINE void promote(float *acc, int set, const struct row_scales *r, struct column_scales *c, u32 scales, int width)
{
#pragma unroll
    for (int g = 0; g < (width + 15) / 16; g++) { /* 16 columns */
        const float *row = r->of[SCALES == SCALES_BLOCKS && !SWAP_AB ? g * 16 / GROUP : 0];
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

struct multiplying {
    u32 shared, a, b; /* a, b: descriptors of the consumer's first rows of A, and of B, in stage 0 (low halves) */
    u32 rows;         /* where the scale of this lane's first row lies in stage 0 */
    int consumer, mmas, width;
    struct place at;
};

/* A unit is what a set of temporary sums takes: 64 rows of a block. */
struct unit {
    u32 stage, a, b; /* a, b: descriptors (low halves) */
    struct row_scales rows;
};

INLINE struct multiplying multiplying_of(int mmas, int width, u32 shared, int consumer, u32 from)
{
    const u32 operands = KSPLIT || CLUSTER > 1 ? shared & DESCRIPTOR_ADDRESS : shared;
    struct multiplying m;
    m.shared = shared;
    /* The compiler would compute these anew for each block. */
    m.a = uniform(DESCRIPTOR_LOW(0, SLAB_BYTES) | (operands + consumer * ROWS_EACH * ROW_BYTES) >> 4);
    m.b = uniform(DESCRIPTOR_LOW(0, SLAB_BYTES) | (operands + A_BYTES) >> 4);
    m.rows = scales_at(shared, 0) + (consumer * ROWS_EACH + row_place(LANE_ROW)) * 4;
    if (MODE != MODE_DW) /* dW has no register for it */
        m.rows = (u32)kept(m.rows);
    m.consumer = consumer;
    m.mmas = mmas;
    m.width = width;
    m.at = place_of(from);
    return m;
}

/* Takes the nth unit of a block: waits for its operands, and reads its rows' scales. */
INLINE struct unit take_unit(struct multiplying *m, int nth)
{
    struct unit u;
    if (nth == 0)
        wait_full(m->shared, &m->at);
    u.stage = m->at.stage;
    u.a = m->a + u.stage * (STAGE_BYTES >> 4) + nth * (SLAB_BYTES >> 4);
    u.b = m->b + u.stage * (STAGE_BYTES >> 4);
    load_row_scales(&u.rows, m->rows + u.stage * SCALES_BYTES + nth * 64 * 4);
    if (nth == m->mmas - 1)
        place_next(&m->at);
    return u;
}

/* Issues the wgmmas `from` to `to` of a unit, as a group, which adds to a set of temporaries. */
INLINE void multiply_unit(float acc[MMAS][ACCUMULATORS], const struct multiplying *m, const struct unit *u, int set, int nth,
                          int from, int to)
{
#pragma unroll
    for (int step = from; step < to; step++)
        wgmma(acc, set, descriptor(u->a + step * STEP_UNITS(0)), descriptor(u->b + step * STEP_UNITS(0)), step > 0, m->width);
    wgmma_commit();
}

INLINE u32 column_scales_at(const struct multiplying *m, const struct unit *u, int nth)
{
    /* SWAP_AB: rows are weights */
    const int line = SWAP_AB ? (m->consumer * ROWS_EACH + nth * 64) / GROUP * LINES : TILE_R;
    return scales_at(m->shared, u->stage) + line * 4;
}

INLINE void load_first_columns(struct column_scales *c, const struct multiplying *m, const struct unit *u, int nth)
{
#pragma unroll
    for (int g = 0; g < COLUMNS_AHEAD; g++)
        load_column_scales(c, g, column_scales_at(m, u, nth), m->width);
}

/* Promotes a unit. The last one gives its stage back, unless it is to be kept. */
INLINE void promote_unit(float acc[MMAS][ACCUMULATORS], const struct multiplying *m, const struct unit *u, int set, int nth,
                         struct column_scales *columns, int keep)
{
    const int give = nth == m->mmas - 1 && !keep;
    if (!COLUMN_SCALES && give) {
        warp_barrier(); /* all lanes have read the rows' scales */
        give_stage(m->shared, u->stage);
    }
    promote(acc[nth], set, &u->rows, columns, column_scales_at(m, u, nth), m->width);
    if (COLUMN_SCALES && give) { /* all lanes have read B's scales */
        warp_barrier();
        give_stage(m->shared, u->stage);
    }
}

#if TEMPORARIES > 1
/* Issues half of a unit's wgmmas, promotes the unit before, and issues the other half. A warp waits when it issues more
 * wgmmas than the tensor cores' queue holds. Tiles of 128 x 128 took 7 to 11 % longer where all four wgmmas came
 * before the promotion, and 2 to 7 % where one of four did (H200). */
INLINE void multiply_and_promote(float acc[MMAS][ACCUMULATORS], struct multiplying *m, struct unit of[2], int set, int nth)
{
    const int before = nth > 0 ? nth - 1 : m->mmas - 1;
    struct column_scales columns;
    of[set] = take_unit(m, nth);
    wgmma_fence();
    multiply_unit(acc, m, &of[set], set, nth, 0, STEPS / 2);
    WGMMA_WAIT(1);
    load_first_columns(&columns, m, &of[set ^ 1], before);
    promote_unit(acc, m, &of[set ^ 1], set ^ 1, before, &columns, 0);
    multiply_unit(acc, m, &of[set], set, nth, STEPS / 2, STEPS);
}

INLINE void promote_last(float acc[MMAS][ACCUMULATORS], const struct multiplying *m, const struct unit *u, int set, int nth)
{
    struct column_scales columns;
    WGMMA_WAIT(0);
    load_first_columns(&columns, m, u, nth);
    promote_unit(acc, m, u, set, nth, &columns, KSPLIT);
}

/* Multiplies a tile's blocks, one or more, with two sets of temporaries. */
INLINE u32 multiply_blocks(float acc[MMAS][ACCUMULATORS], struct multiplying *m, u32 shared, int blocks, struct walk *w)
{
    const int round = m->mmas > 1 ? m->mmas : 2; /* a round is even: sets are constants */
    int left = blocks * m->mmas - 1;
    struct unit of[2]; /* by set */
    of[0] = take_unit(m, 0);
    wgmma_fence();
    multiply_unit(acc, m, &of[0], 0, 0, 0, STEPS / 2);
    multiply_unit(acc, m, &of[0], 0, 0, STEPS / 2, STEPS);
#pragma unroll 1
    for (; left >= round; left -= round)
#pragma unroll
        for (int i = 1; i <= round; i++)
            multiply_and_promote(acc, m, of, i & 1, i % m->mmas);
    if (left == 0) { /* An odd number. Without this way out ptxas serialised the wgmmas of even numbers, too (C7514). */
        walk_ahead(shared, w);
        promote_last(acc, m, &of[0], 0, 0);
        return of[0].stage;
    }
#pragma unroll
    for (int i = 1; i < round; i++)
        multiply_and_promote(acc, m, of, i & 1, i % m->mmas);
    walk_ahead(shared, w);
    promote_last(acc, m, &of[1], 1, m->mmas - 1);
    return of[1].stage;
}
#else
/* Takes the next unit while a unit's wgmmas run, as registers allow. dW of 128 x 128 took 5 % longer so. */
#define TAKE_AHEAD (MODE != MODE_DW || (MMAS == 2 && (TMA_STORE || !OUT_FP32)))
/* Blocks in its loop: two take up to 4 % less time than one in large products (H200), where registers allow. */
enum { LOOP_BLOCKS = TAKE_AHEAD && MODE != MODE_DW && !GATHER && !SWAP_AB ? 2 : 1 };

/* The same with one set. */
INLINE u32 multiply_blocks(float acc[MMAS][ACCUMULATORS], struct multiplying *m, u32 shared, int blocks, struct walk *w)
{
    struct unit u, next;
    if (TAKE_AHEAD)
        next = take_unit(m, 0);
#pragma unroll LOOP_BLOCKS
    for (int block = 0; block < blocks; block++)
#pragma unroll
        for (int nth = 0; nth < m->mmas; nth++) {
            const int last = block == blocks - 1 && nth == m->mmas - 1;
            struct column_scales columns;
            u = TAKE_AHEAD ? next : take_unit(m, nth);
            wgmma_fence();
            multiply_unit(acc, m, &u, 0, nth, 0, STEPS);
            if (ROW_SCALES && COLUMN_SCALES) /* ptxas put a product of scales, which waits for loads, between wgmmas */
                warp_barrier();
            load_first_columns(&columns, m, &u, nth);
            if (last)
                walk_ahead(shared, w);
            else if (TAKE_AHEAD)
                next = take_unit(m, (nth + 1) % m->mmas);
            WGMMA_WAIT(0);
            promote_unit(acc, m, &u, 0, nth, &columns, KSPLIT && last);
        }
    return u.stage;
}
#endif

/* Multiplies a tile, and gives back all its stages; with KSPLIT all but the last, through which the sums are sent.
 * Returns the last stage. An expert without tokens has no block: dW's sums are zeros. */
INLINE u32 mainloop_of(float acc[MMAS][ACCUMULATORS], int mmas, int width, u32 shared, int consumer, u32 from, int steps,
                       struct walk *w)
{
    struct multiplying m = multiplying_of(mmas, width, shared, consumer, from);
#pragma unroll
    for (int i = 0; i < MMAS; i++)
#pragma unroll
        for (int j = 0; j < width / 2; j++)
            acc[i][j] = 0.0f;
    if (steps > 0)
        return multiply_blocks(acc, &m, shared, blocks_in(steps), w);
    walk_ahead(shared, w);
    return 0;
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
