/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The destinations of a split tile's sums (hopper/split.cu), on the CPU and without concurrency:
 * the blocks of a cluster send in turn, lane by lane, and each block's total is compared with the
 * sent values. test_emulated.c compiles this file with a tile's options. Barriers and waits are not
 * tested here: test_split does.
 */
#include "kernels/families/grouped_gemm/hopper/params.cu"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INLINE static
#define CALLED static

enum { RANKS_MAX = 8, MEMORY = STAGING_AT + SUMS_BYTES, RANK_SHIFT = 24 };
static int thread_, rank_, size_;
static unsigned char memory[RANKS_MAX][MEMORY];
static unsigned char written[RANKS_MAX][SUMS_BYTES];
static u32 bytes[RANKS_MAX]; /* bytes that each block's barrier has counted */
static char fault[200];

#define THREAD thread_
#define LANE   (thread_ & 31)
#define BLOCK  0
#define BLOCKS 1

/* ---- the instructions that split.cu uses, in C ---- */

static void shared_store8(u32 at, float a, float b)
{
    memcpy(&memory[rank_][at], (float[]){a, b}, 8);
}

static void shared_load16(u32 v[4], u32 at)
{
    memcpy(v, &memory[rank_][at], 16);
}

static u32 cluster_rank(void)
{
    return (u32)rank_;
}

static u32 cluster_size(void)
{
    return (u32)size_;
}

static u32 divide_by_size(u32 v)
{
    return v / (u32)size_;
}

static u32 cluster_address(u32 at, u32 rank)
{
    return at + (rank << RANK_SHIFT);
}

static void cluster_store16(u32 to, const u32 v[4], u32 bar)
{
    const u32 rank = to >> RANK_SHIFT, at = to & ((1u << RANK_SHIFT) - 1);
    if (rank >= (u32)size_ || bar >> RANK_SHIFT != rank || at % 16 || at < STAGING_AT ||
        at + 16 > STAGING_AT + SUMS_BYTES) {
        snprintf(fault, sizeof(fault), "rank %d sends to byte %u of %u, counted by %u", rank_, at,
                 rank, bar >> RANK_SHIFT);
        return;
    }
    if (written[rank][at - STAGING_AT]) {
        snprintf(fault, sizeof(fault), "byte %u of rank %u is sent twice", at, rank);
    }
    memset(&written[rank][at - STAGING_AT], 1, 16);
    memcpy(&memory[rank][at], v, 16);
    bytes[rank] += 16;
}

static float bits_float(u32 v)
{
    float f;
    memcpy(&f, &v, sizeof(f));
    return f;
}

#define gather_index(p, i)        (i)
#define weight_pair(p, i)         0
#define round_pair(a, b)          0
#define multiply_pair(a, b)       0
#define global_store16(to, v)     ((void)(to))
#define barrier_init(bar, n)      ((void)0)
#define barrier_expect(bar, n)    ((void)0)
#define group_barrier(id, n)      ((void)0)
#define warp_barrier()            ((void)0)
#define async_fence()             ((void)0)
#define cluster_wait(bar, parity) ((void)0)
#define cluster_arrive_read(bar)  ((void)0)
#define give_stage(shared, stage) ((void)0)
#define BARRIER_WRITE             1

struct hopper_params {
    char *out_data;
    i64 out_stride;
    int tile_cols;
};
struct tile {
    int rows, r0, c0, first;
};
struct rows {
    int unused;
};

static int at_most(int v, int most)
{
    return v < most ? v : most;
}

static int round_up(int v, int to)
{
    return (v + to - 1) / to * to;
}

#include "kernels/families/grouped_gemm/hopper/split.cu"

/* ---- the check ---- */

static float sum_of(int rank, int row, int col)
{
    return (float)(rank * TILE_R * TILE_C + row * TILE_C +
                   col); /* whole numbers: exact in fp32, and so are sums of eight of them */
}

/* Sets the lane's sums of the 16 rows from `first` on. */
static void have_sums(int first, float sums[ACCUMULATORS])
{
    for (int j = 0; j < TILE_C / 8; j++) {
        for (int i = 0; i < 4; i++) {
            sums[j * 4 + i] =
                sum_of(rank_, first + (LANE >> 2) + i / 2 * 8, j * 8 + (LANE & 3) * 2 + i % 2);
        }
    }
}

/* Sends 16 rows of sums like split.cu's send_tile, but lane by lane. */
static void send_sixteen(int first, int warp)
{
    const u32 mine = (u32)warp * 16 * SENT_ROW;
    float sums[ACCUMULATORS];
    for (int from = 0; from < TILE_C; from += SENT_COLS) {
        for (thread_ = 0; thread_ < 32; thread_++) {
            have_sums(first, sums);
            lay_out(mine, sums + from / 2);
        }
        for (thread_ = 0; thread_ < 32; thread_++) {
            send(0, mine, first, from);
        }
    }
}

static void add_and_compare(int rows)
{
    for (int row = rank_; row < rows; row += size_) {
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            const struct share s = {.row = row, .chunk = chunk};
            float sum[8];
            add_up(sum, 0, &s, size_);
            for (int i = 0; i < 8; i++) {
                float want = 0;
                for (int r = 0; r < size_; r++) {
                    want += sum_of(r, row, chunk * 8 + i);
                }
                if (sum[i] != want) {
                    snprintf(fault, sizeof(fault),
                             "%d blocks, %d rows: row %d column %d is %g, not %g", size_, rows, row,
                             chunk * 8 + i, sum[i], want);
                }
            }
        }
    }
}

static void one_tile(int rows)
{
    memset(written, 0, sizeof(written));
    memset(bytes, 0, sizeof(bytes));
    for (rank_ = 0; rank_ < size_; rank_++) {
        for (int first = 0; first < rows; first += 16) {
            send_sixteen(first, first / 16 % (4 * CONSUMERS));
        }
    }
    for (rank_ = 0; rank_ < size_; rank_++) {
        add_and_compare(rows);
        if (bytes[rank_] != sums_bytes(rows)) {
            snprintf(fault, sizeof(fault),
                     "%d blocks, %d rows: rank %d got %u bytes and waits for %u", size_, rows,
                     rank_, bytes[rank_], sums_bytes(rows));
        }
    }
}

/* NULL: all is right. */
const char *check_split(void)
{
    for (size_ = 2; size_ <= RANKS_MAX; size_ *= 2) {
        for (int rows = 1; rows <= TILE_R && !fault[0]; rows++) {
            one_tile(rows);
        }
    }
    return fault[0] ? fault : NULL;
}
