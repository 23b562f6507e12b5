/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, opened at run time: reads state that only NVML knows, and sets the GPU's clocks
 * (device_set_clocks), gemmd's only setting. Needs no context and no cuInit. Without NVML the state
 * is unknown, which is no error. */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVML_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVML_H

#include "proto/device.h"
#include "proto/error.h"

struct nvml; /* a GPU, by NVML */

/* gpu: "0000:01:00.0" or "GPU-<uuid>". NULL: no NVML, or NVML does not know the GPU. */
struct nvml *nvml_open(const char *gpu);
void nvml_close(struct nvml *n); /* NULL is fine */

/* Sets the power limit and the driver version in `info`, where NVML knows them. */
void nvml_describe(const struct nvml *n, struct device_info *info);
/* Reads clocks, temperature, power, throttling and memory, which takes a few milliseconds with
 * slow drivers. busy_percent and processes count all processes, this process included; -1:
 * unknown. */
void nvml_sample(const struct nvml *n, struct device_health *out);

#endif
