/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_ORDER_H
#define GEMMD_KERNELS_DEVICES_CUDA_ORDER_H

#include "kernels/devices/cuda/driver.h"
#include "kernels/launch_order.h"

/* The order of the device of the current context: found out by two launches of some microseconds, once in a process, on a stream of
 * their own. Never NULL; not known (n is 0) where clusters do not exist, the driver cannot be asked, or others use the device
 * meanwhile. Thread-safe; not for launches, since it waits. */
const struct launch_order *cuda_order(const struct cuda_driver *cu, CUdevice device);

#endif
