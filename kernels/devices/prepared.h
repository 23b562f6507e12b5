/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem prepared on a device that computes: the code that cpu and cuda share. A prepared
 * problem has its operands, with as many copies of the rotating operands as make every launch find
 * a cold cache, and the reference's result over the check rows. These functions plan, verify and
 * time candidates. The devices differ in struct prepared_ops: memory, launches, comparing results
 * on the device.
 *
 * Verifying: the output and its guards are filled with 0xff bytes (a NaN that no computation
 * makes), and the kernel runs once. Afterwards:
 * - no element of the output has the pattern
 * - every byte of the guards has the pattern
 * - each element of the check rows is within atol + rtol * |reference| of the reference
 * - each check row is within its relative norm
 * Bytes (DTYPE_UINT8) are compared exactly, whatever the tolerance.
 *
 * An output that the kernel adds to begins with random values, which the expected result includes:
 * a kernel that overwrites them is wrong.
 */
#ifndef GEMMD_KERNELS_DEVICES_PREPARED_H
#define GEMMD_KERNELS_DEVICES_PREPARED_H

#include "kernels/device.h"

enum { PREPARED_COPIES_MAX = 16 };

struct kernel { /* embedded first in each device's own struct */
    struct variant variant;
};

struct row_error { /* the error of a check row; the same struct as in cuda/tools.cu */
    double max_error, difference, norm, excess; /* excess: of `worst`, beyond its tolerance */
    int64_t worst; /* the element farthest beyond its tolerance, by `excess` */
    double got, expected;
};

struct prepared { /* all pointers but the workload's are device pointers */
    const struct prepared_ops *ops;
    void *stream; /* borrowed; NULL: the device has no streams */
    struct workload workload;
    uint32_t n_copies;
    /* buffers[copy][i], owned by copy 0; further copies own the rotating buffers only and share the
     * others. The output's memory has a guard before and behind it. */
    void *buffers[PREPARED_COPIES_MAX][BUFFERS_MAX];
    void *workspace; /* owned */
    int64_t workspace_bytes;
    /* most bytes that the workspace may have, from the memory share */
    int64_t workspace_max;
    int64_t *check_at;            /* owned: copy of the workload's check_at */
    double *expected;             /* owned: the reference's results in the check rows */
    struct row_error *row_errors; /* owned: one per check row, from the last verification */
};

/* Results of a verification. */
struct prepared_findings {
    int64_t unwritten; /* elements */
    int64_t outside;   /* overwritten bytes of the guards */
    struct row_error *rows;
};

/* Work to be timed: queue() launches all of it over one copy of the buffers. */
struct prepared_work {
    /* launches that queue() makes: the GPU spins longer for each; 0: few, as a candidate makes */
    uint32_t launches;
    int (*queue)(void *ctx, uint32_t copy, struct error *err);
    void *ctx;
};

/* All functions but wait(), inspect() and sample() may return before their work is done; these
 * three wait. `what` is for messages. */
struct prepared_ops {
    uint32_t copies_max;
    int64_t guard_bytes;
    const char *memory;                                                /* "the GPU's free memory" */
    int (*limit)(struct device *d, int64_t *bytes, struct error *err); /* bytes for a problem now */
    int (*allocate)(int64_t bytes, void **out, struct error *err);
    void (*release)(void *at, int64_t bytes);
    int (*set)(struct device *d, void *to, int value, int64_t bytes, const char *what,
               struct error *err);
    int (*upload)(struct device *d, void *to, const void *from, int64_t bytes, const char *what,
                  struct error *err);
    int (*copy)(struct device *d, void *to, const void *from, int64_t bytes, const char *what,
                struct error *err);
    /* Fills a buffer with random values. `columns`: the content of the buffer of that name, with
     * n_columns bytes; NULL: all columns have values. */
    int (*fill)(struct device *d, const struct buffer *b, uint64_t seed, const void *columns,
                int64_t n_columns, void *to, struct error *err);
    int (*wait)(struct device *d, const char *what, struct error *err);
    int (*reference)(struct device *d, const struct family_target *t, const struct launch *l,
                     struct error *err);
    /* For a kernel that adds to the output: adds its initial content to the expected check rows. */
    int (*add_rows)(struct device *d, const struct prepared *w, struct error *err);
    int (*launch)(struct device *d, struct kernel *k, const struct launch *l, struct error *err);
    int (*inspect)(struct device *d, const struct prepared *w, const struct tolerance *tol,
                   struct prepared_findings *out, struct error *err);
    /* Largest relative norm of a row's error that rounding explains: the limit when the query has
     * no tolerance. */
    double (*rel_norm)(const struct workload *w);
    int (*sample)(struct device *d, const struct prepared_work *work, uint32_t copy, double *us,
                  struct error *err);
};

int prepared_new(struct device *d, const struct prepared_ops *ops, void *stream,
                 const struct family *f, const struct problem *p, uint64_t seed,
                 struct prepared **out, struct error *err);
/* Writes the initial content of buffer i, as in prepared_new(), to `to`. */
int prepared_fill(struct device *d, const struct prepared *w, uint32_t i, void *to,
                  struct error *err);
int prepared_poison(struct device *d, const struct prepared *w, struct error *err);
/* Compares the output with the reference, after prepared_poison() and the queued launches. */
int prepared_judge(struct device *d, const struct prepared *w, const struct tolerance *tol,
                   struct verdict *out, struct error *err);
int prepared_samples(struct device *d, const struct prepared *w, const struct prepared_work *work,
                     const struct timing *t, double *samples_us, uint32_t *n, struct error *err);

/* As in struct device_ops. */
void prepared_free(struct device *d, struct prepared *w);
int prepared_verify(struct device *d, struct prepared *w, struct kernel *k,
                    const struct record *config, const struct tolerance *tol, struct verdict *out,
                    struct error *err);
int prepared_time(struct device *d, struct prepared *w, struct kernel *k,
                  const struct record *config, const struct timing *t, double *samples_us,
                  uint32_t *n, struct error *err);

#endif
