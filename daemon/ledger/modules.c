/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger's writer thread trims the cache directory: the thread knows the modules that the bests
 * name, and may wait for a disk; the loop may not. The thread trims in a quiet moment after a
 * write, or BUSY_TRIM_MS after a write when no quiet moment comes. It also trims every hour, since
 * `gemmctl precompile` and other daemons write modules, too.
 *
 * First the thread writes the list of modules that this database serves, so that no daemon's trim
 * removes them. Without that list no module is removed.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/inner.h"

enum { EVERY_MS = 3600 * 1000, AGAIN_MS = MODULES_YOUNG_S * 1000, COUNT_MS = 5000 };

/* Writes the list of modules that bests name, also bests that are not saved yet. */
static int ledger_modules_write_list(struct ledger *l, struct error *err)
{
    char(*ids)[HASH_HEX] = NULL, (*all)[HASH_HEX] = NULL;
    uint32_t n;
    int r = store_modules_of_bests(l->store, &ids, &n, err);
    if (r == 0 && !(all = realloc(ids, (n + (size_t)queue_count(&l->unsaved) + 1) * HASH_HEX))) {
        r = error_set(err, ERROR_NO_MEMORY, "no memory for %u modules", n);
    }
    for (const struct request *u = l->unsaved.first; u && r == 0; u = u->next) {
        r = writer_decode(l, &u->row, &best_schema, l->object, err);
        if (r == 0 && l->object->best.module[0]) {
            memcpy(all[n++], l->object->best.module, HASH_HEX);
        }
    }
    r = r ? r : modules_serve(l->cache_dir, l->database, (const char(*)[HASH_HEX])all, n, err);
    free(all ? all : ids);
    return r;
}

void ledger_modules_trim(struct ledger *l)
{
    struct error err = ERROR_NULL;
    int r = ledger_modules_write_list(l, &err);
    r = r ? r : modules_trim(l->cache_dir, l->cache_max_bytes, &l->cache, &err);
    uint64_t now = writer_now_ms();
    bool above = l->cache_max_bytes > 0 && l->cache.bytes > l->cache_max_bytes;
    l->cache_counted_at = r ? 0 : now;
    l->trim_at = now + (above ? AGAIN_MS : EVERY_MS);
    if (r) {
        writer_notice(l, "cache", "no module was removed: %s", err.text);
    } else if (l->cache.removed > 0) {
        writer_notice(l, "cache", "%lld modules were removed from %s, which now holds %lld MiB",
                      (long long)l->cache.removed, l->cache_dir, (long long)(l->cache.bytes >> 20));
    }
}

void ledger_modules_count(struct ledger *l, struct ledger_status *out)
{
    uint64_t now = writer_now_ms();
    if (l->cache_dir && (!l->cache_counted_at || now - l->cache_counted_at > COUNT_MS)) {
        modules_count(l->cache_dir, &l->cache);
        l->cache_counted_at = now;
    }
    out->cache_bytes = l->cache.bytes;
    out->cache_modules = l->cache.modules;
}
