/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Last words. When a compiler library kills the process from a pool thread, the last `attempt` on
 * the socket names what the main thread was measuring, which is innocent. So a thread that compiles
 * holds the bytes of its own `attempt` ready, and the handler of the fatal signal writes them
 * before the process dies of that signal.
 */
#ifndef GEMMD_RUNNER_BASE_CRASH_H
#define GEMMD_RUNNER_BASE_CRASH_H

#include <stddef.h>

/* Installs the handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGABRT. */
void crash_install(void);
/* What this thread's death would say, and where: borrowed until the next call. NULL: nothing. */
void crash_note(int fd, const void *bytes, size_t n);

/* Whoever writes to the socket is between these two, so that last words do not land in the middle
 * of a message. Never nested. */
void crash_write_begin(void);
void crash_write_end(void);

#endif
