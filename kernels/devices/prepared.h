/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem prepared on a device that computes: what cpu and cuda do in the same way. Its operands,
 * as many copies of the rotating ones as it takes to find the cache cold at every launch; the
 * reference's result over the check rows; planning, verifying and timing candidates. What differs
 * is in struct prepared_ops: memory, launches, and looking at results where they are.
 *
 * Verifying: the output and its guards are filled with 0xff bytes (a NaN that no computation
 * makes), the kernel runs once, no element may still hold that pattern and every byte of the guards
 * must, and the check rows must agree with the reference: each element within atol + rtol *
 * |reference|, each row in its relative norm. An output that the kernel adds to begins with random
 * values, which are part of what is expected: a kernel that writes instead is wrong.
 */
#ifndef GEMMD_KERNELS_DEVICES_PREPARED_H
#define GEMMD_KERNELS_DEVICES_PREPARED_H

#include "kernels/device.h"

enum { PREPARED_COPIES_MAX = 16 };

struct kernel { /* embedded first in each device's own struct */
    struct variant variant;
};

struct row_error { /* of a check row; as in cuda/tools.cu */
    double max_error, difference, norm, excess;
    int64_t worst; /* the element that is farthest beyond its tolerance, by `excess` */
    double got, expected;
};

struct prepared { /* all pointers but those of the workload are of the device */
    const struct prepared_ops *ops;
    void *stream; /* borrowed; NULL: the device has none */
    struct workload workload;
    uint32_t n_copies;
    /* buffers[copy][i], owned: copy 0 of all, further copies of those that rotate (else copy 0's
     * again). The output's memory has a guard before and behind it. */
    void *buffers[PREPARED_COPIES_MAX][BUFFERS_MAX];
    void *workspace; /* owned */
    int64_t workspace_bytes;
    int64_t workspace_max;        /* what our share of the memory leaves for it */
    int64_t *check_at;            /* owned: the workload's, on the device */
    double *expected;             /* owned: the reference's result over the check rows */
    struct row_error *row_errors; /* owned: of each, of the last verification */
};

/* What a verification finds. */
struct prepared_findings {
    int64_t unwritten; /* elements */
    int64_t outside;   /* bytes of the guards that were written */
    struct row_error *rows;
};

/* What is timed: queue() launches all of it over one copy of the buffers. */
struct prepared_work {
    uint32_t launches; /* beyond a candidate's few */
    int (*queue)(void *ctx, uint32_t copy, struct error *err);
    void *ctx;
};

/* All may return before they are done, but for inspect() and sample(), and for wait(), which waits
 * for them. `what` is for sentences. */
struct prepared_ops {
    uint32_t copies_max;
    int64_t guard_bytes;
    const char *memory;                                                /* "the GPU's free memory" */
    int (*limit)(struct device *d, int64_t *bytes, struct error *err); /* a problem may take now */
    int (*allocate)(struct device *d, int64_t bytes, void **out, struct error *err);
    void (*release)(struct device *d, void *at, int64_t bytes);
    int (*set)(struct device *d, void *to, int value, int64_t bytes, const char *what,
               struct error *err);
    int (*upload)(struct device *d, void *to, const void *from, int64_t bytes, const char *what,
                  struct error *err);
    int (*copy)(struct device *d, void *to, const void *from, int64_t bytes, const char *what,
                struct error *err);
    int (*fill)(struct device *d, const struct buffer *b, uint64_t seed, void *to,
                struct error *err); /* with random values */
    int (*wait)(struct device *d, const char *what, struct error *err);
    int (*reference)(struct device *d, const struct family_target *t, const struct launch *l,
                     struct error *err);
    /* To what is expected of the check rows, what the output holds there. */
    int (*add_rows)(struct device *d, const struct prepared *w, struct error *err);
    int (*launch)(struct device *d, struct kernel *k, const struct launch *l, struct error *err);
    int (*inspect)(struct device *d, const struct prepared *w, const struct tolerance *tol,
                   struct prepared_findings *out, struct error *err);
    /* Of a row's rounding, where a query says nothing. */
    double (*rel_norm)(const struct workload *w);
    int (*sample)(struct device *d, const struct prepared_work *work, uint32_t copy, double *us,
                  struct error *err);
};

int prepared_new(struct device *d, const struct prepared_ops *ops, void *stream,
                 const struct family *f, const struct problem *p, uint64_t seed,
                 struct prepared **out, struct error *err);
/* As prepared_new() leaves a buffer that nobody has written to yet. */
int prepared_fill(struct device *d, const struct prepared *w, uint32_t i, void *to,
                  struct error *err);
int prepared_poison(struct device *d, const struct prepared *w, struct error *err);
/* How the output is, which was poisoned before what is queued. */
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
