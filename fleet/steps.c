/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of statements (fleet.h). After the connection: hello, then the ids of the daemons'
 * stamps, then the feed up to its end, then leases, and then publications. Many hosts come back at
 * once after the server was away, and tuned the same keys meanwhile: each host first reads the rows
 * of the other hosts, and publishes only rows that the fleet lacks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/log.h"
#include "fleet/text.h"
#include "proto/build.h"

enum { REFUSED_MS = 60000, RETRY_MS = 500 };

bool steps_is_waiting(const struct fleet *f)
{
    for (uint32_t i = 0; i < f->n_rows; i++) {
        if (strcmp(f->rows[i].state, "held") != 0) {
            return true;
        }
    }
    return false;
}

void steps_retry(struct fleet *f)
{
    if (f->link.refusal[0]) {
        link_drop(&f->link, f->link.refusal);
        return;
    }
    f->retry_at = uv_now(&f->loop) + RETRY_MS;
    steps_go_on(f);
}

void steps_put_off(struct fleet *f, uint64_t *due)
{
    if (f->link.refusal[0]) {
        log_warning("%s: %s; this host tries again in %d s", f->link.server, f->link.refusal,
                    REFUSED_MS / 1000);
        f->link.refusal[0] = '\0';
        *due = uv_now(&f->loop) + REFUSED_MS;
        steps_go_on(f);
    } else {
        steps_retry(f);
    }
}

/* ---- hello ----------------------------------------------------------------------------------- */

enum {
    HELLO_HOST,
    HELLO_API_MIN,
    HELLO_API_MAX,
    HELLO_EPOCH,
    HELLO_TIMELINE,
    HELLO_HEAD,
    HELLO_SCHEME,
    HELLO_TTL,
    HELLO_POLL,
    HELLO_FSYNC
};

/* Says in a sentence why this host may not use the server; "": it may. */
static void steps_check_hello(const struct fleet *f, const PGresult *r, char why[LINK_TEXT_MAX])
{
    why[0] = '\0';
    if (link_int(r, 0, HELLO_API_MIN) > FLEET_API || link_int(r, 0, HELLO_API_MAX) < FLEET_API) {
        snprintf(why, LINK_TEXT_MAX,
                 "the server speaks API %s to %s, this gemmd-fleet API %d: upgrade the older one",
                 link_text(r, 0, HELLO_API_MIN), link_text(r, 0, HELLO_API_MAX), FLEET_API);
    } else if (f->scheme[0] && strcmp(link_text(r, 0, HELLO_SCHEME), f->scheme) != 0) {
        snprintf(why, LINK_TEXT_MAX,
                 "the fleet rounds keys by bucket scheme %.12s, this database by %s: give gemmd "
                 "another database, or the server another scheme (UPDATE fleet.meta)",
                 link_text(r, 0, HELLO_SCHEME), f->scheme);
    } else if (link_text(r, 0, HELLO_FSYNC)[0] != 't') {
        snprintf(why, LINK_TEXT_MAX,
                 "the server runs with fsync off and can lose rows that it has acknowledged: set "
                 "fsync = on in postgresql.conf");
    }
}

/* Compares the server with the server that the database knows. Another epoch, or fewer rows than
 * were read: the server was replaced, and all numbers are void. Another timeline: the server failed
 * over or was restored, and may have lost this host's last rows. */
static int steps_compare_server(struct fleet *f, const PGresult *r, struct error *err)
{
    char now[64];
    const char *timeline = link_text(r, 0, HELLO_TIMELINE);
    const size_t epoch_n = strlen(link_text(r, 0, HELLO_EPOCH));
    snprintf(now, sizeof(now), "%.36s/%.16s", link_text(r, 0, HELLO_EPOCH), timeline);
    const bool other = f->status.epoch[0] && strncmp(f->status.epoch, now, epoch_n + 1) != 0,
               lost = f->status.cursor > link_int(r, 0, HELLO_HEAD),
               failed_over = f->status.epoch[0] && strcmp(f->status.epoch, now) != 0;
    int status = 0;
    if (other || lost) {
        log_warning("the server is not the one of before (%s): all rows are published again",
                    other ? "another epoch" : "it has lost rows");
        status = store_fleet_forget(f->store, false, err);
        f->status.cursor = status ? f->status.cursor : 0;
    } else if (failed_over) {
        log_warning("the server failed over or was restored: this host's rows are published again");
        status = store_fleet_forget(f->store, true, err);
    }
    if (status == 0) {
        snprintf(f->status.epoch, sizeof(f->status.epoch), "%s", now);
    }
    return status;
}

static void steps_on_hello(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    char why[LINK_TEXT_MAX] = "the server's answer to hello is empty";
    if (!r) {
        steps_retry(f);
        return;
    }
    if (PQntuples(r) == 1) {
        steps_check_hello(f, r, why);
    }
    if (why[0]) {
        link_drop(&f->link, why);
        return;
    }
    if (steps_compare_server(f, r, &err)) {
        file_fail(f, "cannot forget the fleet's numbers", &err);
        link_drop(&f->link, err.text); /* the next hello compares again */
        return;
    }
    f->host = f->status.host = link_int(r, 0, HELLO_HOST);
    f->ttl_ms = link_int(r, 0, HELLO_TTL);
    f->poll_ms = link_int(r, 0, HELLO_POLL);
    f->greeted = true;
    f->counters.connects++;
    f->feed_at = f->want_at = f->renew_at = f->publish_at = f->complain_at = f->bar_at =
        f->quarantine_at = 0;
    f->n_sent = 0; /* also after a restore of the server: all are sent again */
    uv_timer_stop(&f->patience);
    file_attach(f);
    file_write_status(f, "up", "connected");
    log_info("connected with %s as %s (host %" PRId64 ")", f->link.server, f->options.name,
             f->host);
    f->logged[0] = '\0';
    leases_read(f);
    steps_go_on(f);
}

static void steps_hello(struct fleet *f)
{
    char build[64];
    snprintf(build, sizeof(build), "%.63s", build_id);
    const char *const values[] = {f->options.name, build};
    link_query(
        &f->link,
        "SELECT host, api_min, api_max, epoch, timeline, head, scheme, ttl_ms, poll_ms, fsync"
        " FROM fleet1.hello($1, $2)",
        2, values, steps_on_hello);
}

/* ---- stamps and classes ---------------------------------------------------------------------- */

struct pair *steps_find_pair(struct fleet *f, const char *class, const char *stamp)
{
    for (unsigned i = 0; i < f->n_pairs; i++) {
        if (strcmp(f->pairs[i].class, class) == 0 && strcmp(f->pairs[i].stamp, stamp) == 0) {
            return &f->pairs[i];
        }
    }
    if (f->n_pairs ==
        FLEET_PAIRS_MAX) { /* stamps of rows that were published are not needed again */
        f->n_pairs = 0;
        for (unsigned i = 0; i < FLEET_PAIRS_MAX; i++) {
            if (f->pairs[i].runs) {
                f->pairs[f->n_pairs++] = f->pairs[i];
            }
        }
    }
    if (f->n_pairs == FLEET_PAIRS_MAX || !class[0] || !stamp[0]) {
        return NULL;
    }
    struct pair *p = &f->pairs[f->n_pairs++];
    *p = (struct pair){.class_id = 0};
    snprintf(p->class, sizeof(p->class), "%s", class);
    snprintf(p->stamp, sizeof(p->stamp), "%s", stamp);
    return p;
}

void steps_note_runs(struct fleet *f, struct pair *p)
{
    if (p && !p->runs) {
        p->runs = true;
        f->pairs_grew = f->pairs_changed = true;
    }
}

static void steps_on_intern(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    r = r && PQntuples(r) ? r : NULL;
    for (unsigned i = 0; r && i < f->n_pairs; i++) {
        if (!f->pairs[i].class_id) { /* the pair that steps_intern sent */
            f->pairs[i].stamp_id = link_int(r, 0, 0);
            f->pairs[i].class_id = link_int(r, 0, 1);
            break;
        }
    }
    if (r) {
        steps_go_on(f);
    } else {
        steps_retry(f);
    }
}

bool steps_intern(struct fleet *f)
{
    char host[24];
    for (unsigned i = 0; i < f->n_pairs; i++) {
        const struct pair *p = &f->pairs[i];
        if (!p->class_id) {
            const char *const values[] = {text_of_number(host, f->host), p->stamp, p->class};
            link_query(&f->link, "SELECT stamp_id, class_id FROM fleet1.intern($1, $2, $3)", 3,
                       values, steps_on_intern);
            return true;
        }
    }
    return false;
}

/* Reads the classes and stamps of the running daemons. A new stamp begins at the feed's start: the
 * database may have passed over rows that suit the new stamp. */
static void steps_read_pairs(struct fleet *f)
{
    struct store_fleet_stamp found[FLEET_PAIRS_MAX];
    struct error err = ERROR_NULL;
    uint32_t n = 0;
    if (store_fleet_stamps(f->store, found, FLEET_PAIRS_MAX, &n, &err)) {
        file_fail(f, "cannot read the daemons' stamps", &err);
        return;
    }
    for (uint32_t i = 0; i < n && i < FLEET_PAIRS_MAX; i++) {
        steps_note_runs(f, steps_find_pair(f, found[i].class, found[i].stamp));
    }
    char hash[HASH_HEX];
    file_hash_pairs(f, hash);
    if (f->pairs_grew && strcmp(f->scope, hash) != 0) {
        f->status.cursor = 0;
    }
    snprintf(f->scope, sizeof(f->scope), "%s", hash);
    f->feed_at = f->pairs_grew ? 0 : f->feed_at;
    f->pairs_grew = f->pairs_changed = false;
}

/* ---- the next statement ---------------------------------------------------------------------- */

static void steps_on_timer(uv_timer_t *timer)
{
    steps_go_on(timer->data);
}

static void steps_sleep(struct fleet *f, uint64_t now)
{
    const uint64_t due[] = {f->feed_at,     f->want_at, f->renew_at,     f->publish_at,
                            f->complain_at, f->bar_at,  f->quarantine_at};
    uint64_t at = now + 60000;
    for (size_t i = 0; i < sizeof(due) / sizeof(due[0]); i++) {
        at = due[i] < at ? due[i] : at;
    }
    at = at < f->retry_at ? f->retry_at : at;
    uv_timer_start(&f->timer, steps_on_timer, at > now ? at - now : 1, 0);
}

void steps_go_on(struct fleet *f)
{
    const uint64_t now = uv_now(&f->loop);
    if (!f->link.up || f->link.busy) {
        return;
    }
    if (f->ending) {
        if (!f->greeted || !leases_release_granted(f)) {
            uv_stop(&f->loop);
        }
        return;
    }
    if (now < f->retry_at) {
        steps_sleep(f, now);
        return;
    }
    if (!f->greeted) {
        steps_hello(f);
        return;
    }
    if (f->pairs_changed) {
        steps_read_pairs(f);
    }
    if (!steps_intern(f) && !(now >= f->feed_at && feed_read(f)) &&
        !(now >= f->renew_at && leases_renew(f)) && !(now >= f->publish_at && publish_send(f)) &&
        !leases_release(f) && !(now >= f->want_at && leases_want(f)) &&
        !(now >= f->complain_at && publish_complain(f)) &&
        !(now >= f->bar_at && quarantine_send(f)) &&
        !(now >= f->quarantine_at && quarantine_read(f)) && f->link.up) {
        steps_sleep(f, now);
    }
}

/* ---- the connection -------------------------------------------------------------------------- */

void steps_on_up(void *fleet)
{
    struct fleet *f = fleet;
    f->greeted = false;
    f->retry_at = 0;
    for (unsigned i = 0; i < f->n_pairs; i++) {
        f->pairs[i].class_id = f->pairs[i].stamp_id = 0;
    }
    f->pairs_changed = true;
    steps_go_on(f);
}

static void steps_on_patience(uv_timer_t *timer)
{
    struct fleet *f = timer->data;
    file_detach(f);
}

void steps_on_down(void *fleet, const char *why, unsigned soon_ms)
{
    struct fleet *f = fleet;
    f->greeted = false;
    uv_timer_stop(&f->timer);
    if (f->ending) {
        uv_stop(&f->loop);
        return;
    }
    if (f->attached && !uv_is_active((uv_handle_t *)&f->patience)) {
        uv_timer_start(&f->patience, steps_on_patience, (uint64_t)f->options.fleet_ms, 0);
    }
    if (strcmp(f->logged, why) != 0) {
        snprintf(f->logged, sizeof(f->logged), "%s", why);
        log_warning("%s: %s; this host goes on alone, and tries again, in %u s now", f->link.server,
                    why, (soon_ms + 999) / 1000);
        file_write_status(f, "down", why);
    }
}
