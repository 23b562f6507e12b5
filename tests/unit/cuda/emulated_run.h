/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled variants of the templates on the CPU, and their launches. */
#ifndef GEMMD_TESTS_UNIT_CUDA_EMULATED_RUN_H
#define GEMMD_TESTS_UNIT_CUDA_EMULATED_RUN_H

#include <stdbool.h>

#include "kernels/family.h"
#include "tests/unit/cuda/emulate_launch.h"

/* Makes a folder for compiled variants. False after printing the reason. */
bool emulated_begin(void);
void emulated_end(void);
/* Compiles a file of this folder with a variant's options. `first`: a folder with changed files,
 * which are taken in place of the tree's; NULL: none. */
void *emulated_compile(const char *first, const char *source, const char *options);
/* Runs a launch. Returns NULL, or the emulator's error. */
const char *emulated_try(void *so, struct launch *l, struct emulate_launch *e);
/* The same, and fails with `what` and the error. */
void emulated_run(const char *what, void *so, struct launch *l, struct emulate_launch *e);

#endif
