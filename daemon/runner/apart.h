/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiler whose compiles are done by child processes, one at a time each; there are as many of them as there have
 * been calls at the same time.
 *
 * Threads of one process wait for one another in NVRTC's front end: sixteen compiled no faster than seven
 * would have (tests/gpu/compile_rate.py, docs/performance.md). And a compiler that crashes takes its child along, not the runner.
 */
#ifndef GEMMD_RUNNER_APART_H
#define GEMMD_RUNNER_APART_H

#include "kernels/device.h"

/* Says that this program is gemmd-runner, of which children can be started. Without that there are none: who
 * uses all this as a library has another main(). */
void apart_enable(void);
/* As compiler_open(), and with children where the compiler wants that (compiler_ops.apart). A child that cannot be
 * started is said on stderr, and its variant compiled here. ERROR_CRASHED: the child died, and nothing else did. */
int apart_open(const char *spec, struct compiler **out, struct error *err);
/* The child's whole life: gemmd-runner --compile --device SPEC --fd N. It ends when its socket does, also while it
 * compiles. An exit status. */
int apart_child(const char *spec, int fd);

#endif
