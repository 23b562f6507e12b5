/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GEMMD_STUB_EMULATE=<root of the sources>: the stubs compute after all. NVRTC's compiles
 * the templates and reference.cu for the CPU (tests/unit/cuda/emulate.h) with cc, libcuda's runs
 * them there, and what tools.cu does in a few lines of C. Slow, and one SM is as good as four; but
 * everything above the driver then runs as on a GPU, and must come to right results.
 *
 * Such an image is a shared object that says it is for CUDA.
 */
#ifndef GEMMD_TESTS_CUDA_STUB_EMULATE_H
#define GEMMD_TESTS_CUDA_STUB_EMULATE_H

#include <stddef.h>
#include <stdint.h>

struct emulated; /* a loaded image */

/* NULL: the image holds nothing to emulate. */
struct emulated *emulated_load(const void *image);
void emulated_unload(struct emulated *e);
/* `cluster`: blocks of threads in one. 0, or 719 with the emulator's sentence on stderr. `e` may be
 * NULL for entries of tools. */
int emulated_launch(struct emulated *e, const char *entry, const uint32_t grid[3], uint32_t cluster,
                    uint32_t threads, uint32_t shared_bytes, const void *params);

#endif
