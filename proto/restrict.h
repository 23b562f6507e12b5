/* SPDX-License-Identifier: Apache-2.0 */
/* The two nested arguments of a request: which values are allowed, which configs to try. Internal
 * to proto/. Both leave what they allocated in the request, also when they fail. */
#ifndef GEMMD_PROTO_RESTRICT_H
#define GEMMD_PROTO_RESTRICT_H

#include "proto/request.h"

int restrict_unpack(struct request *r, const struct wire_obj *map, struct error *err);
int configs_unpack(struct request *r, const struct wire_obj *array, struct error *err);
/* A config: a map, or its one-line text. */
int config_unpack(struct record *r, const struct wire_obj *o, struct error *err);

#endif
