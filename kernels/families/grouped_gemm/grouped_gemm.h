/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm inside: declarations that its files share. Code outside this folder knows only
 * `grouped_gemm_family` (in kernels/families/families.c) and the args struct of kernels/abi.h.
 *
 *   family.c        the description of the family
 *   op/op.c         the op: fields, contradictions, buckets; the least flops and bytes
 *   op/view.c       a problem's record as a typed struct;
 *   op/quant.c      quantisations of the operands: types, scales, how the operands lie
 *   op/routing.c    the routing profiles: expected and drawn rows per expert
 *   op/workload.c   a problem made concrete: buffers, check rows, the args over them
 *   op/products.c   the same work as dense products, for a library that knows no groups;
 *   op/args.c       a launch's args: checked, strides filled in
 *   op/rules.c      checks of a config that all targets share
 *   cpu/            the target "cpu": kernel.c.in is its source, reference.c its reference
 *   portable/       the target "portable" of the cuda device: its template and the reference (.cu),
 *                   its host side (.c), and the conversion of args that both cuda targets share
 *   hopper/         the target "hopper" of the cuda device: its template
 *   hopper/host/    its configs: meaning, legality, space, launch
 *   hopper/model/   predicted times, and the default
 *   hopper/fp8/     the target "hopper_fp8" of the cuda device: fp8 operands on hopper's template
 *
 * The maths, for row i of expert e (rows in expert order; start[e] <= i < start[e] + m_sizes[e]), g
 * = gather_indices, token(i) = g[i] div topk, W is [E, N, K] in every mode:
 *
 *   forward              Y[i,:]    = X[i,:] W[e]^T                     Y [T, N]
 *     permute_x          Y[i,:]    = X[token(i),:] W[e]^T              X [tokens, K]
 *     permute_y          Y[g[i],:] = X[i,:] W[e]^T
 *     .. fuse_mul_post   Y[g[i],:] = out(out(X[i,:] W[e]^T) * out(w[g[i]])), out() rounds to
 *                        dtype_out
 *   dX                   D[i,:]    = dY[i,:] W[e]                      D [T, K], reduces over N
 *     permute_x          D[g[i],:] = ...                               (the caller sums the topk)
 *     permute_y          D[i,:]    = dY[g[i],:] W[e]
 *   dW                   dW[e]     = sum over i of dY[i,:]^T X[i,:]    [E, N, K], reduces over M
 *     permute_x          X row token(i), X [tokens, K]
 *     permute_y          dY row g[i]
 *     an expert without rows gets zeros.
 *
 * With quant=fp8_block and fp8_row the elements of X, dY and W are fp8 numbers times their scales
 * (kernels/abi.h says how both lie). Kernels of fp8_block sum 128 products, multiply the sum by the
 * two scales of the block, and add the result in fp32: "promotion". Longer sums of fp8 products
 * lose bits on a GPU. Kernels of fp8_row multiply by the scales once, after the whole sum.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_H

#include "kernels/family.h"

extern const struct family grouped_gemm_family;
extern const struct op grouped_gemm_op;
extern const struct family_target grouped_gemm_cpu, grouped_gemm_cuda /* portable/target.c */,
    grouped_gemm_hopper, grouped_gemm_hopper_fp8;
int grouped_gemm_cpu_reference(const struct workload *w, void *const buffers[],
                               const int64_t *check_at, double *out, struct launch *launch,
                               struct error *err);

/* Embedded sources (scripts/embed). */
extern const char grouped_gemm_cpu_source[];
extern const char grouped_gemm_portable_source[];
extern const char grouped_gemm_hopper_source[];
extern const char grouped_gemm_hopper_fp8_source[];
extern const char grouped_gemm_reference_source[];

enum gemm_mode { GEMM_FORWARD, GEMM_DX, GEMM_DW };
enum { GEMM_MODES = GEMM_DW + 1 };
const char *gemm_mode_name(enum gemm_mode mode); /* "forward" "dX" "dW" */

/* A quantisation of the operands: all facts that follow from a value of the field `quant`. */
struct gemm_quant {
    const char *name; /* "none", "fp8_block", "fp8_row" */
    /* the operands have scales, and lie with the summed dimension contiguous; the fields below hold
     * only when this is true */
    bool is_scaled;
    enum dtype in, out; /* of the operands, and of the result unless dW asks for fp32 */
    int64_t sum_block;  /* terms of a sum that share their scales; 0: all terms */
    int64_t w_block;    /* rows of w that share a scale; each row of x and dy has its own */
    const char *scale_block[GEMM_MODES]; /* the field of that name */
};
/* Never NULL; unknown names are "none". */
const struct gemm_quant *gemm_quant_find(const char *name);

/* The problem's fields, typed. */
struct gemm {
    enum gemm_mode mode;
    const struct gemm_quant *quant;
    enum dtype in, out;
    int64_t m;    /* T: routed rows */
    int64_t n, k; /* sizes of W in every mode */
    int64_t experts, topk;
    int64_t tokens; /* m / topk */
    bool permute_x, permute_y, fuse_mul_post, accumulate;
    /* a row has the same bits for every m: only configs with one order of summation are legal */
    bool batch_invariant;
    const char *routing; /* borrowed from the problem: "uniform", "zipf:1.2", "rows:5,0,3" */
    /* Derived: */
    bool gather_x;  /* routed row i reads row g[i] / topk of x: permute_x in forward and dW */
    bool gather_dy; /* routed row i reads row g[i] of dy: permute_y in dX and dW */
    bool scatter; /* routed row i goes to row g[i] of the output: permute_y in forward, permute_x in
                     dX */
    int64_t x_rows;             /* rows of x: tokens if gather_x, else m */
    int64_t out_rows, out_cols; /* the output as a matrix: [m, n], [m, k], [experts * n, k] */
};
/* The problem must have been checked by the op (problem_make does). */
void gemm_view(const struct problem *p, struct gemm *v);

/* The number of terms of a sum; 0 in dW, where each expert has its own number: its rows. */
static inline int64_t gemm_count_terms(const struct gemm *v)
{
    return v->mode == GEMM_FORWARD ? v->k : v->mode == GEMM_DX ? v->n : 0;
}

/* The values of some fields, sorted as in a record, by a single walk over both. A value is
 * VALUE_NONE where the record lacks the field. */
void gemm_read_values(const struct record *r, const char *const fields[], size_t n,
                      struct value out[]);

/* The arrays of a problem. */
enum gemm_buffer {
    GEMM_X,
    GEMM_W,
    GEMM_DY,
    GEMM_X_SCALE, /* the scales of GEMM_X, GEMM_W, GEMM_DY, in that order */
    GEMM_W_SCALE,
    GEMM_DY_SCALE,
    GEMM_OUT,
    GEMM_M_SIZES,
    GEMM_GATHER,
    GEMM_WEIGHTS,
    GEMM_COLUMNS, /* dW with scaled operands: which columns hold a routed row */
    GEMM_BUFFERS
};

/* ---- quant.c --------------------------------------------------------------------------------- */

/* An operand (GEMM_X, GEMM_W, GEMM_DY) as it lies: `experts` matrices of rows x cols, and its
 * scales. Strides are those of dense arrays, in elements. */
struct gemm_operand {
    int64_t experts; /* of w; others: 1 */
    int64_t rows, cols;
    int64_t scale_row_block;          /* rows that share a scale; 0: the operand has no scales */
    int64_t scale_rows, scale_blocks; /* scales of a matrix: along the rows, along the sum */
    int64_t scale_stride, scale_stride_block, scale_stride_expert;
};
/* `rows`: the routed rows of the launch. */
void gemm_operand_describe(const struct gemm *v, enum gemm_buffer which, int64_t rows,
                           struct gemm_operand *out);
/* Number of scales that the dense array holds, its padding included; 0: the operand has none. */
int64_t gemm_operand_count_scales(const struct gemm_operand *o);

/* dW with scaled operands: the columns of x and dy are the routed rows, and each expert begins at a
 * multiple of GEMM_COLUMN_ALIGN. gemm_columns: the least columns that hold `rows` routed rows,
 * however these spread over the experts. gemm_columns_of: the columns of an expert with `rows`. */
enum { GEMM_COLUMN_ALIGN = 128 };
int64_t gemm_columns(const struct gemm *v, int64_t rows);
int64_t gemm_columns_of(int64_t rows);

/* ---- routing.c ------------------------------------------------------------------------------- */

enum routing_kind { ROUTING_UNIFORM, ROUTING_ZIPF, ROUTING_ROWS };
struct routing {
    enum routing_kind kind;
    double skew;                    /* zipf: expert e is chosen with weight (e + 1)^-skew */
    int64_t rows[GEMM_EXPERTS_MAX]; /* profile "rows": the rows of each expert */
};
/* Reads "uniform" | "zipf:<s>" | "rows:a,b,c" for these sizes. ERROR_INVALID, ERROR_CONFLICT. */
int routing_parse(struct routing *r, const char *text, int64_t experts, int64_t rows,
                  struct error *err);
/* Writes the canonical text. snprintf-like. */
size_t routing_format(const struct routing *r, int64_t experts, char *out, size_t size);
/* The expected rows of each expert, whole numbers that sum to v->m; for predict() without a
 * workload. */
void gemm_expected_rows(const struct gemm *v, int64_t rows[]);
/* The rows of each expert in a typical draw: spread around the expected rows, some experts above,
 * some below. */
void gemm_typical_rows(const struct gemm *v, int64_t rows[]);
/* Returns log2 of (mean over all rows of the rows of that row's expert / mean rows of an expert): 0
 * for uniform routing, log2(experts) when a single expert has all rows. */
double gemm_unevenness(const struct gemm *v);

/* ---- workload.c ------------------------------------------------------------------------------ */

struct gemm_state {   /* workload.state */
    struct gemm view; /* view.routing points into workload.problem */
    /* index of each buffer in workload.buffers; -1: the problem lacks the buffer */
    int index[GEMM_BUFFERS];
    int32_t *m_sizes; /* owned, [experts] */
    int64_t *start;   /* owned, [experts + 1]: first row of each expert, then m */
    int32_t *gather;  /* owned, [m], a permutation of 0..m-1; always there */
    float *weights;   /* owned, [m] in token order, DTYPE_FP32; NULL without fuse_mul_post */
    /* dW of scaled operands, else NULL: the first column of each expert, and for each column
     * whether the column is a routed row */
    int64_t *column; /* owned, [experts] */
    uint8_t *routed; /* owned, [gemm_columns(m)] */
    /* Position of check i of the workload: a row in expert order (forward, dX), or e * N + n
     * (dW). */
    int64_t *check_row;    /* owned, [n_checks] */
    int32_t *check_expert; /* owned, [n_checks] */
};
/* The rows of each expert: as drawn, or as expected where `w` is NULL. */
void gemm_rows(const struct gemm *v, const struct workload *w, int64_t rows[]);
/* The device pointer of a buffer, NULL when the problem lacks the buffer. */
void *gemm_buffer(const struct workload *w, void *const buffers[], enum gemm_buffer which);

uint32_t gemm_products(const struct workload *w, void *const buffers[], struct dense_product out[],
                       uint32_t max, bool *exact); /* products.c */
uint64_t gemm_wary_seed(const struct problem *p, uint64_t asked);
double gemm_workload_bytes(const struct problem *p);
int gemm_workload_init(struct workload *w, const struct problem *p, uint64_t seed,
                       struct error *err);
void gemm_workload_deinit(struct workload *w);
void gemm_bind(const struct workload *w, void *const buffers[], void *workspace,
               int64_t workspace_bytes, void *stream, void *args);
void gemm_work(const struct problem *p, double *flops, double *bytes);
/* op/usual.c; family.usual. */
bool gemm_write_usual(uint32_t i, char *text, size_t size, bool *is_rare);
double gemm_rate(const struct problem *p, const struct device_info *info);

/* ---- args.c ---------------------------------------------------------------------------------- */

/* Copies a caller's args of any size, checks them against the problem, and fills in the dense
 * strides. Fields that older args lack become zero. Newer args are refused only if their unknown
 * bytes are not zero. m_sizes of a single expert, which has all rows, becomes NULL. With `align`
 * above 1, pointers and strides must be multiples of `align` bytes, and lists aligned to their
 * elements. Does not check the workspace. ERROR_INVALID, ERROR_CONFLICT. */
int gemm_args_read(const struct gemm *v, const void *args, size_t align,
                   struct grouped_gemm_args *out, struct error *err);
/* The scales of a launch, as kernels of targets with plain arguments have them. */
struct gemm_scales {
    const void *x, *w, *dy;
    int64_t x_stride, x_block, w_stride, w_block, w_expert, dy_stride, dy_block;
};
struct gemm_scales gemm_scales_of(const struct grouped_gemm_args *a);

/* Add a tunable to `out` and return it; `values` end with -1. */
struct param *gemm_add_param(struct param out[], uint32_t *n, const char *name, bool run_time,
                             const char *help);
void gemm_add_ints(struct param out[], uint32_t *n, const char *name, bool run_time,
                   const int values[], const char *help);

/* ---- rules.c --------------------------------------------------------------------------------- */

/*
 * Checks of a config that are the same on every target:
 *   names       each name is in `known` (NULL-terminated: the target's own tunables) or in the
 *               common vocabulary below; else ERROR_INVALID lists the names
 *   flags       permute_x, permute_y, fuse_mul_post in the config agree with the problem
 *   modes       the manual prune table for TMA loads and stores in forward, dX, dW.
 * Common vocabulary, accepted everywhere: permute_x, permute_y, fuse_mul_post; use_tma_load_x,
 * use_tma_load_w, use_tma_load_dy, use_tma_store, flatten (bools). The mode rules come first. A
 * true use_tma_* that obeys them is still ERROR_INVALID, rule "no_tma", for the target named
 * `without_tma` (NULL: the target has TMA). Returns 0 or 1, as family_target.check.
 */
int gemm_rules_check(const struct gemm *v, const struct record *config, const char *const known[],
                     const char *without_tma, struct rejection *why);
/*
 * BLOCK_SIZE_M/N/K tile the problem's M, N, K. The cuda templates think in r (rows of the output
 * tile), c (its columns) and d (the reduction):
 *
 *   forward  r = M, c = N, d = K      dX  r = M, c = K, d = N      dW  r = N, c = K, d = M
 */
enum gemm_role { GEMM_ROWS, GEMM_COLS, GEMM_SUM, GEMM_ROLES };
extern const enum gemm_role gemm_roles[][GEMM_ROLES];  /* by mode, of BLOCK_SIZE_M, N and K */
extern const char *const gemm_block_names[GEMM_ROLES]; /* "BLOCK_SIZE_M" ... */
extern const char *const gemm_block_help[GEMM_ROLES];
/* family_target.tile: the tile's rows, columns and length of the sum. */
void gemm_rules_name_tile(const struct problem *p, const char *names[3]);
/* The values that an integer parameter may take. */
struct int_rule {
    int least, most, multiple; /* multiple: 0: any; POWER_OF_TWO */
    bool required;
    /* the accepted values in words: "8 or 12: 4 that load and 4 or 8 that multiply" */
    const char *use;
};
enum { POWER_OF_TWO = -1 };
int gemm_rules_int(const struct int_rule *rule, const char *name, const struct value *value,
                   const char *target, struct rejection *why);
int gemm_rules_missing(const char *name, const char *target, const char *use,
                       struct rejection *why);
int gemm_rules_refuse(const char *name, const struct value *value, const char *target,
                      const char *use, struct rejection *why);
/* A rule: its name, `broken` for the config that is checked, and the text of its error, in which
 * `first`, `second` ... replace the #s. */
struct rule {
    bool broken;
    const char *name, *text;
    int64_t first, second, third, fourth, fifth, sixth; /* numbers */
    /* for a rule about a resource (`name`): the required amount and the device's limit; else
     * limit is 0 */
    int64_t required, limit;
};
/* Returns 1, with the first broken rule in *why, or 0 when no rule is broken. */
int gemm_rules_reject(const struct rule rules[], size_t n, struct rejection *why);
/* Sets the exactness of a config that sums rows in `order`, in every launch. "": no order is known,
 * and nothing is promised. Over batches dW, which sums over them, promises nothing. */
void gemm_rules_exactness(const struct gemm *v, const char *order, struct exactness *out);
/* Checks that a config for a batch-invariant problem sums in the order that the target's configs
 * for all M share. `fix`: how to. Rule "batch_invariant". */
int gemm_rules_order(const struct gemm *v, const char *order, const char *shared,
                     const char *target, const char *fix, struct rejection *why);
/* Checks that rows are multiples of 16 bytes: N and K are multiples of 8 (16-bit types) or 4
 * (fp32). Rule "rows_16_bytes". */
int gemm_rules_rows_16(const struct gemm *v, struct rejection *why);

#endif
