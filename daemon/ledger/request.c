/* SPDX-License-Identifier: Apache-2.0 */
/* Requests, and queues of them (request.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/request.h"

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
        free(r->err); /* set by another ledger */
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
