/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done by the clock: what a damaged database has lost is written again, an idle daemon
 * ends, the socket's path is looked at, and systemd is told that the loop turns.
 */
#ifndef GEMMD_DAEMON_CHORES_H
#define GEMMD_DAEMON_CHORES_H

#include "daemon/remeasure.h"

struct chores {
    struct daemon_parts *parts; /* borrowed */
    struct remeasure remeasure;
    uv_timer_t timer; /* idle exit, lost answers, doubtful ones; runs only while one needs it */
    bool counting;    /* the ledger is asked what is unsaved */
    uv_timer_t path;
    uv_timer_t watchdog;
};

void chores_init(struct chores *c, struct daemon_parts *p);
/* There may be something to look after now. */
void chores_watch(struct chores *c);
void chores_close(struct chores *c);

#endif
