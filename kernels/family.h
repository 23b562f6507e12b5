/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A family: kernels that solve one op, described so that everything else in gemmd stays ignorant of
 * what they compute. To add one, write this description and its device source, and add a line to
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
#include "proto/message.h"
#include "proto/problem.h"

enum {
    PARAMS_MAX = 24,
    VARIATIONS_MAX = 4,
    PARAM_VALUES_MAX = 32,
    BUFFERS_MAX = 12,
    LAUNCH_STEPS_MAX = 4,
    LAUNCH_PARAMS_MAX = 1856,
    ARGS_MAX = 512,
    OPTIONS_MAX = 2048,
    TENSOR_MAPS_MAX = 12,
    TENSOR_MAP_BYTES = 128,
    TENSOR_MAP_ALIGN = 64
};

/* One tunable: the values that make up the space. A config given by a person may hold others, as
 * long as check() accepts them. */
struct param {
    const char *name;
    bool run_time; /* not part of the variant: changing it needs no compile. Its first value is
                      legal wherever any is: a variant is judged by the first of each */
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
    char options[OPTIONS_MAX]; /* compiler options, one space between: "-DBLOCK_SIZE_M=64 ..." */
    const char *source;        /* static text */
    char source_hash[HASH_HEX];
};

/* A tensor map that a launch needs: the cuda backend encodes it for TMA and writes it into the
 * params. Tiled, no interleave, what is out of bounds reads as zeros. */
struct tensor_map {
    uint32_t offset; /* in params: TENSOR_MAP_BYTES from here, a multiple of TENSOR_MAP_ALIGN */
    enum dtype dtype;
    const void *base;      /* borrowed; 16-byte aligned, not NULL */
    uint32_t rank;         /* 3 to 5 */
    uint64_t size[5];      /* elements, the contiguous dimension first */
    uint64_t stride[4];    /* bytes, of dimensions 1..: multiples of 16, below 2^40 */
    uint32_t box[5];       /* elements, up to 256 each */
    uint32_t swizzle;      /* bytes: 0, 32, 64, 128 */
    uint32_t l2_promotion; /* bytes: 0, 64, 128, 256 */
};

/* One kernel launch, complete but for encoding its tensor maps. Or, with zero_bytes, no kernel but
 * bytes of the workspace (borrowed) that are set to 0. */
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
    /* 0, or where in params each cluster of two has a byte, its place among all: as it is numbered;
     * who launches puts there what he knows of the device (launch_order.h). Only beside maps. */
    uint32_t order_at;
    /* CPU only: the function itself when it is not in the module (the reference). */
    void (*cpu_entry)(const void *params, uint32_t block);
};
struct launch_plan {
    uint32_t n;
    int64_t workspace_bytes; /* needed by these steps */
    struct launch steps[LAUNCH_STEPS_MAX];
};

enum buffer_init { BUFFER_RANDOM, BUFFER_HOST, BUFFER_OUTPUT, BUFFER_SCRATCH };

struct buffer {
    const char *name;
    enum dtype dtype;
    enum buffer_init init;
    int64_t count;    /* elements */
    double scale;     /* BUFFER_RANDOM and what is added to: normal, this standard deviation */
    const void *host; /* BUFFER_HOST: the content; owned by the workload */
    bool accumulate;  /* BUFFER_OUTPUT: the kernel adds to it, so it begins with random values of
                         `scale` instead of poison, and elements left unwritten show in the check
                         rows only */
    bool rotate;      /* several copies, so that each timed launch finds L2 cold */
};

/* A problem made concrete: sizes of all buffers, routing drawn, rows to check chosen. Host only. */
struct workload {
    const struct family *family; /* borrowed */
    struct problem problem;
    uint64_t seed;
    uint32_t n_buffers;
    struct buffer buffers[BUFFERS_MAX];
    uint32_t output; /* index of the output buffer */
    /* What is compared with the reference: n_checks runs of check_length elements of the output,
     * beginning at check_at[i]; each expert's first and last rows are among them. */
    uint32_t n_checks;
    int64_t check_length;
    int64_t check_terms; /* of the longest sum in these runs: rounding grows with it; 0: no sums */
    int64_t *check_at;   /* owned */
    void *state;         /* owned by the family */
};

struct space;

struct family_target {
    const char *kind;   /* cuda | cpu */
    const char *label;  /* "portable", "hopper", "cpu" */
    const char *source; /* the text that its variants compile: the stamp hashes it */
    bool (*supports)(const struct device_info *info);
    /* Whether it does a problem at all, whatever the config: 0, or 1 and *why. The same for a
     * problem and for its bucket; a microsecond, since every miss asks. NULL: all that the op
     * allows, and what it cannot do after all check() says of each config. */
    int (*takes)(const struct problem *p, const struct device_info *info, struct rejection *why);
    /* The tunables of this problem here, fixed order. Returns how many. */
    uint32_t (*params)(const struct problem *p, const struct device_info *info,
                       struct param out[PARAMS_MAX]);
    /* 0: valid. 1: not, and *why says it. Checks everything that is knowable without a compiler:
     * names and values, rules of the mode, agreement of flags with the problem, device limits. A
     * config that another target of the family takes is not valid here: a config alone says which
     * target it is of. */
    int (*check)(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
    /* Whether a legal config belongs into the space: 0; or 1 and *why: what it cannot win against.
     * A rule of the space alone: a config that somebody asks for needs check() only. Looks at no
     * run-time parameter. NULL: all do. */
    int (*worth)(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why);
    /* How long this variant takes to compile, in times of a usual one of the target; 1 to 10. NULL:
     * all about as long. */
    double (*effort)(const struct problem *p, const struct record *config);
    /* The analytic default: valid, never measured. 0, or ERROR_NO_CONFIG with the reason. */
    int (*choose)(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err);
    /* Predicted time, microseconds; comparable among configs of one problem and device. `w` may be
     * NULL (then the routing profile's expectation is used). */
    double (*predict)(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w);
    /* The same for every point of a space of this target, to us[s->n]: what no config changes is
     * worked out once. NULL: predict() is asked for each; space_predict() knows. */
    void (*predict_space)(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[]);
    /* Of a search's best config, what else it is tried with at the end: run-time settings that are
     * in no space, since what the config is measured with, where it does not say, is nearly always
     * the best of them. The i-th; false: there are no more. NULL: there are none. */
    bool (*variation)(const struct problem *p, const struct record *config, uint32_t i,
                      struct record *out);
    /* The compile-time part. `arch` as in device_info.arch. */
    int (*variant)(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err);
    /* Launch geometry and arguments. `args` is the op's ABI struct. Bad arguments (NULL,
     * misaligned, overlapping strides, too small a workspace) are ERROR_INVALID.
     * out->workspace_bytes is set before the workspace of the args is looked at: launcher_workspace
     * asks that way. */
    int (*plan)(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err);
    /* The independent reference over a workload's check rows: writes n_checks * check_length
     * doubles to out. Pointers are of the device. On cuda, `source` is compiled like a variant with
     * no options. */
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

/* What every op's ABI struct says about its launch. */
struct launch_context {
    void *stream;
    void *workspace;
    int64_t workspace_bytes;
};

/* Long work on the host (drawing rows, filling operands) asks it now and then: true: nobody wants
 * the result any more. NULL, as it is at first: never asked. For the one thread that does such
 * work. */
extern bool (*host_work_unwanted)(void);
/* 0, or ERROR_CANCELLED. */
int host_work_check(struct error *err);

struct family {
    const char *name;
    const struct op *op;
    const struct family_target *const *targets; /* NULL-terminated, the best first */
    /* The least work: each operand and the output once. */
    void (*work)(const struct problem *p, double *flops, double *bytes);
    /* ERROR_NO_MEMORY; ERROR_CANCELLED (host_work_check). */
    int (*workload_init)(struct workload *w, const struct problem *p, uint64_t seed,
                         struct error *err);
    /* The host's memory that workload_init takes at most. NULL: next to none. */
    double (*workload_bytes)(const struct problem *p);
    void (*workload_deinit)(struct workload *w);
    /* What is measured of one workload must hold for the next: of those that `asked` begins, the
     * seed of one that is harder than most. NULL: `asked` itself. */
    uint64_t (*wary_seed)(const struct problem *p, uint64_t asked);
    /* The op's ABI struct over a workload's buffers. */
    void (*bind)(const struct workload *w, void *const buffers[], void *workspace,
                 int64_t workspace_bytes, void *stream, void *args /* ARGS_MAX bytes */);
    /* Reads these back from a caller's args. */
    void (*context)(const void *args, struct launch_context *out);
    /* The work of one copy of the buffers as dense products, to compare with a library that knows
     * no more than these. Returns how many there are (0: this workload cannot be had so), writes at
     * most `max`. *exact: their output is the op's. NULL: there is no such form. */
    uint32_t (*products)(const struct workload *w, void *const buffers[],
                         struct dense_product out[], uint32_t max, bool *exact);
    /* What a check row is in the op's terms, for sentences ("expert 3, row 17 of it"); may be
     * NULL. */
    void (*place)(const struct workload *w, uint32_t check, char *out, size_t size);
};

/* kernels/families/families.c: the families compiled in (tests link another list). */
extern const struct family *const families[]; /* NULL-terminated */

void families_register(void); /* hands the ops to ops_set; call once at start */
const struct family *family_find(const char *name);              /* NULL: none */
const struct family *family_of_problem(const struct problem *p); /* by field "family", else by op */
bool family_target_runs_on(const struct family_target *t, const struct device_info *info);
/* The first target that supports the device; `label` NULL or a name. For a problem ask the next. */
const struct family_target *family_target_find(const struct family *f,
                                               const struct device_info *info, const char *label);
/* Which target does a problem on a device. Everybody asks here (daemon, runner, devices, clients
 * without a daemon), so that all agree: the first in the family's order that supports the device
 * and takes the problem; where none takes it, the last that supports the device, whose check() says
 * why not. `label`, unless NULL or "", forces the choice. ERROR_NO_CONFIG: no target supports the
 * device, or the forced one does not take the problem; ERROR_INVALID: the device has no target of
 * that name, and which it has. */
int family_target_choose(const struct family *f, const struct problem *p,
                         const struct device_info *info, const char *label,
                         const struct family_target **out, struct error *err);
/* The target that a config is of: the chosen one, when it accepts the config, else the first that
 * does. NULL: none, and *why is what the chosen one says (its code is ERROR_NO_CONFIG when no
 * target supports the device). */
const struct family_target *family_target_of_config(const struct family *f, const struct problem *p,
                                                    const struct device_info *info,
                                                    const struct record *config,
                                                    struct rejection *why);
/* The target that a variant belongs to: the one whose source it compiles. NULL: none. */
const struct family_target *family_target_of_variant(const struct family *f,
                                                     const struct variant *v);
/* What makes an answer valid: "src=<hash> abi=1 target=portable compiler=nvrtc 13.0". */
void family_stamp(const struct family *f, const struct family_target *t,
                  const struct device_info *info, char out[STAMP_MAX]);
/* The label in a stamp; "" when it has none. */
void family_stamp_target(const char *stamp, char out[TARGET_MAX]);
/* Sets `source`, a static text, and its hash. */
void variant_set_source(struct variant *v, const char *source);
/* Content identity of a variant for one compiler ("nvrtc 13.0"): names the module cache entry. */
void variant_hash(const struct variant *v, const char *compiler, char out[HASH_HEX]);
/* max(flops / peak_tflops, bytes / peak_gbps) in microseconds. */
double family_floor_us(const struct family *f, const struct problem *p,
                       const struct device_info *info);

#endif
