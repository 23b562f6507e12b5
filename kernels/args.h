/* SPDX-License-Identifier: Apache-2.0 */
/* The args of a launch (kernels/abi.h) as a caller of any version gives them. */
#ifndef GEMMD_KERNELS_ARGS_H
#define GEMMD_KERNELS_ARGS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

/* Copies a caller's args to `out` by their first field, uint32_t size. Fields that an older caller
 * lacks become 0. `known`: the size of the struct here; `least`: of its first version; `name`: of
 * the struct in gemmd.h, for messages. ERROR_INVALID: the size is impossible, or a newer caller
 * uses a field that is unknown here. */
int args_copy(const void *args, void *out, size_t known, size_t least, const char *name,
              struct error *err);

#endif
