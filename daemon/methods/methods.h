/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked: every method, and where it is. dispatch.c calls them. */
#ifndef GEMMD_DAEMON_METHODS_METHODS_H
#define GEMMD_DAEMON_METHODS_METHODS_H

#include "daemon/methods/call.h"
#include "daemon/session/session.h"

typedef int method(struct call *c, struct error *err);

/* X(name, owner, early). `owner`: for root and the daemon's own user. `early`: is right, or sees to
 * it, also while not all is loaded. The most frequent first: they are looked up in order. */
#define METHODS(X)                                                                                 \
    X(get, false, true)          /* get.c */                                                       \
    X(get_many, false, false)    /* get_many.c */                                                  \
    X(tune, false, true)         /* get.c */                                                       \
    X(hello, false, true)        /* status.c */                                                    \
    X(status, false, true)       /* status.c */                                                    \
    X(module, false, true)       /* kernels.c */                                                   \
    X(cancel, false, true)       /* get.c */                                                       \
    X(list, false, true)         /* list.c */                                                      \
    X(show, false, false)        /* list.c */                                                      \
    X(why, false, false)         /* why.c */                                                       \
    X(put, false, false)         /* put.c */                                                       \
    X(acquire, false, false)     /* acquire.c */                                                   \
    X(record, false, false)      /* record.c */                                                    \
    X(release, false, false)     /* record.c */                                                    \
    X(check, false, true)        /* kernels.c */                                                   \
    X(space, false, true)        /* space.c */                                                     \
    X(pin, true, false)          /* admin.c */                                                     \
    X(unpin, true, false)        /* admin.c */                                                     \
    X(evict, false, false)       /* admin.c */                                                     \
    X(unquarantine, true, false) /* admin.c */                                                     \
    X(import, true, false)       /* put.c */                                                       \
    X(promote, true, false)      /* promote.c */                                                   \
    X(subscribe, false, true)    /* announce.c */                                                  \
    X(backup, true, true)        /* admin.c */                                                     \
    X(shutdown, true, true)      /* admin.c */

#define METHOD_DECLARE(name, owner, early) method method_##name;
METHODS(METHOD_DECLARE)
#undef METHOD_DECLARE

/* Keeps trials that an import brings for the key of a custom op: those of configs about which
 * nothing is known here. `done` is called once, later, with how many were kept or why some are not;
 * a fault at once: it is not called. record.c */
int record_bring(struct daemon *d, const char *key, const struct wire_obj *trials,
                 void (*done)(void *ctx, int64_t kept, const struct error *err), void *ctx,
                 struct error *err);

/* get_many whose problems were all hits before in the same bytes: answered. `tail`: as
 * call.tail. */
bool get_many_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *tail,
                    size_t n);

/* ---- dispatch.c ------------------------------------------------------------------------------ */

/*
 * From a message's bytes to the method that answers it. A hit that came in the very same bytes
 * before is answered here, without being decoded (cache/memo.h).
 */

/* Answers a message that was answered before in the same bytes. False: it is none, or not a whole
 * message; nothing is done. Needs no scan: that the bytes are the same is enough. */
bool dispatch_known(struct daemon_parts *parts, struct session *s, const uint8_t *data, size_t n);
/* Handles one whole message of a session; `again`: it was put off once. Answers go to its `out`;
 * nothing is written yet. */
void dispatch_message(struct daemon_parts *parts, struct session *s, const uint8_t *data, size_t n,
                      bool again);

#endif
