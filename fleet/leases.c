/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys that daemons ask for (fleet.h). A key's row in the database goes from asked to granted (this
 * host has the server's lease) or elsewhere (another host has it, or the key is still free and this
 * host has enough leases). A daemon makes a granted key held. The lease is renewed at the server
 * until the key's row is published, or its row in the database is gone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/import.h"
#include "fleet/log.h"
#include "fleet/text.h"

enum {
    WANT_AGAIN_POLLS = 5, /* feeds between two questions for keys that other hosts have */
};

/* ---- the leases in memory -------------------------------------------------------------------- */

static struct lease *leases_find(struct fleet *f, const char *key)
{
    for (unsigned i = 0; i < f->n_leases; i++) {
        if (strcmp(f->leases[i].key, key) == 0) {
            return &f->leases[i];
        }
    }
    return NULL;
}

static void leases_add(struct fleet *f, const char *key, int64_t fence)
{
    struct lease *l = leases_find(f, key);
    const uint64_t renew_at = uv_now(&f->loop) + (uint64_t)f->ttl_ms / 3;
    if (!l && f->n_leases < FLEET_LEASES_MAX) {
        l = &f->leases[f->n_leases++];
        snprintf(l->key, sizeof(l->key), "%s", key);
    }
    if (l) {
        l->fence = fence;
        l->here = true;
        f->renew_at = f->renew_at < renew_at ? f->renew_at : renew_at;
    }
}

void leases_forget(struct fleet *f, const char *key)
{
    struct lease *l = leases_find(f, key);
    if (l) {
        *l = f->leases[--f->n_leases];
        f->want_at = 0; /* there is room for another lease */
    }
}

int64_t leases_find_fence(struct fleet *f, const char *key)
{
    const struct lease *l = leases_find(f, key);
    return l ? l->fence : 0;
}

static bool leases_is_waiting(const struct store_lease_row *row)
{
    return strcmp(row->state, "asked") == 0 || strcmp(row->state, "elsewhere") == 0;
}

/* Frees keys that an ended daemon asked for. */
static void leases_free_gone(struct fleet *f)
{
    struct error err = ERROR_NULL;
    for (uint32_t i = 0; i < f->n_rows; i++) {
        struct store_lease_row row = f->rows[i];
        if (row.gone && strcmp(row.state, "held") != 0) {
            row.state[0] = '\0';
            if (store_fleet_answer(f->store, &row, 1, 0, &err)) {
                file_fail(f, "cannot free a key", &err);
                return;
            }
        }
    }
}

/* False for the lease of a daemon that has not renewed it in time: it is frozen, or was killed
 * where this process cannot see it. */
static bool leases_is_kept(const struct store_lease_row *row)
{
    return strcmp(row->state, "held") != 0 || row->left_ms > 0;
}

void leases_read(struct fleet *f)
{
    struct error err = ERROR_NULL;
    if (store_fleet_asked(f->store, f->rows, FLEET_LEASES_MAX, &f->n_rows, &err)) {
        f->n_rows = 0;
        file_fail(f, "cannot read the keys that daemons ask for", &err);
        return;
    }
    const bool whole = f->n_rows <= FLEET_LEASES_MAX;
    f->n_rows = whole ? f->n_rows : FLEET_LEASES_MAX;
    for (unsigned i = 0; whole && i < f->n_leases; i++) {
        f->leases[i].here = false;
    }
    bool gone = false;
    for (uint32_t i = 0; i < f->n_rows; i++) {
        const struct store_lease_row *row = &f->rows[i];
        struct pair *p = steps_find_pair(f, row->class, row->stamp);
        steps_note_runs(f, row->gone ? NULL : p);
        if (row->gone) {
            gone = true;
        } else if (row->fence > 0 && leases_is_kept(row)) {
            leases_add(f, row->key, row->fence);
        } else if (strcmp(row->state, "asked") == 0) {
            f->want_at = 0;
            f->want_pair = 0;
        } else if (f->want_at == UINT64_MAX && leases_is_waiting(row)) {
            f->want_at = uv_now(&f->loop) + WANT_AGAIN_POLLS * (uint64_t)f->poll_ms;
        }
    }
    for (unsigned i = 0; i < f->n_leases; i++) {
        if (!f->leases[i].here) { /* its row was published, or is not, or the search was given up */
            f->publish_at = 0;
        }
    }
    if (gone) {
        leases_free_gone(f);
    }
}

void leases_keep(struct fleet *f)
{
    struct error err = ERROR_NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n_rows; i++) {
        const char *state = f->rows[i].state;
        if (!f->rows[i].gone &&
            (strcmp(state, "elsewhere") == 0 || strcmp(state, "granted") == 0)) {
            f->answers[n++] = f->rows[i];
        }
    }
    if (n && store_fleet_answer(f->store, f->answers, n, f->options.fleet_ms, &err)) {
        file_fail(f, "cannot renew the keys of other hosts", &err);
    }
}

/* ---- want ------------------------------------------------------------------------------------ */

/* Leases that this host may take: a lease for each daemon. A lease ahead would keep a key from
 * hosts with idle devices: a herd of 100 hosts with 8 devices then took 8 s instead of 5 s. */
static int64_t leases_count_room(struct fleet *f)
{
    struct error err = ERROR_NULL;
    int64_t daemons = 0;
    if (store_daemons(f->store, &daemons, &err)) {
        file_fail(f, "cannot count the daemons", &err);
    }
    const int64_t room = (daemons > 1 ? daemons : 1) - (int64_t)f->n_leases;
    return room < 0 ? 0 : room < 64 ? room : 64;
}

static void leases_set_answer(struct fleet *f, uint32_t n, const char *key, const char *state,
                              int64_t fence)
{
    struct store_lease_row *row = &f->answers[n];
    *row = (struct store_lease_row){.fence = fence};
    snprintf(row->key, sizeof(row->key), "%s", key);
    snprintf(row->state, sizeof(row->state), "%s", state);
}

/* Takes the answer for a key; returns whether f->answers[n] is to be written. */
static bool leases_take_answer(struct fleet *f, const PGresult *r, int i, uint32_t n)
{
    enum { KIND, KEY, NUM, NAME, ROW };
    char key[HASH_HEX];
    struct error err = ERROR_NULL;
    if (!import_read_uuid(link_text(r, i, KEY), key)) {
        return false;
    }
    switch (link_text(r, i, KIND)[0]) {
    case 'g':
        f->counters.granted++;
        leases_set_answer(f, n, key, "granted", link_int(r, i, NUM));
        return true;
    case 'k':
        if (feed_offer(f, link_int(r, i, NUM), link_text(r, i, NAME), key, link_text(r, i, ROW),
                       &err) == 0) {
            return false; /* the row frees the key */
        }
        /* The daemon knows the fleet's row, or cannot use it, and asks all the same: it is to
         * search, without a lease at the server. */
        leases_set_answer(f, n, key, "granted", 0);
        return true;
    case 'h':
        f->counters.elsewhere++;
        /* fall through */
    default:
        leases_set_answer(f, n, key, "elsewhere", 0);
        return true;
    }
}

static void leases_on_want(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    uint32_t n = 0;
    if (!r) {
        steps_retry(f);
        return;
    }
    feed_read_wrong(f);
    int status = store_begin(f->store, &err);
    for (int i = 0; status == 0 && i < PQntuples(r) && n < FLEET_KEYS_MAX; i++) {
        n += leases_take_answer(f, r, i, n);
    }
    status =
        status ? status : store_fleet_answer(f->store, f->answers, n, f->options.fleet_ms, &err);
    status = status ? status : store_commit(f->store, &err);
    if (status) {
        store_rollback(f->store);
        file_fail(f, "cannot write the fleet's answer", &err);
        n = 0;
    }
    for (int i = 0; i < PQntuples(r);
         i++) { /* leases are noted also when the answer was not written */
        char key[HASH_HEX];
        if (link_text(r, i, 0)[0] == 'g' && import_read_uuid(link_text(r, i, 1), key)) {
            leases_add(f, key, link_int(r, i, 2));
        }
    }
    leases_read(f);
    steps_go_on(f);
}

/* Appends the pair's keys that are in this state. */
static unsigned leases_list_keys(const struct fleet *f, const struct pair *p, const char *state,
                                 unsigned n, struct text *keys)
{
    for (uint32_t i = 0; i < f->n_rows && n < FLEET_KEYS_MAX; i++) {
        const struct store_lease_row *row = &f->rows[i];
        if (!row->gone && strcmp(row->state, state) == 0 && strcmp(row->class, p->class) == 0 &&
            strcmp(row->stamp, p->stamp) == 0) {
            text_add_element(keys, row->key);
            n++;
        }
    }
    return n;
}

bool leases_want(struct fleet *f)
{
    char host[24], stamp[24], room[24];
    bool waiting = false;
    for (; f->want_pair < f->n_pairs; f->want_pair++) {
        const struct pair *p = &f->pairs[f->want_pair];
        TEXT_AUTO keys = {.data = NULL};
        unsigned n = leases_list_keys(f, p, "asked", 0, &keys);
        n = leases_list_keys(f, p, "elsewhere", n, &keys);
        text_end_array(&keys);
        if (n && p->stamp_id && !keys.failed) {
            const char *const values[] = {text_of_number(host, f->host),
                                          text_of_number(stamp, p->stamp_id), keys.data,
                                          text_of_number(room, leases_count_room(f))};
            f->want_pair++;
            link_query(&f->link, "SELECT kind, k, num, name, r FROM fleet1.want($1, $2, $3, $4)", 4,
                       values, leases_on_want);
            return true;
        }
    }
    for (uint32_t i = 0; i < f->n_rows; i++) {
        waiting = waiting || leases_is_waiting(&f->rows[i]);
    }
    f->want_pair = 0;
    f->want_at = waiting ? uv_now(&f->loop) + WANT_AGAIN_POLLS * (uint64_t)f->poll_ms : UINT64_MAX;
    return false;
}

/* ---- renew, release -------------------------------------------------------------------------- */

static void leases_list(const struct fleet *f, bool here, struct text *fences, struct text *keys)
{
    unsigned n = 0;
    for (unsigned i = 0; i < f->n_leases && n < FLEET_KEYS_MAX; i++) {
        if (f->leases[i].here == here) {
            text_add_number(fences, f->leases[i].fence);
            text_add_element(keys, f->leases[i].key);
            n++;
        }
    }
}

static bool leases_has_fence(const PGresult *r, int64_t fence)
{
    for (int i = 0; i < PQntuples(r); i++) {
        if (link_int(r, i, 0) == fence) {
            return true;
        }
    }
    return false;
}

/* A lease that the server has given to another host: a daemon that tunes the key
 * goes on. A key that no daemon has begun waits again. */
static void leases_on_renewed(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    if (!r) {
        steps_retry(f);
        return;
    }
    for (unsigned i = f->n_leases; i-- > 0;) {
        struct lease l = f->leases[i];
        if (l.here && !leases_has_fence(r, l.fence)) {
            log_info("the lease of key %.12s has ended at the server", l.key);
            leases_set_answer(f, 0, l.key, "elsewhere", 0);
            if (store_fleet_answer(f->store, f->answers, 1, f->options.fleet_ms, &err)) {
                file_fail(f, "cannot take a key back", &err);
            }
            leases_forget(f, l.key);
        }
    }
    leases_read(f); /* its own changes are no news to gemmd-fleet */
    f->renew_at = f->n_leases ? uv_now(&f->loop) + (uint64_t)f->ttl_ms / 3 : UINT64_MAX;
    steps_go_on(f);
}

static bool leases_send(struct fleet *f, bool here, const char *sql,
                        void (*done)(void *ctx, const PGresult *r))
{
    char host[24];
    TEXT_AUTO fences = {.data = NULL};
    TEXT_AUTO keys = {.data = NULL};
    leases_list(f, here, &fences, &keys);
    if (!keys.n) {
        return false;
    }
    text_end_array(&fences);
    text_end_array(&keys);
    if (fences.failed || keys.failed) {
        return false;
    }
    const char *const values[] = {text_of_number(host, f->host), fences.data, keys.data};
    link_query(&f->link, sql, 3, values, done);
    return true;
}

bool leases_renew(struct fleet *f)
{
    if (leases_send(f, true, "SELECT fleet1.renew($1, $2, $3)", leases_on_renewed)) {
        return true;
    }
    f->renew_at = UINT64_MAX;
    return false;
}

static void leases_on_released(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    for (unsigned i = f->n_leases; r && i-- > 0;) {
        if (!f->leases[i].here) {
            leases_forget(f, f->leases[i].key);
        }
    }
    if (r) {
        steps_go_on(f);
    } else {
        steps_retry(f);
    }
}

bool leases_release(struct fleet *f)
{
    return leases_send(f, false, "SELECT fleet1.release($1, $2, $3)", leases_on_released);
}

static void leases_on_granted_released(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    uv_stop(&f->loop);
}

bool leases_release_granted(struct fleet *f)
{
    char host[24];
    TEXT_AUTO fences = {.data = NULL};
    TEXT_AUTO keys = {.data = NULL};
    leases_read(f);
    for (uint32_t i = 0; i < f->n_rows; i++) {
        if (f->rows[i].fence > 0 && f->rows[i].state[0] == 'g') {
            text_add_number(&fences, f->rows[i].fence);
            text_add_element(&keys, f->rows[i].key);
        }
    }
    if (!keys.n) {
        return false;
    }
    text_end_array(&fences);
    text_end_array(&keys);
    const char *const values[] = {text_of_number(host, f->host), fences.data, keys.data};
    link_query(&f->link, "SELECT fleet1.release($1, $2, $3)", 3, values,
               leases_on_granted_released);
    return true;
}
