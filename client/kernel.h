/* SPDX-License-Identifier: Apache-2.0 */
/* A loaded kernel, from an image that the daemon gave (launch.c) or that was compiled here
 * (compile.c). */
#ifndef GEMMD_CLIENT_KERNEL_H
#define GEMMD_CLIENT_KERNEL_H

#include "client/handle.h"
#include "kernels/family.h"
#include "proto/error.h"

/* `config` in text form. Loads into the current CUDA context, or the process for the CPU. */
int kernel_make(const struct problem *p, const struct record *config, const void *image,
                size_t size, struct gemmd_kernel **out, struct error *err);

/* What gemmd_kernel_compile does; no argument is NULL but the device. */
int kernel_compile(const char *device, const struct gemmd_problem *problem, const char *config,
                   struct gemmd_kernel **out, struct error *err);

/* ---- module.c ------------------------------------------------------------------------------- */

/* Compiled images, fetched in chunks and believed only when their content has the hash asked
 * for. */

/* An image, of the answer to a key ("": of any). */
struct module_order {
    const char *id, *key;
    struct problem *made_for; /* of the key, as the daemon knows it */
    bool *known;              /* it does; NULL: nobody wants it */
};

/* All of it by the default deadline. *data is malloc'ed. ERROR_NOT_FOUND, ERROR_STORE (content and
 * name differ). */
int module_fetch(struct gemmd *g, const struct module_order *o, void **data, size_t *size,
                 struct error *err);

#endif
