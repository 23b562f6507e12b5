/* SPDX-License-Identifier: Apache-2.0 */
/* Locking a GPU's clocks, and giving them back: each on its own, with NVML opened for it. */
#include "kernels/device.h"
#include "kernels/devices/cuda/nvml.h"

int device_set_clocks(const char *uuid, int64_t mhz, struct error *err)
{
    struct nvml *n = nvml_open(uuid);
    if (!n) {
        return error_set(err, ERROR_NO_DEVICE,
                         "NVML (libnvidia-ml.so.1) is not there, or does not know %s", uuid);
    }
    int r = mhz > 0 ? nvml_lock_clocks(n, mhz, err) : nvml_unlock_clocks(n, err);
    nvml_close(n);
    return r;
}
