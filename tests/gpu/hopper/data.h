/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A problem's buffers on the GPU and checks of an output. All bytes around, behind and between the
 * existing rows are NaN (all ones), in the operands and in the output. A read outside shows in a
 * result; a write outside is counted.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_DATA_H
#define GEMMD_TESTS_GPU_HOPPER_DATA_H

#include "tests/gpu/hopper/cases.h"
#include "tests/gpu/hopper/gpu.h"

enum { DATA_BUFFERS_MAX = 16, DATA_SAVED = 2 };

struct matrix { /* as in tools.cu */
    void *data;
    int64_t rows, cols, stride, each, expert;
    int32_t dtype, reserved;
};

struct findings { /* as in tools.cu */
    uint32_t norm_bits, wrong, nan, row, outside, compared;
};

struct data {
    struct problem problem;
    struct workload workload;
    struct gemm v;
    struct grouped_gemm_args args;
    struct matrix x, w, dy, out;
    void *out_all; /* allocation with the guards around `out` */
    size_t out_bytes, guard;
    void *fresh; /* accumulate: the output's bytes before a launch; NULL: before a launch all bits
                    are one */
    struct matrix before; /* the elements of `fresh`, which the reference reads */
    double *reference;    /* NULL: not made */
    struct findings *found;
    void *workspace;
    size_t workspace_bytes;
    void *saved[DATA_SAVED]; /* outputs to compare later outputs with; NULL until used */
    void *owned[DATA_BUFFERS_MAX];
    int n_owned;
};

enum data_for {
    DATA_TO_TIME,
    DATA_TO_SANITIZE /* buffers have no guards: compute-sanitizer reports reads outside them */,
    DATA_TO_CHECK
};

/* Makes the problem's buffers. `shape` NULL means dense operands, 32-bit indices and fp32 weights.
 * Returns -1 if the problem cannot be made. */
int data_make(struct data *d, struct gpu_module *tools, const struct problem *p,
              const struct shape *shape, enum data_for what);
void data_free(struct data *d);
void data_workspace(
    struct data *d,
    int64_t bytes); /* allocates at least so many bytes, and puts the workspace into args */
/* Fills the workspace with ones in all bits, because a kernel may not rely on its content. */
void data_poison_workspace(struct data *d);
void data_poison(
    struct data *d); /* fills the output with NaN, or with the values that accumulate adds to */
void data_compare(struct data *d, struct gpu_module *tools, struct findings *f);
void data_save(struct data *d, int which);
/* Compares the output with the saved output `which`, then restores the output as before a launch.
 * Asynchronous: data_differed() waits, and returns how many units of 16 bytes differed since
 * data_again_begin(). */
void data_again(struct data *d, struct gpu_module *tools, int which);
void data_again_begin(struct data *d);
uint32_t data_differed(struct data *d);

/* These parts of data_make, in reference.c, make the expected output. */
void reference_poison(struct data *d, const struct shape *shape);
void reference_make(struct data *d, struct gpu_module *tools);
/* Allocates a buffer that data_free frees. */
void *data_own(struct data *d, size_t bytes);
void *data_own_copy(struct data *d, const void *from, size_t bytes);
void data_random(struct gpu_module *tools, const struct matrix *to, float scale, float mean,
                 uint64_t seed);

#endif
