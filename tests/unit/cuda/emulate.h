/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part "hardware" of the portable template, and that of reference.cu, for the CPU: a block of
 * threads as fibers, the warp's instructions as meetings of 32 of them. What a GPU may do late is
 * done as late as it may be, and what it may overwrite at once is overwritten at once:
 *
 *   copy16       poisons its destination when issued; the bytes arrive at the copy_wait that asks
 *                for them, for the thread that issued them
 *   scheduling   a warp runs until it meets a barrier before another warp runs; which is next is
 *                drawn from a seed
 *
 * so a missing wait or barrier, or a stage written too early, shows as NaN in the result. A warp
 * whose lanes meet in different instructions, an address outside shared memory, a global access
 * outside the ranges that the test allows: all end the run with a sentence in emulate_error.
 */
#ifndef GEMMD_TESTS_EMULATE_H
#define GEMMD_TESTS_EMULATE_H

#include "tests/unit/cuda/emulate/block.h"
#include "tests/unit/cuda/emulate/memory.h"
#include "tests/unit/cuda/emulate/numbers.h"
#ifdef IN_BF16
#include "tests/unit/cuda/emulate/warp.h"
#endif

#endif
