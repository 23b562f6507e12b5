/* SPDX-License-Identifier: Apache-2.0 */
/* The order that gemmd gives its runner: a request, and what is known already. The counts are
 * bounded by what a message of RUNNER_MESSAGE_BYTES_MAX can really hold. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/request.h"
#include "proto/wire.h"

enum { DONE_MAX = 16384, HINTS_MAX = 1024, AVOID_MAX = 65536 };

void tune_order_deinit(struct tune_order *o)
{
    request_deinit(&o->request);
    free(o->done);
    free(o->hints);
    free(o->avoid);
    o->done = NULL;
    o->hints = NULL;
    o->avoid = NULL;
    o->n_done = o->n_hints = o->n_avoid = 0;
}

/* An array of n elements to be read, its memory; *n is 0 when the list is absent. */
static int order_begin_list(const struct wire_obj *params, const char *name, size_t max,
                            size_t size, const struct wire_obj **list, void **memory,
                            struct error *err)
{
    *list = wire_find(params, name);
    size_t n = wire_count(*list);
    if (wire_type_of(*list) != WIRE_NIL && (wire_type_of(*list) != WIRE_ARRAY || n > max)) {
        return error_set(err, ERROR_INVALID, "%s must be an array of at most %zu", name, max);
    }
    *memory = n > 0 ? malloc(n * size) : NULL;
    if (n > 0 && !*memory) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu %s", n, name);
    }
    return 0;
}

static int order_decode_done(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    const struct wire_obj *list;
    void *memory = NULL;
    int r = order_begin_list(params, "done", DONE_MAX, sizeof(o->done[0]), &list, &memory, err);
    o->done = memory;
    for (size_t i = 0; r == 0 && i < wire_count(list); i++) {
        r = schema_decode(&trial_schema, SCHEMA_LENIENT, wire_at(list, i), &o->done[i], err);
        o->n_done += r == 0;
    }
    return r;
}

static int unpack_hints(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    const struct wire_obj *list;
    void *memory = NULL;
    int r = order_begin_list(params, "hints", HINTS_MAX, sizeof(o->hints[0]), &list, &memory, err);
    o->hints = memory;
    for (size_t i = 0; r == 0 && i < wire_count(list); i++) {
        r = config_unpack(&o->hints[i], wire_at(list, i), err);
        o->n_hints += r == 0;
    }
    return r;
}

static int unpack_avoid(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    const struct wire_obj *list;
    void *memory = NULL;
    int r = order_begin_list(params, "avoid", AVOID_MAX, sizeof(o->avoid[0]), &list, &memory, err);
    o->avoid = memory;
    for (size_t i = 0; r == 0 && i < wire_count(list); i++) {
        if (!wire_copy_str(wire_at(list, i), o->avoid[i], HASH_HEX)) {
            return error_set(err, ERROR_INVALID, "avoid[%zu] is no hash", i);
        }
        o->n_avoid++;
    }
    return r;
}

static int unpack_former(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    const struct wire_obj *former = wire_find(params, "former");
    const struct wire_obj *gain = wire_find(params, "min_gain");
    record_init(&o->former);
    o->min_gain = 0;
    if (gain && !(wire_get_real(gain, &o->min_gain) && o->min_gain >= 0 && o->min_gain <= 100)) {
        return error_set(err, ERROR_INVALID, "min_gain must be a percentage, 0 to 100");
    }
    return former ? config_unpack(&o->former, former, err) : 0;
}

static int unpack_names(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    if (!wire_get_int(wire_find(params, "job"), &o->job)) {
        return error_set(err, ERROR_INVALID, "an order needs 'job', an integer");
    }
    if (!wire_copy_str(wire_find(params, "key"), o->key, sizeof(o->key)) ||
        !wire_copy_str(wire_find(params, "stamp"), o->stamp, sizeof(o->stamp))) {
        return error_set(err, ERROR_INVALID, "an order needs 'key' (a hash) and 'stamp' (text)");
    }
    return 0;
}

static int unpack_spent(const char *name, const struct wire_obj *params, double *out,
                        struct error *err)
{
    const struct wire_obj *spent = wire_find(params, name);
    *out = 0;
    if (spent && !(wire_get_real(spent, out) && *out >= 0 && isfinite(*out))) {
        return error_set(err, ERROR_INVALID, "%s must be milliseconds, 0 or more", name);
    }
    return 0;
}

static int unpack_quiet(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    const struct wire_obj *quiet = wire_find(params, "quiet");
    o->quiet = false;
    return !quiet || wire_get_bool(quiet, &o->quiet)
               ? 0
               : error_set(err, ERROR_INVALID, "quiet must be true or false");
}

int tune_order_unpack(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    static const char *const others[] = {
        REQUEST_NAMES, "job",    "key",      "stamp", "done",
        "hints",       "former", "min_gain", "avoid", "spent_device_ms",
        "spent_ms",    "quiet",  NULL};
    o->done = NULL;
    o->hints = NULL;
    o->avoid = NULL;
    o->n_done = o->n_hints = o->n_avoid = 0;
    int r = request_unpack_beside(&o->request, params, others, err);
    r = r < 0 ? r : unpack_names(o, params, err);
    r = r < 0 ? r : order_decode_done(o, params, err);
    r = r < 0 ? r : unpack_hints(o, params, err);
    r = r < 0 ? r : unpack_former(o, params, err);
    r = r < 0 ? r : unpack_avoid(o, params, err);
    r = r < 0 ? r : unpack_spent("spent_device_ms", params, &o->spent_device_ms, err);
    r = r < 0 ? r : unpack_spent("spent_ms", params, &o->spent_ms, err);
    r = r < 0 ? r : unpack_quiet(o, params, err);
    if (r < 0) {
        tune_order_deinit(o);
    }
    return r;
}

void tune_order_pack(struct wire_buf *b, const struct tune_order *o)
{
    wire_put_map(b, request_pairs(&o->request) + 9 + (o->former.n ? 2 : 0));
    request_pack_pairs(b, &o->request);
    wire_put_kv_int(b, "job", o->job);
    wire_put_kv_str(b, "key", o->key);
    wire_put_kv_str(b, "stamp", o->stamp);
    wire_put_str(b, "done");
    wire_put_array(b, o->n_done);
    for (uint32_t i = 0; i < o->n_done; i++) {
        schema_encode(b, &trial_schema, &o->done[i]);
    }
    wire_put_str(b, "hints");
    wire_put_array(b, o->n_hints);
    for (uint32_t i = 0; i < o->n_hints; i++) {
        record_pack(b, &o->hints[i]);
    }
    if (o->former.n) {
        wire_put_str(b, "former");
        record_pack(b, &o->former);
        wire_put_kv_real(b, "min_gain", o->min_gain);
    }
    wire_put_kv_real(b, "spent_device_ms", o->spent_device_ms);
    wire_put_kv_real(b, "spent_ms", o->spent_ms);
    wire_put_kv_bool(b, "quiet", o->quiet);
    wire_put_str(b, "avoid");
    wire_put_array(b, o->n_avoid);
    for (uint32_t i = 0; i < o->n_avoid; i++) {
        wire_put_str(b, o->avoid[i]);
    }
}
