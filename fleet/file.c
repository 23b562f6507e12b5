/* SPDX-License-Identifier: Apache-2.0 */
/* The host's database (fleet.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "fleet/log.h"
#include "proto/lockfile.h"

/* in the counters, before the hash of file_hash_pairs */
#define FILE_SCOPE "\"scope\": \""

enum {
    BEAT_MS = 5000,      /* between two signs of life in the database */
    ATTACHED_MS = 15000, /* the daemons believe a sign of life for so long */
    UNWATCHED_MS = 500,  /* between two looks for news, without a watch */
};

/* ---- faults, state --------------------------------------------------------------------------- */

void file_fail(struct fleet *f, const char *what, const struct error *err)
{
    if (err->code != f->fault || err->code == ERROR_STORE) {
        log_error("%s: %s", what, err->text);
    }
    f->fault = err->code;
    f->retry_at = uv_now(&f->loop) + 2000;
    if (err->code ==
        ERROR_STORE) { /* damaged, replaced, or migrated: a daemon repairs it meanwhile */
        f->exit_status = 1;
        uv_stop(&f->loop);
    }
}

void file_hash_pairs(const struct fleet *f, char out[HASH_HEX])
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < f->n_pairs; i++) {
        if (f->pairs[i].runs) {
            char text[sizeof(f->pairs[i].class) + STAMP_MAX];
            int n = snprintf(text, sizeof(text), "%s\n%s", f->pairs[i].class, f->pairs[i].stamp);
            sum ^= hash64(text, (size_t)n);
        }
    }
    snprintf(out, HASH_HEX, "%016" PRIx64, sum);
}

int file_put_status(struct fleet *f, struct error *err)
{
    const struct counters *c = &f->counters;
    snprintf(f->status.counters, sizeof(f->status.counters),
             "{\"published\": %" PRId64 ", \"evidence\": %" PRId64 ", \"repeats\": %" PRId64
             ", \"refused_there\": %" PRId64 ", \"received\": %" PRId64 ", \"bad_rows\": %" PRId64
             ", \"distrusted\": %" PRId64 ", \"withdrawn\": %" PRId64 ", \"complaints\": %" PRId64
             ", \"granted\": %" PRId64 ", \"elsewhere\": %" PRId64 ", \"connects\": %" PRId64
             ", \"leases\": %u, " FILE_SCOPE "%s\"}",
             c->published, c->evidence, c->repeats, c->refused_there, c->received, c->bad_rows,
             c->distrusted, c->withdrawn, c->complaints, c->granted, c->elsewhere, c->connects,
             f->n_leases, f->scope);
    f->counters_written = f->counters;
    int r = store_fleet_status(f->store, &f->status, err);
    f->fault = r ? f->fault : 0;
    return r;
}

void file_write_status(struct fleet *f, const char *state, const char *text)
{
    struct error err = ERROR_NULL;
    if (state && strcmp(state, f->status.state) != 0) {
        f->status.since_s = time(NULL);
        snprintf(f->status.state, sizeof(f->status.state), "%s", state);
    }
    if (text) {
        snprintf(f->status.text, sizeof(f->status.text), "%s", text);
    }
    if (file_put_status(f, &err)) {
        file_fail(f, "cannot write the fleet's state", &err);
    }
}

/* ---- news ------------------------------------------------------------------------------------ */

static void file_take_change(struct fleet *f, const char *kind)
{
    if (strcmp(kind, "best") == 0 || strcmp(kind, "evicted") == 0) {
        f->publish_at = 0;
    } else if (strcmp(kind, "refused") == 0) {
        f->complain_at = 0;
    } else if (strcmp(kind, "stamps") == 0 || strcmp(kind, "daemon") == 0) {
        f->pairs_changed = true;
    } else if (strcmp(kind, "quarantine") == 0) {
        f->bar_at = 0;
    }
}

void file_read_news(struct fleet *f)
{
    struct store_change changes[64];
    struct error err = ERROR_NULL;
    bool leases = false;
    uint32_t n;
    int r;
    do {
        r = store_changes(f->store, &f->seen, changes, 64, &n, &err);
        for (uint32_t i = 0; r == 0 && i < n; i++) {
            file_take_change(f, changes[i].kind);
            leases = leases || strcmp(changes[i].kind, "asked") == 0 ||
                     strcmp(changes[i].kind, "lease") == 0 ||
                     strcmp(changes[i].kind, "best") == 0 ||
                     strcmp(changes[i].kind, "evicted") == 0;
        }
    } while (r == 0 && n > 0);
    if (r == STORE_MISSED) {
        f->publish_at = f->complain_at = f->bar_at = 0;
        f->pairs_changed = leases = true;
    } else if (r) {
        file_fail(f, "cannot read the daemons' changes", &err);
    }
    if (leases) {
        const bool waited = steps_is_waiting(f);
        leases_read(f);
        if (!waited && steps_is_waiting(f)) { /* the pace of a host that waits */
            const uint64_t soon = uv_now(&f->loop) + (uint64_t)f->poll_ms;
            f->feed_at = f->feed_at < soon ? f->feed_at : soon;
        }
    }
    steps_go_on(f);
}

static ino_t file_find_lock(const struct fleet *f, char name[PATH_MAX + 8])
{
    struct stat st;
    snprintf(name, PATH_MAX + 8, "%s.lock", f->options.database);
    return stat(name, &st) == 0 ? st.st_ino : 0;
}

static void file_on_commit(uv_fs_event_t *watch, const char *changed, int events, int status)
{
    file_read_news(watch->data);
}

/* Watches the lock file, which each commit of a daemon touches; again when it was replaced. */
static bool file_watch(struct fleet *f)
{
    char name[PATH_MAX + 8];
    const ino_t now = file_find_lock(f, name);
    if (now && now == f->watched) {
        return true;
    }
    uv_fs_event_stop(&f->watch);
    f->watched = now && uv_fs_event_start(&f->watch, file_on_commit, name, 0) == 0 ? now : 0;
    return f->watched != 0;
}

/* ---- signs of life --------------------------------------------------------------------------- */

void file_attach(struct fleet *f)
{
    struct error err = ERROR_NULL;
    const int r = store_fleet_join(f->store, ATTACHED_MS, &err);
    if (r == STORE_HELD) {
        log_error("another gemmd-fleet serves %s; end it first", f->options.database);
        f->exit_status = OPTIONS_EXIT_BUSY;
        uv_stop(&f->loop);
    } else if (r) {
        file_fail(f, "cannot tell the daemons that the fleet is there", &err);
    }
    f->attached = r == 0;
}

void file_detach(struct fleet *f)
{
    struct error err = ERROR_NULL;
    if (store_fleet_leave(f->store, &err)) {
        file_fail(f, "cannot tell the daemons that the fleet is away", &err);
    }
    f->attached = false;
    f->n_rows = 0;
}

static void file_on_beat(uv_timer_t *timer)
{
    struct fleet *f = timer->data;
    const bool watched = file_watch(f);
    const uint64_t now = uv_now(&f->loop);
    if (now >= f->beat_at) {
        f->beat_at = now + BEAT_MS;
        if (f->greeted) {
            file_attach(f);
            leases_read(f);
        }
        if (memcmp(&f->counters, &f->counters_written, sizeof(f->counters)) != 0) {
            file_write_status(f, NULL, NULL);
        }
    }
    uv_timer_start(timer, file_on_beat, watched ? BEAT_MS : UNWATCHED_MS, 0);
    file_read_news(f);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void file_on_notice(void *ctx, const char *kind, const char *text)
{
    log_warning("%s: %s", kind, text);
}

static int file_take_lock(struct fleet *f, struct error *err)
{
    char name[PATH_MAX + 16], who[LOCKFILE_NAME_MAX];
    snprintf(name, sizeof(name), "%s.fleet.lock", f->options.database);
    int r = lockfile_take(name, NULL, &f->lock, err);
    if (r == LOCKFILE_HELD) {
        const struct lockfile_holder h = lockfile_holder(name, 500);
        return error_set(err, ERROR_BUSY, "another gemmd-fleet (%s) serves %s",
                         lockfile_name(&h, who), f->options.database);
    }
    return r;
}

/* Reads the bucket scheme, which is the database's first event of this kind. "": no daemon has
 * chosen one yet. */
static int file_read_scheme(struct fleet *f, struct error *err)
{
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    struct record filter;
    int64_t total;
    const struct wire_obj *array = NULL;
    struct wire_doc *doc = wire_doc_new();
    record_init(&filter);
    record_put_text(&filter, "kind", "bucket_scheme");
    record_put_text(&filter, "sort", "id");
    record_put_int(&filter, "limit", 1);
    int r = doc ? 0 : error_set(err, ERROR_NO_MEMORY, "no memory");
    r = r ? r : store_list(f->store, "events", &filter, 4096, &rows, &total, err);
    r = r ? r : wire_decode(doc, rows.data, rows.len, &array, err);
    if (r == 0 && wire_count(array)) {
        wire_copy_str(wire_find(wire_at(array, 0), "text"), f->scheme, sizeof(f->scheme));
    }
    wire_doc_free(doc);
    return r;
}

int file_open(struct fleet *f, struct error *err)
{
    const struct store_options o = {.path = f->options.database,
                                    .flags =
                                        f->options.force_network_fs ? STORE_FORCE_NETWORK_FS : 0,
                                    .notice = file_on_notice,
                                    .ctx = f};
    int r = file_take_lock(f, err);
    r = r ? r : store_open(&o, &f->store, err);
    r = r ? r : store_changes_begin(f->store, &f->seen, err);
    r = r ? r : file_read_scheme(f, err);
    if (r == 0 && store_fleet_read(f->store, &f->status, err) < 0) {
        r = err->code;
    }
    if (r) {
        return r;
    }
    const char *scope = strstr(f->status.counters, FILE_SCOPE);
    if (scope) {
        snprintf(f->scope, sizeof(f->scope), "%.16s", scope + strlen(FILE_SCOPE));
    }
    snprintf(f->status.server, sizeof(f->status.server), "%s", f->link.server);
    snprintf(f->status.state, sizeof(f->status.state), "down");
    f->status.since_s = time(NULL);
    uv_timer_init(&f->loop, &f->beat);
    uv_fs_event_init(&f->loop, &f->watch);
    f->beat.data = f->watch.data = f;
    uv_timer_start(&f->beat, file_on_beat, 0, 0);
    return 0;
}

void file_close(struct fleet *f)
{
    if (f->store) {
        file_detach(f);
        file_write_status(f, "down", "gemmd-fleet has ended");
        f->store = store_close(f->store);
    }
}
