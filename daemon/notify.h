/* SPDX-License-Identifier: Apache-2.0 */
/* What systemd wants to hear and gives, without its library: a datagram, and numbered descriptors. */
#ifndef GEMMD_DAEMON_NOTIFY_H
#define GEMMD_DAEMON_NOTIFY_H

/* "READY=1", "STOPPING=1", "STATUS=..."; nothing when nobody listens. */
void notify_send(const char *text);
/* The listening socket of a socket unit, close-on-exec; -1: we were started without one. */
int notify_listen_fd(void);

#endif
