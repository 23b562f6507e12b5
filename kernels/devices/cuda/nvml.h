/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVML, opened at run time: what only it knows of a GPU, and the one thing that we ever set, its
 * clocks (device_set_clocks). It needs no context and no cuInit. Its absence is fine: nothing is
 * known then.
 */
#ifndef GEMMD_KERNELS_DEVICES_CUDA_NVML_H
#define GEMMD_KERNELS_DEVICES_CUDA_NVML_H

#include "proto/device.h"
#include "proto/error.h"

struct nvml; /* a GPU, by NVML */

/* By "0000:01:00.0" or "GPU-<uuid>". NULL: there is no NVML, or it does not know the GPU. */
struct nvml *nvml_open(const char *gpu);
void nvml_close(struct nvml *n); /* NULL is fine */

/* Power limit and driver version, where they can be known. */
void nvml_describe(const struct nvml *n, struct device_info *info);
/* Clocks, temperature, power, throttling, memory: a few milliseconds, of drivers that take their
 * time. busy_percent and processes are of all, ours among them; -1: not known. */
void nvml_sample(const struct nvml *n, struct device_health *out);

#endif
