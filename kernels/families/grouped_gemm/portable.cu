/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm for every NVIDIA GPU from compute capability 8.0 on: cp.async, ldmatrix, mma.sync.
 * One template; a variant is this text and a set of -D options (cuda.c writes them). No headers, so
 * that NVRTC takes it as it is. Only what C and C++ have in common is used, so that a test can
 * compile the same text for the CPU, with the section "hardware" replaced, and run it.
 *
 * Every mode is a matrix product per expert, D[r,c] = sum over d of A[r,d] B[c,d]:
 *
 *   MODE         r         c   d          A                       B
 *   0 forward    row       n   k          x  rows, k contiguous   w rows n, k contiguous
 *   1 dX         row       k   n          dy rows, n contiguous   w rows n, k contig.: transposed
 *   2 dW         n         k   row        dy rows: transposed     x rows: transposed
 *
 * A block of threads owns a tile TR x TC of D and walks the reduction in steps of TD. Blocks are
 * persistent: each takes tiles blockIdx, blockIdx + grid, ...; the ring of NUM_STAGES tiles in
 * shared memory runs on over tile borders, so the next tile's first blocks travel while the last
 * one is multiplied and written.
 *
 * Shared memory: NUM_STAGES x (A tile, B tile), then start[experts + 1] and ends[experts]. A tile
 * is stored as it lies in global memory (rows of the operand), 16 bytes ("chunk") at a time; chunk
 * c of row r lies at c xor swizzle(r), so that the eight rows of an ldmatrix hit different banks.
 *
 * Bounds aimed at: the mma.sync rate for large experts, memory bandwidth for small ones.
 *
 * Sizes are run-time arguments; what must hold (cuda.c checks it): n, k multiples of 8, pointers
 * and row strides multiples of 16 bytes, fewer than 2^31 tiles, gather indices below 2^30.
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

#define A_TRANSPOSED (MODE == MODE_DW)      /* rows of the stored tile are d, not r */
#define B_TRANSPOSED (MODE != MODE_FORWARD) /* rows of the stored tile are d, not c */
#define GATHER_A (MODE == MODE_FORWARD ? GATHER_X : GATHER_DY)
#define GATHER_B (MODE == MODE_DW && GATHER_X)

#define THREADS (WARPS_R * WARPS_C * 32)
#define WR (TR / WARPS_R) /* a warp's part of the tile */
#define WC (TC / WARPS_C)
#define FR (WR / 16)      /* mma fragments of it */
#define FC (WC / 8)
#define STEPS (TD / 16)   /* mma steps of one block of the reduction */

#define A_ROWS (A_TRANSPOSED ? TD : TR)
#define A_CHUNKS ((A_TRANSPOSED ? TR : TD) / 8)
#define B_ROWS (B_TRANSPOSED ? TD : TC)
#define B_CHUNKS ((B_TRANSPOSED ? TC : TD) / 8)
#define A_BYTES (TR * TD * 2)
#define STAGE_BYTES ((TR + TC) * TD * 2)
/* Rows of a tile that one thread copies. */
#define A_COPIES ((A_ROWS * A_CHUNKS + THREADS - 1) / THREADS)
#define B_COPIES ((B_ROWS * B_CHUNKS + THREADS - 1) / THREADS)

#if WR % 16 || WC % 32 || TD % 32 || WR > 64 || WC > 64
#error "a warp's part must be 16, 32 or 64 x 32 or 64, the reduction block a multiple of 32"
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

/* cuda.c has the same struct. Strides in bytes. */
struct portable_params {
    const char *a, *b;
    char *out;
    const void *m_sizes; /* NULL: one expert has all rows */
    const void *gather;
    const void *weights;
    i64 a_stride, b_stride, out_stride; /* between rows as stored */
    i64 b_expert, out_expert;           /* between experts: w; dW's output */
    int rows;                           /* routed rows in all */
    int experts;
    int tile_rows;  /* dW: how many r (n) an expert's output has; else unused */
    int tile_cols;  /* how many c */
    int depth;      /* how long d is; dW: unused, an expert's rows */
    int group;      /* tiles along r that are walked before the next c */
    u32 flags;
    u32 topk_mul, topk_shift; /* g div topk = g * mul >> shift */
    u32 reserved;
};

/* ---- hardware ------------------------------------------------------------------------------- */
#ifndef PORTABLE_EMULATED
#define THREAD ((int)threadIdx.x)
#define BLOCK ((int)blockIdx.x)
#define BLOCKS ((int)gridDim.x)
#define INLINE static __device__ __forceinline__

extern __shared__ __align__(128) char shared_memory[];

INLINE u32 shared_base(void)
{
    return (u32)__cvta_generic_to_shared(shared_memory);
}

/* The compiler forgets what it knows of v: else it keeps j * v of every unrolled j in registers. */
#define HIDE32(v) asm volatile("" : "+r"(v))
#define HIDE64(v) asm volatile("" : "+l"(v))

INLINE void barrier(void)
{
    __syncthreads();
}

/* 16 bytes from global to shared memory, asynchronously; zeros when bytes is 0: nothing is read. */
INLINE void copy16(u32 to, const char *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

INLINE void copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Until all but the newest NUM_STAGES - 2 groups of this thread have arrived. */
INLINE void copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(NUM_STAGES - 2) : "memory");
}

INLINE void load_matrix(u32 r[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

INLINE void load_matrix_transposed(u32 r[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

/* d (16 x 8, fp32) += a (16 x 16) b (16 x 8) */
INLINE void multiply(float d[4], const u32 a[4], u32 b0, u32 b1)
{
#if IN_BF16
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

/* Two floats rounded to the input type, the first in the low half. */
INLINE u32 round_pair(float low, float high)
{
    u32 r;
#if IN_BF16
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
    return r;
}

INLINE float widen(u16 v)
{
    float r;
#if IN_BF16
    r = __uint_as_float((u32)v << 16);
#else
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
#endif
    return r;
}

INLINE u32 shuffle_xor(u32 v, int mask)
{
    return __shfl_xor_sync(~0u, v, mask);
}

INLINE int shuffle_up(int v, int by)
{
    return __shfl_up_sync(~0u, v, by);
}

INLINE int shuffle_from(int v, int lane)
{
    return __shfl_sync(~0u, v, lane);
}

/* How many lanes of the warp say yes. */
INLINE int count_lanes(int yes)
{
    return __popc(__ballot_sync(~0u, yes));
}

INLINE void store16(char *to, u32 a, u32 b, u32 c, u32 d)
{
    *(uint4 *)to = make_uint4(a, b, c, d);
}

INLINE void store8(char *to, float a, float b)
{
    *(float2 *)to = make_float2(a, b);
}
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
#define PARAMS const __grid_constant__ struct portable_params
#endif

/* ---- experts and tiles ---------------------------------------------------------------------- */

/* start[e]: first row of expert e, start[experts] the end of the last; ends[e]: tiles along r of
 * experts 0..e. By the first warp; sizes that do not fit into `rows` are cut, so that wrong sizes
 * cannot make us touch what is not ours. */
INLINE void scan_experts(const struct portable_params *p, int *start, int *ends)
{
    const int lane = THREAD;
    int rows = 0, tiles = 0;
    for (int base = 0; base < p->experts; base += 32) {
        const int e = base + lane;
        int m = 0;
        if (e < p->experts) {
            if (!p->m_sizes)
                m = p->rows;
            else if (p->flags & FLAG_M_SIZES_64)
                m = (int)((const i64 *)p->m_sizes)[e];
            else
                m = ((const int *)p->m_sizes)[e];
        }
        u32 sum = m < 0 ? 0 : m; /* each at most 2^30 after the cut, so two never overflow */
        sum = sum < (u32)p->rows ? sum : (u32)p->rows;
        for (int by = 1; by < 32; by <<= 1) {
            const u32 before = (u32)shuffle_up((int)sum, by);
            if (lane >= by)
                sum = sum + before < (u32)p->rows ? sum + before : (u32)p->rows;
        }
        const int last = rows + sum < (u32)p->rows ? (int)(rows + sum) : p->rows;
        int first = shuffle_up(last, 1);
        first = lane ? first : rows;
        int count = (last - first + TR - 1) / TR;
        for (int by = 1; by < 32; by <<= 1) {
            const int before = shuffle_up(count, by);
            if (lane >= by)
                count += before;
        }
        if (e < p->experts) {
            start[e] = first;
            start[e + 1] = last;
            ends[e] = tiles + count;
        }
        rows = shuffle_from(last, 31);
        tiles += shuffle_from(count, 31);
    }
}

/* The expert that the q-th row of tiles belongs to: how many ends are <= q. */
INLINE int find_expert(const int *ends, int experts, int q)
{
    const int lane = THREAD & 31;
    int base = 0;
    if (experts > 32) {
        const int last = lane * 32 + 31;
        base = 32 * count_lanes(last < experts && ends[last < experts ? last : 0] <= q);
    }
    const int e = base + lane;
    return base + count_lanes(e < experts && ends[e < experts ? e : 0] <= q);
}

struct tile {
    int expert;
    int r0, c0; /* first r and c, within the expert */
    int first;  /* first row of the expert */
    int rows;   /* rows of the expert */
};

INLINE struct tile locate_tile(const struct portable_params *p, const int *start, const int *ends,
                               int id)
{
    int col_tiles = (p->tile_cols + TC - 1) / TC, group = p->group;
    struct tile t;
    int row_tiles;
    HIDE32(col_tiles); /* or their reciprocals live in registers through the main loop */
    HIDE32(group);
#if MODE == MODE_DW
    row_tiles = (p->tile_rows + TR - 1) / TR;
    t.expert = id / (row_tiles * col_tiles);
    id -= t.expert * row_tiles * col_tiles;
#else
    t.expert = find_expert(ends, p->experts, id / col_tiles);
    const int before = t.expert ? ends[t.expert - 1] : 0;
    row_tiles = ends[t.expert] - before;
    id -= before * col_tiles;
#endif
    const int band = id / (group * col_tiles);
    const int left = row_tiles - band * group;
    const int height = left < group ? left : group;
    id -= band * group * col_tiles;
    t.c0 = id / height * TC;
    t.r0 = (band * group + id % height) * TR;
    t.first = start[t.expert];
    t.rows = start[t.expert + 1] - t.first;
    return t;
}

/* Blocks of the reduction of a tile; at least one (of zeros), for experts without rows in dW. */
INLINE int tile_blocks(const struct portable_params *p, const int *start, int id)
{
#if MODE == MODE_DW
    int tiles = (p->tile_rows + TR - 1) / TR * ((p->tile_cols + TC - 1) / TC);
    HIDE32(tiles);
    const int expert = id / tiles, rows = start[expert + 1] - start[expert];
    return rows > TD ? (rows + TD - 1) / TD : 1;
#else
    (void)start;
    (void)id;
    return (p->depth + TD - 1) / TD;
#endif
}

/* ---- from global to shared memory ----------------------------------------------------------- */

/* Byte offset of a chunk in a tile of rows of `chunks` chunks. */
INLINE int chunk_at(int row, int chunk, int chunks)
{
    const int rows_per_line = chunks < 8 ? 8 / chunks : 1; /* a line is 128 bytes: all banks */
    const int mask = chunks < 8 ? chunks - 1 : 7;
    return (row * chunks + (chunk ^ (row / rows_per_line & mask))) * 16;
}

INLINE int gather_index(const struct portable_params *p, int i)
{
    if (p->flags & FLAG_GATHER_64)
        return (int)((const i64 *)p->gather)[i];
    return ((const int *)p->gather)[i];
}

INLINE int token_of(const struct portable_params *p, int g)
{
    return (int)((u64)(u32)g * p->topk_mul >> p->topk_shift);
}

/* The same for row + passed rows, from the offset of the row: passed is a multiple of a power of
 * two above row, so the swizzle of the sum is the xor of both. */
INLINE int chunk_below(int at, int passed, int chunks)
{
    const int rows_per_line = chunks < 8 ? 8 / chunks : 1, mask = chunks < 8 ? chunks - 1 : 7;
    return (at ^ (passed / rows_per_line & mask) * 16) + passed * chunks * 16;
}

/* A thread copies chunk THREAD % chunks of rows THREAD / chunks + j * (THREADS / chunks). `from` is
 * where the first of them begins, `step` the bytes to the next, `rows_left` how many rows of the
 * tile exist; others, and columns that do not exist, become zeros. */
INLINE void copy_tile(u32 to, const char *from, i64 step, int rows_left, int column_exists,
                      int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
    int at = chunk_at(row, THREAD % chunks, chunks);
    HIDE32(at);
    HIDE64(step);
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        if (rows % pass == 0 || r < rows)
            copy16(to + chunk_below(at, j * pass, chunks), from,
                   column_exists && r < rows_left ? 16 : 0);
        from += step;
    }
}

/* The same where each row has its own place: index[j], or the token that it belongs to. */
INLINE void copy_gathered(const struct portable_params *p, u32 to, const char *from, i64 stride,
                          const int index[], int tokens, int rows_left, int column_exists,
                          int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
    int at = chunk_at(row, THREAD % chunks, chunks);
    HIDE32(at);
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        const i64 source = tokens ? token_of(p, index[j]) : index[j];
        if (rows % pass == 0 || r < rows)
            copy16(to + chunk_below(at, j * pass, chunks), from + source * stride,
                   column_exists && r < rows_left ? 16 : 0);
    }
}

/* Reads ahead the indices of the rows that this thread will copy. */
INLINE void fetch_indices(const struct portable_params *p, int index[], int first, int rows_left,
                          int rows, int chunks)
{
    const int row = THREAD / chunks, pass = THREADS / chunks;
#pragma unroll
    for (int j = 0; j * pass < rows; j++) {
        const int r = row + j * pass;
        index[j] = r < rows_left ? gather_index(p, first + r) : 0;
    }
}

/* Where the copies are: a block of a tile, up to NUM_STAGES - 1 ahead of the multiplication. */
struct cursor {
    int id;         /* of the tile; >= tiles: nothing is left */
    int at, end;    /* of the reduction: of depth, or (dW) rows counted over all experts */
    int a_left;     /* rows of the tile that exist, or, transposed, columns from this thread's on */
    int b_left;
    const char *a, *b; /* this thread's first chunk of the next block, gathered rows not counted */
    int a_index[A_COPIES], b_index[B_COPIES];
};

INLINE void cursor_indices(struct cursor *c, const struct portable_params *p)
{
    if (MODE == MODE_DW && GATHER_A)
        fetch_indices(p, c->a_index, c->at, c->end - c->at, A_ROWS, A_CHUNKS);
    if (MODE == MODE_DW && GATHER_B)
        fetch_indices(p, c->b_index, c->at, c->end - c->at, B_ROWS, B_CHUNKS);
}

INLINE void cursor_enter(struct cursor *c, const struct portable_params *p, const int *start,
                         const int *ends, int id)
{
    const int a_row = THREAD / A_CHUNKS, a_column = THREAD % A_CHUNKS * 8;
    const int b_row = THREAD / B_CHUNKS, b_column = THREAD % B_CHUNKS * 8;
    const struct tile t = locate_tile(p, start, ends, id);
    c->id = id;
    c->a = p->a + a_column * 2;
    c->b = p->b + b_column * 2;
#if MODE == MODE_DW
    c->at = t.first;
    c->end = t.first + t.rows;
    c->a_left = p->tile_rows - t.r0 - a_column;
    c->b_left = p->tile_cols - t.c0 - b_column;
    c->a += (i64)t.r0 * 2;
    c->b += (i64)t.c0 * 2;
    if (!GATHER_A)
        c->a += (i64)(t.first + a_row) * p->a_stride;
    if (!GATHER_B)
        c->b += (i64)(t.first + b_row) * p->b_stride;
#else
    c->at = 0;
    c->end = p->depth;
    c->a_left = t.rows - t.r0;
    if (GATHER_A)
        fetch_indices(p, c->a_index, t.first + t.r0, c->a_left, A_ROWS, A_CHUNKS);
    else
        c->a += (i64)(t.first + t.r0 + a_row) * p->a_stride;
    c->b += t.expert * p->b_expert;
#if MODE == MODE_FORWARD
    c->b_left = p->tile_cols - t.c0;
    c->b += (i64)(t.c0 + b_row) * p->b_stride;
#else
    c->b_left = p->tile_cols - t.c0 - b_column;
    c->b += (i64)b_row * p->b_stride + (i64)t.c0 * 2;
#endif
#endif
    cursor_indices(c, p);
}

INLINE void cursor_next(struct cursor *c, const struct portable_params *p, const int *start,
                        const int *ends, int tiles)
{
    c->at += TD;
    if (c->at < c->end) {
        if (!A_TRANSPOSED)
            c->a += TD * 2;
        else if (!GATHER_A)
            c->a += TD * p->a_stride;
        if (!B_TRANSPOSED)
            c->b += TD * 2;
        else if (!GATHER_B)
            c->b += TD * p->b_stride;
        cursor_indices(c, p);
    } else if (c->id + BLOCKS < tiles) {
        cursor_enter(c, p, start, ends, c->id + BLOCKS);
    } else {
        c->id = tiles;
    }
}

/* Issues the copies of the cursor's block into a stage. */
INLINE void copy_block(const struct cursor *c, const struct portable_params *p, u32 stage)
{
    const int left = c->end - c->at;
    const int a_exists = A_TRANSPOSED ? c->a_left > 0 : THREAD % A_CHUNKS * 8 < left;
    const int b_exists = B_TRANSPOSED ? c->b_left > 0 : THREAD % B_CHUNKS * 8 < left;
    if (GATHER_A)
        copy_gathered(p, stage, c->a, p->a_stride, c->a_index, MODE == MODE_FORWARD,
                      A_TRANSPOSED ? left : c->a_left, a_exists, A_ROWS, A_CHUNKS);
    else
        copy_tile(stage, c->a, THREADS / A_CHUNKS * p->a_stride, A_TRANSPOSED ? left : c->a_left,
                  a_exists, A_ROWS, A_CHUNKS);
    if (GATHER_B)
        copy_gathered(p, stage + A_BYTES, c->b, p->b_stride, c->b_index, 1, left, b_exists,
                      B_ROWS, B_CHUNKS);
    else
        copy_tile(stage + A_BYTES, c->b, THREADS / B_CHUNKS * p->b_stride,
                  B_TRANSPOSED ? left : c->b_left, b_exists, B_ROWS, B_CHUNKS);
}

/* ---- from shared memory to registers -------------------------------------------------------- */

struct fragments {
    u32 a[FR][4];     /* 16 x 16 each */
    u32 b[FC / 2][4]; /* two of 16 x 8 each */
};

/* The four 8 x 8 matrices of one ldmatrix are (r low, d low), (r high, d low), (r low, d high),
 * (r high, d high) for A, and (c low, d low), (c low, d high), (c high, d low), (c high, d high)
 * for B; lane l gives the address of row l % 8 of matrix l / 8. Here for the warp's first fragment
 * and the first step; sizes are powers of two, so the chunks of others are an xor away. */
INLINE int first_a(int warp_r)
{
    const int lane = THREAD & 31, r_high = lane >> 3 & 1, d_high = lane >> 4;
    if (A_TRANSPOSED)
        return chunk_at(d_high * 8 + (lane & 7), warp_r * (WR / 8) + r_high, A_CHUNKS);
    return chunk_at(warp_r * WR + r_high * 8 + (lane & 7), d_high, A_CHUNKS);
}

INLINE int first_b(int warp_c)
{
    const int lane = THREAD & 31, d_high = lane >> 3 & 1, c_high = lane >> 4;
    if (B_TRANSPOSED)
        return A_BYTES + chunk_at(d_high * 8 + (lane & 7), warp_c * (WC / 8) + c_high, B_CHUNKS);
    return A_BYTES + chunk_at(warp_c * WC + c_high * 8 + (lane & 7), d_high, B_CHUNKS);
}

INLINE void load_a(u32 a[FR][4], u32 stage, int first, int step)
{
    HIDE32(first); /* a few more instructions for many fewer registers */
#pragma unroll
    for (int i = 0; i < FR; i++) {
        if (A_TRANSPOSED)
            load_matrix_transposed(a[i], stage + (first ^ i * 32) + step * 16 * A_CHUNKS * 16);
        else
            load_matrix(a[i], stage + (first ^ step * 32) + i * 16 * A_CHUNKS * 16);
    }
}

INLINE void load_b(u32 b[FC / 2][4], u32 stage, int first, int step)
{
    HIDE32(first);
#pragma unroll
    for (int i = 0; i < FC / 2; i++) {
        if (B_TRANSPOSED)
            load_matrix_transposed(b[i], stage + (first ^ i * 32) + step * 16 * B_CHUNKS * 16);
        else
            load_matrix(b[i], stage + (first ^ step * 32) + i * 16 * B_CHUNKS * 16);
    }
}

INLINE void multiply_all(float acc[FR][FC][4], const struct fragments *f)
{
#pragma unroll
    for (int i = 0; i < FR; i++)
#pragma unroll
        for (int j = 0; j < FC; j++)
            multiply(acc[i][j], f->a[i], f->b[j / 2][j % 2 * 2], f->b[j / 2][j % 2 * 2 + 1]);
}

/* ---- from registers to global memory -------------------------------------------------------- */

/* Four threads hold a row of four fragments, two columns of each per thread (one word). Afterwards
 * thread t holds all eight columns of fragment t. */
INLINE void transpose_quad(u32 v[4])
{
    const int odd = THREAD & 1, high = THREAD & 2;
    const u32 r0 = shuffle_xor(odd ? v[0] : v[1], 1);
    const u32 r1 = shuffle_xor(odd ? v[2] : v[3], 1);
    const u32 a0 = odd ? r0 : v[0], a1 = odd ? v[1] : r0;
    const u32 a2 = odd ? r1 : v[2], a3 = odd ? v[3] : r1;
    const u32 s0 = shuffle_xor(high ? a0 : a2, 2);
    const u32 s1 = shuffle_xor(high ? a1 : a3, 2);
    v[0] = high ? s0 : a0;
    v[1] = high ? s1 : a1;
    v[2] = high ? a2 : s0;
    v[3] = high ? a3 : s1;
}

/* in(in(a) * w): the product of two 16-bit values is exact in fp32, so this rounds once more. */
INLINE u32 scale_pair(u32 pair, float w)
{
    return round_pair(widen((u16)pair) * w, widen((u16)(pair >> 16)) * w);
}

INLINE float weight_of(const struct portable_params *p, int g)
{
    if (p->flags & FLAG_WEIGHTS_FP32)
        return widen((u16)round_pair(((const float *)p->weights)[g], 0.0f));
    return widen(((const u16 *)p->weights)[g]);
}

/* Two columns of one row, as they lie in registers. Only in dW: fp32, or added to what is there. */
INLINE void store_pair(char *to, float a, float b, int add)
{
#if OUT_FP32
    if (add) {
        a += ((const float *)to)[0];
        b += ((const float *)to)[1];
    }
    store8(to, a, b);
#else
    (void)add;
    *(u32 *)to = round_pair(a + widen(((const u16 *)to)[0]), b + widen(((const u16 *)to)[1]));
#endif
}

/* One row of a warp's part: columns c.. of the output row that begins at `to`, if it exists. */
INLINE void store_pairs(const struct portable_params *p, float acc[FC][4], int half, char *to,
                        int c, int exists, int add)
{
#pragma unroll
    for (int j = 0; j < FC; j++) {
        const int column = c + j * 8 + (THREAD & 3) * 2;
        if (exists && column < p->tile_cols)
            store_pair(to + (i64)column * (OUT_FP32 ? 4 : 2), acc[j][half * 2],
                       acc[j][half * 2 + 1], add);
    }
}

/* The same, rounded, 16 bytes at a time. All lanes come here, since they exchange. */
INLINE void store_chunks(const struct portable_params *p, float acc[FC][4], int half, char *to,
                         int c, int exists, float weight)
{
#pragma unroll
    for (int j = 0; j < FC; j += 4) {
        const int column = c + (j + (THREAD & 3)) * 8;
        u32 v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = round_pair(acc[j + i][half * 2], acc[j + i][half * 2 + 1]);
            if (FUSE_MUL_POST)
                v[i] = scale_pair(v[i], weight);
        }
        transpose_quad(v);
        if (exists && column < p->tile_cols)
            store16(to + (i64)column * 2, v[0], v[1], v[2], v[3]);
    }
}

INLINE void store_tile(const struct portable_params *p, const struct tile *t,
                       float acc[FR][FC][4], int warp_r, int warp_c)
{
    const int lane = THREAD & 31, c = t->c0 + warp_c * WC;
    const int add = MODE == MODE_DW && p->flags & FLAG_ACCUMULATE;
#pragma unroll
    for (int i = 0; i < FR * 2; i++) {
        const int r = t->r0 + warp_r * WR + i * 8 + lane / 4;
        float weight = 1.0f;
#if MODE == MODE_DW
        const int exists = r < p->tile_rows;
        char *to = p->out + t->expert * p->out_expert + r * p->out_stride;
#else
        const int exists = r < t->rows;
        int row = t->first + r;
        if (SCATTER)
            row = exists ? gather_index(p, row) : 0;
        if (FUSE_MUL_POST)
            weight = exists ? weight_of(p, row) : 0.0f;
        char *to = p->out + row * p->out_stride;
#endif
        if (OUT_FP32 || add)
            store_pairs(p, acc[i / 2], i % 2, to, c, exists, add);
        else
            store_chunks(p, acc[i / 2], i % 2, to, c, exists, weight);
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */

KERNEL grouped_gemm_portable(PARAMS p)
{
    const u32 ring = shared_base();
    int *start = (int *)(shared_memory + NUM_STAGES * STAGE_BYTES);
    int *ends = start + p.experts + 1;
    const int warp = THREAD / 32, warp_r = warp / WARPS_C, warp_c = warp % WARPS_C;
    const int a = first_a(warp_r), b = first_b(warp_c);

    if (warp == 0)
        scan_experts(&p, start, ends);
    barrier();
    const int col_tiles = (p.tile_cols + TC - 1) / TC;
#if MODE == MODE_DW
    const int tiles = p.experts * ((p.tile_rows + TR - 1) / TR) * col_tiles;
#else
    const int tiles = ends[p.experts - 1] * col_tiles;
#endif
    if (BLOCK >= tiles)
        return;

    struct cursor cursor;
    cursor_enter(&cursor, &p, start, ends, BLOCK);
#pragma unroll 1
    for (int s = 0; s < NUM_STAGES - 1; s++) {
        if (cursor.id < tiles) {
            copy_block(&cursor, &p, ring + s * STAGE_BYTES);
            cursor_next(&cursor, &p, start, ends, tiles);
        }
        copy_commit();
    }
    copy_wait();
    barrier();

    u32 reading = ring;
    const u32 ring_end = ring + NUM_STAGES * STAGE_BYTES;
    struct fragments f[2];
    load_a(f[0].a, reading, a, 0);
    load_b(f[0].b, reading, b, 0);

#pragma unroll 1
    for (int id = BLOCK; id < tiles; id += BLOCKS) {
        float acc[FR][FC][4];
#pragma unroll
        for (int i = 0; i < FR * FC * 4; i++)
            acc[i / (FC * 4)][i / 4 % FC][i % 4] = 0.0f;

        const int blocks = tile_blocks(&p, start, id);
#pragma unroll 1
        for (int block = blocks; block > 0; block--) {
            /* Fragments of the next step are read while this step is multiplied. Before the last
             * step the next stage must have arrived for every thread; after that barrier nobody
             * reads this stage any more, so the next round may write it. */
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                if (step == STEPS - 1) {
                    copy_wait();
                    barrier();
                    reading += STAGE_BYTES;
                    reading = reading == ring_end ? ring : reading;
                }
                if (step == 0) {
                    const u32 next = reading == ring ? ring_end : reading;
                    if (cursor.id < tiles) {
                        copy_block(&cursor, &p, next - STAGE_BYTES);
                        cursor_next(&cursor, &p, start, ends, tiles);
                    }
                    copy_commit();
                }
                load_a(f[(step + 1) % 2].a, reading, a, (step + 1) % STEPS);
                load_b(f[(step + 1) % 2].b, reading, b, (step + 1) % STEPS);
                multiply_all(acc, &f[step % 2]);
            }
        }
        const struct tile t = locate_tile(&p, start, ends, id);
        store_tile(&p, &t, acc, warp_r, warp_c);
    }
}
