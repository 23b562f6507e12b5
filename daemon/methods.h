/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What can be asked. A method either answers at once (0), or later through a ticket (METHOD_LATER),
 * or fails (ERROR_*): then the dispatcher answers with the error. So every request gets exactly one
 * response.
 */
#ifndef GEMMD_DAEMON_METHODS_H
#define GEMMD_DAEMON_METHODS_H

#include "daemon/custom.h"
#include "daemon/session.h"
#include "proto/hash.h"
#include "proto/message.h"

struct daemon;

/* Handles one whole message of a session. Answers go to its `out`; nothing is written yet. */
void methods_dispatch(struct session *s, const uint8_t *data, size_t n);
/* The same for a message that was put off once. */
void methods_again(struct session *s, const uint8_t *data, size_t n);
void methods_put_names(struct wire_buf *b); /* an array: what `hello` calls capabilities */

enum { METHOD_LATER = 1 };

struct call {
    struct daemon *d;
    struct session *s;
    uint32_t id;
    const struct wire_obj *params; /* NULL: none */
    const uint8_t *data;           /* the whole message */
    size_t len;
    bool again;                    /* it was put off once (loader.h) */
    const uint8_t *tail;           /* method and params as they came; NULL: an unusual form */
    size_t tail_len;
};

typedef int method(struct call *c, struct error *err);

method method_get, method_tune, method_cancel;                      /* methods_get.c */
method method_get_many;                                             /* methods_many.c */
method method_hello, method_status;                                 /* methods_status.c */
method method_check, method_module;                                 /* methods_kernels.c */
method method_space;                                                /* methods_space.c */
method method_list, method_show;                                    /* methods_list.c */
method method_why;                                                  /* methods_why.c */
method method_put, method_import;                                   /* methods_put.c */
method method_acquire;                                              /* methods_acquire.c */
method method_release, method_record;                               /* methods_lease.c */
method method_promote;                                              /* methods_promote.c */
method method_follow, method_ledger;                                /* methods_keeper.c */
method method_subscribe;                                            /* announce.c */
method method_pin, method_unpin, method_evict, method_unquarantine; /* methods_admin.c */
method method_backup, method_shutdown;

/* get_many whose problems were all hits before in the same bytes: answered. `tail`: as call.tail. */
bool many_again(struct session *s, uint32_t id, const uint8_t *tail, size_t n);

/* ---- what they share ------------------------------------------------------------------------------ */

/* scratch->request.problem, bucket and key (with id) from params' "problem"; of custom ops the
 * caller's own or the shared one (custom.h). */
int call_problem(struct call *c, enum custom_use use, struct error *err);
/* "on", or why nothing is tuned. */
const char *status_tuning(const struct daemon *d);
/* The id of a key: from "key" (an id, or a unique beginning of 6 digits or more), else from
 * "problem". ERROR_NOT_FOUND: no such key is known. */
int call_key(struct call *c, char id[HASH_HEX], struct error *err);
/* params' "config": a map or one-line text. */
int call_config(struct call *c, struct record *out, struct error *err);
/* The same of a value; NULL: missing. */
int call_read_config(const struct wire_obj *o, struct record *out, struct error *err);
/* ERROR_INVALID for an op that gemmd tunes itself. */
int call_only_custom(const struct problem *p, const char *name, struct error *err);
/* params' "target"; "": none. */
int call_target(struct call *c, char out[TARGET_MAX], struct error *err);
/* Refuses arguments that are not in the list (NULL-terminated), naming the nearest known one. */
int call_only(struct call *c, const char *const names[], struct error *err);

/* A request that the ledger answers. The client may have gone meanwhile: then nothing is sent. */
struct pending {
    struct ticket ticket;
    struct daemon *d; /* borrowed */
    int64_t uid;      /* who asks: the client may have gone when it is written down */
    struct account *account; /* a holder: charged with this request, also when the client has gone */
    size_t charged;
};
/* `size` bytes, zeroed, of which struct pending is the first part. */
int call_later(struct call *c, size_t size, struct pending **out, struct error *err);
/* The response's beginning is put; the result goes next, then pending_drop. NULL: nobody waits. */
struct wire_buf *pending_result(struct pending *p);
void pending_drop(struct pending *p); /* ends and frees it */
void pending_free(struct pending *p); /* the same when its ticket is gone: for ticket.gone */
void pending_end(struct pending *p);  /* without an answer by it: the request is begun anew */
void pending_fail(struct pending *p, const struct error *e);

#endif
