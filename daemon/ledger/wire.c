/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a ledger, from messages and into them (wire.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/ledger/row.h"
#include "daemon/ledger/wire.h"
#include "proto/hash.h"
#include "store/store.h"

void ledger_wire_put(struct wire_buf *b, const char *verb, const struct schema *schema,
                     const void *row, const char *key, const char *owner, int64_t ttl_ms)
{
    wire_put_map(b, 1 + (schema != NULL) + (key != NULL) + (owner != NULL) + (ttl_ms > 0));
    wire_put_kv_str(b, "verb", verb);
    if (schema) {
        wire_put_str(b, "row");
        schema_encode(b, schema, row);
    }
    if (key) {
        wire_put_kv_str(b, "key", key);
    }
    if (owner) {
        wire_put_kv_str(b, "owner", owner);
    }
    if (ttl_ms > 0) {
        wire_put_kv_int(b, "ttl_ms", ttl_ms);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

struct applying {
    ledger_wire_cb cb;
    void *ctx;
};

static void answer(struct applying *a, struct wire_buf *result, const struct error *err)
{
    struct applying done = *a;
    struct error none = {.code = ERROR_NO_MEMORY, .text = "no memory for an answer"};
    free(a);
    done.cb(done.ctx, result, result->failed && !err ? &none : err);
    wire_buf_deinit(result);
}

static const struct error *fault(int status, const struct error *err, struct error *spare)
{
    if (status >= 0) {
        return NULL;
    }
    if (!err) {
        error_set(spare, status, "the ledger failed");
    }
    return err ? err : spare;
}

static void on_best(void *ctx, int status, const struct best *b, bool saved,
                    const struct error *err)
{
    struct wire_buf result = WIRE_BUF_NULL;
    struct error spare = ERROR_NULL;
    wire_put_map(&result, 2);
    wire_put_str(&result, "row");
    if (b) {
        schema_encode(&result, &best_schema, b);
    } else {
        wire_put_nil(&result);
    }
    wire_put_kv_bool(&result, "saved", saved);
    answer(ctx, &result, fault(status, err, &spare));
}

static void on_id(void *ctx, int status, int64_t id, const struct error *err)
{
    struct wire_buf result = WIRE_BUF_NULL;
    struct error spare = ERROR_NULL;
    wire_put_map(&result, 1);
    wire_put_kv_int(&result, "n", id);
    answer(ctx, &result, fault(status, err, &spare));
}

static void on_recorded(void *ctx, int status, const struct error *err)
{
    struct wire_buf result = WIRE_BUF_NULL;
    struct error spare = ERROR_NULL;
    wire_put_nil(&result);
    answer(ctx, &result, fault(status, err, &spare));
}

static void on_lease(void *ctx, int status, const struct error *err)
{
    struct wire_buf result = WIRE_BUF_NULL;
    struct error spare = ERROR_NULL;
    wire_put_map(&result, 1);
    wire_put_kv_bool(&result, "held", status == STORE_HELD);
    answer(ctx, &result, fault(status, err, &spare));
}

static void on_status(void *ctx, const struct ledger_status *s)
{
    struct wire_buf result = WIRE_BUF_NULL;
    schema_encode(&result, &ledger_status_schema, s);
    answer(ctx, &result, NULL);
}

/* ---- verbs ----------------------------------------------------------------------------------- */

struct message {
    char verb[24], key[64], owner[80];
    int64_t ttl_ms;
    const struct wire_obj *said; /* borrowed */
    union ledger_row row;
};

static int publish(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->publish(l, &m->row.best, on_best, a);
}

static int restore(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->restore(l, &m->row.best, on_best, a);
}

static int unpin(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->unpin(l, m->key, on_best, a);
}

static int lease(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->lease(l, m->key, m->owner, m->ttl_ms, on_lease, a);
}

static int unlease(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    return l->ops->unlease(l, m->key, m->owner);
}

static int record(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->record(l, &m->row.trial, on_recorded, a);
}

static int evict(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->evict(l, m->key, on_id, a);
}

static int unquarantine(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->unquarantine(l, m->key, on_id, a);
}

static int add_run(struct ledger *l, struct message *m, struct applying *a)
{
    return l->ops->add_run(l, &m->row.run, on_id, a);
}

static int tell_status(struct ledger *l, struct message *m, struct applying *a)
{
    (void)m;
    return l->ops->status(l, on_status, a);
}

static int add_trial(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->add_trial(l, &m->row.trial);
    return 0;
}

static int add_module(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->add_module(l, &m->row.module);
    return 0;
}

static int add_quarantine(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->add_quarantine(l, &m->row.quarantine);
    return 0;
}

static int add_event(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->add_event(l, &m->row.event);
    return 0;
}

static int put_device(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->put_device(l, &m->row.device);
    return 0;
}

static int end_run(struct ledger *l, struct message *m, struct applying *a)
{
    (void)a;
    l->ops->end_run(l, &m->row.run);
    return 0;
}

static int tell(struct ledger *l, struct message *m, struct applying *a)
{
    WIRE_BUF_AUTO said = WIRE_BUF_NULL;
    (void)a;
    wire_put_obj(&said, m->said);
    if (!said.failed && wire_type_of(m->said) == WIRE_MAP) {
        l->ops->tell(l, &said, false);
    }
    return 0;
}

static const struct wire_verb {
    const char *name;
    const struct schema *row;
    int (*apply)(struct ledger *l, struct message *m, struct applying *a);
    bool answered;
} verbs[] = {
    {"trial", &trial_schema, add_trial, false},
    {"lease", NULL, lease, true},
    {"unlease", NULL, unlease, false},
    {"record", &trial_schema, record, true},
    {"publish", &best_schema, publish, true},
    {"restore", &best_schema, restore, true},
    {"module", &module_schema, add_module, false},
    {"run", &run_schema, add_run, true},
    {"end_run", &run_schema, end_run, false},
    {"status", NULL, tell_status, true},
    {"event", &event_schema, add_event, false},
    {"device", &device_info_schema, put_device, false},
    {"quarantine", &quarantine_schema, add_quarantine, false},
    {"unpin", NULL, unpin, true},
    {"evict", NULL, evict, true},
    {"unquarantine", NULL, unquarantine, true},
    {"tell", NULL, tell, false},
};

static const struct wire_verb *find(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

static bool copy(const struct wire_obj *o, char *out, size_t size)
{
    out[0] = 0;
    return !o || wire_copy_str(o, out, size);
}

/* Of rows that a key finds: one that is no key would be bad as soon as it is read. */
static int check_key(const struct schema *row, const struct message *m, struct error *err)
{
    const char *key = row == &best_schema    ? m->row.best.key
                      : row == &trial_schema ? m->row.trial.key
                                             : NULL;
    return !key || hash_is_hex(key)
               ? 0
               : error_set(err, ERROR_INVALID,
                           "a row's 'key' is 32 lower-case hex digits, not '%s'", key);
}

static int read_row(const struct wire_obj *params, struct message *m, const struct schema *row,
                    struct error *err)
{
    int status = schema_decode(row, SCHEMA_LENIENT, wire_find(params, "row"), &m->row, err);
    return status ? status : check_key(row, m, err);
}

static int read_message(const struct wire_obj *params, struct message *m,
                        const struct wire_verb **verb, struct error *err)
{
    m->ttl_ms = 0;
    m->said = wire_find(params, "said");
    wire_get_int(wire_find(params, "ttl_ms"), &m->ttl_ms);
    if (!copy(wire_find(params, "verb"), m->verb, sizeof(m->verb)) ||
        !copy(wire_find(params, "key"), m->key, sizeof(m->key)) ||
        !copy(wire_find(params, "owner"), m->owner, sizeof(m->owner)) || !(*verb = find(m->verb))) {
        return error_set(err, ERROR_INVALID,
                         "no request of a ledger that this gemmd knows: 'verb' is '%.20s'",
                         m->verb);
    }
    return (*verb)->row ? read_row(params, m, (*verb)->row, err) : 0;
}

int ledger_wire_apply(struct ledger *l, const struct wire_obj *params, ledger_wire_cb cb, void *ctx,
                      struct error *err)
{
    const struct wire_verb *verb = NULL;
    struct message *m = malloc(sizeof(*m));
    struct applying *a = malloc(sizeof(*a));
    int status = m && a ? read_message(params, m, &verb, err)
                        : error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    if (status == 0) {
        *a = (struct applying){cb, ctx};
        status = verb->apply(l, m, a);
        if (status < 0) {
            error_set(err, status, "the ledger does not take it now");
        }
    }
    if (status < 0 || !verb->answered) {
        free(a);
        status = status < 0 ? status : LEDGER_WIRE_TAKEN;
    }
    free(m);
    return status;
}
