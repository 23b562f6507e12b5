/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher: from an image, a problem and a config to launches. The runner's measurements and
 * training jobs both use this code path. The image's ELF machine names the kind of device. The
 * family's plan() gives the launch geometry; the launch_backend of that kind loads the image and
 * launches.
 *
 * launcher_new loads into the caller's current CUDA context (or by dlopen for the CPU). A launcher
 * does not change afterwards: any thread with that context current may call launcher_launch.
 */
#ifndef GEMMD_KERNELS_LAUNCHER_H
#define GEMMD_KERNELS_LAUNCHER_H

#include "kernels/family.h"

struct launcher;

/* `info` may be NULL: the launcher then describes the current device. */
int launcher_new(const struct family *f, const struct problem *p, const struct record *config,
                 const void *image, size_t size, const struct device_info *info,
                 struct launcher **out, struct error *err);
/* Frees l, which may be NULL, from any thread and context. Returns NULL. */
struct launcher *launcher_free(struct launcher *l);

/* Bytes of workspace that a launch with these args needs. args->workspace may be NULL here. */
int launcher_workspace(struct launcher *l, const void *args, int64_t *bytes, struct error *err);
/* Launches asynchronously on the stream in args; on a CPU the work is done when the call
 * returns. */
int launcher_launch(struct launcher *l, const void *args, struct error *err);

/* One backend per kind of image: kernels/devices/{cuda,cpu}. `handle` is the loaded module. */
struct launch_backend {
    uint16_t elf_machine; /* EM_CUDA 190, EM_X86_64 62, EM_AARCH64 183 */
    int (*info)(struct device_info *out, struct error *err); /* of the current device */
    int (*load)(const void *image, size_t size, void **handle, struct error *err);
    void (*unload)(void *handle);
    int (*launch)(void *handle, const struct launch *l, void *stream, struct error *err);
};
extern const struct launch_backend cuda_launch_backend, cpu_launch_backend;

#endif
