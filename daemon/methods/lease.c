/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the holder of a lease says (requests/leases.h): `record` keeps what he measured, config by
 * config, so that it is not lost with him; `release` gives up without an answer. With one, he ends
 * by `put` (put.c).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/parts.h"
#include "daemon/requests/pending.h"
#include "proto/hash.h"

int method_release(struct call *c, struct error *err)
{
    static const char *const names[] = {"problem", NULL};
    int status = call_only(c, names, err);
    status = status ? status : call_problem(c, CUSTOM_WRITE, err);
    status = status ? status : call_only_custom(&c->d->scratch->request.problem, "release", err);
    if (status < 0) {
        return status;
    }
    struct lease *l = leases_of(&c->parts->leases, c->s, c->d->scratch->key.id);
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_bool(&c->s->out, "released", l != NULL);
    if (l) {
        lease_end(l);
    }
    return 0;
}

static const char *const recorded[] = {"ok",           "invalid", "compile", "resource",
                                       "wrong_result", "crashed", "hung",    NULL};

static int check_status(const struct trial *t, struct error *err)
{
    for (size_t i = 0; recorded[i]; i++) {
        if (strcmp(t->status, recorded[i]) == 0) {
            bool timed = t->time_us > 0 && isfinite(t->time_us);
            return i > 0 || timed ? 0
                                  : error_set(err, ERROR_INVALID,
                                              "a config of status ok needs its 'time_us', above 0");
        }
    }
    return error_set(
        err, ERROR_INVALID,
        "status '%s' is none of ok, invalid, compile, resource, wrong_result, crashed, "
        "hung",
        t->status);
}

/* One of `trials`: config, status, time_us, reason. */
static int read_trial(const struct wire_obj *map, const char *key, struct trial *t,
                      struct error *err)
{
    static const char *const config[] = {"config", NULL};
    memset(t, 0, sizeof(*t));
    int status = schema_decode_beside(&trial_schema, SCHEMA_STRICT, map, config, t, err);
    status = status ? status : call_read_config(wire_find(map, "config"), &t->config, err);
    if (status == 0 && record_format(&t->config, NULL, 0) >= CONFIG_TEXT_MAX) {
        status = error_set(err, ERROR_INVALID, "a config is at most %d bytes of text",
                           CONFIG_TEXT_MAX - 1);
    }
    if (!wire_find(map, "status")) {
        snprintf(t->status, sizeof(t->status), "ok");
    }
    status = status ? status : check_status(t, err);
    snprintf(t->key, sizeof(t->key), "%s", key);
    snprintf(t->stage, sizeof(t->stage), "measure");
    double time_us = t->time_us;
    trial_times_unknown(t);
    t->time_us = time_us > 0 ? time_us : NAN;
    t->id = t->run = 0;
    t->family[0] = t->variant[0] = t->module[0] = t->stamp[0] = 0;
    t->created_s = time(NULL);
    return status;
}

struct recording {
    struct pending pending; /* first */
    unsigned n, left, failed;
    struct error why; /* of the first that failed */
    bool counted;     /* custom_take_room */
    char key[HASH_HEX];
};

static void finish_recording(struct recording *x)
{
    if (x->counted) {
        custom_took_room(x->pending.d, x->key, x->failed < x->n);
    }
    if (x->failed) {
        error_prefix(&x->why, "%u of %u trials are not kept", x->failed, x->n);
        pending_fail(&x->pending, &x->why);
        return;
    }
    struct wire_buf *b = pending_result(&x->pending);
    if (b) {
        wire_put_map(b, 1);
        wire_put_kv_int(b, "recorded", x->n);
    }
    pending_drop(&x->pending);
}

static void on_recorded(void *ctx, int status, const struct error *err)
{
    struct recording *x = ctx;
    if (status < 0 && x->failed++ == 0) {
        error_set(&x->why, status, "%s", err ? err->text : "no memory");
    }
    if (--x->left == 0) {
        finish_recording(x);
    }
}

/* All of them, or none. */
static int check_room(const struct daemon *d, size_t n, struct error *err)
{
    uint32_t room = d->ledger->ops->room(d->ledger);
    return n <= room
               ? 0
               : error_set(err, ERROR_BUSY,
                           "the database takes %u trials now, not %zu, since too much waits for "
                           "it: none was recorded; try again",
                           (unsigned)room, n);
}

static void record(struct recording *x, const struct wire_obj *list, const char *key)
{
    struct daemon *d = x->pending.d;
    struct trial *t = &d->scratch->trial;
    x->left = x->n + 1; /* held until all are asked for */
    for (size_t i = 0; i < x->n; i++) {
        struct error e = ERROR_NULL;
        int status = read_trial(wire_at(list, i), key, t, &e);
        if (status == 0 && (status = d->ledger->ops->record(d->ledger, t, on_recorded, x)) < 0) {
            ledger_refused(status, &e);
        }
        if (status < 0) {
            on_recorded(x, status, &e);
        }
    }
    on_recorded(x, 0, NULL);
}

int method_record(struct call *c, struct error *err)
{
    static const char *const names[] = {"problem", "trials", NULL};
    struct daemon *d = c->d;
    const struct wire_obj *list = wire_find(c->params, "trials");
    struct trial *t = &d->scratch->trial;
    int status = call_only(c, names, err);
    status = status ? status : call_problem(c, CUSTOM_WRITE, err);
    status = status ? status : call_only_custom(&d->scratch->request.problem, "record", err);
    if (status == 0 && wire_type_of(list) != WIRE_ARRAY) {
        status = error_set(err, ERROR_INVALID,
                           "'trials' must be a list of maps: config, time_us, status, reason");
    }
    const char *key = d->scratch->key.id;
    for (size_t i = 0; status == 0 && i < wire_count(list); i++) { /* all or nothing */
        status = read_trial(wire_at(list, i), key, t, err);
        status = status ? error_prefix(err, "trials[%zu]", i) : 0;
    }
    status = status ? status : check_room(d, wire_count(list), err);
    bool counted = false;
    if (status == 0 && wire_count(list) > 0) {
        status = custom_take_room(d, key, c->s->uid, &counted, err);
    }
    struct pending *p;
    status = status ? status : call_later(c, sizeof(struct recording), &p, err);
    if (status < 0) {
        if (counted) {
            custom_took_room(d, key, false);
        }
        return status;
    }
    struct lease *l = leases_of(&c->parts->leases, c->s, key);
    if (l) {
        lease_renew(l);
    }
    struct recording *x = (struct recording *)p;
    x->n = (unsigned)wire_count(list);
    x->counted = counted;
    snprintf(x->key, sizeof(x->key), "%s", key);
    record(x, list, key);
    return METHOD_LATER;
}
