/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the daemon: prepare, open the ledger, load what is known, listen, run, and end in the
 * reverse order. The end goes in order, too: no new connections, jobs cancelled, runner killed,
 * ledger drained, socket removed.
 */
#ifndef GEMMD_DAEMON_LIFE_H
#define GEMMD_DAEMON_LIFE_H

#include "daemon/base/config.h"

/* Runs until told to stop. Returns an exit code. */
int daemon_run(const struct config *c);

#endif
