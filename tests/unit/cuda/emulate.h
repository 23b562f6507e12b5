/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part "hardware" of the portable template and of reference.cu, for the CPU: a block of threads
 * as fibers, the warp's instructions as meetings of 32 fibers. Work that a GPU may do late is done
 * as late as possible, and data that a GPU may overwrite at once is overwritten at once:
 *
 *   copy16       fills its destination with NaNs when issued; the bytes arrive at the copy_wait of
 *                the issuing thread
 *   scheduling   a warp runs until it meets a barrier before another warp runs; the next warp is
 *                drawn from a seed
 *
 * A missing wait or barrier, or a stage written too early, so shows as NaN in the result. Three
 * faults end the run with a message in emulate_error: lanes of a warp that meet in different
 * instructions, an address outside shared memory, a global access outside the allowed ranges.
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
