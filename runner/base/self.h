/* SPDX-License-Identifier: Apache-2.0 */
/*
 * This program once more, in another mode, with a socket to it: what must not happen in the
 * runner's own process (clocks.h, compile/apart.h).
 */
#ifndef GEMMD_RUNNER_BASE_SELF_H
#define GEMMD_RUNNER_BASE_SELF_H

#include <sys/types.h>

#include "proto/error.h"

#define SELF_FD "3" /* the child's end of the socket: for its --fd */

/* `args`: argv, ended by NULL. The child reads and prints nothing, but for stderr. It has a process
 * group of its own, so that a terminal's signals are not for it, in the session of its parent: the
 * kernel may share processors out among sessions, and then its priority, that of the thread that
 * calls, would count among nobody. Its socket closes when this process ends, however it does. *fd:
 * to be closed; *pid: to be waited for, or not. */
int self_start(const char *const *args, int *fd, pid_t *pid, struct error *err);
/* SIGPIPE, and what ends no daemon either: SIGHUP, SIGUSR1, SIGUSR2. Compilers inherit it. */
void self_ignore_signals(void);
/* In the child, at its beginning: ignores these, and of its parent's other descriptors it keeps
 * none open. */
void self_begin(int fd);

#endif
