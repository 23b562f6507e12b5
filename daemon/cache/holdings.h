/* SPDX-License-Identifier: Apache-2.0 */
/* How many keys each user has kept here: few users hold many keys, so users are a list. */
#ifndef GEMMD_DAEMON_CACHE_HOLDINGS_H
#define GEMMD_DAEMON_CACHE_HOLDINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct holding {
    uint32_t uid;
    size_t n; /* 0: free */
};

struct holdings {
    struct holding *all; /* owned */
    size_t n;
};

void holdings_deinit(struct holdings *x);
bool holdings_add(struct holdings *x, uint32_t uid); /* one key more; false: no memory */
void holdings_remove(struct holdings *x, uint32_t uid);
size_t holdings_of(const struct holdings *x, uint32_t uid);

#endif
