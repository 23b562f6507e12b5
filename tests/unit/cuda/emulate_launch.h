/* SPDX-License-Identifier: Apache-2.0 */
/* The launch that a test gives to an emulated kernel (emulate.h). */
#ifndef GEMMD_TESTS_EMULATE_LAUNCH_H
#define GEMMD_TESTS_EMULATE_LAUNCH_H

#include <stdint.h>

enum { EMULATE_RANGES_MAX = 16 };

struct emulate_range {
    const char *begin, *end;
};

/* A tensor map as plain fields, in place of the encoded map of 128 bytes. */
struct emulate_map {
    const void *base;
    uint32_t rank, element;
    uint64_t size[5], stride[4];
    uint32_t box[5];
};

struct emulate_launch {
    const char *entry;
    uint32_t grid[3], threads, shared_bytes;
    uint32_t cluster; /* blocks of a cluster; 0: no clusters */
    const void *params;
    uint64_t seed;
    uint32_t n_ranges; /* ranges that copy16 may read and store16, store8 may write */
    struct emulate_range ranges[EMULATE_RANGES_MAX];
};

/* Each compiled kernel exports this function. Returns 0, or -1 with a message in emulate_error. */
int emulate_launch(const struct emulate_launch *l);
extern char emulate_error[256];

#endif
