/* SPDX-License-Identifier: Apache-2.0 */
/* The device's own kernels (device_ops.helpers), as builds: from the module cache, else compiled on
 * the pool while the device is being opened. The pool keeps these builds for the life of the
 * process. */
#ifndef GEMMD_RUNNER_COMPILE_HELPERS_H
#define GEMMD_RUNNER_COMPILE_HELPERS_H

#include "runner/compile/pool.h"

struct helpers {           /* all borrowed */
    struct device *device; /* helpers_init sets its supply */
    struct compiler *compiler;
    struct compile_pool *pool;
    void (*wait)(void *ctx); /* returns when some build may be done */
    void *ctx;
};

/* `h` must not move while the device is open. */
void helpers_init(struct helpers *h);
/* Starts the builds that the device needs for problems of a target. */
int helpers_want(struct helpers *h, const struct family_target *t, struct error *err);

#endif
