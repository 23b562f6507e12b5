/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a gemmd in the background, once, however many clients want it at the same moment.
 */
#ifndef GEMMD_CLIENT_START_H
#define GEMMD_CLIENT_START_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct start_order {
    const char *device; /* for gemmd --device; "" or NULL: gemmd's own default */
    const char *socket; /* where it will listen */
    bool pass_socket;   /* tell it so, with --socket */
    int64_t deadline;
};

/* 0 when somebody listens on the socket. ERROR_UNREACHABLE: no gemmd program found, or it ended at
 * once (the sentence has its last words); ERROR_DEADLINE. */
int start_daemon(const struct start_order *o, struct error *err);

#endif
