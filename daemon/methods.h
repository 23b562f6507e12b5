/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked: every method, and where it is. dispatch.c calls them. */
#ifndef GEMMD_DAEMON_METHODS_H
#define GEMMD_DAEMON_METHODS_H

#include "daemon/call.h"

typedef int method(struct call *c, struct error *err);

/* X(name, owner, early). `owner`: for root and the daemon's own user. `early`: is right, or sees to
 * it, also while not all is loaded. The most frequent first: they are looked up in order. */
#define METHODS(X)                                                                                 \
    X(get, false, true)          /* methods_get.c */                                               \
    X(get_many, false, false)    /* methods_many.c */                                              \
    X(tune, false, true)         /* methods_get.c */                                               \
    X(hello, false, true)        /* methods_status.c */                                            \
    X(status, false, true)       /* methods_status.c */                                            \
    X(module, false, true)       /* methods_kernels.c */                                           \
    X(cancel, false, true)       /* methods_get.c */                                               \
    X(list, false, true)         /* methods_list.c */                                              \
    X(show, false, false)        /* methods_list.c */                                              \
    X(why, false, false)         /* methods_why.c */                                               \
    X(put, false, false)         /* methods_put.c */                                               \
    X(acquire, false, false)     /* methods_acquire.c */                                           \
    X(record, false, false)      /* methods_lease.c */                                             \
    X(release, false, false)     /* methods_lease.c */                                             \
    X(check, false, true)        /* methods_kernels.c */                                           \
    X(space, false, true)        /* methods_space.c */                                             \
    X(pin, true, false)          /* methods_admin.c */                                             \
    X(unpin, true, false)        /* methods_admin.c */                                             \
    X(evict, true, false)        /* methods_admin.c */                                             \
    X(unquarantine, true, false) /* methods_admin.c */                                             \
    X(import, true, false)       /* methods_put.c */                                               \
    X(promote, true, false)      /* methods_promote.c */                                           \
    X(ledger, true, true)        /* methods_keeper.c */                                            \
    X(follow, true, true)        /* methods_keeper.c */                                            \
    X(subscribe, false, true)    /* announce.c */                                                  \
    X(backup, true, true)        /* methods_admin.c */                                             \
    X(shutdown, true, true)      /* methods_admin.c */

#define METHOD_DECLARE(name, owner, early) method method_##name;
METHODS(METHOD_DECLARE)
#undef METHOD_DECLARE

/* get_many whose problems were all hits before in the same bytes: answered. `tail`: as
 * call.tail. */
bool many_again(struct daemon *d, struct session *s, uint32_t id, const uint8_t *tail, size_t n);

#endif
