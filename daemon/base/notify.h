/* SPDX-License-Identifier: Apache-2.0 */
/* systemd's service protocol without its library: a datagram, and numbered descriptors. */
#ifndef GEMMD_DAEMON_BASE_NOTIFY_H
#define GEMMD_DAEMON_BASE_NOTIFY_H

#include <stdint.h>

/* Sends "READY=1", "STOPPING=1", "STATUS=..." to the service manager, if any. */
void notify_send(const char *text);
/* Period of WATCHDOG=1 in ms: half of WatchdogSec=. 0: no watchdog. */
uint64_t notify_watchdog_ms(void);
/* The listening socket of a socket unit, close-on-exec; -1: not started by a socket unit. */
int notify_listen_fd(void);

#endif
