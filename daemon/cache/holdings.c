/* SPDX-License-Identifier: Apache-2.0 */
/* Keys by user (cache.h). */
#include <stdlib.h>

#include "daemon/cache/cache.h"

void holdings_deinit(struct holdings *x)
{
    free(x->all);
    *x = (struct holdings){0};
}

/* Returns NULL when the user holds no key. */
static struct holding *holdings_find_user(const struct holdings *x, uint32_t uid)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->all[i].uid == uid) {
            return &x->all[i];
        }
    }
    return NULL;
}

bool holdings_add(struct holdings *x, uint32_t uid)
{
    struct holding *h = holdings_find_user(x, uid);
    if (!h) {
        struct holding *grown = realloc(x->all, (x->n + 1) * sizeof(*grown));
        if (!grown) {
            return false;
        }
        x->all = grown;
        h = &x->all[x->n++];
        *h = (struct holding){.uid = uid};
    }
    h->n++;
    return true;
}

void holdings_remove(struct holdings *x, uint32_t uid)
{
    struct holding *h = holdings_find_user(x, uid);
    if (h && --h->n == 0) {
        *h = x->all[--x->n];
    }
}

size_t holdings_of(const struct holdings *x, uint32_t uid)
{
    const struct holding *h = holdings_find_user(x, uid);
    return h ? h->n : 0;
}
