/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lease holder's methods (methods/leases.h). `record` keeps the holder's trials, so that a
 * disconnect does not lose them. `release` ends the lease without an answer; `put` ends the lease
 * with an answer (put.c).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "proto/text.h"
#include "store/store.h"

int method_release(struct call *c, struct error *err)
{
    int status = call_custom_problem(c, "release", err);
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

static int check_status(const struct trial *t, struct error *err)
{
    static const char *const recorded[] = {"ok",           "invalid", "compile", "resource",
                                           "wrong_result", "crashed", "hung",    NULL};
    const int at = text_find(recorded, t->status, strlen(t->status));
    if (at < 0) {
        return error_set(err, ERROR_INVALID,
                         "status '%s' is none of ok, invalid, compile, resource, wrong_result, "
                         "crashed, hung",
                         t->status);
    }
    if (at == 0 && !(t->time_us > 0 && isfinite(t->time_us))) {
        return error_set(err, ERROR_INVALID, "a config of status ok needs its 'time_us', above 0");
    }
    return 0;
}

/* Reads a trial: config, status, time_us, reason; from an import also created_s. */
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
    int64_t now = time(NULL);
    t->created_s = t->created_s > 0 && t->created_s < now ? t->created_s : now;
    return status;
}

/* Checks all trials of a list. `fields` names the maps' fields for the error's text. */
static int check_trials(const struct wire_obj *list, const char *fields, const char *key,
                        struct trial *scratch, struct error *err)
{
    if (wire_type_of(list) != WIRE_ARRAY) {
        return error_set(err, ERROR_INVALID, "'trials' must be a list of maps%s", fields);
    }
    for (size_t i = 0; i < wire_count(list); i++) {
        int status = read_trial(wire_at(list, i), key, scratch, err);
        if (status < 0) {
            return error_prefix(err, "trials[%zu]", i);
        }
    }
    return 0;
}

/* The trials of a request while the ledger writes them. */
struct keeping {
    bool once; /* leaves out a trial when the database has a trial of the same key and config */
    unsigned n, failed;
    unsigned left;    /* trials that are being written, plus 1 until all are submitted */
    struct error why; /* error of the first failure */
    void (*done)(struct keeping *k);
};

static void on_kept(void *ctx, int status, const struct error *err)
{
    struct keeping *k = ctx;
    k->n -= status == STORE_THERE;
    if (status < 0 && k->failed++ == 0) {
        error_set(&k->why, status, "%s", err ? err->text : "no memory");
    }
    if (--k->left == 0) {
        k->done(k);
    }
}

static void keep_trial(struct keeping *k, struct daemon *d, const struct trial *t)
{
    struct error refused = ERROR_NULL;
    k->n++;
    k->left++;
    int status = ledger_record(d->ledger, t, k->once, on_kept, k);
    if (status < 0) {
        ledger_refused(status, &refused);
        on_kept(k, status, &refused);
    }
}

struct recording {
    struct pending pending; /* first member: its address is the struct's */
    struct keeping keeping;
    bool counted; /* custom_take_room has counted the key against the user's limit */
    char key[HASH_HEX];
};

static void finish_recording(struct keeping *k)
{
    struct recording *x = LIST_OF(k, struct recording, keeping);
    if (x->counted) {
        custom_took_room(x->pending.d, x->key, k->failed < k->n);
    }
    if (k->failed) {
        error_prefix(&k->why, "%u of %u trials are not kept", k->failed, k->n);
        pending_fail(&x->pending, &k->why);
        return;
    }
    struct wire_buf *b = pending_result(&x->pending);
    wire_put_map(b, 1);
    wire_put_kv_int(b, "recorded", k->n);
    pending_drop(&x->pending);
}

/* Checks that the ledger has room for all n trials, so that a request records all of its trials or
 * none. */
static int recording_check_room(const struct daemon *d, size_t n, struct error *err)
{
    uint32_t room = ledger_room(d->ledger);
    return n <= room
               ? 0
               : error_set(err, ERROR_BUSY,
                           "the database takes %u trials now, not %zu, since too many writes wait: "
                           "none was recorded; try again",
                           (unsigned)room, n);
}

int method_record(struct call *c, struct error *err)
{
    struct daemon *d = c->d;
    const struct wire_obj *list = wire_find(c->params, "trials");
    struct trial *t = &d->scratch->trial;
    int status = call_custom_problem(c, "record", err);
    const char *key = d->scratch->key.id;
    status = status ? status : check_trials(list, ": config, time_us, status, reason", key, t, err);
    status = status ? status : recording_check_room(d, wire_count(list), err);
    status = status ? status : call_keep(c, wire_count(list), err);
    bool counted = false;
    if (status == 0 && wire_count(list) > 0) {
        status = custom_take_room(d, key, c->s->uid, &counted, err);
    }
    struct recording *x = status ? NULL : call_later(c, sizeof(*x), err);
    if (!x) {
        if (counted) {
            custom_took_room(d, key, false);
        }
        return err->code;
    }
    struct lease *l = leases_of(&c->parts->leases, c->s, key);
    if (l) {
        lease_renew(l);
    }
    x->keeping = (struct keeping){.left = 1, .done = finish_recording};
    x->counted = counted;
    snprintf(x->key, sizeof(x->key), "%s", key);
    for (size_t i = 0; i < wire_count(list); i++) {
        read_trial(wire_at(list, i), key, t, NULL); /* cannot fail: checked above */
        keep_trial(&x->keeping, d, t);
    }
    on_kept(&x->keeping, 0, NULL);
    return METHOD_LATER;
}

/* ---- trials of an import --------------------------------------------------------------------- */

struct bringing {
    struct keeping keeping;
    void (*done)(void *ctx, int64_t kept, const struct error *err);
    void *ctx;
};

static void finish_bringing(struct keeping *k)
{
    struct bringing *x = LIST_OF(k, struct bringing, keeping);
    x->done(x->ctx, k->n - k->failed, k->failed ? &k->why : NULL);
    free(x);
}

/* False for a config that crashed or hung on the other machine: it may be tried again here. */
static bool is_known_for_good(const struct trial *t)
{
    return strcmp(t->status, "crashed") != 0 && strcmp(t->status, "hung") != 0;
}

int record_bring(struct daemon *d, const char *key, const struct wire_obj *trials,
                 void (*done)(void *ctx, int64_t kept, const struct error *err), void *ctx,
                 struct error *err)
{
    struct trial *t = &d->scratch->trial;
    int status = check_trials(trials, "", key, t, err);
    struct bringing *x = status ? NULL : calloc(1, sizeof(*x));
    if (!x) {
        return status ? status : error_set(err, ERROR_NO_MEMORY, "no memory for trials");
    }
    *x = (struct bringing){
        .keeping = {.once = true, .left = 1, .done = finish_bringing}, .done = done, .ctx = ctx};
    for (size_t i = 0; i < wire_count(trials); i++) {
        read_trial(wire_at(trials, i), key, t, NULL); /* cannot fail: checked above */
        if (is_known_for_good(t)) {
            keep_trial(&x->keeping, d, t);
        }
    }
    on_kept(&x->keeping, 0, NULL);
    return 0;
}
