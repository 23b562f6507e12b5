/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/call.h"
#include "daemon/methods/choices.h"
#include "proto/hash.h"
#include "proto/request.h"

uint64_t choices_hash(struct wire_buf *scratch, const struct record *config)
{
    wire_buf_clear(scratch);
    record_pack(scratch, config);
    return scratch->failed ? 0 : hash64(scratch->data, scratch->len);
}

static struct choice *choices_find_config(const struct choices *c, uint64_t hash)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->all[i].hash == hash) {
            return &c->all[i];
        }
    }
    return NULL;
}

/* ---- reading -------------------------------------------------------------------------------- */

static int choices_read_all(struct choices *c, const struct wire_obj *list, struct record *scratch,
                            struct error *err)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    for (size_t i = 0; i < wire_count(list); i++) {
        int status = call_read_config(wire_at(list, i), scratch, err);
        if (status < 0) {
            return error_prefix(err, "configs[%zu]", i);
        }
        uint64_t hash = choices_hash(&packed, scratch);
        if (!choices_find_config(c, hash)) {
            c->all[c->n++] = (struct choice){.hash = hash};
        }
    }
    return packed.failed ? error_set(err, ERROR_NO_MEMORY, "no memory for a list of configs") : 0;
}

int choices_read(struct choices *c, const struct wire_obj *list, struct record *scratch,
                 struct error *err)
{
    if (!list) {
        return 0;
    }
    if (wire_type_of(list) != WIRE_ARRAY || wire_count(list) > REQUEST_CONFIGS_MAX) {
        return error_set(err, ERROR_INVALID, "'configs' must be a list of at most %d configs",
                         REQUEST_CONFIGS_MAX);
    }
    c->all = calloc(wire_count(list) + 1, sizeof(*c->all));
    if (!c->all) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a list of configs");
    }
    return choices_read_all(c, list, scratch, err);
}

void choices_deinit(struct choices *c)
{
    free(c->all);
    c->all = NULL;
    wire_buf_deinit(&c->known);
    wire_buf_deinit(&c->best);
}

size_t choices_bytes(const struct choices *c)
{
    return c->n * sizeof(*c->all) + c->known.cap + c->best.cap;
}

/* ---- results -------------------------------------------------------------------------------- */

static void put_known(struct wire_buf *b, const struct record *config, const char *status,
                      double time_us, const char *reason)
{
    wire_put_map(b, 4);
    wire_put_str(b, "config");
    record_pack(b, config);
    wire_put_kv_str(b, "status", status);
    wire_put_str(b, "time_us");
    if (isfinite(time_us)) {
        wire_put_real(b, time_us);
    } else {
        wire_put_nil(b);
    }
    wire_put_kv_str(b, "reason", reason);
}

void choices_learn(struct choices *c, const struct record *config, const char *status,
                   double time_us, const char *reason, int64_t created_s)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct choice *one = choices_find_config(c, choices_hash(&packed, config));
    bool ok = strcmp(status, "ok") == 0;
    time_us = time_us > 0 ? time_us : NAN;
    if (!one || one->known || packed.failed) {
        return;
    }
    one->known = true;
    c->n_known++;
    put_known(&c->known, config, status, time_us, reason);
    const bool first_time = isnan(c->best_us) && time_us > 0;
    if (ok && (!c->any || first_time || time_us < c->best_us)) {
        c->any = true;
        c->best_us = time_us;
        c->best_s = created_s;
        wire_buf_deinit(&c->best);
        c->best = packed;
        packed = WIRE_BUF_NULL;
    }
}

void choices_forget(struct choices *c)
{
    c->n_known = 0;
    c->any = false;
    wire_buf_clear(&c->known);
    for (size_t i = 0; i < c->n; i++) {
        c->all[i].known = false;
    }
}

/* ---- best ----------------------------------------------------------------------------------- */

bool choices_best_is(const struct choices *c, const struct record *config)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    return choices_hash(&packed, config) == hash64(c->best.data, c->best.len);
}

int choices_best(const struct choices *c, struct wire_doc *doc, struct record *out,
                 struct error *err)
{
    const struct wire_obj *map;
    int status = wire_decode(doc, c->best.data, c->best.len, &map, err);
    return status < 0 ? status : record_unpack(out, map, err);
}
