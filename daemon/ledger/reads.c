/* SPDX-License-Identifier: Apache-2.0 */
/* What the shared ledger reads (reads.h). */
#include "daemon/ledger/reads.h"

static struct ledger *reading(struct ledger *base)
{
    struct shared *s = shared_of(base);
    return s->writer ? s->writer : s->reader;
}

int reads_load(struct ledger *base, bool first, ledger_load_cb cb, void *ctx)
{
    struct ledger *l = reading(base);
    return l->ops->load(l, first, cb, ctx);
}

int reads_find(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx)
{
    struct ledger *l = reading(base);
    return l->ops->find(l, key, cb, ctx);
}

int reads_history(struct ledger *base, const char *key, const char *stamp, const char *class_,
                  const char *driver, ledger_history_cb cb, void *ctx)
{
    struct ledger *l = reading(base);
    return l->ops->history(l, key, stamp, class_, driver, cb, ctx);
}

int reads_list(struct ledger *base, int64_t user, const char *what, const struct record *filter,
               size_t max_bytes, ledger_list_cb cb, void *ctx)
{
    struct ledger *l = reading(base);
    return l->ops->list(l, user, what, filter, max_bytes, cb, ctx);
}

void reads_withdraw(struct ledger *base, const void *ctx)
{
    const struct shared *s = shared_of(base);
    struct ledger *homes[] = {s->writer, s->reader};
    for (int i = 0; i < 2; i++) {
        if (homes[i]) {
            homes[i]->ops->withdraw(homes[i], ctx);
        }
    }
}

int reads_backup(struct ledger *base, const char *path, ledger_done_cb cb, void *ctx)
{
    struct ledger *l = reading(base);
    return l->ops->backup(l, path, cb, ctx);
}
