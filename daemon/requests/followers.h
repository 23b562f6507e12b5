/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemons that follow this one, the keeper of their database: each is a session that asked by
 * `follow`, and is told by the notification `news` what anybody has changed. When one goes, the
 * leases that it held end.
 */
#ifndef GEMMD_DAEMON_REQUESTS_FOLLOWERS_H
#define GEMMD_DAEMON_REQUESTS_FOLLOWERS_H

#include "daemon/base/list.h"
#include "daemon/ledger/ledger.h"
#include "daemon/session/session.h"

struct daemon;
struct followers;

struct follower {
    struct ticket ticket;  /* first: never answered, it tells when he has gone */
    struct daemon *daemon; /* borrowed */
    struct followers *all; /* borrowed */
    struct list link;      /* all->all */
    char owner[80];        /* as he calls himself in leases */
};

struct followers {
    struct list all;
    unsigned n;
};

void followers_init(struct followers *f);
/* ERROR_BUSY, ERROR_NO_MEMORY. */
int followers_add(struct followers *f, struct daemon *d, struct session *s, const char *owner,
                  struct error *err);
void followers_tell(struct followers *f, const struct ledger_news *n);
/* At the end: nobody is told anything any more. */
void followers_stop(struct followers *f);

#endif
