/* SPDX-License-Identifier: Apache-2.0 */
/* The order that gemmd gives its runner: a request, and earlier results. With the largest counts of
 * trials, hints and quarantined variants, an order still fits into RUNNER_MESSAGE_BYTES_MAX. */
#include <stdlib.h>

#include "proto/request.h"
#include "proto/wire.h"

enum { DONE_MAX = 16384, HINTS_MAX = 1024, AVOID_MAX = 65536 };

SCHEMA_DEFINE(tune_order, TUNE_ORDER_FIELDS);

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

static int order_read_trial(void *trial, const struct wire_obj *o, struct error *err)
{
    return schema_decode(&trial_schema, SCHEMA_LENIENT, o, trial, err);
}

static int order_read_hint(void *config, const struct wire_obj *o, struct error *err)
{
    return config_unpack(config, o, err);
}

static int order_read_hash(void *hash, const struct wire_obj *o, struct error *err)
{
    return wire_copy_str(o, hash, HASH_HEX) ? 0 : error_set(err, ERROR_INVALID, "it is no hash");
}

struct order_list {
    const char *name;
    size_t max, size; /* number of elements; bytes of an element */
    int (*read)(void *element, const struct wire_obj *o, struct error *err);
};

/* Reads a list into memory that `*(void **)out` then points to; NULL when the list is absent. */
static int order_read_list(const struct order_list *l, const struct wire_obj *params, void *out,
                           uint32_t *n, struct error *err)
{
    const struct wire_obj *list = wire_find(params, l->name);
    size_t count = wire_count(list);
    if (wire_type_of(list) != WIRE_NIL && (wire_type_of(list) != WIRE_ARRAY || count > l->max)) {
        return error_set(err, ERROR_INVALID, "%s must be an array of at most %zu", l->name, l->max);
    }
    char *memory = count > 0 ? malloc(count * l->size) : NULL;
    if (count > 0 && !memory) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %zu %s", count, l->name);
    }
    *(void **)out = memory;
    *n = (uint32_t)count;
    for (size_t i = 0; i < count; i++) {
        int r = l->read(memory + i * l->size, wire_at(list, i), err);
        if (r < 0) {
            return error_prefix(err, "%s[%zu]", l->name, i), r;
        }
    }
    return 0;
}

int tune_order_unpack(struct tune_order *o, const struct wire_obj *params, struct error *err)
{
    static const char *const others[] = {"request", "done", "hints", "avoid", NULL};
    static const struct order_list done = {"done", DONE_MAX, sizeof(o->done[0]), order_read_trial},
                                   hints = {"hints", HINTS_MAX, sizeof(o->hints[0]),
                                            order_read_hint},
                                   avoid = {"avoid", AVOID_MAX, sizeof(o->avoid[0]),
                                            order_read_hash};
    *o = (struct tune_order){0};
    int r = schema_decode_beside(&tune_order_schema, SCHEMA_STRICT, params, others, o, err);
    r = r < 0 ? r : request_unpack(&o->request, wire_find(params, "request"), err);
    r = r < 0 ? r : order_read_list(&done, params, &o->done, &o->n_done, err);
    r = r < 0 ? r : order_read_list(&hints, params, &o->hints, &o->n_hints, err);
    r = r < 0 ? r : order_read_list(&avoid, params, &o->avoid, &o->n_avoid, err);
    if (r < 0) {
        tune_order_deinit(o);
    }
    return r;
}

void tune_order_pack(struct wire_buf *b, const struct tune_order *o)
{
    wire_put_map(b, tune_order_schema.n + 4);
    schema_encode_fields(b, &tune_order_schema, o);
    wire_put_str(b, "request");
    request_pack(b, &o->request);
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
    wire_put_str(b, "avoid");
    wire_put_array(b, o->n_avoid);
    for (uint32_t i = 0; i < o->n_avoid; i++) {
        wire_put_str(b, o->avoid[i]);
    }
}
