/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the ledger for the next page before the rows of a page go into the cache, so that the
 * ledger's thread reads meanwhile (loader.h). */
#include <malloc.h>

#include "daemon/daemon.h"
#include "daemon/answers/learn.h"
#include "daemon/base/log.h"
#include "daemon/methods/loader.h"
#include "daemon/methods/pending.h"

struct unloaded {
    struct parked parked;  /* first member: its address is the struct's */
    struct loader *loader; /* borrowed */
    struct list link; /* node in loader->parked, while the request waits for the end of loading */
    unsigned epoch;
};

/* ---- parked requests ------------------------------------------------------------------------- */

/* Begins the request anew, which may park the request again. Frees p. */
static void loader_resume_parked(struct unloaded *p)
{
    list_remove(&p->link);
    parked_begin_anew(&p->parked);
}

static void on_found(void *ctx, int status, const struct best *b, bool saved,
                     const struct error *err)
{
    struct unloaded *p = ctx;
    (void)err; /* after a failed lookup the request waits until all rows are loaded */
    if (status == 0 && p->epoch == p->loader->epoch) {
        learn_best(p->parked.pending.d, b, saved);
    }
    loader_resume_parked(p);
}

int loader_park(struct loader *l, struct call *c, struct key *key, struct error *err)
{
    struct daemon *d = l->daemon;
    struct unloaded *p = call_park(c, sizeof(*p), err);
    if (!p) {
        return err->code;
    }
    list_init(&p->link);
    p->loader = l;
    p->epoch = l->epoch;
    if (key) {
        key_id(key);
    }
    if (!key || ledger_find(d->ledger, key->id, on_found, p) < 0) {
        list_append(&l->parked, &p->link);
    }
    return METHOD_LATER;
}

/* ---- loading --------------------------------------------------------------------------------- */

static void be_ready(struct loader *l)
{
    if (!l->is_ready) {
        l->is_ready = true;
        uv_timer_stop(&l->patience);
        l->ready(l);
    }
}

static void loader_resume_all(struct loader *l)
{
    while (!list_empty(&l->parked)) {
        loader_resume_parked(LIST_OF(l->parked.next, struct unloaded, link));
    }
}

static void loader_end_loading(struct loader *l)
{
    struct daemon *d = l->daemon;
    l->done = true;
    /* gives freed memory back to the system: pages of rows need more than the cache keeps */
    malloc_trim(0);
    if (l->is_ready) {
        log_notice("all keys are loaded: %zu, %llu ms after the start", d->cache.keys.n,
                   (unsigned long long)(uv_now(&d->loop) - l->began_ms));
    }
    be_ready(l);
    loader_resume_all(l);
}

static void loader_fail_loading(struct loader *l, const struct error *err)
{
    if (l->is_ready) {
        log_warning("not all keys could be loaded; those that are missing are tuned anew: %s",
                    err->text);
        loader_end_loading(l);
    } else {
        l->done = l->is_ready = true;
        uv_timer_stop(&l->patience);
        l->failed(l, err);
    }
}

static void loader_on_page(void *ctx, int status, const struct best *bests, size_t n,
                           const struct error *err);

static void loader_ask_page(struct loader *l, bool first)
{
    struct daemon *d = l->daemon;
    struct error err = ERROR_NULL;
    if (ledger_load(d->ledger, first, loader_on_page, l) < 0) {
        error_set(&err, ERROR_STORE, "the database %s cannot be read", d->database);
        loader_fail_loading(l, &err);
    }
}

static void loader_on_page(void *ctx, int status, const struct best *bests, size_t n,
                           const struct error *err)
{
    struct loader *l = ctx;
    if (l->daemon->stopping) {
        return;
    }
    if (status < 0) {
        loader_fail_loading(l, err);
        return;
    }
    if (l->restart) { /* drop this page: it was asked for before the restart */
        l->restart = false;
        loader_ask_page(l, true);
        return;
    }
    if (n == 0) {
        loader_end_loading(l);
        return;
    }
    loader_ask_page(l, false);
    for (size_t i = 0; i < n && !l->done; i++) {
        learn_best(l->daemon, &bests[i], true);
    }
}

static void on_patience(uv_timer_t *timer)
{
    struct loader *l = timer->data;
    if (!l->daemon->stopping) {
        be_ready(l);
    }
}

void loader_init(struct loader *l, struct daemon *d)
{
    l->daemon = d;
    list_init(&l->parked);
    uv_timer_init(&d->loop, &l->patience);
    l->patience.data = l;
}

void loader_start(struct loader *l, void (*ready)(struct loader *l),
                  void (*failed)(struct loader *l, const struct error *err))
{
    l->ready = ready;
    l->failed = failed;
    l->began_ms = uv_now(&l->daemon->loop);
    uv_timer_start(&l->patience, on_patience, LOADER_PATIENCE_MS, 0);
    loader_ask_page(l, true);
}

void loader_evicted(struct loader *l)
{
    l->epoch++;
    l->restart = !l->done;
}

void loader_close(struct loader *l)
{
    loader_resume_all(l); /* only frees them, since their clients have gone */
    uv_close((uv_handle_t *)&l->patience, NULL);
}
