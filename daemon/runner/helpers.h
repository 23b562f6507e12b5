/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's own kernels (device_ops.helpers), as builds: from the module cache, else compiled on
 * the pool while the device is being opened. They are held for the life of the runner.
 */
#ifndef GEMMD_RUNNER_HELPERS_H
#define GEMMD_RUNNER_HELPERS_H

#include "kernels/device.h"

struct runner;
struct build;

enum { HELPERS_MAX = 16 }; /* a few per family */

struct helpers {
    uint32_t n;
    struct build *builds[HELPERS_MAX]; /* held */
};

/* Starts what the device will need for problems of a target. */
int helpers_want(struct runner *r, const struct family_target *t, struct error *err);
/* A device_supply's function; ctx is the runner. Waits for the build. */
int helpers_image(void *ctx, const struct variant *v, const struct image **out, struct error *err);

#endif
