/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm for Hopper (sm_90a): wgmma fed by TMA, warp-specialised, persistent. The build joins one template from
 * parts, in this order: params, ptx, wgmma, scheduler, cluster, one_expert, producer, scales, gather, mainloop, fp8,
 * output, epilogue, sender, swapped, split, staggered, deferred, kernel, permute. scales, fp8, output and sender are for
 * fp8 operands only. A variant is the joined text and a set of -D options (written by host/launch.c). The text includes
 * no headers, so that NVRTC takes it as it is. It uses only the common part of C and C++: tests run the same text on the
 * CPU, with another part "ptx".
 *
 * Every mode is a matrix product per expert, D[r,c] = sum over d of A[r,d] B[c,d]:
 *
 *   MODE         r         c   d          A                       B
 *   0 forward    row       n   k          x  rows, k contiguous   w rows n, k contiguous;
 *   1 dX         row       k   n          dy rows, n contiguous   w rows n, k contiguous: transposed;
 *   2 dW         n         k   row        dy rows: transposed     x rows: transposed
 *
 * SWAP_AB: the weights are A. A wgmma has 64 r, but any multiple of 8 c. So a tile multiplies at most 15 rows (GRAIN)
 * that its expert does not have; a tile of 128 rows in r multiplies 64 on average.
 *
 *   0 forward    n         row k          w rows n, k contiguous  x  rows, k contiguous
 *   1 dX         k         row n          w rows n: transposed    dy rows, n contiguous
 *
 * A thread block has a producer warpgroup and one or two consumer warpgroups. The producer moves operands into a ring
 * of NUM_STAGES stages of shared memory; the consumers multiply and write, or leave the writing to a warp of the producer
 * (sender.cu). The thread block takes tiles blockIdx, blockIdx + grid, ... (scheduler.cu) of TILE_R x TILE_C, each in
 * steps ("blocks") of TILE_D along d.
 *   cooperative   the consumers split TILE_R and work on one tile
 *   ping-pong     each takes every other tile: one writes while the other multiplies
 *
 * KSPLIT, for problems of fewer tiles than SMs: a cluster of thread blocks takes each tile. Each thread block sums
 * over its part of d, and split.cu adds the parts. With CLUSTER_R or CLUSTER_C 2 the two thread blocks of a cluster
 * have a tile each, and share an operand (cluster.cu).
 *
 * Shared memory, from a 1024-byte boundary:
 *   stages     NUM_STAGES x (A, B), in the 128-byte swizzle that TMA writes and wgmma reads. An operand
 *              with contiguous d lies as rows of 128 bytes, one per r (or c); a transposed operand lies as
 *              slabs of 64 r (or c), each of TILE_D rows of 128 bytes, one per d;
 *   staging    per consumer STAGING_BUFFERS x PIECE_ROWS rows of STORE_SLABS x 128 bytes: pieces of the output.
 *              KSPLIT: TILE_R x TILE_C sums in fp32, as the cluster sends them
 *   scales     fp8: NUM_STAGES x the scales of a block
 *   slots      fp8: two barriers for each staging buffer that the sender stores, or that output.cu loads
 *   barriers   full[NUM_STAGES], empty[NUM_STAGES]
 *   tickets    DYNAMIC: full[TICKETS], empty[TICKETS], then the drawn tile numbers
 *   split      KSPLIT: two barriers, "all sums have come" and "all have read theirs"
 *   rows       SWAP_AB: per consumer the place of each row (SCATTER), and its weight (FUSE_MUL_POST)
 *   tables     start[experts + 1], then ends[experts] (dW: order[experts])
 *
 * Limits to reach: the wgmma rate at the clock that the power limit allows; for few rows the memory bandwidth.
 *
 * Sizes are run-time arguments. The host (host/validity.c, host/launch.c) checks: n and k are multiples of 8;
 * pointers and row strides are multiples of 16 bytes; a launch has fewer than 2^30 tiles; gather indices are below
 * 2^30; gathered tensors are smaller than 64 GiB.
 *
 * Options: MODE, ONE_EXPERT (forward and dX, rows in place: no tables), BLOCK_SIZE_M/N/K, CLUSTER_R/C, CONSUMERS,
 * PINGPONG, NUM_STAGES (of TILE_D: with STAGE_ROWS=32 two for each of num_stages), STAGE_ROWS (dW: TILE_D),
 * STAGING_BUFFERS, STORE_SLABS, IN_FLIGHT, STAGGERED, DEFERRED, SKIP_ROWS, DYNAMIC, SWAP_AB, KSPLIT, RESIDENT (thread
 * blocks on an SM), LOADERS, TMA_STORE, GATHER_X, GATHER_DY, SCATTER, FUSE_MUL_POST, IN_BF16, OUT_FP32, PERMUTE_COPY,
 * CONSUMER_REGISTERS and PRODUCER_REGISTERS (0: as launched).
 *
 * Answers are stamped with this text. The host fills in the parameters that a config leaves out (LOADERS, STAGE_ROWS,
 * STORE_SLABS, the registers). A change of these rules in host/tile.c adds 1 to LAUNCH_RULES, and older answers
 * become hints.
 */
#define LAUNCH_RULES 9
#define MODE_FORWARD 0
#define MODE_DX 1
#define MODE_DW 2

#if MODE == MODE_FORWARD
#define TILE_ROWS BLOCK_SIZE_M /* rows of a tile of the output; in forward and dX they are routed rows */
#define TILE_COLS BLOCK_SIZE_N
#define TILE_D BLOCK_SIZE_K
#elif MODE == MODE_DX
#define TILE_ROWS BLOCK_SIZE_M
#define TILE_COLS BLOCK_SIZE_K
#define TILE_D BLOCK_SIZE_N
#else
#define TILE_ROWS BLOCK_SIZE_N
#define TILE_COLS BLOCK_SIZE_K
#define TILE_D STAGE_ROWS
#endif
#define TILE_R (SWAP_AB ? TILE_COLS : TILE_ROWS)
#define TILE_C (SWAP_AB ? TILE_ROWS : TILE_COLS)

#if FP8
#define WEIGHTS_TRANSPOSED 0
#define A_TRANSPOSED 0
#define B_TRANSPOSED 0
#else
#define WEIGHTS_TRANSPOSED (MODE == MODE_DX)
#define A_TRANSPOSED (MODE == MODE_DW || (SWAP_AB && WEIGHTS_TRANSPOSED))
#define B_TRANSPOSED (MODE == MODE_DW || (!SWAP_AB && WEIGHTS_TRANSPOSED))
#endif
#if FP8 && ONE_EXPERT && !SWAP_AB && TILE_COLS == 32 && !TMA_STORE
#define NARROW 1 /* tiles of 32 columns: a product of few rows is shared by twice as many SMs as with 64 */
#else
#define NARROW 0
#endif
#define GATHER (GATHER_X || GATHER_DY)
#define GATHER_A (!SWAP_AB && (MODE == MODE_FORWARD ? GATHER_X : GATHER_DY))
#define GATHER_B (SWAP_AB ? GATHER : MODE == MODE_DW && GATHER_X)

#define CLUSTER (CLUSTER_R * CLUSTER_C) /* thread blocks that share an operand (cluster.cu) */
#define SHARE_A (CLUSTER_C > 1)
#define SHARE_B (CLUSTER_R > 1)
#define RANK (CLUSTER > 1 ? BLOCK % CLUSTER : 0) /* number of this thread block in its cluster */

#define GATHERERS (!GATHER ? 0 : MODE == MODE_DW ? 32 : 128) /* threads that copy a block's gathered rows */
#define THREADS (128 * (1 + CONSUMERS))
#define ROWS_EACH (PINGPONG ? TILE_R : TILE_R / CONSUMERS) /* rows of a consumer's part of a tile */
#define MMAS (ROWS_EACH / 64)                              /* wgmmas, of 64 rows each, for a step of that part */
/* how many of the MMAS groups of 64 rows are written at once */
#if FP8
#define WRITTEN 1 /* a smaller staging buffer leaves room for a stage */
#else
#define WRITTEN (STAGGERED ? 1 : MMAS)
#endif
#define ACCUMULATORS (TILE_C / 2)                          /* registers of a thread for the sums of one wgmma */
#define STEPS (TILE_D / 16)                                /* wgmmas in sequence for a block: each takes 16 of d */

#define ROW_BYTES 128   /* bytes of every row in shared memory */
#define SLAB_BYTES 8192 /* 64 rows of 128 bytes */
/* bytes of 64 r of A's block, or of 64 c of B's block */
#define BLOCK_SLAB_BYTES (MODE == MODE_DW ? TILE_D * ROW_BYTES : SLAB_BYTES)
#define A_BYTES (TILE_R * TILE_D * 2)
#define B_BYTES (TILE_C * TILE_D * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define PARTS 4         /* boxes of 64, 48, 32, 16 rows, for an expert's last rows: a whole box would reach past them */
#define WHOLE_PART ((64 - TILE_D) / 16) /* dW: number of the box (see PARTS) that is as high as a block */
#define HALVES (64 / TILE_D)            /* dW: number of blocks in 64 rows, 1 or 2 */

#define OUT_SIZE (OUT_FP32 ? 4 : 2)
/* columns of the output in a staging buffer */
#define PIECE (TILE_C < SLAB_COLS ? TILE_C : STORE_SLABS * SLAB_COLS)
#define SLAB_COLS (ROW_BYTES / OUT_SIZE)
#define PIECES (TILE_C / PIECE)
/* SWAP_AB: a tile is cut to its expert's rows, rounded up to a multiple of GRAIN. Of two tiles in a cluster the one
 * with fewer rows waits for the other: a smaller GRAIN makes the two differ by less. */
#define GRAIN (SWAP_AB && CLUSTER > 1 ? 8 : 16)
#define EACH_WIDTH_16(X)                                                                           \
    X(16) X(32) X(48) X(64) X(80) X(96) X(112) X(128)                                              \
    X(144) X(160) X(176) X(192) X(208) X(224) X(240) X(256)
#define EACH_WIDTH_8(X) /* the odd multiples of 8 */                                                         \
    X(24) X(40) X(56) X(72) X(88) X(104) X(120) X(136)                                             \
    X(152) X(168) X(184) X(200) X(216) X(232) X(248)
#if SWAP_AB && CLUSTER_C > 1
#define EACH_WIDTH(X) EACH_WIDTH_16(X) EACH_WIDTH_8(X)
#else
#define EACH_WIDTH(X) EACH_WIDTH_16(X)
#endif
/* SWAP_AB: a tile's width is the number of rows that it multiplies. Widths with HAS_WIDTH have a main loop of their
 * own, other tiles take the next wider loop; each loop adds a quarter of the compile time of all other code. An expert
 * with several tiles has tiles wider than half of TILE_C (place_swapped). A narrower tile is its expert's only tile,
 * and waits for weights, however few rows it multiplies. With GRAIN 8 twice as many widths lie above half, and none
 * below: an expert with a single pair of tiles has about 200 rows or more, for tiles of 160. Kernels with TILE_C above
 * 160 take longest to compile, and serve experts of several nearly full pairs. */
#define WIDTH_HALF ((TILE_C / 2 + GRAIN - 1) / GRAIN * GRAIN)
#define WIDTH_QUARTER ((TILE_C / 4 + GRAIN - 1) / GRAIN * GRAIN)
#define WIDTH_ABOVE (GRAIN == 16 ? WIDTH_HALF : TILE_C > 160 ? TILE_C * 3 / 4 : TILE_C * 11 / 16) /* all above it */
#define HAS_WIDTH(n)                                                                               \
    ((n) > WIDTH_ABOVE ? (n) <= TILE_C : GRAIN == 16 && ((n) == WIDTH_HALF || (n) == WIDTH_QUARTER))
#define PIECE_ROWS (!SWAP_AB ? WRITTEN * 64 : TILE_C < 64 ? TILE_C : 64) /* rows in a staging buffer */
#define BUFFER_BYTES (PIECE_ROWS * STORE_SLABS * ROW_BYTES)

/* DEFERRED: number of 64 x 64 pieces of the output, already rounded, that each consumer keeps in registers until the
 * next tile is multiplied: as many as fit beside that tile's sums. */
#define PIECE_PAIRS 16 /* registers that a waiting piece takes in each thread */
#define KEPT_FIT ((SUMS_MOST - MMAS * ACCUMULATORS) / PIECE_PAIRS)
/* at the end of a tile's order of pieces (deferred.cu), the number of pieces that are all 64 rows high */
#define KEPT_WHOLE (TILE_C % 64 ? TILE_C / 64 : MMAS * (TILE_C / 64))
#define KEPT (KEPT_FIT < KEPT_WHOLE ? KEPT_FIT : KEPT_WHOLE)
#define SUMS_MOST (GATHER ? 176 : 192) /* registers for sums and waiting pieces; a gathering producer takes some */

#if FP8
#define SCALES_BLOCKS 0 /* a routed row: 1 x 128 elements; weights: 128 x 128 */
#define SCALES_LINES 1  /* rows of A and of B: 1 x 128 */
#define SCALES_ROWS 2   /* rows of A and of B: a scale for each, after the sum */
/* SCALES_BLOCKS: a stage has products of scales, for each group of GROUP weights and each routed row of the tile. The
 * weights are columns of the output; a group has one scale of 128 x 128 elements. SCALES_LINES: a scale for each row of
 * A, then of B. */
#define GROUP (TILE_COLS % 64 ? TILE_COLS : TILE_COLS % 128 ? 64 : 128)
#define GROUPS (SCALES == SCALES_BLOCKS ? TILE_COLS / GROUP : 1)
#define ROW_SCALES (SCALES != SCALES_ROWS && !SWAP_AB) /* wgmma's rows have scales of their own */
#define COLUMN_SCALES (SCALES == SCALES_LINES || (SCALES == SCALES_BLOCKS && SWAP_AB))
#define LINES (SCALES == SCALES_LINES ? TILE_R + TILE_C : TILE_ROWS) /* scales that a block of the tile loads */
/* TEMPORARIES: sets of temporary sums, of 64 rows and TILE_C columns each (fp8.cu). dW takes 1 to 6 % longer with two
 * sets: they leave few registers for its scales and its output. A block of three units would begin the next one with the
 * other set. Without spilled registers (ptxas 13.0) as many sums fit as SUMS_FIT; consumers that store gathered or drawn
 * tiles by TMA took 4 to 5 % longer with two sets of 192 registers. */
#define SUMS_FIT (KSPLIT ? 128 : TMA_STORE && (GATHER || (SWAP_AB && DYNAMIC)) ? 168 : SWAP_AB ? 176 : 192)
#define TEMPORARIES                                                                                \
    (MODE != MODE_DW && MMAS != 3 && RESIDENT == 1 && (MMAS + 2) * ACCUMULATORS <= SUMS_FIT ? 2 : 1)
#define SCALES_BYTES (SCALES == SCALES_ROWS ? 0 : GROUPS * LINES * 4)
/* Number of the producer's last warps that only bring scales. Where rows are gathered, all four warps of the producer
 * bring both. The warps of an SM run on its four quarters in turn: a consumer's warp beside a warp that brings scales
 * promotes more slowly, and its whole warpgroup waits for it. So several warps share this work, none of them beside the
 * loading warp. Warp 1 may have other work: it makes the mbarriers where a single expert is set up, and it stores or loads
 * the output (SENDS, LOADS_OUTPUT). */
#define SCALE_WARPS                                                                                \
    (SCALES == SCALES_ROWS || GATHER                                ? 0                            \
     : MODE == MODE_DW                                              ? 2                            \
     : LINES >= 256 && !ONE_EXPERT && !SENDS                        ? 3                            \
     : LINES >= 128                                                 ? 2                            \
                                                                    : 1)
#define SCALERS (GATHER ? 128 : SCALE_WARPS ? SCALE_WARPS * 32 : 32) /* threads that share a block's lines */
#define SENDS (TMA_STORE && MODE != MODE_DW && !GATHER && !SWAP_AB) /* sender.cu: the producer's second warp stores */
#define LOADS_OUTPUT (MODE == MODE_DW && OUT_FP32 && TMA_STORE) /* output.cu: the producer's second warp loads */
#endif
#define STAGING_AT (NUM_STAGES * STAGE_BYTES)
#define SUMS_BYTES (TILE_R * TILE_C * 4)
#define STAGING_BYTES (KSPLIT ? SUMS_BYTES : CONSUMERS * STAGING_BUFFERS * BUFFER_BYTES)
#if FP8
#define SCALES_AT (STAGING_AT + STAGING_BYTES)
#define OUTPUT_AT (SCALES_AT + NUM_STAGES * SCALES_BYTES)
#define FULL_AT (OUTPUT_AT + (SENDS || LOADS_OUTPUT ? CONSUMERS * STAGING_BUFFERS * 16 : 0))
#else
#define FULL_AT (STAGING_AT + STAGING_BYTES)
#endif
#define EMPTY_AT (FULL_AT + NUM_STAGES * 8)
#define TICKETS_AT (EMPTY_AT + NUM_STAGES * 8)
#define TICKETS 4 /* DYNAMIC: places in the ring of drawn tile numbers ("tickets") */
#define SPLIT_AT (TICKETS_AT + (DYNAMIC ? TICKETS * 20 : 0))
#define ROWS_AT (SPLIT_AT + (KSPLIT ? 16 : 0))
#define ROWS_BYTES (TILE_C * (4 * SCATTER + 2 * FUSE_MUL_POST)) /* bytes of a consumer's struct rows */
#define TABLES_AT (ROWS_AT + (SWAP_AB ? CONSUMERS * ROWS_BYTES : 0))

#if TILE_D != 64 && (MODE != MODE_DW || STAGGERED || TILE_D != 32)
#error "the reduction is walked in blocks of 64; in dW, but for staggered tiles, also of 32 rows"
#endif
#if (TILE_C % (SWAP_AB ? 16 : 64) && !NARROW) || TILE_C > 256 || TILE_R % 64 || TILE_R > 256
#error "tiles are multiples of 64, with SWAP_AB of 16 rows, up to 256; fp8 for one expert also has 32 columns"
#endif
#if SWAP_AB && (MODE == MODE_DW || KSPLIT || SKIP_ROWS)
#error "swapped operands are for forward and dX, and leave no rows to skip"
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
#if STAGGERED && (PINGPONG || SWAP_AB || KSPLIT || CLUSTER > 1 || ROWS_EACH != 128)
#error "halves of 64 rows are staggered in plain cooperative tiles"
#endif
#if DEFERRED && (!SWAP_AB || STAGGERED || PINGPONG || KEPT < 1)
#error "swapped cooperative tiles that leave registers are written later"
#endif
#if DYNAMIC && MODE == MODE_DW
#error "dW's tiles are dealt in turn"
#endif
#if GATHER ? LOADERS != 4 : LOADERS < 1 || LOADERS > (MODE == MODE_DW ? 4 : 1) || LOADERS > NUM_STAGES
#error "in dW up to four warps load, no more than there are stages; all four gather"
#endif
#if (PINGPONG || CLUSTER > 1) && !GATHER && NUM_STAGES % LOADERS
#error "in ping-pong and in clusters warps that load divide the stages"
#endif
#if KSPLIT && (MODE == MODE_DW || PINGPONG || DYNAMIC || TMA_STORE)
#error "sums are split in forward and dX, by cooperative tiles dealt in turn and stored by threads"
#endif
#if FP8
#if CLUSTER > 2 || (CLUSTER > 1 && (MODE == MODE_DW || !SHARE_A || ONE_EXPERT || TILE_C <= 64))
#error "two blocks of threads share weights in swapped tiles of more than 64 rows, in others rows"
#endif
#else
#if CLUSTER > 2 || (CLUSTER > 1 && MODE != MODE_DW && (!SWAP_AB || !SHARE_A || ONE_EXPERT || TILE_C <= 64))
#error "two blocks of threads share an operand, in dW, or weights in swapped tiles of more than 64 rows"
#endif
#endif
#if (SHARE_A && (GATHER_A || TILE_R % 128)) || (SHARE_B && (GATHER_B || TILE_C % 128))
#error "what is shared comes by TMA, half of its slabs from each of the two"
#endif
#if TMA_STORE && SCATTER
#error "TMA cannot scatter rows"
#endif
#if STORE_SLABS < 1 || STORE_SLABS > 2 || (STORE_SLABS > 1 && (MODE != MODE_DW || !TMA_STORE || TILE_C % PIECE))
#error "one store brings one or, by TMA in dW, two slabs of each row"
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
#define FLAG_ENDS 16u     /* m_sizes holds the experts' ends */
#define FLAG_RASTER_C 32u /* raster=columns: tiles go down a group of columns of tiles, not along a group of rows */
#define FLAG_SORT 64u     /* dW: experts with many rows are computed first */
#define FLAG_WIDE_A 128u   /* dW: A's map is wide: one box loads all slabs of a tile (producer.cu) */
#define FLAG_WIDE_B 256u
#define FLAG_STORE_FIRST 512u /* dW: L2 drops stored output first (evict_first) */
#define FLAG_W_FIRST 1024u     /* forward and dX: L2 drops loaded weights first (evict_first) */
#define FLAG_W_UNCHANGED 2048u /* loads of weights leave L2's eviction order unchanged */
#define WIDE_A(p) (((p)->flags & FLAG_WIDE_A) != 0)
#define WIDE_B(p) (((p)->flags & FLAG_WIDE_B) != 0)
