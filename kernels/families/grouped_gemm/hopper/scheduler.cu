/* SPDX-License-Identifier: Apache-2.0 */
/* ---- scheduler: experts and tiles ---------------------------------------------------------------- */
/*
 * Each thread block scans the experts' sizes once into shared memory. From then on whole warps compute a tile's place
 * from its number, without walking the experts. Producer and consumers walk the same numbers, and each computes the
 * places itself.
 *
 * The numbers of an expert are contiguous. Within an expert, GROUP_SIZE_M row tiles are walked before the next column
 * tile (FLAG_RASTER_C: column tiles before the next row tile), so that thread blocks that run at the same time share
 * operands in L2.
 */

#define ORDER_MAX 96 /* as in launch_order.h */

/* fp8: the scales of an operand; strides in bytes. forward: b_scales[e][c / 128][d / 128], all others [row][d / 128]. In
 * dW d counts from the first token of all. SCALES_ROWS: [row], in dW [e][row]. */
struct scales {
    const char *data;
    i64 row, block, expert;
};

/* As in host/params.h; strides in bytes. The fields that a product of one expert needs before its first load come
 * first: a warp waits for each line of constants that it reads. */
struct hopper_params {
    char *out_data;
    i64 out_stride;              /* bytes between rows */
    int rows;                    /* routed rows in all */
    int experts;
    int tile_cols;               /* length of c */
    int depth;                   /* length of d; dW: unused, because an expert's rows are the length */
    int group;
    u32 flags;
    /* multiplier and shift for divisions by the number of column tiles; ONE_EXPERT: by a group's tiles */
    u32 cols_mul, cols_shift;
    u32 group_mul, group_shift;  /* for divisions by group */
    int cols;                    /* number of column tiles; with clusters, number of clusters along c */
    /* number of blocks (dW: of experts) that are requested into L2 before they are loaded */
    int ahead;
    int walkers;                 /* number of thread blocks, with clusters of clusters, that take tiles */
    int ahead_shift;             /* dW: log2 of ahead */
    const char *a_rows, *b_rows; /* A's and B's rows, which kernels request into L2 (dW with `ahead`; ONE_EXPERT) */
    u32 a_rows_stride, b_rows_stride; /* bytes between these rows, divided by 16 */
    u32 a_rows_bytes, b_rows_bytes;   /* bytes of each of these rows */
    struct scales a_scales, b_scales; /* of x and dy; of weights, in dW of x */
    const char *gathered;        /* the operand that is gathered by the producer's threads */
    const void *m_sizes;         /* the sizes of the experts, or their ends; not read with one expert, which has all rows */
    const void *gather;
    const void *weights;
    u32 *counter;                /* DYNAMIC: number of tiles drawn (ticket_draw) */
    i64 out_expert;              /* dW: bytes between experts */
    u32 gathered_stride;         /* bytes between rows, divided by 16 */
    int tile_rows;               /* dW: rows (n) of an expert's output; else unused */
    u32 topk_mul, topk_shift;    /* gather index g div topk = g * mul >> shift */
    int height;                  /* SWAP_AB: most rows of a tile; dW: number of tiles of an expert */
    u32 height_mul, height_shift; /* for divisions by height */
    struct tensor_map a, b, out; /* operands that TMA moves */
    struct tensor_map a_part[PARTS], b_part[PARTS]; /* the same operands in smaller boxes */
    /* map of `out` with other boxes: pairs of slabs (STORE_SLABS 2) or 8 rows (GRAIN 8) */
    struct tensor_map out_wide;
    unsigned char order[ORDER_MAX]; /* CLUSTER > 1, by cluster: the number of the first tile that it takes */
    int last_rounds;             /* DYNAMIC: rounds of tiles at the end that clusters draw; others go in turn */
};

/* Ids of named barriers (bar.sync, bar.arrive); 0 is __syncthreads(). */
#define BARRIER_WRITE 1 /* + number of the consumer: its 128 threads meet; KSPLIT: both consumers' threads meet */
#define BARRIER_TURN 3 /* + number of the consumer, which waits for its turn to multiply; the other one arrives */
#define BARRIER_LOADER 5 /* ONE_EXPERT: the loading warp waits here until the mbarriers exist */
#define BARRIER_CONSUMERS 6 /* ONE_EXPERT: the consumers, and warps that bring scales, wait here until the mbarriers exist */

struct tables { /* in shared memory */
    int *start; /* [experts + 1]: first row of each expert, then the end of the last */
    int *ends;  /* [experts]: number of row tiles of experts 0..e; dW: the experts, in the order of their tiles */
};

struct tile {
    int expert;
    int r0, c0;    /* the tile's first r and c, within the expert */
    int first;     /* first row of the expert */
    int rows;      /* rows of the expert */
    int row_tiles; /* number of row tiles of the expert */
    int width;     /* SWAP_AB: rows of the tile, from c0 on */
};

INLINE struct tile no_tile(void)
{
    struct tile t;
    t.expert = t.r0 = t.c0 = t.first = t.rows = t.row_tiles = t.width = 0;
    return t;
}

INLINE int at_most(int v, int most)
{
    return v < most ? v : most;
}

INLINE struct tables tables_at(char *shared, const struct hopper_params *p)
{
    struct tables s;
    s.start = (int *)(shared + TABLES_AT);
    s.ends = s.start + p->experts + 1;
    return s;
}

INLINE int m_sizes_at(const struct hopper_params *p, int e)
{
    if (p->flags & FLAG_M_SIZES_64)
        return (int)((const i64 *)p->m_sizes)[e];
    return ((const int *)p->m_sizes)[e];
}

INLINE int expert_size(const struct hopper_params *p, int e)
{
    if (e >= p->experts)
        return 0;
    return m_sizes_at(p, e) - (p->flags & FLAG_ENDS && e ? m_sizes_at(p, e - 1) : 0);
}

/* The rows of an expert; a negative size counts as 0. add_rows() cuts sums at p->rows, so that wrong sizes cannot
 * reach memory outside the tensors. Each summand is below 2^30, so two never overflow. */
INLINE u32 expert_rows(const struct hopper_params *p, int e)
{
#if FP8
    /* dW: in units of two tokens. An expert's tokens are filled up to blocks of 128. */
    const int size = expert_size(p, e);
    const int m = MODE == MODE_DW && size > 0 ? (int)(((u32)size + 127) / 128 * 64) : size;
#else
    const int m = expert_size(p, e);
#endif
    return m < 0 ? 0 : m < p->rows ? (u32)m : (u32)p->rows;
}

INLINE u32 add_rows(const struct hopper_params *p, u32 a, u32 b)
{
    return a + b < (u32)p->rows ? a + b : (u32)p->rows;
}

INLINE u32 divide(u32 v, u32 mul, u32 shift)
{
    return (u32)((u64)v * mul >> shift);
}

INLINE int row_tiles_of(const struct hopper_params *p, u32 rows)
{
    if (SWAP_AB)
        return rows ? (int)divide(rows - 1, p->height_mul, p->height_shift) + 1 : 0; /* < 2^30 */
    return (int)((rows + TILE_ROWS - 1) / TILE_ROWS);
}

/* Returns the sum of `rows` over this lane and all lower lanes, by add_rows(). */
INLINE u32 scan_rows(const struct hopper_params *p, u32 rows)
{
#pragma unroll
    for (int by = 1; by < 32; by <<= 1) {
        const u32 before = (u32)shuffle_up((int)rows, by);
        if (LANE >= by)
            rows = add_rows(p, rows, before);
    }
    return rows;
}

INLINE int scan_tiles(int tiles)
{
#pragma unroll
    for (int by = 1; by < 32; by <<= 1) {
        const int before = shuffle_up(tiles, by);
        if (LANE >= by)
            tiles += before;
    }
    return tiles;
}

#define EACH 8 /* experts that each lane scans in a pass: one pass is enough for most problems */

/* Writes the table entries of a lane's experts, from e on, which have m[] rows; `rows` and `tiles` count the rows
 * and tiles of all experts before e. */
INLINE void scan_each(const struct hopper_params *p, const struct tables *s, int e,
                      const u32 m[EACH], u32 *rows, int *tiles)
{
    u32 sum = 0;
    int count = 0, ends[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sum = add_rows(p, sum, m[i]);
    const u32 before = (u32)shuffle_up((int)scan_rows(p, sum), 1);
    u32 first = add_rows(p, *rows, LANE ? before : 0);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const u32 last = add_rows(p, first, m[i]);
        count += row_tiles_of(p, last - first);
        ends[i] = count;
        if (e + i < p->experts) {
            s->start[e + i] = (int)first;
            s->start[e + i + 1] = (int)last;
        }
        first = last;
    }
    const int upto = scan_tiles(count);
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (MODE != MODE_DW && e + i < p->experts)
            s->ends[e + i] = *tiles + upto - count + ends[i];
    *rows = (u32)shuffle_from((int)first, 31);
    *tiles += shuffle_from(upto, 31);
}

/* Fills start[] and ends[]; called by one warp. All sizes of a pass are loaded at the same time. Not inlined:
 * inlined, the compiler keeps too many values where accumulators fill the registers. Takes pointers, because the
 * struct would lie in memory for the whole kernel. */
CALLED void scan_experts(const struct hopper_params *p, int *start, int *ends)
{
    const struct tables s = {start, ends};
    u32 rows = 0;
    int tiles = 0;
#pragma unroll 1
    for (int e = LANE * EACH; e - LANE * EACH < p->experts; e += 32 * EACH) {
        u32 m[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++)
            m[i] = expert_rows(p, e + i);
        scan_each(p, &s, e, m, &rows, &tiles);
    }
}

/* Makes the tables that this variant reads; called by one warp. */
INLINE void make_tables(const struct hopper_params *p, const struct tables *s)
{
    if (p->experts > 1) {
        scan_experts(p, s->start, s->ends);
    } else if (LANE == 0) {
        s->start[0] = 0;
        s->start[1] = p->rows;
        if (MODE != MODE_DW)
            s->ends[0] = row_tiles_of(p, (u32)p->rows);
    }
}

/* dW: puts the experts into the order of their tiles; called by all threads after the scan. All experts have
 * equally many tiles, but an expert with many rows takes longer: long tiles first, so that short tiles fill the
 * end. Not inlined, so that the compiler knows that lanes are together after its loop (SAY_TOGETHER, mainloop.cu). */
CALLED void order_experts(const struct hopper_params *p, const int *start, int *order)
{
#pragma unroll 1
    for (int e = THREAD; e < p->experts; e += THREADS) {
        int at = e;
        if (p->flags & FLAG_SORT) {
            const int rows = start[e + 1] - start[e];
            int from = start[0];
            at = 0;
            for (int j = 0; j < p->experts; j++) {
                const int to = start[j + 1];
                at += to - from > rows || (to - from == rows && j < e);
                from = to;
            }
        }
        order[at] = e;
    }
}

INLINE int column_tiles(const struct hopper_params *p)
{
    return p->cols;
}

INLINE int dw_row_tiles(const struct hopper_params *p)
{
    return (p->tile_rows + TILE_ROWS * CLUSTER_R - 1) / (TILE_ROWS * CLUSTER_R);
}

INLINE int count_tiles(const struct hopper_params *p, const struct tables *s)
{
    if (MODE == MODE_DW)
        return p->experts * dw_row_tiles(p) * column_tiles(p);
    if (ONE_EXPERT)
        return row_tiles_of(p, (u32)p->rows) * column_tiles(p);
    return s->ends[p->experts - 1] * column_tiles(p);
}

/* The expert of the q-th row tile: the number of entries of ends[] that are at most q. Called by whole warps. */
INLINE int find_expert(const int *ends, int experts, int q)
{
    int base = 0;
    if (experts > 32) {
        const int last = LANE * 32 + 31;
        base = 32 * count_lanes(last < experts && ends[last < experts ? last : 0] <= q);
    }
    const int e = base + LANE;
    return base + count_lanes(e < experts && ends[e < experts ? e : 0] <= q);
}

INLINE int dw_expert(const struct hopper_params *p, const struct tables *s, int id)
{
    return s->ends[divide((u32)id, p->height_mul, p->height_shift)];
}

INLINE int round_up(int v, int to)
{
    return (v + to - 1) / to * to;
}

/* SWAP_AB: divides an expert's rows among the least number of tiles, in units of GRAIN rows ("grains"). Some tiles have
 * a grain more; only the expert's last grain may have rows that do not exist. Even experts give the extra
 * grains to their first tiles, odd experts to their last: a thread block takes every 132nd tile, possibly the same of
 * each expert. */
INLINE void place_swapped(struct tile *t, int row_tile, int col_tile)
{
    const int tiles = t->row_tiles * CLUSTER;
    const u32 grains = ((u32)t->rows + GRAIN - 1) / GRAIN, each = grains / (u32)tiles;
    const int more = (int)(grains - each * (u32)tiles); /* number of wider tiles */
    const int begin = t->expert & 1 ? tiles - more : 0; /* the first wider tile */
    const int before = row_tile < begin ? 0 : at_most(row_tile - begin, more);
    const int width = ((int)each + (row_tile >= begin && row_tile < begin + more)) * GRAIN;
    t->r0 = col_tile * TILE_COLS;
    t->c0 = (row_tile * (int)each + before) * GRAIN;
    t->width = t->rows - t->c0 < width ? t->rows - t->c0 : width;
    if (CLUSTER > 1 && t->width < 0)
        t->width = 0;
}

/* The expert of a tile and the expert's rows; `id` becomes the tile's number within the expert. Called by whole
 * warps. */
INLINE struct tile locate_expert(const struct hopper_params *p, const struct tables *s, u32 *id)
{
    const u32 cols = (u32)column_tiles(p);
    struct tile t;
    if (ONE_EXPERT) {
        t.expert = t.first = 0;
        t.rows = p->rows;
        t.row_tiles = row_tiles_of(p, (u32)p->rows);
        return t;
    }
#if MODE == MODE_DW
    t.row_tiles = dw_row_tiles(p);
    const u32 at = divide(*id, p->height_mul, p->height_shift);
    t.expert = s->ends[at];
    *id -= at * (u32)p->height;
#else
    t.expert = find_expert(s->ends, p->experts, (int)divide(*id, p->cols_mul, p->cols_shift));
    const int before = t.expert ? s->ends[t.expert - 1] : 0;
    t.row_tiles = s->ends[t.expert] - before;
    *id -= (u32)before * cols;
#endif
    t.first = s->start[t.expert];
    t.rows = s->start[t.expert + 1] - t.first;
    return t;
}

/* Finds a tile from its number; called by whole warps. Computes unsigned, because of the divisions: each takes 0.1
 * microseconds, unless the host prepared the divisor. */
INLINE struct tile locate_tile(const struct hopper_params *p, const struct tables *s, int number)
{
    u32 id = (u32)number, turn, major;
    struct tile t = locate_expert(p, s, &id);
    const int by_column = (p->flags & FLAG_RASTER_C) != 0;
    const u32 cols = (u32)column_tiles(p), row_tiles = (u32)t.row_tiles, group = (u32)p->group;
    const u32 fast = by_column ? cols : row_tiles, slow = by_column ? row_tiles : cols;
    if (ONE_EXPERT) {
        turn = divide(id, p->cols_mul, p->cols_shift);
    } else {
        turn = divide(id, p->group_mul, p->group_shift);
        if (!by_column)
            turn = divide(turn, p->cols_mul, p->cols_shift);
        else if (row_tiles > 1)
            turn /= row_tiles;
    }
    const u32 begin = turn * group; /* first tile of the group, along the dimension that is walked first */
    const u32 width = fast - begin < group ? fast - begin : group;
    id -= begin * slow;
    if (width == group)
        major = divide(id, p->group_mul, p->group_shift);
    else
        major = width > 1 ? id / width : id;
    const u32 minor = begin + id - major * width;
    const int row_tile = (int)(by_column ? major : minor);
    const int col_tile = (int)(by_column ? minor : major);
    if (SWAP_AB) {
        place_swapped(&t, row_tile * CLUSTER + RANK, col_tile);
        return t;
    }
    t.r0 = (row_tile * CLUSTER_R + (CLUSTER_R > 1 ? RANK : 0)) * TILE_R;
    t.c0 = (col_tile * CLUSTER_C + (CLUSTER_C > 1 ? RANK : 0)) * TILE_C;
    t.width = TILE_C;
    return t;
}

INLINE int output_rows(const struct hopper_params *p, const struct tile *t)
{
    return MODE == MODE_DW ? p->tile_rows : t->rows;
}

#if KSPLIT
/* KSPLIT: the number of blocks of the reduction before the part that `rank` sums. No part is empty: the reduction has
 * at least as many blocks as parts. */
INLINE int part_begin(const struct hopper_params *p, u32 rank)
{
    const u32 blocks = ((u32)p->depth + TILE_D - 1) / TILE_D;
    return (int)divide_by_size(rank * blocks);
}
#define FIRST_BLOCK(p) part_begin(p, cluster_rank())
#else
#define FIRST_BLOCK(p) 0
#endif

/* Steps of 16 along the reduction, or along this thread block's part of the reduction. In dW an expert without
 * rows has a step of zeros, so that its output becomes zeros without a special case. In the other modes blocks are
 * whole. */
INLINE int steps_of(const struct hopper_params *p, int rows)
{
#if FP8
    if (MODE == MODE_DW)
        return rows / 16;
#else
    if (MODE == MODE_DW)
        return rows > 16 ? (rows + 15) / 16 : 1;
#endif
#if KSPLIT
    return (part_begin(p, cluster_rank() + 1) - part_begin(p, cluster_rank())) * STEPS;
#else
    return (p->depth + TILE_D - 1) / TILE_D * STEPS;
#endif
}

INLINE int steps_at(const struct hopper_params *p, const struct tables *s, int id)
{
    int rows = 0;
    if (MODE == MODE_DW) {
        const int e = dw_expert(p, s, id);
        rows = s->start[e + 1] - s->start[e];
    }
    return steps_of(p, rows);
}

INLINE int blocks_in(int steps)
{
    return (steps + STEPS - 1) / STEPS;
}

INLINE int blocks_of(const struct hopper_params *p, int rows)
{
    return blocks_in(steps_of(p, rows));
}

/* True if a sum has enough steps for a staggered block at each end (staggered.cu). */
INLINE int is_staggered(int steps)
{
    return steps >= 2 * STEPS;
}

/* dW: the first row of a block. Staggered tiles take the block with fewer steps second, not last. */
INLINE int block_row(const struct hopper_params *p, const struct tile *t, int block)
{
    const int steps = STAGGERED ? steps_of(p, t->rows) : 0;
    if (STAGGERED && block > 0 && steps % STEPS && is_staggered(steps))
        block = block == 1 ? steps / STEPS : block - 1;
    return block * TILE_D;
}

/* ---- rows elsewhere --------------------------------------------------------------------------------- */

INLINE int gather_index(const struct hopper_params *p, int i)
{
    if (p->flags & FLAG_GATHER_64)
        return (int)((const i64 *)p->gather)[i];
    return ((const int *)p->gather)[i];
}

INLINE int token_of(const struct hopper_params *p, int g)
{
    return (int)divide((u32)g, p->topk_mul, p->topk_shift);
}

/* ---- the ring --------------------------------------------------------------------------------------- */

/* A place in the ring of stages, and the parity of its mbarriers' phase. The producer and the consumers count blocks of
 * the reduction alike, over all tiles, so a block has the same place for both. */
struct place {
    u32 stage, phase;
};

INLINE struct place place_of(u32 block)
{
    struct place at;
    at.stage = block % NUM_STAGES;
    at.phase = block / NUM_STAGES & 1;
    return at;
}

INLINE void place_next(struct place *at)
{
    if (++at->stage == NUM_STAGES) {
        at->stage = 0;
        at->phase ^= 1;
    }
}

INLINE u32 full_barrier(u32 shared, u32 stage)
{
    return shared + FULL_AT + stage * 8;
}

INLINE u32 empty_barrier(u32 shared, u32 stage)
{
    return shared + EMPTY_AT + stage * 8;
}

/* ---- which tiles ------------------------------------------------------------------------------------ */
/*
 * A thread block takes tiles BLOCK, BLOCK + BLOCKS, ... A cluster takes tiles in the same way, and begins with tile
 * p->order[its number]. With DYNAMIC only the first tile is dealt so: a thread block draws the number of each further
 * tile when the tile before is nearly done. A cluster draws in the last rounds only. So tiles that end early (the last
 * rows of experts, with SKIP_ROWS) do not leave SMs idle at the end. SMs that share weights also stay close enough in
 * time that L2 still holds the weights.
 *
 * The producer's first warp draws a number (ticket_draw) and hands the number on through a ring of tickets in shared
 * memory. All other warps read all tickets in order, also tickets of other warps' tiles. The number of the last ticket
 * is past the last tile. In a cluster the first thread block's warp draws for all, and hands the number to the ring of
 * each thread block; all warps arrive at the first thread block's mbarrier when they have read a ticket.
 */
#define DRAWS (DYNAMIC && THREAD < 32 && RANK == 0) /* this warp draws */
#if FP8
#define TICKET_WARPS (CLUSTER * (4 * CONSUMERS + (GATHER ? 4 : LOADERS + SCALE_WARPS + SENDS)) - 1)
#else
#define TICKET_WARPS (CLUSTER * (4 * CONSUMERS + (GATHER ? 4 : LOADERS)) - 1)
#endif
#define TICKET_LEAD 4 /* the next number is drawn this many blocks before a tile's end */

INLINE u32 ticket_full(u32 shared, u32 n)
{
    return shared + TICKETS_AT + n % TICKETS * 8;
}

INLINE u32 ticket_empty(u32 shared, u32 n)
{
    return ticket_full(shared, n) + TICKETS * 8;
}

INLINE u32 ticket_number(u32 shared, u32 n)
{
    return shared + TICKETS_AT + TICKETS * 16 + n % TICKETS * 4;
}

#if KSPLIT
#define WALKER ((int)divide_by_size((u32)BLOCK))
#elif CLUSTER > 1
#define WALKER ((int)p->order[BLOCK / CLUSTER])
#else
#define WALKER BLOCK
#endif

#if CLUSTER > 1
INLINE void wait_ticket(u32 bar, u32 parity)
{
    cluster_wait(bar, parity);
}

INLINE void give_ticket(u32 bar, int really)
{
    if (really)
        cluster_arrive_read(cluster_address(bar, 0));
}

INLINE void hand_ticket(u32 to, int id, u32 bar)
{
#pragma unroll
    for (u32 rank = 0; rank < CLUSTER; rank++)
        cluster_hand4(cluster_address(to, rank), id, cluster_address(bar, rank));
}
#else
INLINE void wait_ticket(u32 bar, u32 parity)
{
    barrier_wait(bar, parity);
}

INLINE void give_ticket(u32 bar, int really)
{
    barrier_arrive(bar, really);
}

INLINE void hand_ticket(u32 to, int id, u32 bar)
{
    shared_store4(to, id);
    barrier_arrive(bar, 1);
}
#endif

struct walk {
    int id;    /* number of the tile; when id >= tiles, no tile is left */
    int tiles;
    u32 read;  /* number of tickets read so far */
    const struct hopper_params *p;
#if FP8
    /* LOCATE_EARLY: the tile itself, found while the tile before is multiplied */
    const struct tables *s;
    struct tile tile;
#endif
};

INLINE struct walk walk_begin(const struct hopper_params *p, int tiles)
{
    struct walk w;
    w.p = p;
    w.id = WALKER;
    w.tiles = tiles;
    w.read = 0;
    return w;
}

/* Goes on to the next tile; called by whole warps, except the warp that hands tickets out. The lane that reads the
 * ticket also arrives at the mbarrier that frees the ticket's place in the ring. */
INLINE void walk_next(u32 shared, struct walk *w)
{
    if (!DYNAMIC) {
        w->id += w->p->walkers;
    } else if (w->id < w->tiles) {
        const u32 n = w->read++;
        wait_ticket(ticket_full(shared, n), n / TICKETS & 1);
        u32 leader;
        const int one = elected_by(&leader);
        if (one)
            w->id = shared_load4(ticket_number(shared, n));
        w->id = shuffle_from(w->id, (int)leader);
        give_ticket(ticket_empty(shared, n), one);
    }
}

#if CLUSTER > 1
/* Returns the first tile of the last rounds, whose tiles are drawn. A cluster's first tile is never drawn. */
INLINE int last_rounds_from(const struct hopper_params *p, int tiles)
{
    const int from = tiles - p->last_rounds * p->walkers;
    return from > p->walkers ? from : p->walkers;
}

/* The number of the tile after w's, or -1 if that tile is in the last rounds, whose tiles are drawn. While tiles are
 * dealt in turn, clusters with adjacent tiles stay in step, and L2 serves their reads together. So only the last rounds
 * are drawn, where it matters that some clusters end early. */
INLINE int number_in_turn(const struct hopper_params *p, const struct walk *w)
{
    const int next = w->id + p->walkers;
    return next < last_rounds_from(p, w->tiles) ? next : -1;
}
#else
#define last_rounds_from(p, tiles) ((p)->walkers)
#define number_in_turn(p, w) 0
#endif

/* Draws the number of the next tile; called by one thread. */
INLINE int ticket_draw(const struct hopper_params *p, int tiles)
{
    (void)tiles;
    return last_rounds_from(p, tiles) + (int)global_add(p->counter, 1);
}

/* Waits until all warps have read the older ticket whose place in the ring the n-th ticket takes. */
INLINE void ticket_wait(u32 shared, u32 n)
{
    barrier_wait(ticket_empty(shared, n), (n / TICKETS & 1) ^ 1);
}

INLINE void ticket_hand(u32 shared, struct walk *w, int id)
{
    const u32 n = w->read++;
    ticket_wait(shared, n);
    hand_ticket(ticket_number(shared, n), id, ticket_full(shared, n));
}
