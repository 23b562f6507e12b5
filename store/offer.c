/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that somebody brings (`put`, `import`). Whether one may become its key's answer is decided
 * here, in the transaction that writes it: who offered it looked before what was being measured
 * meanwhile was written. And since whoever may connect can offer, they do not grow without limit.
 */
#include <string.h>

#include "store/inner.h"

int store_outranked(const char *key, struct error *err)
{
    return error_set(
        err, ERROR_CONFLICT,
        "key %.12s has an answer that was measured here, which a put or an import does "
        "not push out; `pin` a config to decide it, or `evict` the key first",
        key);
}

static bool is_measured_here(const struct best *b)
{
    return strcmp(b->source, "tuned") == 0 || strcmp(b->source, "manual") == 0;
}

/* Without what says only who brought it, and when. */
static void pack(struct wire_buf *out, const struct best *b)
{
    struct best plain = *b;
    plain.generation = plain.uid = plain.created_s = 0;
    schema_encode(out, &best_schema, &plain);
}

static bool says_the_same(const struct best *a, const struct best *b)
{
    WIRE_BUF_AUTO one = WIRE_BUF_NULL;
    WIRE_BUF_AUTO other = WIRE_BUF_NULL;
    pack(&one, a);
    pack(&other, b);
    return !one.failed && !other.failed && one.len == other.len &&
           memcmp(one.data, other.data, one.len) == 0;
}

static int trim(struct store *s, const char *key, struct error *err)
{
    return db_run(&s->db, NULL, err,
                  "DELETE FROM best WHERE key = ?1 AND source = 'imported' AND generation <="
                  " (SELECT generation FROM best WHERE key = ?1 AND source = 'imported'"
                  " ORDER BY generation DESC LIMIT 1 OFFSET ?2)",
                  "ti", key, (int64_t)STORE_IMPORTED_PER_KEY);
}

static int offer(struct store *s, struct best *b, struct error *err)
{
    struct best now;
    int r = rows_first(s, TABLE_BEST, &now, err, "current_best", "WHERE key = ?1", "t", b->key);
    if (r == 0 && strcmp(now.key, b->key) != 0) {
        return store_index_damaged(s, err);
    }
    if (r == 0 && b->family[0] && is_measured_here(&now) && now.generation > b->generation) {
        return store_outranked(b->key, err);
    }
    if (r == 0 && says_the_same(&now, b)) {
        *b = now;
        return 0;
    }
    r = r < 0 ? r : store_publish(s, b, err);
    return r ? r : trim(s, b->key, err);
}

int store_offer(struct store *s, struct best *b, struct error *err)
{
    int64_t known = b->generation;
    int r = store_in_place(s, err);
    r = r ? r : db_begin(&s->db, err);
    r = r ? r : db_end(&s->db, offer(s, b, err), err);
    if (r < 0 && r != ERROR_CONFLICT && b->generation == known) {
        rows_number(s, TABLE_BEST, b); /* for store_publish_again */
    }
    return r;
}
