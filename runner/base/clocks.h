/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locked clocks, when the owner asked for them (gemmd --lock-clocks): for as long as the runner has
 * the device, and not longer, however it ends.
 *
 * A child of the runner sets them and waits until its socket to the runner closes, which the kernel
 * sees to also when the runner crashes or is killed, and gemmd with it; then it gives them back. So
 * it does on SIGTERM, when all of a service is stopped.
 */
#ifndef GEMMD_RUNNER_BASE_CLOCKS_H
#define GEMMD_RUNNER_BASE_CLOCKS_H

#include <stdint.h>

#include "proto/error.h"

/* Starts the child; waits until they are locked. They are given back when this process ends. */
int clocks_hold(const char *uuid, int64_t mhz, struct error *err);
/* The child's whole life: gemmd-runner --hold-clocks MHZ --device UUID --fd N. An exit status. */
int clocks_child(const char *uuid, int64_t mhz, int fd);

#endif
