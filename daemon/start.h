/* SPDX-License-Identifier: Apache-2.0 */
/* What must be settled before there is a loop. */
#ifndef GEMMD_DAEMON_START_H
#define GEMMD_DAEMON_START_H

#include "proto/error.h"

struct daemon;

/* Finds the runner, looks at the device, settles the paths, takes the locks. */
int start_prepare(struct daemon *d, struct error *err);
/* Raises the limit of open files as far as so many connections need it. Returns how many there can
 * be: fewer when the hard limit leaves no room, since a runner and the database need files, too. */
unsigned start_raise_files(unsigned connections);

#endif
