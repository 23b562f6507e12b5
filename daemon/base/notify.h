/* SPDX-License-Identifier: Apache-2.0 */
/* What systemd wants to hear and gives, without its library: a datagram, and numbered
 * descriptors. */
#ifndef GEMMD_DAEMON_BASE_NOTIFY_H
#define GEMMD_DAEMON_BASE_NOTIFY_H

#include <stdint.h>

/* "READY=1", "STOPPING=1", "STATUS=..."; nothing when nobody listens. */
void notify_send(const char *text);
/* How often the manager wants to hear WATCHDOG=1, ms: half of WatchdogSec=. 0: it does not. */
uint64_t notify_watchdog_ms(void);
/* The listening socket of a socket unit, close-on-exec; -1: we were started without one. */
int notify_listen_fd(void);

#endif
