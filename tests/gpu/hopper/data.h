/* SPDX-License-Identifier: Apache-2.0 */
/* A problem's buffers on the GPU, its reference, and what can be asked of an output. */
#ifndef GEMMD_TESTS_GPU_HOPPER_DATA_H
#define GEMMD_TESTS_GPU_HOPPER_DATA_H

#include "tests/gpu/hopper/cases.h"
#include "tests/gpu/hopper/gpu.h"

struct data {
    struct problem problem;
    struct workload workload;
    struct grouped_gemm_problem v;
    struct grouped_gemm_args args;
    void *out_all;    /* with guards */
    size_t out_bytes; /* of all */
    size_t guard;     /* before and behind */
    size_t out_used;  /* from args.out on, to the end of the last row */
    float *reference; /* NULL: none was made */
    float *before;    /* accumulate */
    uint32_t *result; /* 4 words */
    void *workspace;
    void *owned[16];
    int n_owned;
};

struct finding {
    float norm;
    uint32_t wrong, nan, row, guard;
};

/* `with_reference` also poisons what must not be read. -1: the problem cannot be made. */
int data_make(struct data *d, struct gpu_module *tools, const struct problem *p, bool strided,
              bool wide, bool with_reference);
void data_free(struct data *d);
void data_poison(struct data *d); /* the output: NaN, or what is added to */
void data_compare(struct data *d, struct gpu_module *tools, struct finding *f);
/* Adds to result[0] how many 16-byte units of the output differ from `saved`; asynchronous. */
void data_diff(struct data *d, struct gpu_module *tools, const void *saved);

#endif
