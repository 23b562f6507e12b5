/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled images, fetched in chunks and believed only when their content has the hash asked
 * for. */
#ifndef GEMMD_CLIENT_MODULE_H
#define GEMMD_CLIENT_MODULE_H

#include "client/handle.h"
#include "proto/problem.h"

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
