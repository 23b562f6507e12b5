/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that may come too late: rows that clients bring (`put`, `import`), results of searches, pins
 * that were verified again. The caller decided before it saw the latest writes of other daemons, so
 * the writing transaction decides again whether the row may become its key's answer. Clients can
 * bring any number of rows, so the rows of a key are limited.
 */
#include <string.h>

#include "store/fleet.h"
#include "store/inner.h"

int store_outranked(const char *key, struct error *err)
{
    return error_set(
        err, ERROR_CONFLICT,
        "key %.12s has an answer that was measured here, which a put or an import does "
        "not push out; `pin` a config to decide it, or `evict` the key first",
        key);
}

int store_belongs_to_another(const char *key, struct error *err)
{
    return error_set(err, ERROR_CONFLICT,
                     "key %.12s has a row of another user, or of kernels of before, which your put "
                     "does not push out; let it be tuned (`get`), or have gemmd's own user put it",
                     key);
}

static bool is_from(const struct best *b, const char *source)
{
    return strcmp(b->source, source) == 0;
}

static bool is_measured_here(const struct best *b)
{
    return is_from(b, "tuned") || is_from(b, "manual") ||
           (is_from(b, "fleet") && !best_is_candidate(b));
}

/* True when `now` is a tuned row of the same kernel version, and b was verified with wider
 * tolerances. */
static bool offer_is_looser(const struct best *b, const struct best *now)
{
    return is_from(now, "tuned") && strcmp(now->stamp, b->stamp) == 0 &&
           (b->atol > now->atol || b->rtol > now->rtol);
}

static int pin_is_gone(const char *key, struct error *err)
{
    return error_set(err, ERROR_CONFLICT,
                     "the pin of key %.12s was taken back, or another config pinned, while it was "
                     "verified again",
                     key);
}

int store_overtaken(const struct best *now, const struct best *b, int64_t known, struct error *err)
{
    if (!b->family[0]) { /* a custom op, without kernels: the last row that was put answers */
        return 0;
    }
    bool newer = now && now->generation > known;
    if (is_from(b, "manual")) {
        bool there =
            now && is_from(now, "manual") && (!newer || record_equal(&now->config, &b->config));
        return there || !known ? 0 : pin_is_gone(b->key, err);
    }
    if (newer && best_is_brought(b) && is_measured_here(now)) {
        return store_outranked(b->key, err);
    }
    if (newer && is_from(b, "imported") && !(is_from(now, "imported") && now->uid == b->uid)) {
        return store_belongs_to_another(b->key, err);
    }
    if (newer && is_from(b, "tuned") && offer_is_looser(b, now)) {
        return error_set(err, ERROR_CONFLICT,
                         "verified less tightly than the row that key %.12s has got meanwhile",
                         b->key);
    }
    if (newer && is_from(b, "partial") && is_measured_here(now)) {
        return error_set(err, ERROR_CONFLICT,
                         "winner of a restricted search; key %.12s has got an answer of its own "
                         "meanwhile",
                         b->key);
    }
    if (newer && is_from(now, "manual")) {
        return error_set(
            err, ERROR_CONFLICT,
            "a config that was pinned meanwhile answers key %.12s; unpin it, then tune", b->key);
    }
    return 0;
}

/* Packs a best without its generation, user and time, to compare two bests. */
static void offer_pack_best(struct wire_buf *out, const struct best *b)
{
    struct best plain = *b;
    plain.generation = plain.uid = plain.created_s = 0;
    schema_encode(out, &best_schema, &plain);
}

static bool says_the_same(const struct best *a, const struct best *b)
{
    WIRE_BUF_AUTO one = WIRE_BUF_NULL;
    WIRE_BUF_AUTO other = WIRE_BUF_NULL;
    offer_pack_best(&one, a);
    offer_pack_best(&other, b);
    return !one.failed && !other.failed && one.len == other.len &&
           memcmp(one.data, other.data, one.len) == 0;
}

static int offer_trim_key(struct store *s, const char *key, struct error *err)
{
    return db_run(&s->db, NULL, err,
                  "DELETE FROM best WHERE key = ?1 AND source IN ('imported', 'trusted') AND"
                  " generation <= (SELECT generation FROM best WHERE key = ?1 AND"
                  " source IN ('imported', 'trusted')"
                  " ORDER BY generation DESC LIMIT 1 OFFSET ?2)",
                  "ti", key, (int64_t)STORE_IMPORTED_PER_KEY);
}

/* Reads the newest row of b's key into *now, and decides about b. 0: b may be written. STORE_THERE:
 * b is brought, and *now equals b. ERROR_CONFLICT: b comes too late. */
static int offer_judge_best(struct store *s, const struct best *b, struct best *now,
                            struct error *err)
{
    int r = rows_first(s, TABLE_BEST, now, err, "current_best", "WHERE key = ?1", "t", b->key);
    if (r == 0 && strcmp(now->key, b->key) != 0) {
        return store_index_damaged(s, err);
    }
    int late = r < 0 ? r : store_overtaken(r == 0 ? now : NULL, b, b->generation, err);
    if (late) {
        return late;
    }
    return r == 0 && best_is_brought(b) && says_the_same(now, b) ? STORE_THERE : 0;
}

static int offer_publish_best(struct store *s, struct best *b, struct error *err)
{
    struct best now;
    int r = offer_judge_best(s, b, &now, err);
    if (r == STORE_THERE) {
        *b = now;
    }
    r = r ? r : store_publish(s, b, err);
    return r || !best_is_brought(b) ? r : offer_trim_key(s, b->key, err);
}

/* Decides about a row that could not be written, because of `status` and *err. A row that comes too
 * late anyway is refused now. Else the ledger would keep it as unsaved, and serve it until the next
 * save in place of the file's row. */
static int offer_unwritten(struct store *s, struct best *b, int status, struct error *err)
{
    struct best now;
    struct error late = ERROR_NULL;
    int r = offer_judge_best(s, b, &now, &late);
    if (r == ERROR_CONFLICT && err) {
        *err = late;
    }
    if (r == STORE_THERE && status == ERROR_BUSY) {
        *b = now;
        return r;
    }
    return r == ERROR_CONFLICT ? r : status;
}

int store_offer(struct store *s, struct best *b, struct error *err)
{
    int64_t known = b->generation;
    if (is_from(b, "fleet")) {
        return store_fleet_confirm(s, b, err);
    }
    int r = write_begin(s, err);
    r = r ? offer_unwritten(s, b, r, err) : write_end(s, offer_publish_best(s, b, err), err);
    if (r < 0) {
        b->generation = known; /* a fault has set it to 0; the caller may offer b again */
    }
    return r;
}
