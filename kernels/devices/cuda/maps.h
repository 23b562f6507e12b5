/* SPDX-License-Identifier: Apache-2.0 */
/* A launch's params with its tensor maps encoded. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_MAPS_H
#define GEMMD_KERNELS_DEVICES_CUDA_MAPS_H

#include "kernels/devices/cuda/driver.h"
#include "kernels/family.h"

struct cuda_params {
    _Alignas(TENSOR_MAP_ALIGN) uint8_t bytes[LAUNCH_PARAMS_MAX];
};

/* ERROR_INVALID or what cuda_check makes of it when the driver refuses a map. */
int cuda_maps_encode(const struct cuda_driver *cu, const struct launch *l, struct cuda_params *out,
                     struct error *err);

#endif
