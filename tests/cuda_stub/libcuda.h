/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the libcuda stub share: libcuda.c (versions, GPUs, contexts, streams, events),
 * libcuda_modules.c, libcuda_memory.c. */
#ifndef GEMMD_TESTS_CUDA_STUB_LIBCUDA_H
#define GEMMD_TESTS_CUDA_STUB_LIBCUDA_H

#include "tests/cuda_stub/stub.h"

/* Symbols with their ABI version, as they are in the library; prototypes are our own. */
typedef int result;
typedef unsigned long long pointer;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    NOT_SUPPORTED = 801
};

extern int stub_calls;   /* of all functions that can fail */
extern int stub_objects; /* that are not freed */

void *stub_context(void); /* the current one, or NULL */

#define MAY_FAIL() STUB_MAY_FAIL(result)

#endif
