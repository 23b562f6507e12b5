/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device's own kernels (device_ops.helpers), as builds: from the module cache, else compiled on
 * the pool while the device is being opened. The pool keeps them for the life of the process.
 */
#ifndef GEMMD_RUNNER_COMPILE_HELPERS_H
#define GEMMD_RUNNER_COMPILE_HELPERS_H

#include "runner/compile/pool.h"

struct helpers {           /* all borrowed */
    struct device *device; /* its supply becomes these helpers */
    struct compiler *compiler;
    struct compile_pool *pool;
    void (*wait)(void *ctx); /* until some build may be done */
    void *ctx;
};

/* It stays where it is as long as the device is open. */
void helpers_init(struct helpers *h);
/* Starts what the device will need for problems of a target. */
int helpers_want(struct helpers *h, const struct family_target *t, struct error *err);

#endif
