/* SPDX-License-Identifier: Apache-2.0 */
/* ---- permute: gathers by a copy before the kernel (permute_copy) --------------------------------------- */
/*
 * A kernel that runs before the main kernel. It copies the gathered rows into the workspace, in expert order, so that
 * TMA can load them. This makes the main kernel faster, whose tiles read the rows N / TILE_C times. A warp copies a
 * row. The last rows are copied first, so that L2 still has the rows of the first tiles (not in copies by token).
 *
 * Many tokens with several rows each are copied by token: a warp reads a token's row once and writes all its places.
 * This saves Qwen3's dW 6 microseconds with 4096 tokens, and 67 microseconds with 16384 tokens. An earlier kernel finds
 * the places: it notes in p->places, at the slot that each row's gather index names, that row (a token's topk slots are
 * adjacent). The copy uses a note only if the noted row's index names the slot, so old notes need not be cleared. A row
 * without a note, because another row's index names the same slot or because the slot is out of range, is copied
 * singly.
 */
#if PERMUTE_COPY
#define PERMUTE_THREADS 256
#define PERMUTE_AHEAD 4       /* loads in flight per thread */
/* loads in flight per thread in copies by token, where a row is written more often than read */
#define PERMUTE_AHEAD_TOKEN 8
#define PERMUTE_OTHERS 8      /* number of rows that a warp tests at a time in permute_others() */
#define NO_PLACE (-1)

struct permute_params { /* as in host/params.h */
    const char *from;
    char *to;
    const void *gather;
    int *places;              /* [tokens * topk], by slot: the routed row whose gather index is the slot */
    i64 from_stride;          /* bytes between rows of `from`; rows of `to` are adjacent */
    int rows;
    int chunks;               /* number of 16-byte chunks in a row */
    u32 flags;                /* FLAG_GATHER_64 */
    u32 row_mul, row_shift;   /* row of `from` = gather index * row_mul >> row_shift */
    int topk;                 /* 0: rows are copied singly, without places */
};

#define PERMUTE_WARPS (PERMUTE_THREADS / 32 * BLOCKS)
#define PERMUTE_WARP (BLOCK * (PERMUTE_THREADS / 32) + (THREAD >> 5))

INLINE int permute_index(const struct permute_params *p, int i)
{
    return p->flags & FLAG_GATHER_64 ? (int)((const i64 *)p->gather)[i] : ((const int *)p->gather)[i];
}

INLINE void permute_row(const struct permute_params *p, int i)
{
    const i64 row = (i64)((u64)(u32)permute_index(p, i) * p->row_mul >> p->row_shift);
    const char *from = p->from + row * p->from_stride;
    char *to = p->to + (i64)i * p->chunks * 16;
#pragma unroll 1
    for (int c = LANE; c < p->chunks; c += 32 * PERMUTE_AHEAD) {
        u32 v[PERMUTE_AHEAD][4];
#pragma unroll
        for (int i = 0; i < PERMUTE_AHEAD; i++)
            if (c + i * 32 < p->chunks)
                global_load16(v[i], from + (i64)(c + i * 32) * 16);
#pragma unroll
        for (int i = 0; i < PERMUTE_AHEAD; i++)
            if (c + i * 32 < p->chunks)
                global_store16(to + (i64)(c + i * 32) * 16, v[i]);
    }
}

/* Returns the row that names this lane's slot (`slot` + lane), or NO_PLACE. */
INLINE int permute_place(const struct permute_params *p, int slot, int slots)
{
    if (LANE >= slots || slot + LANE >= p->rows)
        return NO_PLACE;
    const int i = p->places[slot + LANE];
    return (u32)i < (u32)p->rows && permute_index(p, i) == slot + LANE ? i : NO_PLACE;
}

/* Copies a token's row to the places of at most 32 of its slots. */
INLINE void permute_slots(const struct permute_params *p, int token, int slot, int slots)
{
    const int place = permute_place(p, slot, slots);
    const char *from = p->from + (i64)token * p->from_stride;
    if (!count_lanes(place != NO_PLACE))
        return;
#pragma unroll 1
    for (int begin = 0; begin < p->chunks; begin += 32 * PERMUTE_AHEAD_TOKEN) {
        const int c = begin + LANE;
        u32 v[PERMUTE_AHEAD_TOKEN][4];
#pragma unroll
        for (int i = 0; i < PERMUTE_AHEAD_TOKEN; i++)
            if (c + i * 32 < p->chunks)
                global_load16(v[i], from + (i64)(c + i * 32) * 16);
#pragma unroll 1
        for (int s = 0; s < slots; s++) {
            const int row = shuffle_from(place, s);
            char *to = p->to + (i64)row * p->chunks * 16;
            if (row == NO_PLACE)
                continue;
#pragma unroll
            for (int i = 0; i < PERMUTE_AHEAD_TOKEN; i++)
                if (c + i * 32 < p->chunks)
                    global_store16(to + (i64)(c + i * 32) * 16, v[i]);
        }
    }
}

INLINE void permute_tokens(const struct permute_params *p)
{
#pragma unroll 1
    for (int token = PERMUTE_WARP; (i64)token * p->topk < p->rows; token += PERMUTE_WARPS)
#pragma unroll 1
        for (int s = 0; s < p->topk; s += 32)
            permute_slots(p, token, token * p->topk + s, at_most(p->topk - s, 32));
}

/* Copies the rows that p->places[] does not name. A layer has few or none, but a call with the rows of only some
 * experts has many. So all warps share the test. */
INLINE void permute_others(const struct permute_params *p)
{
#pragma unroll 1
    for (int begin = PERMUTE_WARP * PERMUTE_OTHERS; begin < p->rows; begin += PERMUTE_WARPS * PERMUTE_OTHERS) {
        const int i = begin + LANE, mine = LANE < PERMUTE_OTHERS && i < p->rows;
        const int slot = mine ? permute_index(p, i) : 0;
        const int other = mine && ((u32)slot >= (u32)p->rows || p->places[slot] != i);
        if (!count_lanes(other))
            continue;
#pragma unroll 1
        for (int lane = 0; lane < PERMUTE_OTHERS; lane++)
            if (shuffle_from(other, lane))
                permute_row(p, begin + lane);
    }
}

KERNEL_OF(PERMUTE_THREADS, 1) grouped_gemm_places(PARAMS(permute_params) p)
{
    for (int i = BLOCK * PERMUTE_THREADS + THREAD; i < p.rows; i += PERMUTE_THREADS * BLOCKS) {
        const int slot = permute_index(&p, i);
        if ((u32)slot < (u32)p.rows)
            p.places[slot] = i;
    }
}

KERNEL_OF(PERMUTE_THREADS, 1) grouped_gemm_permute(PARAMS(permute_params) p)
{
    if (p.topk) {
        permute_tokens(&p);
        permute_others(&p);
        return;
    }
    for (int i = p.rows - 1 - PERMUTE_WARP; i >= 0; i -= PERMUTE_WARPS)
        permute_row(&p, i);
}
#endif
