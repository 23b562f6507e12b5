/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of cubins: variants compiled once, here or on another machine. A file's name hashes
 * source and options, not the compiler: a folder belongs to a single compiler. A refused variant is
 * a file, too, "<hash>.refused" with the reason, so that no variant is compiled twice.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_CUBINS_H
#define GEMMD_TESTS_GPU_HOPPER_CUBINS_H

#include "kernels/family.h"

enum cubin {
    CUBIN_HERE,
    CUBIN_REFUSED, /* compiles, but spills registers or serialises its wgmmas: never launched */
    CUBIN_BROKEN   /* does not compile */
};

void cubins_open(void); /* makes the folder; exits on failure */
void cubin_hash(const struct variant *v, char out[HASH_HEX]);
bool cubin_known(const struct variant *v); /* here or refused */
/* Reads the cubin from the folder, or compiles and stores it. CUBIN_HERE: the caller frees `data`.
 * Other results: `data` is NULL, and `why` has the compiler's reason. */
enum cubin cubin_get(const struct variant *v, void **data, char *why, size_t size);

#endif
