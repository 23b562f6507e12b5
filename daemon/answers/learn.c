/* SPDX-License-Identifier: Apache-2.0 */
/* Makes answers and hints of the ledger's rows (learn.h). */
#include <string.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/cache/answer.h"

static void note_confidence(struct daemon *d, const struct best *b, uint8_t tries)
{
    char says[DOUBT_MAX];
    struct cache_entry *e = cache_find(&d->cache, &d->scratch->learned_key);
    e->low = confidence_is_low(b, says) && strcmp(b->source, "tuned") == 0;
    e->tries = e->low ? tries : 0;
    d->doubtful = d->doubtful || e->low;
    d->has_candidates = d->has_candidates || e->candidate;
}

/* Keeps a row of an alike device class as a hint in daemon.alike, unless that has a newer row of
 * the key. */
static void learn_alike(struct daemon *d, const struct best *b)
{
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    if (!b->family[0] || !device_class_alike(b->class, d->device.class)) {
        return;
    }
    int status = problem_make(&x->learned, b->op, &b->problem, &err);
    status = status ? status : key_make(&x->learned_key, &x->learned, d->device.class, &err);
    const struct cache_entry *e = status == 0 ? cache_find(&d->alike, &x->learned_key) : NULL;
    if (status == 0 && !(e && b->generation && e->generation > b->generation)) {
        answer_of_best(&x->hint, b, true);
        status = cache_put(&d->alike, &x->learned_key, &x->learned, &x->hint, CACHE_HINT, b->atol,
                           b->rtol, (uint32_t)b->uid, &err);
    }
    if (status < 0) {
        log_warning("row %s, of another class, is no hint: %s", b->key, err.text);
    }
}

void learn_best(struct daemon *d, const struct best *b, bool saved)
{
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    d->generation = b->generation > d->generation ? b->generation : d->generation;
    if (strcmp(b->class, d->device.class) != 0) {
        learn_alike(d, b);
        return;
    }
    int status = problem_make(&x->learned, b->op, &b->problem, &err);
    status = status ? status : key_make(&x->learned_key, &x->learned, d->device.class, &err);
    const struct cache_entry *e = status == 0 ? cache_find(&d->cache, &x->learned_key) : NULL;
    /* A page of rows that was read earlier may hold an older row than the entry. A row of
     * generation 0 is unsaved, and so newer. */
    if (e && b->generation && e->generation > b->generation) {
        return;
    }
    /* A pin that serves stays when an unsaved row comes that is no pin: its search began before the
     * pin (tuning/job_end.c). */
    if (e && !b->generation && e->rank == CACHE_PINNED && strcmp(b->source, "manual") != 0) {
        return;
    }
    answer_of_best(&x->hint, b, saved);
    enum cache_rank rank = status == 0 ? target_rank(d, &x->hint, &x->learned) : CACHE_HINT;
    /* A brought row (of `put` or `import`) with a generation has passed the ledger's rules for
     * replacing the key's row. An unsaved one has not: it replaces no serving row. */
    bool brought = best_is_brought(b);
    if (e && brought && !b->generation && e->rank >= CACHE_SERVES && rank < CACHE_SERVES) {
        return;
    }
    uint8_t tries = e ? e->tries : 0;
    if (status == 0) {
        status = cache_put(&d->cache, &x->learned_key, &x->learned, &x->hint, rank, b->atol,
                           b->rtol, (uint32_t)b->uid, &err);
    }
    if (status == 0) {
        tried_remove(&d->tried, b->key);
        note_confidence(d, b, tries);
    }
    if (status < 0) {
        log_warning("row %s is not served: %s", b->key, err.text);
    }
    d->learned = true;
}

bool learned_is_search(struct daemon *d, const struct cache_entry *known, const struct best *b)
{
    struct answer *a = &d->scratch->hint;
    if (strcmp(b->source, "tuned") != 0) {
        return false;
    }
    bool tighter = known && (b->atol < known->atol || b->rtol < known->rtol);
    return !tighter || cache_answer(&d->cache, known, a, NULL) < 0 || a->measured != b->measured ||
           !record_equal(&a->config, &b->config);
}

/* ---- cache to row ---------------------------------------------------------------------------- */

int learned_row(struct daemon *d, const struct cache_entry *e, struct best *out, struct error *err)
{
    struct scratch *x = d->scratch;
    int status = cache_answer(&d->cache, e, &x->answer, err);
    status = status ? status : cache_problem(&d->cache, e, &x->other, err);
    if (status == 0) {
        best_of_answer(out, &x->answer, &x->other, d->device.class);
        out->uid = UID_UNKNOWN;
        out->atol = e->atol;
        out->rtol = e->rtol;
    }
    return status;
}

void learned_judge(struct daemon *d, const char *key)
{
    struct scratch *x = d->scratch;
    struct cache_entry *e = cache_find_id(&d->cache, key, NULL);
    if (e && cache_answer(&d->cache, e, &x->answer, NULL) == 0 &&
        cache_problem(&d->cache, e, &x->other, NULL) == 0) {
        cache_rerank(&d->cache, e, target_rank(d, &x->answer, &x->other));
        memo_forget(&d->cache.memo, e);
        partials_forget(&d->cache.partials, key);
    }
}

bool learned_only(const struct cache_entry *e, const struct best *row)
{
    return e && !e->saved && !(row && row->generation == e->generation);
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void learn_on_page(void *ctx, int status, const void *rows, size_t size, int64_t total,
                          const struct error *err)
{
    struct learn_pages *x = ctx;
    struct error met = err ? *err : ERROR_NULL;
    const struct wire_obj *page = NULL;
    status = status ? status : wire_decode(x->daemon->doc, rows, size, &page, &met);
    size_t n = status == 0 ? wire_count(page) : 0;
    for (size_t i = 0; status == 0 && i < n; i++) {
        status = x->row(x, wire_at(page, i));
    }
    if (status == 0 && x->daemon->stopping) {
        status = ERROR_SHUTTING_DOWN;
    }
    if (status < 0 && !met.code) {
        error_set(&met, status, "%s", error_name(status));
    }
    x->offset += (int64_t)n;
    if (status == 0 && n > 0 && x->offset < total) {
        learn_pages(x);
    } else {
        x->end(x, status, &met);
    }
}

void learn_pages(struct learn_pages *x)
{
    enum { PAGE_BYTES = 256 * 1024 };
    struct ledger *ledger = x->daemon->ledger;
    struct record filter;
    struct error err = ERROR_NULL;
    record_init(&filter);
    x->filter(x, &filter);
    record_put_int(&filter, "offset", x->offset);
    int status = ledger
                     ? ledger_list(ledger, x->uid, x->what, &filter, PAGE_BYTES, learn_on_page, x)
                     : ERROR_SHUTTING_DOWN;
    if (status < 0) {
        ledger_refused(status, &err);
        x->end(x, status, &err);
    }
}
