/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that compile ahead of the one that launches, so that a GPU seldom waits for NVRTC
 * (processes, because a compiler that dies must take nothing along). Each of --jobs takes every
 * jobs-th variant of each list, in order.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_POOL_H
#define GEMMD_TESTS_GPU_HOPPER_POOL_H

#include "kernels/family.h"

enum { POOL_LISTS_MAX = 8 };

struct pool_list {
    int n;
    /* The i-th variant and its name; false: there is none. Called in the workers. */
    bool (*variant)(int i, struct variant *out, char *name, size_t size);
};

void pool_start(const struct pool_list lists[], int n);
/* Until variant `i` of a list is in the folder, or will not come; `wait` is called meanwhile. */
void pool_wait(int list, int i, void (*wait)(void));
void pool_leave(int list); /* the rest of it is not needed */
/* Waits for all; prints what was refused; returns how many did not compile. */
int pool_finish(void);
void pool_stop(void);

#endif
