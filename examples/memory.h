/* SPDX-License-Identifier: Apache-2.0 */
/* A program's memory for tensors: a few functions over the CUDA driver API, or over malloc. */
#ifndef GEMMD_EXAMPLES_MEMORY_H
#define GEMMD_EXAMPLES_MEMORY_H

#include <stddef.h>

/* Every function returns 0, or -1 after an error message on stderr. */
struct memory {
    int (*open)(const char *device); /* "cuda:0": makes the device's context current */
    int (*get)(size_t bytes, void **out);
    void (*put)(void *p);
    int (*upload)(void *to, const void *from, size_t bytes);
    int (*download)(void *to, const void *from, size_t bytes); /* waits for the stream first */
    void *(*stream)(void);                                     /* for gemmd_kernel_launch */
};

extern const struct memory cuda_memory; /* its open() fails in a build without CUDA headers */
extern const struct memory host_memory;

#endif
