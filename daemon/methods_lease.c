/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the holder of a lease says (leases.h): `record` keeps what he measured, config by config, so
 * that it is not lost with him; `release` gives up without an answer. With one, he ends by `put`
 * (methods_put.c).
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/answer.h"
#include "daemon/methods.h"
#include "daemon/parts.h"

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
        status = error_set(err, ERROR_TOO_LARGE, "a config is at most %d bytes of text",
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
    if (status < 0) {
        return status;
    }
    for (size_t i = 0; i < wire_count(list); i++) {
        if (read_trial(wire_at(list, i), key, t, NULL) == 0) {
            d->ledger->ops->add_trial(d->ledger, t);
        }
    }
    struct lease *l = leases_of(&c->parts->leases, c->s, key);
    if (l) {
        lease_renew(l);
    }
    rpc_put_result(&c->s->out, c->id);
    wire_put_map(&c->s->out, 1);
    wire_put_kv_int(&c->s->out, "recorded", (int64_t)wire_count(list));
    return 0;
}
