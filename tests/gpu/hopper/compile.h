/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the folder of cubins, which needs no GPU. Functions return the exit status: 0 if all
 * variants compiled. */
#ifndef GEMMD_TESTS_GPU_HOPPER_COMPILE_H
#define GEMMD_TESTS_GPU_HOPPER_COMPILE_H

int compile_first_set(void); /* every tile in every kind */
int compile_space(void);     /* every variant of the target's space that --shard selects */

#endif
