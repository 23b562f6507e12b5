/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes by other daemons of the database (inner.h). Each commit ends with a write to the lock
 * file (store/commit.c), which this daemon watches. Without a watch the daemon reads the changes at
 * intervals.
 */
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "daemon/base/log.h"
#include "daemon/ledger/inner.h"

enum {
    /* time until the watch is renewed: the watched file may have been replaced */
    WATCHED_MS = 60000,
    ASKED_MS = 500,   /* time between reads of changes, without a watch */
    RELOAD_MS = 1000, /* time until a failed reload is tried again */
};

void news_tell(struct ledger *l, enum ledger_news_kind kind, const char *key,
               const struct best *best, bool saved)
{
    struct ledger_news n = {.kind = kind, .key = key, .best = best, .saved = saved};
    l->reload_again = l->reload_again || (l->reloading && kind == NEWS_EVICTED);
    if (best && best->generation > l->generation) {
        l->generation = best->generation;
    }
    if (l->news) {
        l->news(l->notice_ctx, &n);
    }
}

/* ---- changes --------------------------------------------------------------------------------- */

static void ask_changes(struct ledger *l)
{
    if (l->ending) {
        return;
    }
    l->changes_again = l->changes_asked;
    if (!l->changes_asked) {
        l->changes_asked = ledger_submit(l, request_new(&verb_changes, NULL, NO_TEXT)) == 0;
    }
}

void news_asked(struct ledger *l, bool more)
{
    l->changes_asked = false;
    if (more || l->changes_again) {
        ask_changes(l);
    }
}

static void news_on_timer(uv_timer_t *timer);

static ino_t lock_file(const struct ledger *l, char name[PATH_MAX + 8])
{
    struct stat st;
    snprintf(name, PATH_MAX + 8, "%s.lock", l->path);
    return stat(name, &st) == 0 ? st.st_ino : 0;
}

static void on_commit(uv_fs_event_t *watch, const char *changed, int events, int status)
{
    struct ledger *l = watch->data;
    char name[PATH_MAX + 8];
    if (lock_file(l, name) == l->watched) {
        ask_changes(l);
    } else { /* the lock file was removed, and perhaps made again: watch the new file */
        news_on_timer(&l->timer);
    }
}

static bool watch_commits(struct ledger *l)
{
    char name[PATH_MAX + 8];
    uv_fs_event_stop(&l->watch);
    l->watched = lock_file(l, name);
    return l->watched && uv_fs_event_start(&l->watch, on_commit, name, 0) == 0;
}

static void news_on_timer(uv_timer_t *timer)
{
    struct ledger *l = timer->data;
    uv_timer_start(timer, news_on_timer, watch_commits(l) ? WATCHED_MS : ASKED_MS, 0);
    ask_changes(l);
    if (l->reload_due && !l->reloading) {
        news_reload(l, l->reload_lost);
    }
    if (uv_now(timer->loop) >= l->snapshot_at) {
        l->snapshot_at = uv_now(timer->loop) + SNAPSHOT_S * 1000;
        ledger_make_snapshot(l);
    }
}

/* ---- reload ---------------------------------------------------------------------------------- */

static void news_on_page(void *ctx, int status, const struct best *bests, size_t n,
                         const struct error *err);

static void news_ask_page(struct ledger *l, bool first)
{
    struct error err = ERROR_NULL;
    int status = ledger_load(l, first, news_on_page, l);
    if (status < 0) {
        ledger_refused(status, &err);
        news_on_page(l, status, NULL, 0, &err);
    }
}

static void begin_reload(struct ledger *l)
{
    l->reloading = true;
    l->reload_again = l->reload_due = false;
    news_tell(l, NEWS_RELOADING, "", NULL, false);
    news_ask_page(l, true);
}

void news_reload(struct ledger *l, bool lost)
{
    bool waits = l->reload_due || l->reloading;
    /* several reloads become one, which is `lost` only if all are */
    l->reload_lost = lost && (!waits || l->reload_lost);
    l->reload_due = true;
    if (l->reloading) {
        l->reload_again = true;
    } else if (!l->loads) { /* else the timer begins it after the load */
        begin_reload(l);
    }
}

/* Passes on a page of a reload. A page that was read before an eviction may have the evicted best:
 * then the reload starts over. */
static void news_on_page(void *ctx, int status, const struct best *bests, size_t n,
                         const struct error *err)
{
    struct ledger *l = ctx;
    if (l->ending) {
        return;
    }
    if (status >= 0 && l->reload_again) {
        begin_reload(l);
        return;
    }
    for (size_t i = 0; status >= 0 && i < n; i++) {
        news_tell(l, NEWS_LOADED, bests[i].key, &bests[i], true);
    }
    if (status >= 0 && n > 0) {
        news_ask_page(l, false);
        return;
    }
    l->reloading = false;
    if (status < 0) {
        log_warning("the changes of other daemons could not be read yet: %s", err->text);
        l->reload_due = true;
        uv_timer_start(&l->timer, news_on_timer, RELOAD_MS, 0);
        return;
    }
    bool lost = l->reload_lost;
    l->reload_lost = false;
    news_tell(l, lost ? NEWS_RELOADED_LOST : NEWS_RELOADED, "", NULL, false);
}

/* ---- life ------------------------------------------------------------------------------------ */

void news_start(struct ledger *l)
{
    l->watch.data = l->timer.data = l;
    uv_fs_event_init(l->wake.loop, &l->watch);
    uv_timer_init(l->wake.loop, &l->timer);
    l->snapshot_at = uv_now(l->wake.loop) + WATCHED_MS;
    if (!l->read_only) {
        news_on_timer(&l->timer);
    }
}

void news_close(struct ledger *l, uv_close_cb closed)
{
    uv_close((uv_handle_t *)&l->watch, closed);
    uv_close((uv_handle_t *)&l->timer, closed);
}
