/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded device and a key, from which tests make orders for a runner. */
#ifndef GEMMD_TESTS_SEARCH_WORLD_H
#define GEMMD_TESTS_SEARCH_WORLD_H

#include "harness.h"

struct world {
    char spec[600], problem[1024];
};

/* Reads the landscape `path`; fails the test if it is unreadable. */
void world_open(struct world *w, const char *path);
/* An order to tune the key; the caller frees it with order_free. */
struct tune_order *world_order(const struct world *w);

#endif
