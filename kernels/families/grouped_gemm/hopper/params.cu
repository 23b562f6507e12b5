/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm for Hopper (sm_90a): wgmma fed by TMA, warp-specialised, persistent. One template in
 * parts, which the build joins in this order: params, ptx, scheduler, producer, gather, mainloop,
 * epilogue, split, kernel, permute. A variant is the joined text and a set of -D options (hopper_launch.c writes
 * them). No headers, so that NVRTC takes it as it is. Only what C and C++ have in common is used, so
 * that tests can run the same text on the CPU with the part "ptx" replaced.
 *
 * Every mode is a matrix product per expert, D[r,c] = sum over d of A[r,d] B[c,d]:
 *
 *   MODE         r         c   d          A                       B
 *   0 forward    row       n   k          x  rows, k contiguous   w rows n, k contiguous
 *   1 dX         row       k   n          dy rows, n contiguous   w rows n, k contiguous: transposed
 *   2 dW         n         k   row        dy rows: transposed     x rows: transposed
 *
 * A block of threads is a producer warpgroup, which moves operands into a ring of NUM_STAGES stages
 * of shared memory, and one or two consumer warpgroups, which multiply and write. It takes tiles
 * blockIdx, blockIdx + grid, ... of TILE_R x TILE_C, each in steps ("blocks") of TILE_D = 64 along d.
 *   cooperative   the consumers split TILE_R and work on one tile
 *   ping-pong     each has every other tile to itself: one writes while the other multiplies
 *
 * With KSPLIT a cluster of blocks of threads takes each tile: every one sums over its part of d, and
 * split.cu adds the parts up. For problems of fewer tiles than SMs.
 *
 * Shared memory, from a 1024-byte boundary:
 *   stages     NUM_STAGES x (A, B), in the 128-byte swizzle that TMA writes and wgmma reads. An
 *              operand whose d is contiguous lies as rows of 128 bytes, one per r (or c); a
 *              transposed one as slabs of 64 r (or c), each of 64 rows of 128 bytes, one per d
 *   staging    per consumer STAGING_BUFFERS x ROWS_EACH rows of 128 bytes: pieces of the output.
 *              KSPLIT: TILE_R x TILE_C sums in fp32, for the cluster to read
 *   barriers   full[NUM_STAGES], empty[NUM_STAGES]
 *   tickets    DYNAMIC: full[TICKETS], empty[TICKETS], then the numbers
 *   split      KSPLIT: two barriers, "all have written their sums" and "all have read them"
 *   tables     start[experts + 1], then ends[experts] (dW: order[experts])
 *
 * Bounds aimed at: the wgmma rate at the clock that the power limit allows; for few rows the memory
 * bandwidth. Sizes are run-time arguments; what must hold (hopper.c and hopper_launch.c check it):
 * n, k multiples of 8, pointers and row strides multiples of 16 bytes, fewer than 2^31 tiles,
 * gather indices below 2^30, gathered tensors below 64 GiB.
 *
 * Options: MODE, BLOCK_SIZE_M/N/K, CONSUMERS, PINGPONG, NUM_STAGES, STAGING_BUFFERS, IN_FLIGHT,
 * SKIP_ROWS, DYNAMIC, KSPLIT, TMA_STORE, GATHER_X, GATHER_DY, SCATTER, FUSE_MUL_POST, IN_BF16,
 * OUT_FP32, PERMUTE_COPY, CONSUMER_REGISTERS and PRODUCER_REGISTERS (0: as launched).
 */
#define MODE_FORWARD 0
#define MODE_DX 1
#define MODE_DW 2

#if MODE == MODE_FORWARD
#define TILE_R BLOCK_SIZE_M
#define TILE_C BLOCK_SIZE_N
#define TILE_D BLOCK_SIZE_K
#elif MODE == MODE_DX
#define TILE_R BLOCK_SIZE_M
#define TILE_C BLOCK_SIZE_K
#define TILE_D BLOCK_SIZE_N
#else
#define TILE_R BLOCK_SIZE_N
#define TILE_C BLOCK_SIZE_K
#define TILE_D BLOCK_SIZE_M
#endif

#define A_TRANSPOSED (MODE == MODE_DW)
#define B_TRANSPOSED (MODE != MODE_FORWARD)
#define GATHER_A (MODE == MODE_FORWARD ? GATHER_X : GATHER_DY)
#define GATHER_B (MODE == MODE_DW && GATHER_X)
#define GATHER (GATHER_X || GATHER_DY)

#define THREADS (128 * (1 + CONSUMERS))
#define ROWS_EACH (PINGPONG ? TILE_R : TILE_R / CONSUMERS) /* rows of the tile of one consumer */
#define MMAS (ROWS_EACH / 64)                              /* wgmmas of 64 rows side by side */
#define ACCUMULATORS (TILE_C / 2)                          /* registers of one of them */
#define STEPS (TILE_D / 16)                                /* wgmmas one after the other */

#define ROW_BYTES 128   /* of every row in shared memory */
#define SLAB_BYTES 8192 /* 64 such rows */
#define A_BYTES (TILE_R * ROW_BYTES)
#define B_BYTES (TILE_C * ROW_BYTES)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define PARTS 3         /* boxes of 64, 32 and 16 rows, where a whole one would reach past the end */

#define OUT_SIZE (OUT_FP32 ? 4 : 2)
#define PIECE (ROW_BYTES / OUT_SIZE) /* columns of the output in a staging buffer */
#define PIECES (TILE_C / PIECE)
#define BUFFER_BYTES (ROWS_EACH * ROW_BYTES)

#define STAGING_AT (NUM_STAGES * STAGE_BYTES)
#define SUMS_BYTES (TILE_R * TILE_C * 4)
#define STAGING_BYTES (KSPLIT ? SUMS_BYTES : CONSUMERS * STAGING_BUFFERS * BUFFER_BYTES)
#define FULL_AT (STAGING_AT + STAGING_BYTES)
#define EMPTY_AT (FULL_AT + NUM_STAGES * 8)
#define TICKETS_AT (EMPTY_AT + NUM_STAGES * 8)
#define TICKETS 4 /* tiles that are handed on at a time */
#define SPLIT_AT (TICKETS_AT + (DYNAMIC ? TICKETS * 20 : 0))
#define TABLES_AT (SPLIT_AT + (KSPLIT ? 16 : 0))

#if TILE_D != 64
#error "the reduction is walked in blocks of 64"
#endif
#if TILE_C % 64 || TILE_C > 256 || TILE_R % 64 || TILE_R > 256
#error "tiles are multiples of 64, up to 256"
#endif
#if CONSUMERS < 1 || CONSUMERS > 2 || (PINGPONG && CONSUMERS != 2)
#error "one or two consumers; ping-pong has two"
#endif
#if !PINGPONG && TILE_R % (64 * CONSUMERS)
#error "each consumer has a multiple of 64 rows"
#endif
#if NUM_STAGES < 2 || STAGING_BUFFERS < 1
#error "at least two stages and one staging buffer"
#endif
#if SKIP_ROWS && TILE_R == 64
#error "there is nothing to skip"
#endif
#if DYNAMIC && MODE == MODE_DW
#error "dW's tiles are dealt in turn"
#endif
#if KSPLIT && (MODE == MODE_DW || PINGPONG || DYNAMIC || TMA_STORE)
#error "sums are split in forward and dX, by cooperative tiles dealt in turn and stored by threads"
#endif
#if TMA_STORE && SCATTER
#error "TMA cannot scatter rows"
#endif
#if OUT_FP32 && (MODE != MODE_DW || FUSE_MUL_POST)
#error "only dW has fp32 output"
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;

#define FLAG_M_SIZES_64 1u
#define FLAG_GATHER_64 2u
#define FLAG_WEIGHTS_FP32 4u
#define FLAG_ACCUMULATE 8u
#define FLAG_RASTER_C 16u /* walk a group of column tiles before the next row tile */
#define FLAG_SORT 32u     /* dW: experts with many rows first */
#define FLAG_WIDE_A 64u   /* dW: the map has slabs for a dimension */
#define FLAG_WIDE_B 128u
#define WIDE_A(p) (((p)->flags & FLAG_WIDE_A) != 0)
#define WIDE_B(p) (((p)->flags & FLAG_WIDE_B) != 0)
