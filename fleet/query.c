/* SPDX-License-Identifier: Apache-2.0 */
/* A statement of a link, from the sending to the result (link.h). */
#include <stdlib.h>
#include <string.h>

#include "fleet/link_inner.h"

/* Longer than the limits that the server's functions have for locks (3 s). */
enum { STATEMENT_MS = 5000 };

const char *link_text(const PGresult *r, int row, int column)
{
    const char *text = PQgetvalue(r, row, column);
    return text ? text : "";
}

int64_t link_int(const PGresult *r, int row, int column)
{
    return strtoll(link_text(r, row, column), NULL, 10);
}

/* True for a refusal that ends by itself: a lock, a deadlock, a time limit, a serialisation. */
static bool query_is_passing(const char *state)
{
    return strcmp(state, "55P03") == 0 || strcmp(state, "40P01") == 0 ||
           strcmp(state, "40001") == 0 || strcmp(state, "57014") == 0;
}

/* True for a refusal of what the statement brings: an exhausted quota, too much of it, bad data. */
static bool query_is_refused(const char *state)
{
    return strcmp(state, "53400") == 0 || strcmp(state, "54000") == 0 ||
           strncmp(state, "22", 2) == 0;
}

static void query_end(struct link *l)
{
    PGresult *r = l->result;
    const ExecStatusType status = r ? PQresultStatus(r) : PGRES_FATAL_ERROR;
    const char *state = r ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    l->result = NULL;
    l->busy = false;
    uv_timer_stop(&l->deadline);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        l->failures = 0;
        l->done(l->ctx, r);
    } else if (state && (query_is_passing(state) || query_is_refused(state))) {
        const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
        snprintf(l->refusal, sizeof(l->refusal), "%s",
                 query_is_refused(state) ? text ? text : state : "");
        l->done(l->ctx, NULL);
    } else {
        /* "ERROR:  text": people need only the text */
        const char *text = r ? PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY) : NULL;
        link_fail(l, text ? text : PQerrorMessage(l->connection), state != NULL);
    }
    PQclear(r);
}

/* Sends the bytes that libpq has buffered, and watches the socket for the rest. */
static bool query_flush(struct link *l)
{
    const int left = PQflush(l->connection);
    return left >= 0 && link_watch(l, left ? UV_READABLE | UV_WRITABLE : UV_READABLE);
}

void link_go_on_query(struct link *l)
{
    if (!PQconsumeInput(l->connection) || (l->busy && !query_flush(l))) {
        link_fail(l, PQerrorMessage(l->connection), false);
        return;
    }
    for (PGnotify *n = PQnotifies(l->connection); n; n = PQnotifies(l->connection)) {
        PQfreemem(n);
    }
    while (l->busy && !PQisBusy(l->connection)) {
        PGresult *r = PQgetResult(l->connection);
        if (!r) {
            query_end(l);
            return;
        }
        PQclear(l->result);
        l->result = r;
    }
    if (!l->busy && PQstatus(l->connection) == CONNECTION_BAD) {
        link_fail(l, "the server has closed the connection", false);
    }
}

static void query_on_deadline(uv_timer_t *timer)
{
    struct link *l = timer->data;
    const uint64_t late = l->statements;
    /* the answer may have come while this process was stopped, or waited for the database */
    link_go_on_query(l);
    if (l->busy && l->statements == late) {
        link_fail(l, "the server does not answer", false);
    }
}

void link_query(struct link *l, const char *sql, int n, const char *const *values,
                void (*done)(void *ctx, const PGresult *r))
{
    l->done = done;
    l->refusal[0] = '\0';
    l->busy = true;
    l->statements++;
    uv_timer_start(&l->deadline, query_on_deadline, STATEMENT_MS, 0);
    if (!PQsendQueryParams(l->connection, sql, n, NULL, values, NULL, NULL, 0) || !query_flush(l)) {
        link_fail(l, PQerrorMessage(l->connection), false);
    }
}
