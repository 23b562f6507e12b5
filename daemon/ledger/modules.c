/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger's writer thread trims the cache directory: the thread knows the modules that the bests
 * name, and may wait for a disk; the loop may not. Trimming happens in a quiet moment after a
 * write, or later after a busy write, and every hour, since `gemmctl precompile` and other daemons
 * write modules, too.
 *
 * First the thread writes the list of modules that this database serves, so that no daemon's trim
 * removes them. Without that list no module is removed.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/local.h"

enum { EVERY_MS = 3600 * 1000, AGAIN_MS = MODULES_YOUNG_S * 1000, COUNT_MS = 5000 };

struct serving {
    char (*ids)[HASH_HEX]; /* owned */
    size_t n, room;
    bool failed; /* there was no memory for all names */
};

static int ledger_modules_add_best(void *ctx, const struct best *b)
{
    struct serving *s = ctx;
    if (!b->module[0]) {
        return 0;
    }
    if (s->n == s->room) {
        size_t room = s->room ? s->room * 2 : 256;
        char(*more)[HASH_HEX] = realloc(s->ids, room * sizeof(*more));
        if (!more) {
            s->failed = true;
            return 1;
        }
        s->ids = more;
        s->room = room;
    }
    memcpy(s->ids[s->n++], b->module, HASH_HEX);
    return 0;
}

/* Collects the modules that bests name, also bests that are not saved yet. */
static int ledger_modules_collect_bests(struct local *l, struct serving *s, struct error *err)
{
    int r = store_each_best(l->store, ledger_modules_add_best, s, err);
    for (const struct unsaved *u = l->unsaved; u && r == 0; u = u->next) {
        r = writer_decode(l, &u->row, &best_schema, l->object, err);
        r = r ? r : ledger_modules_add_best(s, &l->object->best);
    }
    return s->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for %zu modules", s->n) : r;
}

static int tell_what_serves(struct local *l, struct error *err)
{
    struct serving s = {0};
    int r = ledger_modules_collect_bests(l, &s, err);
    r = r ? r : modules_serve(l->cache_dir, l->database, (const char(*)[HASH_HEX])s.ids, s.n, err);
    free(s.ids);
    return r;
}

void ledger_modules_trim(struct local *l)
{
    struct error err = ERROR_NULL;
    int r = tell_what_serves(l, &err);
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

void ledger_modules_count(struct local *l, struct ledger_status *out)
{
    uint64_t now = writer_now_ms();
    if (l->cache_dir && (!l->cache_counted_at || now - l->cache_counted_at > COUNT_MS)) {
        modules_count(l->cache_dir, &l->cache);
        l->cache_counted_at = now;
    }
    out->cache_bytes = l->cache.bytes;
    out->cache_modules = l->cache.modules;
}
