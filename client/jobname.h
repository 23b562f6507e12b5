/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The name of the job that this process is a part of, by which gemmd counts answers (`gemmctl
 * jobs`). The process itself reads the name: gemmd, as another user, may not read the environment
 * of a client, nor that of a process in a container.
 */
#ifndef GEMMD_CLIENT_JOBNAME_H
#define GEMMD_CLIENT_JOBNAME_H

#include "proto/message.h"

/* Sets a name of visible ASCII characters, or "": then gemmd names the process group. */
void jobname_find(char out[SERVED_JOB_MAX]);

#endif
