/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launch ABI: the arguments with which a job launches a kernel. The runner measures with the
 * same arguments, on the same code path. Every stamp names the ABI's version. gemmd.h repeats these
 * structs for users; the test client_launch compares the two.
 *
 * Rules for every launch:
 * - in the caller's current context, on the caller's stream
 * - no allocation, no synchronisation
 * - safe to capture in a CUDA graph
 * - safe on several streams at once as long as each stream has a workspace of its own
 */
#ifndef GEMMD_KERNELS_ABI_H
#define GEMMD_KERNELS_ABI_H

#include <stdint.h>

enum { LAUNCH_ABI_VERSION = 1 };

enum dtype {
    DTYPE_NONE = 0,
    DTYPE_BF16 = 1,
    DTYPE_FP16 = 2,
    DTYPE_FP32 = 3,
    DTYPE_INT32 = 4,
    DTYPE_INT64 = 5,
    DTYPE_FP8_E4M3 = 6, /* kernels/fp8.h */
    DTYPE_UINT8 = 7     /* bytes, compared as numbers without a tolerance */
};

/* dW: the kernel adds its result to `out`, also when the problem's field `accumulate` is false.
 * For outputs other than fp32, some kernels return ERROR_CONFLICT; a problem with `accumulate`
 * gets kernels without this limit. */
enum { GROUPED_GEMM_ACCUMULATE = 1u << 0 };

/* m_sizes holds the row at which each expert ends, counted from the first row of all: the running
 * sum of the sizes. PyTorch's `offs` has this form. */
enum { GROUPED_GEMM_ENDS = 1u << 1 };

/*
 * grouped_gemm. T = routed rows (tokens * topk), E experts, W is [E, N, K] in every mode; all
 * tensors row-major. Strides in elements; 0 means dense. Exact maths:
 * kernels/families/grouped_gemm/grouped_gemm.h.
 *
 *   mode     reads                                    writes
 *   forward  x [T or tokens, K], w                    out [T, N]
 *   dX       dy [T, N], w                             out [T, K]
 *   dW       dy [T, N], x [T or tokens, K]            out [E, N, K], empty experts become zeros.
 *
 * A problem with quant=fp8_block or fp8_row has operands of fp8 (one byte an element) with scales.
 * There every operand has the summed dimension contiguous, as fp8 instructions read no other form:
 *
 *   mode     reads
 *   forward  x [T or tokens, K], w [E, N, K]
 *   dX       dy [T, N], w [E, K, N]: the transposed weights
 *   dW       dy [N, C], x [K, C]: the columns are the routed rows, in the order of experts.
 *
 * In dW each expert begins at a multiple of 128 columns, and the gap behind its last row is zeros.
 * C is at least (T + 127 * min(E, T)) / 128 * 128, which holds every distribution of the rows.
 *
 * Scales are fp32. An element's value is its number times scale[row / R * stride + b *
 * stride_block] of its operand, `row` as stored. w has such scales for each expert.
 *
 *   quant      R                  b
 *   fp8_block  w: 128, others: 1  number of the block of 128 along the summed dimension
 *   fp8_row    1                  dW: the expert; else 0
 *
 * Scale strides of 0: x and dy lie [b][row], with rows padded to a multiple of 4. Where the launch
 * gathers their rows they lie [row][b], with b padded to a multiple of 4. w of fp8_block lies
 * [E, ceil(N / 128), ceil(K / 128)], the same array in forward and dX; w of fp8_row [E, row].
 */
struct grouped_gemm_args {
    uint32_t size;          /* sizeof(struct grouped_gemm_args): later ABIs add fields at the end */
    uint32_t flags;         /* GROUPED_GEMM_* */
    const void *x, *w, *dy; /* borrowed; NULL where the mode does not read it */
    void *out;
    int64_t x_stride;        /* between rows; 0: K */
    int64_t w_stride;        /* between rows n; 0: K */
    int64_t w_stride_expert; /* 0: N * w_stride */
    int64_t dy_stride;       /* 0: N */
    /* between rows of out; 0: N in forward, K in dX. In dW between the rows n of an expert; 0: K */
    int64_t out_stride;
    int64_t out_stride_expert; /* dW 0: N * out_stride */
    /* [E] rows of each expert, on the device; zeros allowed, sum at most T: no kernel writes the
     * rows beyond the sum, and no result depends on these rows. Not read when experts = 1, where
     * the expert has all rows. */
    const void *m_sizes;
    /* [T] flat (token, slot) index of each row in expert order, on the device; needed by permute_x,
     * permute_y. Every index names a row, also beyond the sum of m_sizes: a kernel may copy the
     * rows of all T indices. */
    const void *gather_indices;
    /* [T] by token * topk + slot, dtype weights_dtype; needed by fuse_mul_post */
    const void *topk_weights;
    uint32_t m_sizes_dtype; /* DTYPE_INT32 | DTYPE_INT64 */
    uint32_t gather_dtype;  /* DTYPE_INT32 | DTYPE_INT64 */
    uint32_t weights_dtype; /* DTYPE_FP32 or the input dtype */
    uint32_t sms; /* the main kernel has no more thread blocks than so many SMs hold; 0: no limit */
    int64_t rows; /* T; the sum of m_sizes */
    void *workspace; /* 256-aligned, at least the bytes that launcher_workspace returns */
    int64_t workspace_bytes;
    void *stream; /* CUstream; NULL: the legacy default stream; ignored on the CPU */
    /* The scales of fp8 operands; NULL without quantisation, or where the mode does not read the
     * operand. Strides in elements. */
    const void *x_scale, *w_scale, *dy_scale;
    int64_t x_scale_stride, x_scale_stride_block;
    int64_t w_scale_stride, w_scale_stride_block, w_scale_stride_expert;
    int64_t dy_scale_stride, dy_scale_stride_block;
};

enum { QUANTISE_ENDS = GROUPED_GEMM_ENDS };

/*
 * quantise. bf16 to e4m3 bytes and fp32 scales, in blocks of 128; the definition is in
 * kernels/families/quantise/quantise.h. T = routed rows, E experts. Strides in elements; 0 means
 * dense.
 *
 *   mode        reads                    writes
 *   rows        x [T or tokens, K]       q [T, K], scales
 *   columns     x [T or tokens, K]       q_t [K, padded], scales_t [padded / 128, K]
 *   both        x [T or tokens, K]       as rows and as columns
 *   weights     x [E, N, K], T = E * N   q [E, N, K], q_t [E, K, N], scales [E * ceil(N / 128),
 * blocks]
 *   whole_rows  x [T or tokens, K]       q [T, K], scales [T]: K is a single block
 *
 * In q_t each expert begins at a multiple of 128 columns, and its last block is filled up with
 * zeros. Not written: the columns behind the last expert's block; in modes columns and both, rows
 * beyond the sum of m_sizes, and rows of blocks that `padded` has no place for.
 */
struct quantise_args {
    uint32_t size;  /* sizeof(struct quantise_args): later ABIs add fields at the end */
    uint32_t flags; /* QUANTISE_* */
    const void *x;  /* borrowed; 16-byte aligned as q and q_t are; NULL where the mode has none */
    void *q, *scales, *q_t, *scales_t;
    int64_t x_stride; /* between rows; 0: K; a multiple of 8 */
    int64_t q_stride; /* 0: K; a multiple of 16 */
    /* of the scale of (row, K block); both 0: 1 and T rounded up to 4, or with weights, where a row
     * is a block of 128 rows of an expert, the K blocks and 1 */
    int64_t scales_row_stride, scales_block_stride;
    int64_t q_t_stride;      /* between columns of x; 0: padded, weights: N; a multiple of 16 */
    int64_t scales_t_stride; /* between blocks of 128 tokens; 0: K */
    int64_t padded;          /* columns of q_t, a multiple of 128; 0: (T + 127 * E) / 128 * 128 */
    const void *m_sizes;     /* [E] on the device; read by columns and both, of several experts */
    const void *gather_indices; /* [T] on the device, token * topk + slot; needed by permute_x */
    uint32_t m_sizes_dtype;     /* DTYPE_INT32 | DTYPE_INT64 */
    uint32_t gather_dtype;      /* DTYPE_INT32 | DTYPE_INT64 */
    float eps;                  /* the least amax of a block, 0 or more; usually 1e-12 */
    uint32_t reserved;
    int64_t rows;    /* T */
    void *workspace; /* no kernel needs it today */
    int64_t workspace_bytes;
    void *stream; /* CUstream; NULL: the legacy default stream; ignored on the CPU */
};

#endif
