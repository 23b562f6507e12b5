/* SPDX-License-Identifier: Apache-2.0 */
/* ---- permute: the other way to gather ------------------------------------------------------------------ */
/*
 * PERMUTE_COPY: the rows that would be gathered are copied to the workspace, in expert order, so that TMA can load them. Tiles, which
 * read them N / TILE_C times, are faster for it. It is done by the same launch, while others multiply: by those warps of the producer
 * that do not load; and before the first tiles, which wait for their rows, by the consumers, too, which have nothing else to do. A
 * kernel of its own, before, took 20 to 40 microseconds of Qwen3's and Mixtral's layers of 4096 tokens.
 *
 * Warps take the next rows as they come free. None waits for rows that a block of threads would copy that has not begun: where
 * other kernels have the SMs, that block may wait for this one.
 *
 * p->counter, which the launch begins with zeros: [0] is of tickets (DYNAMIC), [1] counts rows that are taken, and
 * [2 + i] those of rows 64 i to 64 i + 63 that are there.
 */
#if PERMUTE_COPY
#define COPY_UNIT 64  /* rows that are counted together, */
#define COPY_TAKEN 4  /* ... and that a warp takes at a time, while others multiply */
#define COPY_AHEAD (PRODUCER_REGISTERS > 0 && PRODUCER_REGISTERS < 56 ? 4 : 8) /* loads in flight, of a thread */
#define IS_COPIER (THREAD >= 32 * LOADERS) /* of the producer's warps */

INLINE u32 *copied_rows(const struct hopper_params *p, int row)
{
    return p->counter + 2 + row / COPY_UNIT;
}

/* How many of the unit's rows there are to be. */
INLINE u32 unit_rows(const struct hopper_params *p, int unit)
{
    return (u32)at_most(p->rows - unit * COPY_UNIT, COPY_UNIT);
}

/* By whole warps: the first of `n` rows that nobody else has taken. */
INLINE int take_rows(const struct hopper_params *p, int n)
{
    int first = 0;
    if (LANE == 0)
        first = (int)global_add(p->counter + 1, (u32)n);
    return shuffle_from(first, 0);
}

INLINE void copy_row(const struct hopper_params *p, int row, int g)
{
    const char *from = p->gathered + (u64)(u32)token_of(p, g) * p->gathered_stride * 16;
    char *to = p->copied + (u64)(u32)row * (u32)p->copy_chunks * 16;
#pragma unroll 1
    for (int c = LANE; c < p->copy_chunks; c += 32 * COPY_AHEAD) {
        u32 v[COPY_AHEAD][4];
#pragma unroll
        for (int i = 0; i < COPY_AHEAD; i++)
            if (c + i * 32 < p->copy_chunks)
                global_load16(v[i], from + (u64)(u32)(c + i * 32) * 16);
#pragma unroll
        for (int i = 0; i < COPY_AHEAD; i++)
            if (c + i * 32 < p->copy_chunks)
                global_store16(to + (u64)(u32)(c + i * 32) * 16, v[i]);
    }
}

/* By whole warps: `n` rows at a time, until `until` are taken. */
INLINE void copy_rows(const struct hopper_params *p, int until, int n)
{
    int first;
    do {
        first = take_rows(p, n);
        const int end = at_most(first + n, p->rows), mine = first + LANE;
        const int g = mine < end ? gather_index(p, mine) : 0;
#pragma unroll 1
        for (int row = first; row < end; row++)
            copy_row(p, row, shuffle_from(g, row - first));
        global_async_fence();
        warp_barrier();
        if (mine < end)
            count_up(copied_rows(p, mine));
    } while (first + n < until);
}

/* By the producer's warps that do not load. */
INLINE void copy_meanwhile(const struct hopper_params *p)
{
    if (p->rows > 0) /* else there are no counters */
        copy_rows(p, p->rows, COPY_TAKEN);
}

/* By the consumers: rows of the experts that the first tiles are of. */
INLINE void copy_first(const struct hopper_params *p, const struct tables *s, int tiles)
{
    int until = 0;
    if (tiles == 0)
        return;
    u32 last = (u32)at_most(tiles, WALKERS) - 1;
    if (MODE == MODE_DW) {
        const int experts = (int)divide(last, p->height_mul, p->height_shift) + 1;
        for (int i = 0; i < experts; i++)
            until = s->start[s->ends[i] + 1] > until ? s->start[s->ends[i] + 1] : until;
    } else {
        const struct tile t = locate_expert(p, s, &last);
        until = t.first + t.rows;
    }
    if (until > 0)
        copy_rows(p, until, 1);
}

/* Units that a warp knows to be there: from one on, before another. */
struct there {
    int from, until;
};

INLINE struct there none_there(void)
{
    struct there t;
    t.from = t.until = 0;
    return t;
}

/* By whole warps: until rows `first` and on, before `end`, are there for TMA. Of some units beyond, it sees whether they are: so it seldom has
 * to look. */
INLINE void await_rows(const struct hopper_params *p, struct there *there, int first, int end)
{
    const int unit = first / COPY_UNIT, need = (end + COPY_UNIT - 1) / COPY_UNIT, mine = unit + LANE;
    if (first >= end || (unit >= there->from && need <= there->until))
        return;
    const int exists = mine * COPY_UNIT < p->rows;
    there->from = unit;
    there->until = unit + first_lanes(exists && count_now(copied_rows(p, exists ? mine * COPY_UNIT : 0)) == unit_rows(p, mine));
    if (there->until < need) {
#pragma unroll 1
        for (int i = mine; i < need; i += 32)
            await_count(copied_rows(p, i * COPY_UNIT), unit_rows(p, i));
        there->until = need;
    }
    warp_barrier();
    global_async_fence();
}
#else
#define IS_COPIER 0
#define copy_meanwhile(p) ((void)0)
#define copy_first(p, s, tiles) ((void)0)

struct there {
    int none;
};

INLINE struct there none_there(void)
{
    struct there t;
    t.none = 0;
    return t;
}

#define await_rows(p, there, first, end) ((void)(there))
#endif
