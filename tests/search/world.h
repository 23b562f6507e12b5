/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded device with one key, which a runner can be given an order for. */
#ifndef GEMMD_TESTS_SEARCH_WORLD_H
#define GEMMD_TESTS_SEARCH_WORLD_H

#include "harness.h"

struct world {
    char spec[600], problem[1024];
};

/* From a landscape; fails the test when there is none. */
void world_open(struct world *w, const char *path);
/* To tune its key; the caller's, for order_free. */
struct tune_order *world_order(const struct world *w);

#endif
