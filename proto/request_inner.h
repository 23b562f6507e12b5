/* SPDX-License-Identifier: Apache-2.0 */
/* A request as part of a larger map: what an order to the runner is. Internal to proto/. */
#ifndef GEMMD_PROTO_REQUEST_INNER_H
#define GEMMD_PROTO_REQUEST_INNER_H

#include "proto/request.h"

/* What stands in params beside the fields of query. */
#define REQUEST_NAMES "problem", "restrict", "configs"

int request_unpack_beside(struct request *r, const struct wire_obj *params,
                          const char *const *others, struct error *err);
size_t request_pairs(const struct request *r); /* how many request_pack_pairs puts */
void request_pack_pairs(struct wire_buf *b, const struct request *r);

#endif
