/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded kernel, from an image that the daemon gave (launch.c) or that was compiled here
 * (compile.c). */
#ifndef GEMMD_CLIENT_KERNEL_H
#define GEMMD_CLIENT_KERNEL_H

#include "client/gemmd.h"
#include "kernels/family.h"
#include "proto/error.h"

/* `config` in text form. Loads into the current CUDA context, or the process for the CPU. */
int kernel_make(const struct problem *p, const struct record *config, const void *image,
                size_t size, struct gemmd_kernel **out, struct error *err);

/* What gemmd_kernel_compile does; no argument is NULL but the device. */
int kernel_compile(const char *device, const struct gemmd_problem *problem, const char *config,
                   struct gemmd_kernel **out, struct error *err);

#endif
