/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of other hosts (fleet.h): reads the feed from the last number that the database knows. Rows
 * and that number are written in the same transaction. So every row up to the number is in the
 * database, or was passed over for a reason that lasts: a stamp that no daemon here has, a row of a
 * wrong form.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/import.h"
#include "fleet/log.h"
#include "fleet/text.h"

enum {
    WRONG_MAX = 2, /* a host of which so many rows failed here is not trusted here any more */
};

void feed_read_wrong(struct fleet *f)
{
    struct error err = ERROR_NULL;
    if (store_fleet_list_wrong(f->store, WRONG_MAX, f->wrong, FLEET_WRONG_MAX, &f->n_wrong, &err)) {
        file_fail(f, "cannot read which hosts were wrong", &err);
    }
}

/* How well a row's stamp suits the daemons of its class: 2 the same stamp; 1 the same but for the
 * compiler, or no daemon has a stamp for this target: a hint; 0 not at all. */
static int feed_rate_stamp(const struct fleet *f, const char *class, const char *stamp)
{
    const size_t same = strcspn(stamp, " ");
    const char *compiler = strstr(stamp, "compiler=");
    const size_t n = compiler ? (size_t)(compiler - stamp) : same;
    int rate = 0;
    for (unsigned i = 0; i < f->n_pairs && rate < 2; i++) {
        const struct pair *p = &f->pairs[i];
        if (!p->runs || strcmp(p->class, class) != 0) {
            continue;
        }
        if (strcmp(p->stamp, stamp) == 0) {
            rate = 2;
        } else if (compiler && strncmp(p->stamp, stamp, n) == 0) {
            rate = 1;
        }
    }
    return rate;
}

/* A row with another compiler does not push out a row of the daemons' own stamp. */
static int feed_is_better(struct fleet *f, const struct best *b, int rate, struct error *err)
{
    int r = rate < 2 ? store_best_of(f->store, b->key, &f->other, err) : STORE_MISS;
    return r < 0 ? r : r == STORE_MISS || feed_rate_stamp(f, f->other.class, f->other.stamp) < 2;
}

int feed_offer(struct fleet *f, int64_t seq, const char *origin, const char *key, const char *json,
               struct error *err)
{
    struct best *b = f->page; /* no publication is under way */
    char name[64];
    snprintf(name, sizeof(name), "%.63s", origin);
    import_clean_text(name);
    int r = import_read_row(json, key, b, err);
    if (r) {
        f->counters.bad_rows++;
        log_warning("row %" PRId64 " of %s is not used: %s", seq, name, err->text);
        return r;
    }
    for (uint32_t i = 0; i < f->n_wrong; i++) {
        if (strcmp(f->wrong[i], name) == 0) {
            f->counters.distrusted++;
            return STORE_THERE;
        }
    }
    const int rate = feed_rate_stamp(f, b->class, b->stamp);
    r = rate ? feed_is_better(f, b, rate, err) : 0;
    if (r <= 0) {
        return r < 0 ? r : STORE_THERE;
    }
    r = store_fleet_offer(f->store, b, seq, name, err);
    f->counters.received += r == 0;
    return r;
}

/* A row of this host. Its number is unknown here when the server's answer was lost. */
static int feed_take_own(struct fleet *f, int64_t seq, const char *key, const char *json,
                         struct error *err)
{
    struct best *b = f->page;
    if (import_read_row(json, key, b, err)) {
        return 0;
    }
    int r = store_best_of(f->store, key, &f->other, err);
    if (r == 0 && strcmp(f->other.source, "tuned") == 0 && f->other.created_s == b->created_s &&
        record_equal(&f->other.config, &b->config)) {
        return store_fleet_own(f->store, key, f->other.generation, seq, err);
    }
    return r < 0 ? r : feed_offer(f, seq, f->options.name, key, json, err);
}

enum {
    FEED_NUM,
    FEED_KEY,
    FEED_SOURCE,
    FEED_ANSWERS,
    FEED_WITHDRAWS,
    FEED_HOST,
    FEED_NAME,
    FEED_ROW
};

static int feed_take_row(struct fleet *f, const PGresult *r, int i, struct error *err)
{
    char key[HASH_HEX];
    const int64_t seq = link_int(r, i, FEED_NUM);
    if (!import_read_uuid(link_text(r, i, FEED_KEY), key)) {
        return 0;
    }
    if (strcmp(link_text(r, i, FEED_SOURCE), "withdrawn") == 0) {
        f->counters.withdrawn++;
        return store_fleet_withdraw(f->store, link_int(r, i, FEED_WITHDRAWS),
                                    "withdrawn from the fleet", err);
    }
    if (link_text(r, i, FEED_ANSWERS)[0] != 't') {
        return 0;
    }
    return link_int(r, i, FEED_HOST) == f->host
               ? feed_take_own(f, seq, key, link_text(r, i, FEED_ROW), err)
               : feed_offer(f, seq, link_text(r, i, FEED_NAME), key, link_text(r, i, FEED_ROW),
                            err);
}

/* Writes a page of the feed, and the number up to which the database is complete. */
static int feed_take_page(struct fleet *f, const PGresult *r, struct error *err)
{
    const int n = PQntuples(r) - 1;
    const int64_t cursor = link_int(r, n, FEED_NUM);
    int status = store_begin(f->store, err);
    for (int i = 0; status == 0 && i < n; i++) {
        status = feed_take_row(f, r, i, err);
        status = status > 0 || status == ERROR_INVALID ? 0 : status;
    }
    if (status == 0 && (n > 0 || cursor != f->status.cursor)) {
        const int64_t before = f->status.cursor;
        f->status.cursor = cursor;
        status = file_put_status(f, err);
        f->status.cursor = status ? before : cursor;
    }
    return status ? status : store_commit(f->store, err);
}

/* Half to one and a half of `ms`: so hosts ask at different times. */
static uint64_t feed_spread(int64_t ms)
{
    return (uint64_t)(ms / 2 + (int64_t)((double)random() / RAND_MAX * (double)ms));
}

static void feed_on_page(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    if (!r || PQntuples(r) < 1) {
        steps_retry(f);
        return;
    }
    const bool more = PQntuples(r) > FLEET_KEYS_MAX;
    const int64_t before = f->status.cursor;
    feed_read_wrong(f);
    if (feed_take_page(f, r, &err)) {
        store_rollback(f->store);
        f->status.cursor = before;
        file_fail(f, "cannot write rows of the fleet", &err);
    }
    if (PQntuples(r) > 1) {
        leases_read(f);
    }
    leases_keep(f);
    f->feed_at = more ? 0
                      : uv_now(&f->loop) +
                            feed_spread(steps_is_waiting(f) ? f->poll_ms : f->options.idle_ms);
    steps_go_on(f);
}

bool feed_list_classes(const struct fleet *f, struct text *out)
{
    for (unsigned i = 0; i < f->n_pairs; i++) {
        if (f->pairs[i].runs && f->pairs[i].class_id) {
            text_add_number(out, f->pairs[i].class_id);
        }
    }
    const bool some = out->n > 0;
    text_end_array(out);
    return some && !out->failed;
}

bool feed_read(struct fleet *f)
{
    char host[24], cursor[24];
    TEXT_AUTO classes = {.data = NULL};
    if (!feed_list_classes(f, &classes)) {
        f->feed_at = UINT64_MAX;
        return false;
    }
    const char *const values[] = {text_of_number(host, f->host),
                                  text_of_number(cursor, f->status.cursor), classes.data, "256"};
    link_query(
        &f->link,
        "SELECT num, k, source, answers, withdraws, host, name, r FROM fleet1.feed($1, $2, $3, $4)",
        4, values, feed_on_page);
    return true;
}
