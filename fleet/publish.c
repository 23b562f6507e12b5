/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of this host for the fleet (fleet.h): publishes rows that were tuned here, and complains of
 * rows of other hosts that failed here. A row goes up after it is durable here, and is noted as
 * published after it is durable there.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/import.h"
#include "fleet/log.h"
#include "fleet/text.h"

/* Looks at the fleet's newest row of the key. *known: the number of the row that the search of `b`
 * knew, and that `b` may replace; else 0. Returns 1 when another host's row came first, so that b
 * is only evidence; 0; or a fault. */
static int publish_judge(struct fleet *f, const struct best *b, int64_t *known, struct error *err)
{
    struct store_fleet_row row;
    int r = store_fleet_find(f->store, b->key, INT64_MAX, &f->other, &row, err);
    *known = 0;
    if (r || row.seq <= 0 || strcmp(f->other.stamp, b->stamp) != 0) {
        return r < 0 ? r : 0;
    }
    if (strcmp(row.state, "own") == 0 || strcmp(row.state, "confirmed") == 0) {
        *known = row.seq;
        return 0;
    }
    return strcmp(row.state, "new") == 0;
}

/* Reads rows to publish into f->page, all of the first row's pair. Rows that another host has
 * published first are noted as evidence, and left out. *looked: rows that were read. */
static int publish_read_page(struct fleet *f, int64_t known[FLEET_PAGE_MAX], uint32_t *looked,
                             struct error *err)
{
    int r = store_fleet_unpublished(f->store, 0, f->page, FLEET_PAGE_MAX, looked, err);
    f->n_page = 0;
    for (uint32_t i = 0; r == 0 && i < *looked; i++) {
        const struct best *b = &f->page[i], *first = &f->page[0];
        int64_t knew;
        r = publish_judge(f, b, &knew, err);
        if (r == 1) {
            r = store_fleet_own(f->store, b->key, b->generation, 0, err);
            f->counters.evidence++;
        } else if (r == 0 && (f->n_page == 0 || (strcmp(b->class, first->class) == 0 &&
                                                 strcmp(b->stamp, first->stamp) == 0))) {
            known[f->n_page] = knew;
            if (f->n_page != i) {
                f->page[f->n_page] = *b;
            }
            f->n_page++;
        }
    }
    return r;
}

static const struct best *publish_find_row(const struct fleet *f, const char *key)
{
    for (unsigned i = 0; i < f->n_page; i++) {
        if (strcmp(f->page[i].key, key) == 0) {
            return &f->page[i];
        }
    }
    return NULL;
}

/* Notes the server's verdict of a row. */
static int publish_note(struct fleet *f, const struct best *b, char verdict, int64_t seq,
                        struct error *err)
{
    const bool numbered = verdict == 'a' || verdict == 't';
    f->counters.published += verdict == 'a';
    f->counters.repeats += verdict == 't';
    f->counters.evidence += verdict == 'e';
    if (verdict == 'x') {
        f->counters.refused_there++;
        log_warning("the server refuses the row of key %.12s: it is too large or not of its form",
                    b->key);
    }
    return store_fleet_own(f->store, b->key, b->generation, numbered ? seq : 0, err);
}

static void publish_on_done(void *ctx, const PGresult *r)
{
    enum { VERDICT, KEY, NUM };
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    if (!r) {
        steps_put_off(f, &f->publish_at);
        return;
    }
    int status = store_begin(f->store, &err);
    for (int i = 0; status == 0 && i < PQntuples(r); i++) {
        char key[HASH_HEX] = "";
        import_read_uuid(link_text(r, i, KEY), key);
        const struct best *b = publish_find_row(f, key);
        status = b ? publish_note(f, b, link_text(r, i, VERDICT)[0], link_int(r, i, NUM), &err) : 0;
    }
    status = status ? status : store_commit(f->store, &err);
    if (status) { /* the rows are published again, under the same ids */
        store_rollback(f->store);
        file_fail(f, "cannot note what was published", &err);
    }
    for (unsigned i = 0; i < f->n_page; i++) {
        leases_forget(f, f->page[i].key);
    }
    file_write_status(f, NULL, NULL);
    steps_go_on(f);
}

static void publish_start(struct fleet *f, const struct pair *p, const int64_t *known)
{
    char host[24], stamp[24], class[24];
    TEXT_AUTO ids = {.data = NULL};
    TEXT_AUTO keys = {.data = NULL};
    TEXT_AUTO fences = {.data = NULL};
    TEXT_AUTO knows = {.data = NULL};
    TEXT_AUTO rows = {.data = NULL};
    for (unsigned i = 0; i < f->n_page; i++) {
        char id[HASH_HEX];
        text_make_row_id(f->options.name, &f->page[i], id);
        text_add_element(&ids, id);
        text_add_element(&keys, f->page[i].key);
        text_add_number(&fences, leases_find_fence(f, f->page[i].key));
        text_add_number(&knows, known[i]);
        text_add_best(&rows, &f->page[i]);
    }
    struct text *const all[] = {&ids, &keys, &fences, &knows, &rows};
    bool failed = false;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        text_end_array(all[i]);
        failed = failed || all[i]->failed;
    }
    if (failed) {
        log_error("no memory to publish rows");
        steps_retry(f);
        return;
    }
    const char *const values[] = {text_of_number(host, f->host),
                                  text_of_number(stamp, p->stamp_id),
                                  text_of_number(class, p->class_id),
                                  ids.data,
                                  keys.data,
                                  fences.data,
                                  knows.data,
                                  rows.data};
    link_query(&f->link,
               "SELECT verdict, k, num FROM fleet1.publish($1, $2, $3, $4, $5, $6, $7, $8)", 8,
               values, publish_on_done);
}

bool publish_send(struct fleet *f)
{
    struct error err = ERROR_NULL;
    int64_t known[FLEET_PAGE_MAX];
    uint32_t looked = 0;
    int r;
    do {
        r = publish_read_page(f, known, &looked, &err);
    } while (r == 0 && looked && !f->n_page);
    if (r) {
        file_fail(f, "cannot read rows to publish", &err);
        return false;
    }
    if (!f->n_page) {
        f->publish_at = UINT64_MAX;
        return false;
    }
    const struct pair *p = steps_find_pair(f, f->page[0].class, f->page[0].stamp);
    if (!p) {
        log_warning("rows of more than %d device classes and stamps: the rest is not published",
                    FLEET_PAIRS_MAX);
        f->publish_at = UINT64_MAX;
        return false;
    }
    if (!p->class_id) {
        return steps_intern(f);
    }
    publish_start(f, p, known);
    return true;
}

/* ---- complaints ------------------------------------------------------------------------------ */

static void publish_on_complained(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    if (!r) {
        steps_put_off(f, &f->complain_at);
        return;
    }
    f->counters.complaints++;
    if (store_fleet_reported(f->store, f->complaint, &err)) {
        file_fail(f, "cannot note a complaint", &err);
        f->complain_at = uv_now(&f->loop) + 60000;
    }
    steps_go_on(f);
}

bool publish_complain(struct fleet *f)
{
    struct store_fleet_row row;
    struct error err = ERROR_NULL;
    char host[24], seq[24];
    uint32_t n = 0;
    if (store_fleet_refused(f->store, &row, 1, &n, &err)) {
        file_fail(f, "cannot read refused rows", &err);
    }
    if (!n) {
        f->complain_at = UINT64_MAX;
        return false;
    }
    f->complaint = row.seq;
    import_clean_text(row.reason); /* the database may have cut it inside a character */
    log_warning("row %" PRId64 " of %s for key %.12s is not used here: %s", row.seq, row.origin,
                row.key, row.reason);
    const char *const values[] = {text_of_number(host, f->host), text_of_number(seq, row.seq),
                                  row.reason};
    link_query(&f->link, "SELECT fleet1.complain($1, $2, $3)", 3, values, publish_on_complained);
    return true;
}
