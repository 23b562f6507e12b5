/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantise for every NVIDIA GPU from compute capability 8.0 on. A variant is this template and a set of -D options
 * (written by cuda/launch.c). The definition is in quantise.h. The text includes no headers, so that NVRTC takes it as
 * it is. It uses only the common part of C and C++: a test compiles and runs the same text on the CPU, with another
 * part "hardware". The parts, joined in this order:
 *
 *   params     the options of a variant, the kernel's arguments.
 *   hardware   the instructions used, as functions
 *   experts    the rows of a tile.
 *   numbers    maxima, scales, e4m3
 *   rows       the side that keeps the rows of x.
 *   columns    the side that turns columns into rows
 *   whole      whole rows: their own loop
 *   kernel     the loop over tiles.
 *
 * In mode whole_rows a thread block has TILE_ROWS rows, and LANES threads for each (whole.cu). In the other modes a
 * thread block has a tile of TILE_ROWS x 128 columns of x. A thread holds 8 columns (16 bytes) of ROWS_PER_THREAD
 * adjacent rows in registers. Sixteen lanes hold the columns of a row, so the maximum of a row is four exchanges
 * between lanes; the maximum of a column goes through shared memory. With a column side TILE_ROWS is 128, and the turned
 * tile goes through shared memory, so that each column is stored as 128 adjacent bytes.
 *
 *   ROWS_PER_THREAD  more bytes in flight for a thread, fewer threads.
 *   MIN_BLOCKS       thread blocks of an SM that the registers must allow
 *   STREAM           loads and stores are marked as used once.
 *   PREFETCH         thread blocks are persistent, and load the next tile before they work on this one
 *   group            run time: row tiles that come before the next block of columns.
 *
 * Bound aimed at: memory bandwidth. Each byte of x is read once, each byte of the results written once.
 *
 * The host checks: K a multiple of 16, pointers of x, q, q_t and their strides multiples of 16 bytes, fewer than 2^31
 * tiles, gather indices below 2^30.
 */
#define MODE_ROWS 0
#define MODE_COLUMNS 1
#define MODE_BOTH 2
#define MODE_WEIGHTS 3
#define MODE_WHOLE_ROWS 4
#define ROW_SIDE (MODE != MODE_COLUMNS)
#define COLUMN_SIDE (MODE != MODE_ROWS && MODE != MODE_WHOLE_ROWS)
#define GROUPED (MODE == MODE_COLUMNS || MODE == MODE_BOTH) /* tiles begin at the rows of an expert */

#define SIDE 128  /* columns of a tile, and rows with a column side */
#if MODE == MODE_WHOLE_ROWS
#define RPT 1
#else
#define LANES 16  /* lanes that hold a row's columns */
#define RPT ROWS_PER_THREAD
#endif
#define THREADS (TILE_ROWS / RPT * LANES)
#define WARPS (THREADS / 32)
#define PAIRS ((RPT + 1) / 2)

#if THREADS < 32 || THREADS > 1024 || (COLUMN_SIDE && (TILE_ROWS != SIDE || RPT % 4))
#error "a tile has 32 to 1024 threads; with a column side it has 128 rows, a multiple of 4 for each thread"
#endif

/* Shared memory: the turned tile, the inverse scales of columns, the maxima that each warp found. */
#define TURNED_BYTES (SIDE * SIDE)
#define INVERSE_BYTES (SIDE * 4)

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned u32;
typedef unsigned short u16;

#define FLAG_M_SIZES_64 1u
#define FLAG_GATHER_64 2u
#define FLAG_ENDS 4u

/* cuda/launch.c has the same struct. Strides in bytes for x, q and q_t, in elements for the scales. */
struct quantise_params {
    const char *x;
    char *q, *q_t;
    float *scales, *scales_t;
    const void *m_sizes; /* the rows of the experts, or their ends; NULL: a single expert has all rows */
    const void *gather;
    i64 x_stride, q_stride, q_t_stride;
    i64 scales_row, scales_block, scales_t_stride;
    i64 padded;        /* columns of q_t; weights: rows of an expert */
    int rows, k, experts;
    int row_tiles, column_tiles, group;
    u32 topk_mul, topk_shift; /* g div topk = g * mul >> shift */
    u32 flags;
    float eps;
};

/* The rows of a tile. */
struct tile {
    int column;   /* the first column of x */
    int first;    /* the first row of x as routed */
    int rows;     /* 0: nothing to do */
    i64 at;       /* grouped: the column of q_t of the first row; weights: the row within the expert */
    int expert;   /* weights */
};
