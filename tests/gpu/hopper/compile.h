/* SPDX-License-Identifier: Apache-2.0 */
/* Without a GPU: the folder of cubins. The exit status: whether any did not compile. */
#ifndef GEMMD_TESTS_GPU_HOPPER_COMPILE_H
#define GEMMD_TESTS_GPU_HOPPER_COMPILE_H

int compile_first_set(void); /* every tile in every kind */
int compile_space(void);     /* every variant of the target's space, of --shard */

#endif
