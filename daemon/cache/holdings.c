/* SPDX-License-Identifier: Apache-2.0 */
/* Keys by user (cache.h). */
#include <stdlib.h>

#include "daemon/cache/cache.h"

void holdings_deinit(struct holdings *x)
{
    free(x->all);
    *x = (struct holdings){0};
}

/* NULL: the user holds no key. */
static struct holding *holdings_find_user(const struct holdings *x, uint32_t uid)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->all[i].n > 0 && x->all[i].uid == uid) {
            return &x->all[i];
        }
    }
    return NULL;
}

static struct holding *find_free(struct holdings *x)
{
    for (size_t i = 0; i < x->n; i++) {
        if (x->all[i].n == 0) {
            return &x->all[i];
        }
    }
    struct holding *grown = realloc(x->all, (x->n + 1) * sizeof(*grown));
    if (!grown) {
        return NULL;
    }
    x->all = grown;
    return &x->all[x->n++];
}

bool holdings_add(struct holdings *x, uint32_t uid)
{
    struct holding *h = holdings_find_user(x, uid);
    if (!h && (h = find_free(x))) {
        *h = (struct holding){.uid = uid};
    }
    if (h) {
        h->n++;
    }
    return h != NULL;
}

void holdings_remove(struct holdings *x, uint32_t uid)
{
    struct holding *h = holdings_find_user(x, uid);
    if (h) {
        h->n--;
    }
}

size_t holdings_of(const struct holdings *x, uint32_t uid)
{
    const struct holding *h = holdings_find_user(x, uid);
    return h ? h->n : 0;
}
