/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address of --metrics-listen: "127.0.0.1:9400", "[::1]:9400", "localhost:9400", or the path of
 * a Unix socket. gemmd checks no peer there, so an address that other hosts can reach needs the
 * word `public:` in front.
 */
#ifndef GEMMD_DAEMON_BASE_ADDRESS_H
#define GEMMD_DAEMON_BASE_ADDRESS_H

#include "proto/error.h"

/* ERROR_INVALID: no such address. "" is valid: no address. */
int address_check(const char *text, struct error *err);
/* Binds a socket that does not block, and listens with so many waiting connections at most. A Unix
 * socket's stale file is removed first; its new file has mode 0666, since its folder decides who
 * may come. ERROR_BUSY: another program listens there; ERROR_IO. */
int address_listen(const char *text, int backlog, int *fd, struct error *err);
/* Removes the file of a Unix socket; does nothing for other addresses. */
void address_remove(const char *text);

#endif
