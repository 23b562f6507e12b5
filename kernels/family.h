/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A family: kernels that solve one op, described so that the rest of gemmd need not know the
 * computation. To add a family, write this description and its device source, and add a line to
 * kernels/families/families.c (docs/adding-a-family.md walks through it).
 *
 *   struct family         the op, its work, how a problem becomes real buffers
 *   struct family_target  one per kind of device the family has code for: tunables, validity,
 *                         analytic model, compile-time part, launch geometry, source
 *
 * All functions are pure: no state, no device, callable from any thread.
 */
#ifndef GEMMD_KERNELS_FAMILY_H
#define GEMMD_KERNELS_FAMILY_H

#include "kernels/abi.h"
#include "kernels/vocabulary.h"
#include "proto/device.h"
#include "proto/limits.h"
#include "proto/message.h"
#include "proto/problem.h"

enum {
    PARAMS_MAX = 24,
    VARIATIONS_MAX = 4,
    PARAM_VALUES_MAX = 32,
    BUFFERS_MAX = 12,
    LAUNCH_STEPS_MAX = 4,
    LAUNCH_PARAMS_MAX = 1920,
    ARGS_MAX = 512,
    OPTIONS_MAX = 2048,
    TENSOR_MAPS_MAX = 12,
    TENSOR_MAP_BYTES = 128,
    TENSOR_MAP_ALIGN = 64
};

/* Fields of an op: its mode, a size, a number that is usually 1, a text that is usually `value`, a
 * flag, and a flag that a problem has only where it is true. */
#define OP_MODE(list, meaning)                                                                     \
    {                                                                                              \
        .name = "mode", .type = VALUE_TEXT, .required = true, .choices = (list), .help = (meaning) \
    }
#define OP_SIZE(field, meaning)                                                                    \
    {                                                                                              \
        .name = (field), .type = VALUE_INT, .required = true, .min = 1, .max = GEMM_SIZE_MAX,      \
        .help = (meaning)                                                                          \
    }
#define OP_COUNT(field, most, meaning)                                                             \
    {                                                                                              \
        .name = (field), .type = VALUE_INT, .min = 1, .max = (most),                               \
        .fallback = {.type = VALUE_INT, .integer = 1}, .help = (meaning)                           \
    }
#define OP_CHOICE(field, list, value, meaning)                                                     \
    {                                                                                              \
        .name = (field), .type = VALUE_TEXT, .choices = (list),                                    \
        .fallback = {.type = VALUE_TEXT, .text = (value)}, .help = (meaning)                       \
    }
#define OP_FLAG(field, meaning)                                                                    \
    {                                                                                              \
        .name = (field), .type = VALUE_BOOL, .fallback = {.type = VALUE_BOOL}, .help = (meaning)   \
    }
#define OP_RESTRICTION(field, meaning)                                                             \
    {                                                                                              \
        .name = (field), .type = VALUE_BOOL, .restricts = true, .help = (meaning)                  \
    }

/* One tunable: the values that make up the space. A config from a user may have other values, as
 * long as check() accepts them. */
struct param {
    const char *name;
    bool run_time; /* not part of the variant: a change needs no compile. Where any value is legal,
                      the first value is legal, so a variant is checked with its first values */
    uint32_t n;
    struct value values[PARAM_VALUES_MAX];
    const char *help;
};

/* The compile-time part of a config for one target. */
struct variant {
    char family[32];
    char kind[16]; /* cuda | cpu */
    char arch[16];
    char entry[64];            /* extern "C" name in the image */
    char options[OPTIONS_MAX]; /* compiler options, separated by a space: "-DBLOCK_SIZE_M=64 ..." */
    const char *source;        /* static text */
    char source_hash[HASH_HEX];
};

/* A tensor map of a launch: the cuda backend encodes the map for TMA and writes it into the params.
 * Tiled, no interleave; elements out of bounds read as zeros. */
struct tensor_map {
    /* the map's place in params, a multiple of TENSOR_MAP_ALIGN; the map has TENSOR_MAP_BYTES */
    uint32_t offset;
    enum dtype dtype;
    const void *base;      /* borrowed; 16-byte aligned, not NULL */
    uint32_t rank;         /* 3 to 5 */
    uint64_t size[5];      /* elements, the contiguous dimension first */
    uint64_t stride[4];    /* bytes, of dimensions 1..: multiples of 16, below 2^40 */
    uint32_t box[5];       /* elements, up to 256 each */
    uint32_t swizzle;      /* bytes: 0, 32, 64, 128 */
    uint32_t l2_promotion; /* bytes: 0, 64, 128, 256 */
};

/* One kernel launch, complete except for the encoding of its tensor maps. With zero_bytes above 0
 * there is no kernel: the launch sets that many bytes of the workspace, at `zero` (borrowed), to 0.
 */
struct launch {
    void *zero;
    int64_t zero_bytes;
    char entry[64];
    uint32_t grid[3], block[3], cluster[3]; /* cluster 0: none. CPU: grid[0] blocks, any order */
    uint32_t smem_bytes;                    /* dynamic */
    uint32_t params_bytes;
    _Alignas(64) uint8_t params[LAUNCH_PARAMS_MAX]; /* the kernel's single by-value argument */
    uint32_t n_maps;
    struct tensor_map maps[TENSOR_MAPS_MAX];
    /* 0, or the offset in params of a list with a byte for each cluster of two: its place among all
     * clusters. Initially the cluster's own number; the launching code overwrites the bytes with
     * the device's order (launch_order.h). Only together with maps. */
    uint32_t order_at;
    /* CPU only: the function to call when no module has it (the reference); else NULL. */
    void (*cpu_entry)(const void *params, uint32_t block);
};
/* Makes a launch of `blocks` thread blocks in a row. */
void launch_init(struct launch *l, const char *entry, int64_t blocks, uint32_t threads,
                 int64_t smem, const void *params, size_t size);
/* For arguments of kernels: g / by = g * mul >> shift for every g below 2^30. */
void launch_divide_by(int64_t by, uint32_t *mul, uint32_t *shift);
struct launch_plan {
    uint32_t n;
    int64_t workspace_bytes; /* that these steps need */
    struct launch steps[LAUNCH_STEPS_MAX];
};

/* BUFFER_SCALES: positive numbers over four octaves around `scale`, all about equally likely. Data
 * with equal scales would hide a kernel that uses another block's scale. */
enum buffer_init { BUFFER_RANDOM, BUFFER_SCALES, BUFFER_HOST, BUFFER_OUTPUT, BUFFER_SCRATCH };

struct buffer {
    const char *name;
    enum dtype dtype;
    enum buffer_init init;
    int64_t count; /* elements */
    double scale;  /* standard deviation of random values (BUFFER_RANDOM, accumulate); the middle of
                      BUFFER_SCALES */
    /* BUFFER_HOST: the content; BUFFER_RANDOM: the first host_count elements, which special values
     * need. Owned by the workload */
    const void *host;
    int64_t host_count;
    bool accumulate; /* BUFFER_OUTPUT: the kernel adds to the output. The buffer begins with random
                        values of `scale` instead of NaNs, so unwritten elements show only in the
                        check rows */
    bool rotate;     /* several copies, so that each timed launch finds L2 cold */
    /* BUFFER_RANDOM: 0, or 1 + the index of an earlier buffer of bytes, one for each column of this
     * matrix: columns whose byte is 0 hold zeros */
    uint32_t columns;
};

/* A problem made concrete: sizes of all buffers, drawn routing, rows to check. Host only. */
struct workload {
    const struct family *family; /* borrowed */
    struct problem problem;
    uint64_t seed;
    uint32_t n_buffers;
    struct buffer buffers[BUFFERS_MAX];
    uint32_t output; /* index of the output buffer */
    /* The elements that are compared with the reference: n_checks runs of check_length elements of
     * the output, beginning at check_at[i]. Each expert's first and last rows are included. */
    uint32_t n_checks;
    int64_t check_length;
    /* number of terms of the longest sum in these runs, with which rounding grows; 0: no sums */
    int64_t check_terms;
    /* Largest relative norm of a check row's error, where the device allows more; 0: the device
     * decides. For queries without a tolerance. */
    double rel_norm;
    int64_t *check_at; /* owned */
    void *state;       /* owned by the family */
};

struct space;

/* The bits of a config's results, where the operands have the same bits. */
struct exactness {
    bool runs;    /* every launch gives the same bits */
    bool batches; /* a row's bits depend on the row's operands alone: neither on the number of rows,
                     nor on the place of the row */
    /* The order of summation. Configs of a target and an architecture with equal texts give a row
     * the same bits. "" unless `batches`. */
    char order[32];
};

/* A word of the short notation of configs, and the fields that the word stands for: "swap" is
 * "swap_ab=true". A final '%' of both is a number: "s%" is "num_stages=%". An empty word is the
 * usual value of a field, which has no word. */
struct notation_word {
    const char *word, *fields;
};

struct family_target {
    const char *kind;   /* cuda | cpu */
    const char *label;  /* "portable", "hopper", "cpu" */
    const char *source; /* text that its variants compile; hashed into the stamp */
    /* The short notation of its configs (notation.h), in the order of writing, up to {NULL}; of the
     * words of a field the usual value's comes first. NULL: configs have no short notation. */
    const struct notation_word *words;
    /* Sets the three fields that the notation's tile gives, "128x256x64", in its order; a third
     * field with a single value in the space may be left out. NULL when words is NULL. */
    void (*tile)(const struct problem *p, const char *names[3]);
    bool (*supports)(const struct device_info *info); /* NULL: all devices of the kind */
    /* 0 when the target can do the problem with some config; else 1 and *why. Equal for a problem
     * and its bucket. Takes about a microsecond, because every miss calls it. NULL: the target
     * takes every problem of the op, and check() rejects single configs. */
    int (*takes)(const struct problem *p, const struct device_info *info, struct rejection *why);
    /* The tunables of this problem on this device, in a fixed order. Returns their number. */
    uint32_t (*params)(const struct problem *p, const struct device_info *info,
                       struct param out[PARAMS_MAX]);
    /* 0: valid. 1: invalid, for the reason in *why. Checks everything that is knowable without a
     * compiler: names and values, rules of the mode, agreement of flags with the problem, device
     * limits. A config of another target of the family is invalid here. */
    int (*check)(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
    /* The exactness of a legal config. NULL: no config of the target promises anything. */
    void (*exactness)(const struct problem *p, const struct record *config, struct exactness *out);
    /* Returns 0 when a legal config belongs into the space; else 1 and *why, which names the
     * better config. Limits only the space: a config that a user asks for needs to pass only
     * check(). Ignores run-time parameters. NULL: all configs belong. */
    int (*worth)(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
    /* Compile time of this variant, as a multiple of the target's usual compile time; 1 to 10.
     * NULL: 1 for all variants. */
    double (*effort)(const struct problem *p, const struct record *config);
    /* How many variants a search compiles at least, if the host has as many compilers: compiled
     * together they end together. For a model that ranks less well. 0: the usual number, 8. */
    uint32_t variants_least;
    /* The analytic default: valid, never measured. 0, or ERROR_NO_CONFIG with the reason. */
    int (*choose)(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err);
    /* Predicted time, microseconds; comparable among configs of one problem and device. `w` may be
     * NULL (then the routing profile's expectation is used). */
    double (*predict)(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w);
    /* predict() for every point of a space of this target, into us[s->n]; shares the work that is
     * equal for all configs. NULL: space_predict() calls predict() for each point. */
    void (*predict_space)(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[]);
    /* The i-th variation of a search's best config, tried at the end: run-time settings outside the
     * space, because their usual value is nearly always best. False after the last. NULL: none. */
    bool (*variation)(const struct problem *p, const struct record *config, uint32_t i,
                      struct record *out);
    /* Makes the compile-time part of a config. `arch` is as in device_info.arch. */
    int (*variant)(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err);
    /* Launch geometry and arguments. `args` is the op's ABI struct. Bad arguments (NULL,
     * misaligned, overlapping strides, too small a workspace) are ERROR_INVALID. Sets
     * out->workspace_bytes before the check of the args' workspace, for launcher_workspace. */
    int (*plan)(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err);
    /* The independent reference over a workload's check rows: writes n_checks * check_length
     * doubles to out. Pointers are of the device. On cuda, `source` is compiled without options. */
    const char *reference_source; /* NULL on cpu */
    int (*reference)(const struct workload *w, void *const buffers[], const int64_t *check_at,
                     double *out, struct launch *launch, struct error *err);
};

/* A product of dense matrices as BLAS takes it: column-major, C [m, n] = A B, or C += A B. */
struct dense_product {
    enum dtype in, out;
    bool transpose_a, transpose_b, add;
    int64_t m, n, k, lda, ldb, ldc;
    const void *a, *b; /* borrowed, on the device */
    void *c;
};

/* The part of each op's ABI struct that describes the launch. */
struct launch_context {
    void *stream;
    void *workspace;
    int64_t workspace_bytes;
};

/* Long work on the host (drawing rows, filling operands) calls this now and then; true: the result
 * is no longer wanted. NULL (initially): not called. For one thread only. */
extern bool (*host_work_unwanted)(void);
/* 0, or ERROR_CANCELLED. */
int host_work_check(struct error *err);

struct family {
    const char *name;
    const struct op *op;
    const struct family_target *const *targets; /* NULL-terminated, the best first */
    /* The least work: the flops, and the bytes of each operand and of the output once. */
    void (*work)(const struct problem *p, double *flops, double *bytes);
    /* The device's peak for the problem's types, as a multiple of peak_tflops. NULL: 1. */
    double (*rate)(const struct problem *p, const struct device_info *info);
    /* ERROR_NO_MEMORY; ERROR_CANCELLED (host_work_check). */
    int (*workload_init)(struct workload *w, const struct problem *p, uint64_t seed,
                         struct error *err);
    /* Most bytes of free host memory that workload_init needs. NULL: negligible. */
    double (*workload_bytes)(const struct problem *p);
    void (*workload_deinit)(struct workload *w);
    /* Returns the seed of a workload that is harder than most, among the workloads that follow from
     * `asked`. A measurement of one workload must hold for the next. NULL: `asked` itself. */
    uint64_t (*wary_seed)(const struct problem *p, uint64_t asked);
    /* Fills `args`, the op's ABI struct, with a workload's buffers. */
    void (*bind)(const struct workload *w, void *const buffers[], void *workspace,
                 int64_t workspace_bytes, void *stream, void *args /* ARGS_MAX bytes */);
    /* Copies stream and workspace from a caller's args. */
    void (*context)(const void *args, struct launch_context *out);
    /* The work of one copy of the buffers as dense products, for comparison with a BLAS library.
     * Returns the number of products (0: this workload has no such form), writes at most `max`.
     * *exact: the products' output is the op's. NULL: no such form. */
    uint32_t (*products)(const struct workload *w, void *const buffers[],
                         struct dense_product out[], uint32_t max, bool *exact);
    /* A check row in the op's terms for messages ("expert 3, row 17 of it"); may be NULL. */
    void (*place)(const struct workload *w, uint32_t check, char *out, size_t size);
    /* Writes the text of the family's usual problem `i`: kernels that are compiled before any job
     * asks. *is_rare: only with --all. False: there are only i usual problems. NULL: none. */
    bool (*usual)(uint32_t i, char *text, size_t size, bool *is_rare);
};

/* kernels/families/families.c: the families compiled in (tests link another list). */
extern const struct family *const families[]; /* NULL-terminated */

void families_register(void); /* passes the families' ops to ops_set; call once at start */
const struct family *family_find(const char *name); /* NULL: none */
/* finds the family by the problem's field "family", else by its op */
const struct family *family_of_problem(const struct problem *p);
bool family_target_runs_on(const struct family_target *t, const struct device_info *info);
/* The first target that supports the device, with this label (NULL: any). Does not look at a
 * problem. */
const struct family_target *family_target_find(const struct family *f,
                                               const struct device_info *info, const char *label);
/* Chooses the target of a problem on a device. The daemon, the runner, devices and clients without
 * a daemon all use this function, so that they agree. Takes the first target in the family's order
 * that supports the device and takes the problem. If no target takes the problem: the last that
 * supports the device, whose check() gives the reason. `label`, unless NULL or "", forces the
 * choice. ERROR_NO_CONFIG: `f` is NULL (no family solves the problem), no target supports the
 * device, or the forced target does not take the problem. ERROR_INVALID: the device has no target
 * of that name; the text lists its targets. */
int family_target_choose(const struct family *f, const struct problem *p,
                         const struct device_info *info, const char *label,
                         const struct family_target **out, struct error *err);
/* The target that a config belongs to: the chosen target, when it accepts the config, else the
 * first that does. NULL: no target accepts, and *why has the chosen target's reason (code
 * ERROR_NO_CONFIG when no target supports the device). */
const struct family_target *family_target_of_config(const struct family *f, const struct problem *p,
                                                    const struct device_info *info,
                                                    const struct record *config,
                                                    struct rejection *why);
/* The target whose source the variant compiles. NULL: none. */
const struct family_target *family_target_of_variant(const struct family *f,
                                                     const struct variant *v);
/* The stamp: "src=<hash> abi=1 target=portable compiler=nvrtc 13.0". */
void family_stamp(const struct family *f, const struct family_target *t,
                  const struct device_info *info, char out[STAMP_MAX]);
/* Reads the target's name out of a stamp; "" when the stamp names no target. */
void family_stamp_target(const char *stamp, char out[TARGET_MAX]);
/* Sets all but the options; `source` is a static text. */
void variant_init(struct variant *v, const char *family, const char *kind, const char *entry,
                  const char *source, const char *arch);
/* Hash of a variant and a compiler ("nvrtc 13.0"): names the module cache entry. */
void variant_hash(const struct variant *v, const char *compiler, char out[HASH_HEX]);
/* The least time of the problem on the device, in microseconds: the longer of two times.
 *   compute  the flops of f->work(), at the rate peak_tflops times f->rate()
 *   memory   the bytes of f->work(), at the rate peak_gbps
 * A time whose peak is unknown (0) counts as 0. On a CPU the result is a hint, because gemmd
 * measures the CPU's peaks (docs/store.md). */
double family_floor_us(const struct family *f, const struct problem *p,
                       const struct device_info *info);

#endif
