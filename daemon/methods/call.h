/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call is a request of a session on the way to its method, with the readers of its params. A
 * method answers at once (returns 0), later through a ticket (METHOD_LATER), or fails (ERROR_*):
 * then the dispatcher sends the error. So every request gets exactly one response.
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
    struct daemon_parts *parts; /* borrowed (methods/daemon_parts.h) */
    struct session *s;          /* borrowed */
    uint32_t id;
    const struct wire_obj *params; /* NULL when absent */
    const uint8_t *data;           /* the whole message */
    size_t len;
    bool again; /* the request was parked before, and is handled once more (loader.h) */
    /* bytes of method and params as received; NULL when the message has an unusual form */
    const uint8_t *tail;
    size_t tail_len;
};

/* Reads params' "problem" into scratch->request.problem, bucket and key (with id). For custom ops
 * the problem becomes the caller's own or the shared problem (answers/custom.h). */
int call_problem(struct call *c, enum custom_use use, struct error *err);
/* Reads a key's id from "key" (an id, or a unique beginning of 6 digits or more), else from
 * "problem". ERROR_NOT_FOUND: the key is unknown. */
int call_key(struct call *c, char id[HASH_HEX], struct error *err);
/* Same input as call_key, but no key with this beginning has to exist: returns the beginning
 * itself. */
int call_key_prefix(struct call *c, char prefix[HASH_HEX], struct error *err);
/* Reads params' "config": a map, or the config as one-line text. */
int call_config(struct call *c, struct record *out, struct error *err);
/* Reads a config from the value `o`, in the forms of call_config. NULL: the value is missing, an
 * error. */
int call_read_config(const struct wire_obj *o, struct record *out, struct error *err);
/* Charges the user for rows that this request adds to the database; the owner's rows are free.
 * ERROR_BUSY: the user has added rows of --user-mib within an hour. */
int call_keep(struct call *c, size_t rows, struct error *err);
/* Refuses an op that gemmd tunes itself (ERROR_INVALID). */
int call_only_custom(const struct problem *p, const char *name, struct error *err);
/* call_problem for a method that writes the caller's own key of a custom op. Refuses other ops. */
int call_custom_problem(struct call *c, const char *name, struct error *err);
/* Reads the flag `name` of params; leaves *out unchanged when the flag is absent. */
int call_flag(struct call *c, const char *name, bool *out, struct error *err);
/* Reads params' "target"; "" when absent. */
int call_target(struct call *c, char out[TARGET_MAX], struct error *err);
/* Refuses arguments outside `names` (NULL-terminated) and suggests the nearest name. Refuses
 * arguments given twice, because two readers might take different values. */
int call_only(struct call *c, const char *const *names, struct error *err);

/* Puts `name` with an integer; nil when there is none. */
void call_put_int(struct wire_buf *b, const char *name, bool has, int64_t value);
/* Puts `problem` with the problem of a key's entry; nil when there is no entry, or no memory. */
void call_put_problem(struct wire_buf *b, struct daemon *d, const struct cache_entry *e);

#endif
