/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, queues of requests, and the functions that both threads use (inner.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/inner.h"

struct request *request_new(const struct verb *verb, void *ctx, const char *const text[4])
{
    size_t n = 0;
    for (int i = 0; i < 4 && text[i]; i++) {
        n += strlen(text[i]) + 1;
    }
    struct request *r = calloc(1, sizeof(*r) + n + 1);
    if (!r) {
        return NULL;
    }
    r->verb = verb;
    r->ctx = ctx;
    char *at = r->tail;
    bool more = true;
    for (int i = 0; i < 4; i++) {
        more = more && text[i];
        r->text[i] = more ? strcpy(at, text[i]) : &r->tail[n];
        at += more ? strlen(at) + 1 : 0;
    }
    return r;
}

static struct error no_room = {.code = ERROR_NO_MEMORY, .text = "no memory to say what failed"};

void request_fail(struct request *r, const struct error *err)
{
    if (r->err != &no_room) {
        free(r->err); /* the error of the thread of lists, which handed the list over */
    }
    r->err = malloc(sizeof(*r->err));
    if (r->err) {
        *r->err = *err;
    } else {
        r->err = &no_room;
    }
}

void request_free(struct request *r)
{
    if (!r) {
        return;
    }
    free(r->results);
    free(r->avoid);
    wire_buf_deinit(&r->filter);
    wire_buf_deinit(&r->row);
    if (r->err != &no_room) {
        free(r->err);
    }
    free(r);
}

/* ---- queues ---------------------------------------------------------------------------------- */

void queue_init(struct queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

void queue_push(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->last = r;
    q->last = &r->next;
}

void queue_move(struct queue *to, struct queue *from)
{
    if (from->first) {
        *to->last = from->first;
        to->last = from->last;
        queue_init(from);
    }
}

struct request *queue_remove(struct queue *q, struct request **at)
{
    struct request *r = *at;
    *at = r->next;
    q->last = q->last == &r->next ? at : q->last;
    return r;
}

struct request *queue_pop(struct queue *q)
{
    return q->first ? queue_remove(q, &q->first) : NULL;
}

int64_t queue_drop(struct queue *q, const char *name)
{
    int64_t n = 0;
    for (struct request **at = &q->first; *at;) {
        if (name && strcmp((*at)->text[0], name) != 0) {
            at = &(*at)->next;
            continue;
        }
        request_free(queue_remove(q, at));
        n++;
    }
    return n;
}

int64_t queue_count(const struct queue *q)
{
    int64_t n = 0;
    for (const struct request *r = q->first; r; r = r->next) {
        n++;
    }
    return n;
}

void queue_push_turn(struct queue *q, struct request *r)
{
    for (struct request *x = q->first; x; x = x->next) {
        if (x->user == r->user) {
            queue_push(&x->behind, r);
            return;
        }
    }
    queue_init(&r->behind);
    queue_push(q, r);
}

struct request *queue_pop_turn(struct queue *q)
{
    struct request *r = queue_pop(q), *heir = r ? queue_pop(&r->behind) : NULL;
    if (heir) {
        queue_init(&heir->behind);
        queue_move(&heir->behind, &r->behind);
        queue_push(q, heir);
    }
    return r;
}

/* ---- both threads ---------------------------------------------------------------------------- */

SCHEMA_DEFINE(ledger_status, LEDGER_STATUS_FIELDS);

void ledger_respond(struct ledger *l, struct request *r)
{
    uv_mutex_lock(&l->mutex);
    queue_push(&l->done, r);
    uv_mutex_unlock(&l->mutex);
    if (l->wake.loop) { /* NULL while ledger_start opens the store, before `wake` exists */
        uv_async_send(&l->wake);
    }
}

int ledger_refused(int status, struct error *err)
{
    switch (status) {
    case ERROR_BUSY:
        return error_set(err, status,
                         "too much waits for the database: nothing was changed; try again, see "
                         "`gemmctl status`");
    case ERROR_NO_MEMORY:
        return error_set(err, status, "no memory to ask the ledger");
    case ERROR_SHUTTING_DOWN:
        return error_set(err, status, "gemmd is stopping");
    default:
        return error_set(err, status, "the ledger takes nothing now");
    }
}

/* ---- notices --------------------------------------------------------------------------------- */

static void answer_notice(struct ledger *l, struct request *r)
{
    if (l->notice) {
        l->notice(l->notice_ctx, r->text[0], r->text[1]);
    }
}

static const struct verb verb_notice = {.answer = answer_notice};

void ledger_notice(void *ledger, const char *kind, const char *text)
{
    struct ledger *l = ledger;
    struct request *r = request_new(&verb_notice, NULL, TEXTS(kind, text));
    if (r) {
        ledger_respond(l, r);
    }
}

void ledger_tell_kept(struct ledger *l)
{
    for (struct request *r; (r = queue_pop(&l->done));) {
        r->verb->answer(l, r);
        request_free(r);
    }
}

/* ---- on the writer thread -------------------------------------------------------------------- */

uint64_t writer_now_ms(void)
{
    return uv_hrtime() / 1000000;
}

void writer_notice(struct ledger *l, const char *kind, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    ledger_notice(l, kind, text);
}

int writer_decode(struct ledger *l, const struct wire_buf *row, const struct schema *schema,
                  void *out, struct error *err)
{
    const struct wire_obj *map;
    int r = wire_decode(l->doc, row->data, row->len, &map, err);
    return r ? r : schema_decode(schema, SCHEMA_LENIENT, map, out, err);
}

bool writer_fault_of_store(int status)
{
    return status == ERROR_STORE || status == ERROR_DISK_FULL || status == ERROR_NO_MEMORY ||
           status == ERROR_BUSY || status == ERROR_IO;
}

/* Notes whether another program holds the write lock of the file. While it does, each write fails
 * at once instead of waiting, so that no write delays other requests. */
static void note_lock(struct ledger *l, int status, const char *text)
{
    if (status == ERROR_BUSY && !l->locked) {
        l->locked = true;
        store_set_patience(l->store, 0);
        writer_notice(l, "locked", "%s; answers are served from memory until it lets go", text);
    } else if (l->locked && (status == 0 || status == ERROR_DISK_FULL)) {
        l->locked = false;
        store_set_patience(l->store, PATIENCE_MS);
        writer_notice(l, "unlocked", "the other program has let go of the database");
    }
}

void writer_note_disk(struct ledger *l, int status, const char *text)
{
    l->lost_said = l->lost_said && status != 0;
    note_lock(l, status, text);
    if (status == ERROR_DISK_FULL && !l->disk_full) {
        l->disk_full = true;
        writer_notice(l, "disk_full", "%s; answers are served from memory until there is room",
                      text);
    } else if (status == 0 && l->disk_full) {
        l->disk_full = false;
        writer_notice(l, "disk_room", "the database can be written again");
    }
}
