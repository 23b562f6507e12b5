/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the libcuda stub. */
#ifndef GEMMD_TESTS_CUDA_STUB_LIBCUDA_H
#define GEMMD_TESTS_CUDA_STUB_LIBCUDA_H

#include "tests/cuda_stub/stub.h"

/* The stub's functions have the names that libcuda.so exports (cuMemAlloc_v2). Without cuda.h,
 * types and prototypes are our own. */
typedef int result;
typedef unsigned long long pointer;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_SUPPORTED = 801
};

extern int stub_calls;   /* number of calls so far of all functions that can fail */
extern int stub_objects; /* number of contexts, streams, events, modules, allocations not freed */

void *stub_context(void);  /* the current context, or NULL */
void stub_wait_gate(void); /* GEMMD_STUB_GATE */

#define MAY_FAIL() STUB_MAY_FAIL(result)

#endif
