/* SPDX-License-Identifier: Apache-2.0 */
/* The module cache directory of modes that people start by hand: the given or the usual one. */
#ifndef GEMMD_RUNNER_BASE_CACHE_DIR_H
#define GEMMD_RUNNER_BASE_CACHE_DIR_H

#include <stdint.h>

#include "proto/error.h"
#include "proto/paths.h"

/* Finds and creates the directory. `given` NULL: the usual directory. ERROR_INVALID, ERROR_IO. */
int cache_dir_find(const char *given, char out[PATHS_MAX], struct error *err);
/* Threads for --compile-threads: `asked`, or one per core for 0; from 1 to 256. */
unsigned cache_dir_threads(int64_t asked);

#endif
