/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends the answers that jobs got (base/tally.h) to the database. Rows that the database does not
 * take are counted again, and are sent later. What still fails at the end of gemmd is lost, and the
 * log says so.
 */
#include "daemon/base/log.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

enum { SERVED_CROWDED_MS = 60 * 1000 };

static void served_count_row(struct sessions *x, const struct served_row *row)
{
    const uint64_t now_ms = turns_now(x->turns);
    struct tally *tally = tallies_find(&x->tallies, (uid_t)row->uid, row->job, now_ms);
    const struct tally_answer a = {.key = row->key,
                                   .tier = row->tier,
                                   .op = row->op,
                                   .problem = &row->problem,
                                   .config = &row->config,
                                   .answers = row->answers,
                                   .first_s = row->first_s,
                                   .last_s = row->last_s};
    if (tally) {
        tally_count(&x->tallies, tally, &a);
    }
}

/* Counts rows again that were not written. */
static void served_count_again(struct daemon_parts *p, const void *rows, size_t n)
{
    struct served_row row;
    const struct wire_obj *list = NULL;
    if (wire_decode(p->daemon.doc, rows, n, &list, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < wire_count(list); i++) {
        if (schema_decode(&served_row_schema, SCHEMA_LENIENT, wire_at(list, i), &row, NULL) == 0) {
            served_count_row(&p->server.sessions, &row);
        }
    }
}

static void served_on_written(void *ctx, int status, const void *rows, size_t n, int64_t total,
                              const struct error *err)
{
    struct daemon_parts *p = ctx;
    if (status >= 0) {
        return;
    }
    if (p->daemon.stopping) {
        log_warning("the last counts of answers to jobs are lost: %s", err->text);
    } else {
        log_debug("counts of answers to jobs are written later: %s", err->text);
        served_count_again(p, rows, n);
    }
}

static void served_send_page(void *ctx, const struct wire_buf *rows)
{
    struct daemon_parts *p = ctx;
    const int status = ledger_add_served(p->daemon.ledger, rows, served_on_written, p);
    if (status < 0 && !rows->failed) {
        struct error err = ERROR_NULL;
        ledger_refused(status, &err);
        served_on_written(p, status, rows->data, rows->len, 0, &err);
    }
}

void served_send(struct daemon_parts *p)
{
    p->served_ms = turns_now(&p->daemon.turns);
    if (p->daemon.ledger && p->server.sessions.input) {
        sessions_pack_tallies(&p->server.sessions, served_send_page, p);
    }
}

void served_tick(struct daemon_parts *p)
{
    const uint64_t now_ms = turns_now(&p->daemon.turns);
    p->served_ms = p->served_ms ? p->served_ms : now_ms;
    uint64_t period_ms = (uint64_t)p->daemon.config->jobs_s * 1000;
    if (p->server.sessions.tallies.is_crowded && period_ms > SERVED_CROWDED_MS) {
        period_ms = SERVED_CROWDED_MS;
    }
    if (now_ms - p->served_ms >= period_ms) {
        served_send(p);
    }
}
