/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Folders that a C compiler works in: below $TMPDIR, or /tmp. A process that is killed while it
 * compiles (not the runner, which has others compile: runner/compile/apart.h) leaves its
 * folder there; whoever opens a compiler next, and later than any compile may take, removes it.
 */
#ifndef GEMMD_KERNELS_DEVICES_CPU_SCRATCH_H
#define GEMMD_KERNELS_DEVICES_CPU_SCRATCH_H

#include <limits.h>

#include "proto/error.h"

int scratch_make(char folder[PATH_MAX], struct error *err);
/* With all files in it. */
void scratch_remove(const char *folder);
/* Those of our user that nobody has changed for so long. */
void scratch_sweep(int older_s);

#endif
