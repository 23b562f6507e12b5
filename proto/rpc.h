/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MessagePack-RPC: request [0, id, method, params], response [1, id, error, result], notification
 * [2, method, params]. No length prefix. params is a map of named arguments, an array whose only
 * element is that map (what common msgpack-rpc clients send), an empty array, or nil.
 * An error is a map {name, message, survives}.
 */
#ifndef GEMMD_PROTO_RPC_H
#define GEMMD_PROTO_RPC_H

#include <stdint.h>

#include "proto/pull.h"

enum rpc_type { RPC_REQUEST = 0, RPC_RESPONSE = 1, RPC_NOTIFY = 2 };

struct rpc_message {
    enum rpc_type type;
    uint32_t id;                   /* request and response */
    char method[32];               /* request and notification */
    const struct wire_obj *params; /* request and notification: a map, or NULL when empty */
    const struct wire_obj *error;  /* response: NULL when it is nil */
    const struct wire_obj *result; /* response */
};

/* Decodes one complete message (scan_feed found its end). ERROR_MALFORMED: none of the three forms.
 * When the id of a request is readable, type is RPC_REQUEST and id is set even on error; otherwise
 * type is not RPC_REQUEST. Params of another type are ERROR_INVALID, an overlong method is
 * ERROR_UNKNOWN_METHOD: the connection survives both. */
int rpc_decode(struct wire_doc *doc, const void *data, size_t n, struct rpc_message *out,
               struct error *err);

/* For clients that read results item by item (proto/pull.h). True: the complete message is a
 * response without an error; *result begins at its result. False: use rpc_decode. */
bool rpc_pull_result(const void *data, size_t n, uint32_t *id, struct pull *result);

/* Each writes the beginning of a message: the caller appends params, or the result. */
void rpc_put_request(struct wire_buf *b, uint32_t id, const char *method);
void rpc_put_result(struct wire_buf *b, uint32_t id); /* [1, id, nil, ...] */
void rpc_put_notify(struct wire_buf *b, const char *method);
/* A whole error response. */
void rpc_put_error(struct wire_buf *b, uint32_t id, const struct error *e);
/* Reads code and text of a response's error object. Returns the code. */
int rpc_get_error(const struct wire_obj *error, struct error *out);

#endif
