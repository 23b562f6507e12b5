/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_ORDER_H
#define GEMMD_KERNELS_DEVICES_CUDA_ORDER_H

#include "kernels/devices/cuda/driver.h"
#include "kernels/launch_order.h"

/* The order of the device of the current context: found out by two launches of some microseconds,
 * once in a process, on a stream of their own. Never NULL; not known (n is 0) where clusters do not
 * exist, the driver has no compiler for PTX, or others used the device meanwhile: then clusters
 * have the places of their numbers, which is slower by 0.5 % and no fault. Thread-safe; not for
 * launches, since it waits, maybe for all that the context has under way. */
const struct launch_order *cuda_order(const struct cuda_driver *cu, CUdevice device);

#endif
