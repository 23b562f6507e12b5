/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of cubins: variants compiled once, here or on another machine, named by what they are
 * (source and options, not the compiler: one folder, one compiler). What the compiler refused is a
 * file too, "<hash>.refused" with the reason, so that nothing is compiled twice.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_CUBINS_H
#define GEMMD_TESTS_GPU_HOPPER_CUBINS_H

#include "kernels/family.h"

enum cubin {
    CUBIN_HERE,
    CUBIN_REFUSED, /* it compiles, but spills or serialises: never launched by anybody */
    CUBIN_BROKEN   /* it does not compile */
};

void cubins_open(void); /* makes the folder; exits where it cannot */
void cubin_hash(const struct variant *v, char out[HASH_HEX]);
bool cubin_known(const struct variant *v); /* here or refused */
/* From the folder, else compiled and put there. `data` is to be freed, and NULL unless it is here;
 * `why` says what the compiler had against the others. */
enum cubin cubin_get(const struct variant *v, void **data, char *why, size_t size);

#endif
