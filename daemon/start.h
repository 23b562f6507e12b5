/* SPDX-License-Identifier: Apache-2.0 */
/* What must be settled before there is a loop. */
#ifndef GEMMD_DAEMON_START_H
#define GEMMD_DAEMON_START_H

#include "proto/error.h"

struct daemon;

/* Finds the runner, looks at the device, settles the paths, takes the locks. */
int start_prepare(struct daemon *d, struct error *err);

#endif
