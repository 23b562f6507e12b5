/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantise inside: declarations that its files share. Code outside this folder knows only
 * `quantise_family` (in kernels/families/families.c) and the args struct of kernels/abi.h.
 *
 *   family.c        the description of the family.
 *   op/op.c         the op: fields, contradictions, buckets; the least bytes
 *   op/args.c       a launch's args: checked, strides filled in.
 *   op/workload.c   a problem made concrete: buffers, check runs, the args over them
 *   op/special.c    the drawn rows with special values, and the rows of the experts.
 *   op/rules.c      tunables and checks of a config that both targets share
 *   reference.cu    the definition below in double, for the GPU and for the CPU.
 *   cpu/            the target "cpu"
 *   cuda/           the target "portable" of the cuda device.
 *
 * Quantising turns blocks of a bf16 matrix into e4m3 bytes q and a scale for each block, so that
 * q * scale is near the value. Every step rounds to the nearest fp32, ties to even:
 *
 *   amax   the largest absolute value of the block; NaN and infinities do not count
 *   scale  max(amax, eps) / 448. pow2: the smallest power of two that is not less. A scale below
 *          2^-126 becomes 1
 *   q      x * (1 / scale), rounded to e4m3 and clamped to +-448. An infinity becomes +-448, NaN
 *          becomes 0x7f, a zero keeps its sign
 *
 *   mode        block    q                              scales
 *   rows        1x128    q [M, K]                       scales: a value for (row, K block)
 *   columns     128x1    q_t [K, T], tokens contiguous  scales_t [T / 128, K]
 *   both        as rows and as columns, from one read of x
 *   weights     128x128  q [E, N, K], q_t [E, K, N]     scales [E, ceil(N / 128), ceil(K / 128)]
 *   whole_rows  1xK      q [M, K]                       scales: a value for each row
 *
 * In q_t each expert begins at a multiple of 128 tokens. The tokens between an expert's last row
 * and the next multiple of 128 are zero bytes. Columns behind the last expert are not written.
 */
#ifndef GEMMD_KERNELS_FAMILIES_QUANTISE_H
#define GEMMD_KERNELS_FAMILIES_QUANTISE_H

#include "kernels/family.h"

extern const struct family quantise_family;
extern const struct op quantise_op;
extern const struct family_target quantise_cpu, quantise_cuda;
int quantise_cpu_reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                           double *out, struct launch *launch, struct error *err);

/* Embedded sources (scripts/embed). */
extern const char quantise_cpu_source[];
extern const char quantise_cuda_source[];
extern const char quantise_reference_source[];

enum quantise_mode {
    QUANTISE_ROWS,
    QUANTISE_COLUMNS,
    QUANTISE_BOTH,
    QUANTISE_WEIGHTS,
    QUANTISE_WHOLE_ROWS
};

enum { QUANTISE_BLOCK = 128, QUANTISE_ALIGN = 16 };

/* The problem's fields, typed. */
struct quantise {
    enum quantise_mode mode;
    int64_t m, k; /* rows and columns; weights: the rows of all experts */
    int64_t experts, topk;
    bool permute_x, pow2;
    /* Derived: */
    bool row_side, column_side; /* writes q; writes q_t */
    int64_t row_scales;         /* scales of a row of q */
};
void quantise_view(const struct problem *p, struct quantise *v);

static inline int64_t quantise_blocks(int64_t n)
{
    return (n + QUANTISE_BLOCK - 1) / QUANTISE_BLOCK;
}

/* Upper bound of the columns of q_t for any rows of the experts. */
int64_t quantise_padded_most(int64_t rows, int64_t experts);

/* ---- args.c ---------------------------------------------------------------------------------- */

/* Copies a caller's args of any size, checks them against the problem, and fills in the dense
 * strides and `padded`. ERROR_INVALID, ERROR_CONFLICT. */
int quantise_args_read(const struct quantise *v, const void *args, struct quantise_args *out,
                       struct error *err);
/* Row tiles of `rows` rows that a launch has at most. With a column side, rows is 128. */
int64_t quantise_row_tiles(const struct quantise *v, const struct quantise_args *a, int64_t rows);

/* ---- workload.c, special.c ------------------------------------------------------------------- */

enum { QUANTISE_X, QUANTISE_M_SIZES, QUANTISE_GATHER, QUANTISE_OUT, QUANTISE_BUFFERS };

/* The workload has a single output buffer of bytes: these parts, one behind the other. */
struct quantise_parts {
    int64_t q_t, scales, scales_t, end; /* where each part begins; q begins at 0 */
    int64_t padded;                     /* columns of q_t */
};

struct quantise_state { /* workload.state */
    struct quantise view;
    struct quantise_parts parts;
    int32_t *m_sizes;  /* owned, [experts] */
    int32_t *gather;   /* owned, [m]; NULL: rows are not gathered */
    uint16_t *special; /* owned, [special_rows, k]: the first rows of x */
    int64_t special_rows;
};

int quantise_workload_init(struct workload *w, const struct problem *p, uint64_t seed,
                           struct error *err);
void quantise_workload_deinit(struct workload *w);
double quantise_workload_bytes(const struct problem *p);
void quantise_bind(const struct workload *w, void *const buffers[], void *workspace,
                   int64_t workspace_bytes, void *stream, void *args);
void quantise_work(const struct problem *p, double *flops, double *bytes);
void quantise_write_place(const struct workload *w, uint32_t check, char *out, size_t size);
/* Fills s->special, s->m_sizes and s->gather, which the caller has allocated. */
int quantise_draw(struct quantise_state *s, uint64_t seed, struct error *err);

/* The reference's argument; the same struct stands in reference.cu. */
struct quantise_reference {
    const void *x, *m_sizes, *gather;
    const int64_t *check_at;
    double *out;
    int64_t m, k, experts, topk, padded, length;
    double eps;
    int32_t mode, pow2;
    int64_t memo_block[4];
    double memo_scale;
};
void quantise_fill_reference(const struct workload *w, void *const buffers[],
                             const int64_t *check_at, double *out, struct quantise_reference *r);

/* ---- rules.c --------------------------------------------------------------------------------- */

/* A tunable of a target. `values` end with -1; `rows_values`, unless empty, replaces them in modes
 * without a column side. Bools have the values 0 and 1. */
struct quantise_tunable {
    const char *name, *help;
    int values[8], rows_values[8];
    bool run_time, is_bool;
};
uint32_t quantise_list_params(const struct quantise_tunable t[], size_t n, const struct quantise *v,
                              struct param out[PARAMS_MAX]);
/* Checks names and values: a value must be in the tunable's list, except that a run-time value may
 * be any from 1 to 1024. Returns 0 or 1, as family_target.check. */
int quantise_check_config(const struct quantise_tunable t[], size_t n, const struct quantise *v,
                          const struct record *config, const char *target, struct rejection *why);

#endif
