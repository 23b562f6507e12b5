/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Variants in quarantine (fleet.h). Tells the server of variants that crashed or hung a runner
 * here, and reads the variants of other hosts. The word of a single host is a doubt here (deaths
 * 0), since a failing device brings good kernels into quarantine. Two hosts, or an admin, are
 * believed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/fleet.h"
#include "fleet/import.h"
#include "fleet/log.h"
#include "fleet/text.h"

enum { BELIEVED_HOSTS = 2 };

static struct quarantined *quarantine_find_sent(struct fleet *f, const struct quarantine *q)
{
    for (unsigned i = 0; i < f->n_sent; i++) {
        struct quarantined *b = &f->sent[i];
        if (strcmp(b->variant, q->variant) == 0 && strcmp(b->class, q->class) == 0 &&
            strcmp(b->driver, q->driver) == 0) {
            return b;
        }
    }
    return NULL;
}

static bool quarantine_is_ours(const struct fleet *f, const char *class)
{
    bool ours = false;
    for (unsigned i = 0; i < f->n_pairs; i++) {
        /* without a number the class was not in the question to the server */
        ours = ours ||
               (f->pairs[i].runs && f->pairs[i].class_id && strcmp(f->pairs[i].class, class) == 0);
    }
    return ours;
}

/* ---- to the server --------------------------------------------------------------------------- */

static void quarantine_on_sent(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    if (r) {
        struct quarantined *b = &f->sent[f->n_sent++];
        snprintf(b->variant, sizeof(b->variant), "%s", f->quarantine.variant);
        snprintf(b->class, sizeof(b->class), "%s", f->quarantine.class);
        snprintf(b->driver, sizeof(b->driver), "%s", f->quarantine.driver);
        b->there = true;
        steps_go_on(f);
    } else {
        steps_put_off(f, &f->bar_at);
    }
}

static bool quarantine_send_one(struct fleet *f, const struct pair *p)
{
    char host[24], class[24], *json = NULL;
    struct quarantine row = f->quarantine;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    row.id = 0;
    row.key[0] = row.module[0] = '\0'; /* of this host */
    schema_encode(&packed, &quarantine_schema, &row);
    if (packed.failed || wire_buf_to_json(&packed, &json, NULL)) {
        return false;
    }
    const char *const values[] = {text_of_number(host, f->host), text_of_number(class, p->class_id),
                                  row.driver, row.variant, json};
    link_query(&f->link, "SELECT fleet1.bar($1, $2, $3, $4, $5)", 5, values, quarantine_on_sent);
    free(json);
    return true;
}

static void quarantine_on_taken_back(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    if (r) {
        f->sent[f->taken_back] = f->sent[--f->n_sent];
        steps_go_on(f);
    } else {
        steps_retry(f);
    }
}

/* Takes back the first variant that is no longer in quarantine here. */
static bool quarantine_take_back(struct fleet *f)
{
    char host[24];
    for (unsigned i = 0; i < f->n_sent; i++) {
        if (!f->sent[i].there) {
            const char *const values[] = {text_of_number(host, f->host), f->sent[i].variant};
            f->taken_back = i;
            link_query(&f->link, "SELECT fleet1.unbar($1, $2)", 2, values,
                       quarantine_on_taken_back);
            return true;
        }
    }
    return false;
}

bool quarantine_send(struct fleet *f)
{
    struct error err = ERROR_NULL;
    int64_t after = 0;
    uint32_t n = 1;
    for (unsigned i = 0; i < f->n_sent; i++) {
        f->sent[i].there = false;
    }
    for (unsigned looked = 0; n && looked < FLEET_QUARANTINE_MAX; looked++) {
        if (store_fleet_list_quarantine(f->store, false, after, &f->quarantine, 1, &n, &err)) {
            file_fail(f, "cannot read the quarantine", &err);
            return false;
        }
        const struct pair *p = NULL;
        for (unsigned i = 0; n && i < f->n_pairs && !p; i++) {
            p = strcmp(f->pairs[i].class, f->quarantine.class) == 0 ? &f->pairs[i] : NULL;
        }
        struct quarantined *known = n ? quarantine_find_sent(f, &f->quarantine) : NULL;
        if (known) {
            known->there = true;
        } else if (p && p->class_id && f->n_sent < FLEET_QUARANTINE_MAX) {
            return quarantine_send_one(f, p);
        }
        after = f->quarantine.id;
    }
    if (quarantine_take_back(f)) {
        return true;
    }
    f->bar_at = UINT64_MAX;
    return false;
}

/* ---- from the server ------------------------------------------------------------------------- */

enum { QUARANTINE_VARIANT, QUARANTINE_DRIVER, QUARANTINE_HOSTS, QUARANTINE_NAME, QUARANTINE_ROW };

/* Reads a row of another host. False: it is not of its form, or of a class without a daemon here.
 */
static bool quarantine_read_row(const struct fleet *f, const PGresult *r, int i,
                                struct quarantine *q)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    const int64_t hosts = link_int(r, i, QUARANTINE_HOSTS);
    char variant[HASH_HEX];
    if (!import_read_uuid(link_text(r, i, QUARANTINE_VARIANT), variant) ||
        import_decode(&quarantine_schema, link_text(r, i, QUARANTINE_ROW), q, NULL)) {
        return false;
    }
    const bool fault = strcmp(q->status, "crashed") == 0 || strcmp(q->status, "hung") == 0 ||
                       strcmp(q->status, "device_lost") == 0;
    snprintf(q->driver, sizeof(q->driver), "%s", link_text(r, i, QUARANTINE_DRIVER));
    snprintf(q->variant, sizeof(q->variant), "%s", variant);
    q->key[0] = q->module[0] = '\0';
    q->deaths = hosts >= BELIEVED_HOSTS ? hosts : 0;
    import_clean_text(q->reason);
    return quarantine_is_ours(f, q->class) && fault;
}

/* Writes a row of the server's list. Returns the row's id here, 0 for a row that is not to be used,
 * or a fault. */
static int64_t quarantine_take_row(struct fleet *f, const PGresult *r, int i, struct error *err)
{
    struct quarantine *q = &f->quarantine;
    char name[64];
    if (!quarantine_read_row(f, r, i, q)) {
        return 0;
    }
    snprintf(name, sizeof(name), "%.63s", link_text(r, i, QUARANTINE_NAME));
    import_clean_text(name);
    const int status = store_fleet_add_quarantine(f->store, q, name, err);
    return status ? status : q->id;
}

/* Frees the variants of other hosts that are not in the server's list. */
static int quarantine_free_rest(struct fleet *f, const int64_t *listed, int n_listed,
                                struct error *err)
{
    struct quarantine *q = &f->quarantine;
    int64_t after = 0;
    uint32_t n = 1;
    int status = 0;
    while (status == 0 && n) {
        bool stays = false;
        status = store_fleet_list_quarantine(f->store, true, after, q, 1, &n, err);
        for (int i = 0; n && i < n_listed && !stays; i++) {
            stays = listed[i] == q->id;
        }
        after = q->id;
        if (status == 0 && n && !stays && quarantine_is_ours(f, q->class)) {
            status = store_fleet_unquarantine(f->store, q, err);
        }
    }
    return status;
}

static void quarantine_on_read(void *ctx, const PGresult *r)
{
    struct fleet *f = ctx;
    struct error err = ERROR_NULL;
    int64_t listed[FLEET_QUARANTINE_MAX], id = 0;
    if (!r) {
        steps_retry(f);
        return;
    }
    const int n = PQntuples(r) < FLEET_QUARANTINE_MAX ? PQntuples(r) : FLEET_QUARANTINE_MAX;
    for (int i = 0; id >= 0 && i < n; i++) {
        id = listed[i] = quarantine_take_row(f, r, i, &err);
    }
    /* a list of so many rows may be cut: what it lacks may be in quarantine still */
    if (id >= 0 && n < FLEET_QUARANTINE_MAX) {
        id = quarantine_free_rest(f, listed, n, &err);
    }
    if (id < 0) {
        file_fail(f, "cannot write the fleet's quarantine", &err);
    }
    f->quarantine_at = uv_now(&f->loop) + (uint64_t)f->options.idle_ms;
    steps_go_on(f);
}

bool quarantine_read(struct fleet *f)
{
    char host[24];
    TEXT_AUTO classes = {.data = NULL};
    if (!feed_list_classes(f, &classes)) {
        f->quarantine_at = uv_now(&f->loop) + (uint64_t)f->options.idle_ms;
        return false;
    }
    const char *const values[] = {text_of_number(host, f->host), classes.data};
    link_query(&f->link, "SELECT variant, driver, hosts, name, r FROM fleet1.barred($1, $2)", 2,
               values, quarantine_on_read);
    return true;
}
