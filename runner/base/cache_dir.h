/* SPDX-License-Identifier: Apache-2.0 */
/* The module cache of the modes that people start by hand: the named one, or the usual one. */
#ifndef GEMMD_RUNNER_BASE_CACHE_DIR_H
#define GEMMD_RUNNER_BASE_CACHE_DIR_H

#include <stdint.h>

#include "proto/error.h"
#include "proto/paths.h"

/* `given`: NULL: the usual one. It is made when it is not there. ERROR_INVALID, ERROR_IO. */
int cache_dir_find(const char *given, char out[PATHS_MAX], struct error *err);
/* Of --compile-threads: so many, or one per core for 0; from 1 to 256. */
unsigned cache_dir_threads(int64_t asked);

#endif
