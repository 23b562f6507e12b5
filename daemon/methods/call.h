/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call: one request of a session, on its way to the method that answers it, and what methods read
 * out of its params. A method either answers at once (0), or later through a ticket (METHOD_LATER),
 * or fails (ERROR_*): then the dispatcher answers with the error. So every request gets exactly one
 * response.
 */
#ifndef GEMMD_DAEMON_METHODS_CALL_H
#define GEMMD_DAEMON_METHODS_CALL_H

#include "daemon/answers/custom.h"
#include "daemon/session/session.h"
#include "proto/hash.h"
#include "proto/message.h"

struct daemon;
struct daemon_parts;

enum { METHOD_LATER = 1 };

struct call {
    struct daemon *d;           /* borrowed */
    struct daemon_parts *parts; /* borrowed: what stands on the daemon (methods/daemon_parts.h) */
    struct session *s;          /* borrowed */
    uint32_t id;
    const struct wire_obj *params; /* NULL: none */
    const uint8_t *data;           /* the whole message */
    size_t len;
    bool again;          /* it was put off once (loader.h) */
    const uint8_t *tail; /* method and params as they came; NULL: an unusual form */
    size_t tail_len;
};

/* scratch->request.problem, bucket and key (with id) from params' "problem"; of custom ops the
 * caller's own or the shared one (answers/custom.h). */
int call_problem(struct call *c, enum custom_use use, struct error *err);
/* The id of a key: from "key" (an id, or a unique beginning of 6 digits or more), else from
 * "problem". ERROR_NOT_FOUND: no such key is known. */
int call_key(struct call *c, char id[HASH_HEX], struct error *err);
/* The same without a look at the known keys: how the id begins. */
int call_key_prefix(struct call *c, char prefix[HASH_HEX], struct error *err);
/* params' "config": a map or one-line text. */
int call_config(struct call *c, struct record *out, struct error *err);
/* The same of a value; NULL: missing. */
int call_read_config(const struct wire_obj *o, struct record *out, struct error *err);
/* Rows that this request adds to the database, charged to its user; the owner's are not.
 * ERROR_BUSY: the user has added its share (--user-mib) within an hour. */
int call_keep(struct call *c, size_t rows, struct error *err);
/* ERROR_INVALID for an op that gemmd tunes itself. */
int call_only_custom(const struct problem *p, const char *name, struct error *err);
/* params' flag of this name; left as it is where there is none. */
int call_flag(struct call *c, const char *name, bool *out, struct error *err);
/* params' "target"; "": none. */
int call_target(struct call *c, char out[TARGET_MAX], struct error *err);
/* Refuses arguments that are none of these names (", " between two), naming the nearest one,
 * and those that are given twice: of these a reader might take the one, and another the other. */
int call_only(struct call *c, const char *names, struct error *err);

#endif
