/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With GEMMD_STUB_EMULATE=<root of the sources> the stubs compute. NVRTC's stub compiles the
 * templates and reference.cu for the CPU with cc (tests/unit/cuda/emulate.h). The image is a shared
 * object with the machine type EM_CUDA. libcuda's stub runs the kernels and emulates tools.cu in C.
 * All code above the driver then runs as on a GPU, and must compute right results. The emulation is
 * slow, and the number of SMs makes no difference. With GEMMD_STUB_IMAGES=<folder>, NVRTC's stub
 * keeps images there and compiles none twice.
 */
#ifndef GEMMD_TESTS_CUDA_STUB_EMULATE_H
#define GEMMD_TESTS_CUDA_STUB_EMULATE_H

#include <stddef.h>
#include <stdint.h>

struct emulated; /* a loaded image */

/* NULL: the image has no code for the CPU. */
struct emulated *emulated_load(const void *image);
void emulated_unload(struct emulated *e);
/* Returns 0, or 719 (CUDA's launch failure) with the emulator's error on stderr. `cluster`: thread
 * blocks in a cluster. `e` may be NULL for a kernel of tools.cu, which the stub has in C. */
int emulated_launch(struct emulated *e, const char *entry, const uint32_t grid[3], uint32_t cluster,
                    uint32_t threads, uint32_t shared_bytes, const void *params);

#endif
