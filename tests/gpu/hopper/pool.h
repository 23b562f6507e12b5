/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that compile ahead of the launching process, so that a GPU seldom waits for NVRTC. A
 * compiler that dies kills only its own process. Each of --jobs processes takes every jobs-th
 * variant of each list, in order.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_POOL_H
#define GEMMD_TESTS_GPU_HOPPER_POOL_H

#include "kernels/family.h"

enum { POOL_LISTS_MAX = 8 };

struct pool_list {
    int n;
    /* Gives the i-th variant and its name; false if the list is shorter. The workers call this. */
    bool (*variant)(int i, struct variant *out, char *name, size_t size);
};

void pool_start(const struct pool_list lists[], int n);
/* Waits until a worker has compiled variant `i` of a list, or has given up. Calls `wait` meanwhile.
 */
void pool_wait(int list, int i, void (*wait)(void));
void pool_leave(int list); /* workers compile no further variants of the list */
/* Waits for all workers; prints refused variants; returns the number of variants that did not
 * compile. */
int pool_finish(void);
void pool_stop(void);

#endif
