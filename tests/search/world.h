/* SPDX-License-Identifier: Apache-2.0 */
/* A recorded device with a key, for runners' orders. */
#ifndef GEMMD_TESTS_SEARCH_WORLD_H
#define GEMMD_TESTS_SEARCH_WORLD_H

#include "harness.h"

struct world {
    char spec[600], problem[1024];
};

/* From a landscape; fails the test if unreadable. */
void world_open(struct world *w, const char *path);
/* An order to tune the key; the caller frees it with order_free. */
struct tune_order *world_order(const struct world *w);

#endif
