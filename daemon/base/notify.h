/* SPDX-License-Identifier: Apache-2.0 */
/* systemd's protocols for services, without libsystemd: sd_notify is a datagram, and socket
 * activation passes numbered descriptors. */
#ifndef GEMMD_DAEMON_BASE_NOTIFY_H
#define GEMMD_DAEMON_BASE_NOTIFY_H

#include <stdint.h>

/* Sends "READY=1", "STOPPING=1", "STATUS=..." to the service manager, if any. */
void notify_send(const char *text);
/* Returns the period in ms at which systemd's watchdog must get WATCHDOG=1: half of WatchdogSec=.
 * 0: no watchdog. */
uint64_t notify_watchdog_ms(void);
/* Returns the listening socket that a systemd socket unit has passed, close-on-exec; -1: gemmd was
 * not started by a socket unit. */
int notify_listen_fd(void);

#endif
