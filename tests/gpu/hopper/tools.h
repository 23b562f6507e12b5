/* SPDX-License-Identifier: Apache-2.0 */
/* The bench's own kernels (tools.cu), compiled, and kept in the folder of cubins, like the
 * variants. */
#ifndef GEMMD_TESTS_GPU_HOPPER_TOOLS_H
#define GEMMD_TESTS_GPU_HOPPER_TOOLS_H

#include "kernels/family.h"

void tools_variant(struct variant *v);

#endif
