/* SPDX-License-Identifier: Apache-2.0 */
/* Starts this program again in another mode, with a socket: for work that must not run in the
 * runner's own process (clocks.h, compile/apart.h). */
#ifndef GEMMD_RUNNER_BASE_SELF_H
#define GEMMD_RUNNER_BASE_SELF_H

#include <sys/types.h>

#include "proto/error.h"

/* the number of the child's end of the socket, as text: the value of the child's option --fd */
#define SELF_FD "3"

/* Starts a child with `args` (argv, ended by NULL). *fd: this end of a socket pair, which the
 * caller closes; *pid: for waitpid(). The child's stdin and stdout are /dev/null. The child has its
 * own process group, so that signals of a terminal do not reach the child. The child stays in the
 * session of its parent: the kernel may share processors among sessions, and the child's priority
 * would not count in a session of its own. The child's socket closes when this process ends, in any
 * way. */
int self_start(const char *const *args, int *fd, pid_t *pid, struct error *err);
/* Ignores SIGPIPE and the signals that must not end a daemon's children: SIGHUP, SIGUSR1, SIGUSR2.
 * Compilers that this process starts inherit this. */
void self_ignore_signals(void);
/* First call of a child: self_ignore_signals(), and closes all descriptors above `fd`. */
void self_begin(int fd);

#endif
