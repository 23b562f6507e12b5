/* SPDX-License-Identifier: Apache-2.0 */
/* What a test hands to an emulated kernel (emulate.h). */
#ifndef GEMMD_TESTS_EMULATE_LAUNCH_H
#define GEMMD_TESTS_EMULATE_LAUNCH_H

#include <stdint.h>

enum { EMULATE_RANGES_MAX = 16 };

struct emulate_range {
    const char *begin, *end;
};

/* A tensor map as a launch asks for it, in the place of the encoded one, which is 128 bytes. */
struct emulate_map {
    const void *base;
    uint32_t rank, element;
    uint64_t size[5], stride[4];
    uint32_t box[5];
};

struct emulate_launch {
    const char *entry;
    uint32_t grid[3], threads, shared_bytes;
    uint32_t cluster; /* blocks of threads in one; 0: none */
    const void *params;
    uint64_t seed;
    uint32_t n_ranges; /* what copy16 may read and store16, store8 may write */
    struct emulate_range ranges[EMULATE_RANGES_MAX];
};

/* Exported by each compiled kernel: 0, or -1 and a sentence in emulate_error. */
int emulate_launch(const struct emulate_launch *l);
extern char emulate_error[256];

#endif
