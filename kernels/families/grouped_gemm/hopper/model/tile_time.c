/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a tile's config, from the facts of a problem.
 *
 * Tiles go round robin over the SMs, with one thread block each. A block of the reduction takes as
 * long as the slowest of:
 * - multiplying: the whole tile, or with skip_rows only groups of 64 rows in which a row exists;
 * - loading the existing rows and columns. L2 feeds all SMs at a rate that big tiles reach, and
 *   feeds an operand that a cluster shares once;
 * - waiting: a stage is free again one latency and one or two multiplications after its load was
 *   issued.
 *
 * Then a tile is written. Other work hides a part of the write: in cooperative tiles the loads of
 * the next tile; in staggered tiles the multiplication of the tile's other half (in dW no more than
 * loads, as measured); in deferred tiles that of the next tile; in ping-pong that of the other
 * consumer's tile. Further time is lost by SMs without a tile in the last round, and by waits for
 * longer tiles.
 *
 * Memory delivers each operand once, and again the parts that L2 dropped. A group of GROUP_SIZE_M
 * tiles walks along the second operand: all of that operand is read once per group, and the group's
 * own strip once per round if both do not fit.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"

enum { SLAB = 64 };

struct timing {
    const struct hopper_facts *f;
    const struct hopper_tile *t;
    const struct hopper_constants *c;
    double gather_a, gather_b; /* 1: the producer's threads gather the operand */
    /* flops of an SM per microsecond, at the rate at which this kernel multiplies */
    double flops;
    double slots; /* number of tiles that the device works on at the same time */
    /* the fraction of A's rows that each thread block reads from L2: a cluster shares the rows */
    double part_a;
};

/* ---- one tile -------------------------------------------------------------------------------- */

/* fp8: the part of the time of wgmma that promotion adds, a multiply-add for each sum and block of
 * 128 of the reduction, by the threads. A second multiplying warpgroup hides most of it. */
static double timing_promotion(const struct hopper_tile *t, const struct hopper_constants *c)
{
    const double issue = t->scales == HOPPER_NO_SCALES     ? 0
                         : t->scales == HOPPER_SCALE_LINES ? c->promote_lines
                         : t->swap_ab                      ? c->promote_swapped
                                                           : c->promote;
    return t->consumers > 1 ? issue * c->promote_beside : issue;
}

static double flops_rate(const struct hopper_facts *f, const struct hopper_tile *t,
                         const struct hopper_constants *c)
{
    const double drain = f->v.mode == GEMM_DX ? c->drain_dx : c->drain_pingpong;
    return c->flops_us * f->speed / (t->pingpong && !t->in_flight ? drain : 1) /
           (1 + timing_promotion(t, c));
}

static double timing_square(double v)
{
    return v * v;
}

/* The time of two activities that go on at the same time: as long as the longer, and more when
 * both are long, since they wait for each other. */
static double at_once(double a, double b)
{
    return sqrt(sqrt(timing_square(timing_square(a)) + timing_square(timing_square(b))));
}

/* The number of pieces of a consumer's output, of 64 rows or columns each, that pass through the
 * consumer's buffers in turn. */
static double timing_count_pieces(const struct hopper_tile *t, double c)
{
    return (t->swap_ab ? t->rows_each / SLAB : 1) * ceil(c / SLAB);
}

/* The time of the stores of a consumer's part of a tile. With one staging buffer each piece waits
 * until the piece before has left. Stores by threads take longer by a fitted factor, except where
 * hopper_threads_write() says that threads are as fast as TMA. Scattered rows always get the
 * factor: TMA cannot scatter, so no comparison exists. */
static double store_us(const struct timing *x, double r, double c)
{
    const double part = x->t->pingpong ? 1 : x->t->consumers;
    const double alone = x->t->consumers == 1 ? x->c->alone : 1;
    const double us = r * c * (double)dtype_size(x->f->v.out) / part / x->c->store_us * alone;
    if (!x->t->tma_store) {
        return !x->f->v.scatter && hopper_threads_write(&x->f->v, x->t) ? us
                                                                        : us * x->c->direct_store;
    }
    return us +
           (x->t->staging == x->t->store_slabs ? timing_count_pieces(x->t, c) * x->c->piece_us : 0);
}

/* The extra time of split sums: all thread blocks write their sums, wait for each other, and add
 * the sums up. */
static double split_us(const struct timing *x, double r, double c)
{
    return x->c->split_us + r * c * 4 / x->t->consumers / x->c->sums_us;
}

/* The number of rows that TMA loads for `exist` rows. A box has 16, 32 or 64 rows, so a rest of 48
 * rows loads as 64. */
static double timing_count_boxes(double exist)
{
    const double rows = ceil(exist / 16) * 16;
    return rows - floor(rows / 64) * 64 == 48 ? rows + 16 : rows;
}

/* The time of the loads of a block, or of `part` of a block; r, c: existing rows and columns,
 * rounded up to 16 or 8. */
static double load_us(const struct timing *x, double r, double c, double part)
{
    const double a = timing_count_boxes(r), b = timing_count_boxes(c),
                 d = timing_count_boxes(part * HOPPER_DEPTH) * 2;
    return d * ((a * x->part_a + b) / x->c->load_us +
                (a * x->gather_a + b * x->gather_b) / x->c->gather_us);
}

static double multiply_us(const struct timing *x, double r, double exist)
{
    const double rows = x->t->skip_rows ? ceil(r / SLAB) * SLAB : x->t->r;
    const double c = x->t->swap_ab ? exist : x->t->c;
    const double steps = HOPPER_DEPTH / 16, read = steps * rows / SLAB * (SLAB + c) * 32;
    const double us = 2.0 * HOPPER_DEPTH * rows * c / x->flops;
    return fmax(us, (read + (x->t->r + c) * HOPPER_DEPTH * 2) / x->c->shared_us);
}

/* The time of a block, or of `part` of a block. `wait`: a stage is free again one latency and one
 * or two multiplications after its load was issued. */
static double timing_block_us(const struct timing *x, double r, double c, double part,
                              double multiply)
{
    const double wait = (x->c->latency_us + (1 + x->t->in_flight) * multiply) / x->t->stages;
    return at_once(at_once(multiply, wait) * part, load_us(x, r, c, part));
}

/* The time of a tile with `blocks` blocks of the reduction, which need not be a whole number. */
static double timing_tile_us(const struct timing *x, double blocks, double r, double c)
{
    const double multiply = multiply_us(x, r, c);
    const double store = x->t->ksplit > 1 ? split_us(x, r, c) : store_us(x, r, c);
    const double whole = floor(blocks), part = blocks - whole;
    double us = whole * timing_block_us(x, r, c, 1, multiply);
    us += part > 0 ? timing_block_us(x, r, c, part, multiply) : 0;
    if (x->t->pingpong) {
        return x->c->turn_us + fmax(us, (blocks * multiply + store) / 2);
    }
    const double between = x->f->v.mode == GEMM_DW ? x->c->tile_sums : x->c->tile_us;
    const double kept =
        x->t->deferred ? fmin(1, hopper_kept(x->t) / fmax(1, timing_count_pieces(x->t, c))) : 0;
    const double bare = x->t->staggered && x->f->v.mode != GEMM_DW
                            ? x->c->staggered
                            : 1 - kept * (1 - x->c->deferred);
    const double end = bare * (store + between), slack = us - blocks * multiply;
    return us + fmax(x->c->exposed * end, end - slack);
}

/* ---- all tiles ------------------------------------------------------------------------------- */

/* Tiles along a side of the output: whole tiles, and a cut tile of `rest`, rounded up (0: no cut
 * tile). */
struct side {
    double whole, rest;
};

static struct side side_of(double length, double tile, double unit)
{
    struct side s = {.whole = floor(length / tile)};
    s.rest = ceil((length - s.whole * tile) / unit) * unit;
    return s;
}

static double tiles_of(const struct side *s)
{
    return s->whole + (s->rest > 0 ? 1 : 0);
}

/* All tiles of a launch: their number, times and squares of times. */
struct load {
    double tiles, us, squares, longest; /* us: sum of the tiles' times; squares: of their squares */
    double cut_tiles, cut_us;           /* of these, tiles with fewer rows than a whole tile */
};

static void add_tiles(struct load *l, double tiles, double us)
{
    l->tiles += tiles;
    l->us += tiles * us;
    l->squares += tiles * us * us;
    l->longest = tiles > 0 ? fmax(l->longest, us) : l->longest;
}

/* Adds n rows of tiles, each with whole tiles and perhaps a last tile of fewer columns. */
static void add_columns(const struct timing *x, struct load *l, double n, double blocks, double r,
                        const struct side *cols)
{
    if (n > 0 && cols->whole > 0) {
        add_tiles(l, n * cols->whole, timing_tile_us(x, blocks, r, x->t->c));
    }
    if (n > 0 && cols->rest > 0) {
        add_tiles(l, n, timing_tile_us(x, blocks, r, cols->rest));
    }
}

/* Adds the tiles of swap_ab: the rows of an expert are divided evenly over its tiles, so the width
 * of a tile depends on the expert. */
static void add_swapped(const struct timing *x, struct load *l, double blocks,
                        const struct side *cols)
{
    const double *tiles = x->f->swapped[hopper_sharers(x->t) - 1][x->t->height / HOPPER_GRAIN - 1];
    for (int i = 1; i <= x->t->height / 8; i++) {
        if (tiles[i] > 0 && cols->whole > 0) {
            add_tiles(l, tiles[i] * cols->whole, timing_tile_us(x, blocks, x->t->r, i * 8));
        }
        if (tiles[i] > 0 && cols->rest > 0) {
            add_tiles(l, tiles[i], timing_tile_us(x, blocks, cols->rest, i * 8));
        }
    }
}

static void timing_add_experts(const struct timing *x, struct load *l)
{
    const struct hopper_facts *f = x->f;
    const bool forward = f->v.mode == GEMM_FORWARD;
    const double depth = ceil((double)(forward ? f->v.k : f->v.n) / HOPPER_DEPTH);
    const double blocks = ceil(depth / x->t->ksplit);
    const struct side cols =
        side_of((double)f->v.out_cols, hopper_tile_cols(x->t), forward ? 16 : SLAB);
    if (x->t->swap_ab) {
        add_swapped(x, l, blocks, &cols);
        return;
    }
    const int h = x->t->r / SLAB - 1;
    add_columns(x, l, f->height[h].whole, blocks, x->t->r, &cols);
    const double whole = l->tiles, whole_us = l->us;
    for (int i = 1; i <= x->t->r / 16; i++) {
        add_columns(x, l, f->height[h].cut[i], blocks, i * 16, &cols);
    }
    l->cut_tiles = l->tiles - whole;
    l->cut_us = l->us - whole_us;
}

/* Adds the tiles of dW: all experts have equally many tiles, and an expert's rows determine a
 * tile's length. */
static void add_sums(const struct timing *x, struct load *l)
{
    const struct hopper_facts *f = x->f;
    const struct side rows = side_of((double)f->v.n, x->t->r, SLAB);
    const struct side cols = side_of((double)f->v.k, x->t->c, SLAB);
    for (uint32_t i = 0; i < f->n_bins; i++) {
        const double blocks = ceil(f->bin[i].rows / 16) / 4;
        add_columns(x, l, f->bin[i].experts * rows.whole, blocks, x->t->r, &cols);
        add_columns(x, l, rows.rest > 0 ? f->bin[i].experts : 0, blocks, rows.rest, &cols);
    }
    const double empty = (double)f->v.experts - f->active;
    add_columns(x, l, empty * tiles_of(&rows), 0.25, x->t->r, &cols);
}

/* dW: the time that SMs lose because an expert gives some SMs one tile more than others. Over all
 * experts the differences add up like a random walk. */
static double walk_us(const struct timing *x, const struct load *l)
{
    const double mean = l->us / l->tiles, variance = l->squares / l->tiles - mean * mean;
    const double experts = (double)x->f->v.experts, each = l->tiles / experts / x->f->sms;
    const double odd = each - floor(each);
    return sqrt(fmax(0, variance) * experts * odd * (1 - odd));
}

/* Extra time of the launch over evenly spread work. The last round is not full. Tiles that are cut
 * short save almost no time, since the SMs with cut tiles are rarely the last to end. */
static double sm_us(const struct timing *x, const struct load *l)
{
    const double even = l->us / x->slots, more = l->longest - l->us / l->tiles;
    const double rounds = l->tiles / x->slots, uneven = ceil(rounds) / rounds - 1;
    double us = even * (1 + x->c->sm_round * uneven);
    if (x->f->v.mode == GEMM_DW) {
        us = (us + x->c->uneven * walk_us(x, l)) * (x->t->sort_experts ? x->c->sorted : 1);
    } else {
        const double share = x->t->dynamic ? 0 : x->c->cut_share;
        us += (share * rounds + x->c->cut_round) * more;
    }
    /* swap_ab, r of at most 128: the measured times of all three such tiles differ from the model
     * by this factor, for an unknown reason. */
    if (x->t->swap_ab && x->t->r <= 128) {
        us *= !x->t->dynamic ? x->c->swapped_narrow : x->t->pingpong ? 1 : x->c->narrow_dynamic;
    }
    return fmax(us, l->longest);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The share of `bytes` that memory must deliver again. 0: all bytes stay in L2 until the next
 * read; 1: no byte stays. */
static double timing_missed_share(const struct timing *x, double bytes)
{
    return fmin(1, bytes / (x->f->l2_bytes * x->c->l2_part));
}

/* Bytes of both operands that memory delivers again to an expert's tiles, because L2 dropped the
 * bytes. The output has `fast` x `slow` tiles; in a group, tile numbers grow along `fast` first.
 * All tiles with the same place along `fast` read the same `fast_strip` bytes of the first operand.
 * All tiles with the same place along `slow` read the same `slow_strip` bytes of the second. */
static double timing_bytes_again(const struct timing *x, double fast, double slow,
                                 double fast_strip, double slow_strip)
{
    const double sms = x->slots / hopper_sharers(x->t); /* a cluster's tiles are adjacent */
    if (fast * slow <= sms) {
        return 0;
    }
    const double width = fmin(fmax(fmin(x->t->group, fast), sms / slow), fast);
    const double groups = ceil(fast / width), rounds = width * slow / sms;
    const double own = width * fast_strip, other = slow * slow_strip;
    const double in_round = own + fmin(slow, sms / width) * slow_strip;
    return fmax(0, groups - 1) * other * timing_missed_share(x, own + other) +
           groups * fmax(0, rounds - 1) * own * timing_missed_share(x, in_round);
}

static double again_of(const struct timing *x, double row_tiles, double col_tiles, double depth)
{
    const double in = (double)dtype_size(x->f->v.in) * depth;
    const double row_strip = x->t->height * hopper_rows_together(x->t) * in,
                 col_strip = hopper_tile_cols(x->t) * in;
    return x->t->raster_columns ? timing_bytes_again(x, col_tiles, row_tiles, col_strip, row_strip)
                                : timing_bytes_again(x, row_tiles, col_tiles, row_strip, col_strip);
}

/* A factor of the bytes of sums that are added to the output. */
static double timing_added(const struct timing *x)
{
    return x->c->added * (x->t->tma_store ? 1 : x->c->added_direct) *
           (x->t->consumers > 1 ? 1 : x->c->added_alone);
}

static double timing_bytes_once(const struct timing *x, double write)
{
    const struct gemm *v = &x->f->v;
    const struct hopper_facts *f = x->f;
    const struct hopper_tile *t = x->t;
    const double in = (double)dtype_size(v->in), out = (double)dtype_size(v->out) * write;
    const double m = (double)v->m, n = (double)v->n, k = (double)v->k;
    const double x_rows = t->permute_copy && v->gather_x ? m : (double)v->x_rows;
    switch (v->mode) {
    case GEMM_FORWARD:
        return in * (x_rows * k + f->active * n * k) + out * m * n;
    case GEMM_DX:
        return in * (m * n + f->active * n * k) + out * m * k;
    default:
        return in * (m * n + x_rows * k) +
               out * (double)v->experts * n * k * (v->accumulate ? 2 * timing_added(x) : 1);
    }
}

/* Bytes that memory delivers again because cut tiles, which take less time, run ahead of the whole
 * tiles with the same columns: L2 drops the shared operand before the whole tiles read it. */
static double timing_bytes_apart(const struct timing *x, const struct load *l, double cols,
                                 double depth)
{
    const struct hopper_facts *f = x->f;
    const double whole = l->tiles - l->cut_tiles, beside = f->height[x->t->r / SLAB - 1].beside;
    if (l->cut_tiles == 0 || whole == 0) {
        return 0;
    }
    const double ahead = 1 - l->cut_us / l->cut_tiles / ((l->us - l->cut_us) / whole);
    const double in = (double)dtype_size(f->v.in) * depth;
    const double row_tiles = l->tiles / cols / f->active;
    const double width = x->t->raster_columns ? row_tiles : fmin(x->t->group, row_tiles);
    const double columns = fmin(f->sms / width, cols * f->active);
    const double in_round = width * x->t->r * in + columns * x->t->c * in;
    const double times = x->t->dynamic ? x->c->dynamic_apart : x->c->apart;
    return times * beside * cols * x->t->c * in * timing_missed_share(x, fmax(0, ahead) * in_round);
}

static double timing_bytes_moved(const struct timing *x, const struct load *l)
{
    const struct hopper_facts *f = x->f;
    const struct gemm *v = &f->v;
    const double cols = ceil((double)v->out_cols / hopper_tile_cols(x->t));
    const double narrow = 256.0 / hopper_tile_cols(x->t) - 1;
    const double more = v->mode == GEMM_DW ? x->c->narrow_sums : x->c->write_narrow;
    const double direct = v->mode == GEMM_DW && !x->t->tma_store ? x->c->write_direct : 1;
    const double wide = x->t->store_slabs > 1 ? x->c->write_wide : 1;
    double bytes = timing_bytes_once(x, direct * wide * x->c->hbm_write * (1 + more * narrow));
    if (v->mode != GEMM_DW) {
        bytes += timing_bytes_apart(x, l, cols, (double)(v->mode == GEMM_FORWARD ? v->k : v->n));
    }
    for (uint32_t i = 0; i < f->n_bins; i++) {
        const double rows = f->bin[i].rows;
        const double row_tiles = ceil((v->mode == GEMM_DW ? (double)v->n : rows) /
                                      (x->t->height * hopper_rows_together(x->t)));
        const double depth = v->mode == GEMM_DW ? rows : (double)gemm_count_terms(v);
        bytes += f->bin[i].experts * again_of(x, row_tiles, cols, depth);
    }
    return bytes;
}

static double memory_us(const struct timing *x, const struct load *l)
{
    const double rounds = l->tiles / x->slots;
    const double uneven = ceil(rounds) / rounds - 1;
    const double free = x->t->stages - 1 - x->t->in_flight; /* stages that can be loading */
    /* The launch takes longer for each stage that `free` lacks to four, because too few requests to
     * memory are under way. */
    const double starved = x->f->v.mode == GEMM_FORWARD ? x->c->starved
                           : x->f->v.mode == GEMM_DX    ? x->c->starved_dx
                                                        : 0;
    return timing_bytes_moved(x, l) / (x->f->bytes_us * x->c->hbm) *
           (1 + x->c->hbm_round * uneven) * (1 + starved * fmax(0, 4 - free));
}

/* The copy reads each row of the operand from memory once, since later reads of the row hit L2, and
 * writes a row for each routed row. The constants are fitted to copies of single rows. Copies by
 * token take about 10 us less, of 50 us. */
static double copy_us(const struct timing *x)
{
    const struct gemm *v = &x->f->v;
    const double cols = (double)(v->gather_x ? v->k : v->n);
    const double rows = (double)(v->gather_x ? v->x_rows : v->m) + (double)v->m;
    return x->c->copy_setup_us + rows * cols * (double)dtype_size(v->in) / x->c->copy_us;
}

/* The number of tiles that the device works on at the same time. A cluster lies within a GPC (a
 * group of SMs), and the size of a cluster seldom divides a GPC's SMs. On 132 SMs 32 clusters of 4
 * thread blocks, or 16 of 8, do not fit at once; 66 clusters of 2 do. */
static double timing_count_slots(const struct hopper_facts *f, const struct hopper_tile *t)
{
    const double whole = t->ksplit > 2 ? 0.9 : 1;
    return fmax(1, floor(f->sms * t->resident * whole / t->ksplit));
}

static bool gathers_a(const struct hopper_facts *f, const struct hopper_tile *t)
{
    return t->gather && !t->swap_ab && (f->v.mode == GEMM_FORWARD ? f->v.gather_x : f->v.gather_dy);
}

static bool gathers_b(const struct hopper_facts *f, const struct hopper_tile *t)
{
    return t->gather && (t->swap_ab || (f->v.mode == GEMM_DW && f->v.gather_x));
}

/* True if the model counts dW's rows as requested into L2 ahead (l2_ahead). Also true with
 * expert_order=size, which does not read ahead: searches over recorded keys miss more winners if
 * the model makes expert_order=size slower for that. False where experts have a block of rows each:
 * those keys were recorded before kernels could read ahead. */
static bool reads_ahead(const struct hopper_facts *f, const struct hopper_tile *t)
{
    struct hopper_tile in_order = *t;
    in_order.sort_experts = false;
    return f->v.m != f->v.experts * HOPPER_DEPTH && hopper_usual_ahead(&f->v, &in_order) > 0;
}

/* Measured factors that multiply the time of the SMs and the time of memory alike. */
static double seen_factor(const struct hopper_facts *f, const struct hopper_tile *t,
                          const struct hopper_constants *c)
{
    const double skipping = f->v.mode == GEMM_DW ? c->skip_sums : c->skipping;
    double factor = t->skip_rows ? skipping : 1;
    if (f->v.mode == GEMM_DX && !t->swap_ab && t->c == 192) {
        factor *= 1 + c->thirds;
    }
    if (f->v.mode == GEMM_DW) {
        factor *= t->loaders > 1 && !t->gather ? c->loaders : 1;
        factor *= reads_ahead(f, t) ? c->ahead : 1;
        factor *= t->raster_columns ? c->sums_columns : t->group > 1 ? c->sums_groups : 1;
    }
    return factor;
}

/* SMs and memory work at the same time; when both have much to do, each waits for the other. */
double hopper_time(const struct hopper_facts *f, const struct hopper_tile *t,
                   const struct hopper_constants *c)
{
    const struct timing x = {
        .f = f,
        .t = t,
        .c = c,
        .gather_a = gathers_a(f, t) ? 1 : 0,
        .gather_b = gathers_b(f, t) ? 1 : 0,
        .flops = flops_rate(f, t, c),
        .slots = timing_count_slots(f, t),
        .part_a = f->v.mode != GEMM_DW && hopper_sharers(t) > 1 ? c->shared_weights : 1,
    };
    struct load l = {0};
    if (f->v.mode == GEMM_DW) {
        add_sums(&x, &l);
    } else {
        timing_add_experts(&x, &l);
    }
    double us = c->setup_us;
    if (l.tiles > 0) {
        const double sm = sm_us(&x, &l), memory = memory_us(&x, &l);
        us += at_once(sm, memory);
    }
    us *= seen_factor(f, t, c);
    us += t->dynamic ? c->dynamic_us : 0;
    return t->permute_copy ? us + copy_us(&x) : us;
}
