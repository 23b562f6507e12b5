/* SPDX-License-Identifier: Apache-2.0 */
/* The socket to the runner, and what the two files of the supervisor share. */
#ifndef GEMMD_DAEMON_RUNNER_LINK_H
#define GEMMD_DAEMON_RUNNER_LINK_H

#include "daemon/supervisor.h"

void runner_link_open(struct supervisor *s); /* begins to read */
void runner_link_resume(struct chore *resume);
/* Sends the order when the runner is ready for it. */
void runner_link_order(struct supervisor *s);
void runner_link_cancel(struct supervisor *s, int64_t job);

/* supervisor.c */
void supervisor_watch(struct supervisor *s, uint64_t limit_ms); /* 0: silence is no fault */
void supervisor_kill(struct supervisor *s);
/* This runner cannot be used: the job fails with this error. */
void supervisor_refuse(struct supervisor *s, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void supervisor_gone(struct supervisor *s); /* exit or end of file was seen */
void supervisor_check_stopped(struct supervisor *s);

#endif
