/* SPDX-License-Identifier: Apache-2.0 */
/* The methods `check` and `module`. */
#include <stdlib.h>

#include "daemon/daemon.h"
#include "daemon/answers/target.h"
#include "daemon/methods/methods.h"
#include "kernels/modules.h"
#include "proto/limits.h"

/* Sets *out to the target that the request names, or else to a target that takes the config. *out
 * NULL: no target takes the config, and `why` has the reason. */
static int kernels_judge_config(struct call *c, const struct family_target **out,
                                struct rejection *why, struct error *err)
{
    const struct scratch *x = c->d->scratch;
    const struct problem *p = &x->request.problem;
    char label[TARGET_MAX];
    int status = call_target(c, label, err);
    status = status ? status : target_choose(c->d, p, label, out, err);
    if (status < 0) {
        return status;
    }
    if (!label[0]) {
        *out = family_target_of_config(family_of_problem(p), p, &c->d->device, &x->config, why);
    } else if ((*out)->check(p, &x->config, &c->d->device, why)) {
        *out = NULL;
    }
    return 0;
}

int method_check(struct call *c, struct error *err)
{
    const struct family_target *t = NULL;
    struct rejection why;
    bool predict = false;
    int status = call_problem(c, CUSTOM_READ, err);
    status = status ? status : call_config(c, &c->d->scratch->config, err);
    status = status ? status : call_flag(c, "predict", &predict, err);
    status = status ? status : kernels_judge_config(c, &t, &why, err);
    if (status < 0) {
        return status;
    }
    struct wire_buf *b = &c->s->out;
    rpc_put_result(b, c->id);
    wire_put_map(b, t ? 2 + predict : 6);
    wire_put_kv_bool(b, "valid", t != NULL);
    if (t) {
        const struct scratch *x = c->d->scratch;
        wire_put_kv_str(b, "target", t->label);
        if (predict) {
            wire_put_kv_real(b, "predicted_us",
                             t->predict(&x->request.problem, &x->config, &c->d->device, NULL));
        }
    } else {
        wire_put_kv_str(b, "rule", why.rule);
        wire_put_kv_str(b, "message", why.text);
        wire_put_kv_str(b, "resource", why.resource);
        wire_put_kv_int(b, "required", why.required);
        wire_put_kv_int(b, "limit", why.limit);
    }
    return 0;
}

/* ---- module ---------------------------------------------------------------------------------- */

static void put_chunk(struct call *c, const struct chunk *k, int64_t offset, const char *key)
{
    struct wire_buf *b = &c->s->out;
    rpc_put_result(b, c->id);
    wire_put_map(b, key[0] ? 5 : 4);
    if (key[0]) {
        /* the key's bucket, for which the module was tuned; nil when this daemon lacks the key */
        call_put_problem(b, c->d, cache_find_id(&c->d->cache, key, NULL));
    }
    wire_put_kv_int(b, "size", (int64_t)k->size);
    wire_put_str(b, "data");
    wire_put_bin(b, k->n ? k->data : "", k->n);
    const int64_t next = offset + (int64_t)k->n;
    call_put_int(b, "next", next < (int64_t)k->size, next);
    wire_put_kv_str(b, "suffix", k->suffix);
}

/* Checks a module's whole file before its first chunk is sent (offset 0). A damaged file is
 * removed, so that the next tuning compiles the module again. Before later chunks nothing is
 * checked: the client compares the whole module with its id. */
static int check_whole(struct call *c, const char *id, int64_t offset, struct error *err)
{
    struct image image = {0};
    int status = offset == 0 ? modules_get(c->d->cache_dir, id, &image, err) : 0;
    image_deinit(&image);
    return status;
}

int method_module(struct call *c, struct error *err)
{
    const struct wire_obj *given = wire_find(c->params, "offset"),
                          *of = wire_find(c->params, "key");
    char id[HASH_HEX], key[HASH_HEX] = "";
    int64_t offset = 0;
    if (!wire_copy_str(wire_find(c->params, "id"), id, HASH_HEX) || !hash_is_hex(id)) {
        return error_set(err, ERROR_INVALID,
                         "'id' must be the 32 hexadecimal digits of an answer's `module`");
    }
    if (of && !wire_copy_str(of, key, sizeof(key))) {
        return error_set(err, ERROR_INVALID, "'key' must be the 32 digits of an answer's `key`");
    }
    if (given && (!wire_get_int(given, &offset) || offset < 0)) {
        return error_set(err, ERROR_INVALID, "'offset' must be a number of bytes");
    }
    struct chunk chunk = {0};
    int status = check_whole(c, id, offset, err);
    if (status == 0) {
        status = modules_read(c->d->cache_dir, id, (size_t)offset, MODULE_CHUNK_BYTES, &chunk, err);
    }
    if (status == MODULES_MISS) {
        return error_set(err, ERROR_NOT_FOUND,
                         "module %s is not in %s (any more): ask for the answer again by `tune`",
                         id, c->d->cache_dir);
    }
    if (status == 0 && (uint64_t)offset > chunk.size) {
        status = error_set(err, ERROR_INVALID, "'offset' is %lld, the module has %zu bytes",
                           (long long)offset, chunk.size);
    }
    if (status == 0) {
        put_chunk(c, &chunk, offset, key);
    }
    free(chunk.data);
    return status;
}
