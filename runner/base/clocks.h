/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks the GPU's clocks for gemmd --lock-clocks: the clocks are locked while the runner has the
 * device, and no longer, however the runner ends.
 *
 * A child of the runner sets the clocks and waits until its socket to the runner closes. The kernel
 * closes the socket also when the runner crashes or is killed together with gemmd. Then the child
 * resets the clocks. The child does the same on SIGTERM, when a whole service is stopped.
 */
#ifndef GEMMD_RUNNER_BASE_CLOCKS_H
#define GEMMD_RUNNER_BASE_CLOCKS_H

#include <stdint.h>

#include "proto/error.h"

/* Starts the child and waits until the clocks are locked. The child resets the clocks when this
 * process ends. */
int clocks_hold(const char *uuid, int64_t mhz, struct error *err);
/* Main function of the child: gemmd-runner --hold-clocks MHZ --device UUID --fd N. Returns an exit
 * status. */
int clocks_child(const char *uuid, int64_t mhz, int fd);

#endif
