/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm for every NVIDIA GPU from compute capability 8.0 on: cp.async, ldmatrix, mma.sync. A variant is this
 * template and a set of -D options (written by portable/launch.c). The text includes no headers, so that NVRTC takes
 * it as it is. It uses only the common part of C and C++: a test compiles and runs the same text on the CPU, with
 * another part "hardware". The parts, joined in this order:
 *
 *   params     the options of a variant, sizes of its tiles, the kernel's arguments
 *   hardware   the instructions used, as functions;
 *   experts    rows of the experts, and the place of each tile
 *   copies     operands from global to shared memory, gathered rows too;
 *   fragments  shared memory to registers, and the products
 *   scales     scaled operands: fp8 numbers to fp16, and their scales
 *   store      sums to global memory: rounding, weights, scattered rows
 *   kernel     the loop over tiles and stages.
 *
 * Every mode is a matrix product per expert, D[r,c] = sum over d of A[r,d] B[c,d]:
 *
 *   MODE         r         c   d          A                       B
 *   0 forward    row       n   k          x  rows, k contiguous   w rows n, k contiguous;
 *   1 dX         row       k   n          dy rows, n contiguous   w rows n, k contig.: transposed
 *   2 dW         n         k   row        dy rows: transposed     x rows: transposed
 *
 * Scaled operands (SCALED: fp8 numbers and scales) have d contiguous in every mode; in dW d counts columns, and each
 * expert begins at a multiple of COLUMN_ALIGN columns. With FP8_MMA (from sm_89 on) mma.sync multiplies the numbers;
 * else they become fp16 in registers, exactly. After every PROMOTE_SUM of d the sums so far ("part") are added to the
 * tile's sums in fp32, as longer sums of fp8 products lose bits. With SCALE_SUM, which is then PROMOTE_SUM, they are first
 * multiplied by their two scales; else the whole sum is multiplied at the end.
 *
 * A thread block owns a tile TR x TC of D and walks the reduction in steps of TD. Thread blocks are persistent: each
 * takes tiles blockIdx, blockIdx + grid, ... The ring of NUM_STAGES tiles in shared memory runs on over tile borders,
 * so the next tile's first blocks load while the last block is multiplied and written.
 *
 * Shared memory: NUM_STAGES x (A tile, B tile), then start[experts + 1] and ends[experts]. A tile is stored as in
 * global memory (rows of the operand), 16 bytes ("chunk") at a time. Chunk c of row r lies at c xor swizzle(r), so
 * that the eight rows of an ldmatrix hit different banks.
 *
 * Limits to reach: the mma.sync rate for large experts, memory bandwidth for small experts.
 *
 * Sizes are run-time arguments. The host (portable/target.c, portable/launch.c) checks: n, k multiples of 8 (scaled
 * operands: the rules of the op), pointers and row strides multiples of 16 bytes, fewer than 2^31 tiles, gather indices below 2^30.
 */
#define MODE_FORWARD 0
#define MODE_DX 1
#define MODE_DW 2

#if MODE == MODE_FORWARD
#define TR BLOCK_SIZE_M
#define TC BLOCK_SIZE_N
#define TD BLOCK_SIZE_K
#elif MODE == MODE_DX
#define TR BLOCK_SIZE_M
#define TC BLOCK_SIZE_K
#define TD BLOCK_SIZE_N
#else
#define TR BLOCK_SIZE_N
#define TC BLOCK_SIZE_K
#define TD BLOCK_SIZE_M
#endif

#define A_TRANSPOSED (MODE == MODE_DW && !SCALED)      /* a stored row holds all r of a d, not all d of an r */
#define B_TRANSPOSED (MODE != MODE_FORWARD && !SCALED) /* a stored row holds all c of a d, not all d of a c */
#define EB (SCALED ? 1 : 2)  /* bytes of an element */
#define CE (16 / EB)         /* elements of a chunk */
#define GATHER_A (MODE == MODE_FORWARD ? GATHER_X : GATHER_DY)
#define GATHER_B (MODE == MODE_DW && GATHER_X)

#define THREADS (WARPS_R * WARPS_C * 32)
#define WR (TR / WARPS_R) /* rows of a warp's part of the tile; WC: its columns */
#define WC (TC / WARPS_C)
#define FR (WR / 16)      /* fragments (operands of mma.sync) along a warp's rows */
#define FC (WC / 8)
#define STEPS (TD * EB / 32) /* steps of a block of the reduction: two chunks of each row */

#define A_ROWS (A_TRANSPOSED ? TD : TR)
#define A_CHUNKS ((A_TRANSPOSED ? TR : TD) / CE)
#define B_ROWS (B_TRANSPOSED ? TD : TC)
#define B_CHUNKS ((B_TRANSPOSED ? TC : TD) / CE)
#define A_BYTES (TR * TD * EB)
#define STAGE_BYTES ((TR + TC) * TD * EB)
/* Number of rows of a tile of which each thread copies a chunk. */
#define A_COPIES ((A_ROWS * A_CHUNKS + THREADS - 1) / THREADS)
#define B_COPIES ((B_ROWS * B_CHUNKS + THREADS - 1) / THREADS)

#if WR % 16 || WC % 32 || STEPS % 2 || WR > 64 || WC > 64
#error "a warp's part must be 16, 32 or 64 x 32 or 64, the reduction block an even number of steps"
#endif
#if SCALED && (PROMOTE_SUM % TD || (SCALE_SUM && SCALE_SUM != PROMOTE_SUM))
#error "sums are promoted after whole blocks of the reduction, and scaled when they are promoted"
#endif
#if NUM_STAGES < 2
#error "NUM_STAGES must be at least 2"
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;

#define FLAG_M_SIZES_64 1u
#define FLAG_GATHER_64 2u
#define FLAG_WEIGHTS_FP32 4u
#define FLAG_ACCUMULATE 8u
#define FLAG_ENDS 16u /* m_sizes holds the experts' ends */

/* portable/launch.c has the same struct. Strides in bytes. */
struct portable_params {
    const char *a, *b;
    char *out;
    const void *m_sizes; /* the sizes of the experts, or their ends; NULL: a single expert has all rows */
    const void *gather;
    const void *weights;
    i64 a_stride, b_stride, out_stride; /* from a row to the next, as stored */
    i64 b_expert, out_expert;           /* from an expert's matrix to the next: of w, of dW's output */
    int rows;                           /* routed rows in all */
    int experts;
    int tile_rows;  /* dW: length of r (which is n); otherwise unused */
    int tile_cols;  /* length of c */
    int depth;      /* length of d; unused in dW, where an expert's rows are the length */
    int group;      /* number of tiles along r that come before the next column of tiles */
    u32 flags;
    u32 topk_mul, topk_shift; /* gather index g div topk = g * mul >> shift */
    u32 reserved;
    const float *a_scale, *b_scale; /* of scaled operands; strides in elements, b_scale also by expert */
    i64 a_scale_stride, a_scale_block, b_scale_stride, b_scale_block, b_scale_expert;
};
