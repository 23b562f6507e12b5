/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about configs that need no measurement: is it valid, what is there to search, and the
 * compiled images. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/methods.h"
#include "kernels/device.h"
#include "proto/limits.h"

/* The target of the problem in scratch. */
static int target_of(struct call *c, const struct family_target **out, struct error *err)
{
    const struct problem *p = &c->d->scratch->request.problem;
    const struct family *f = family_of_problem(p);
    *out = f ? daemon_target(c->d, f) : NULL;
    if (!*out) {
        return error_set(err, ERROR_NO_CONFIG, "there are no kernels for %s on %s", p->op_name,
                         c->d->device.name);
    }
    return 0;
}

int method_check(struct call *c, struct error *err)
{
    static const char *const names[] = {"problem", "config", NULL};
    struct scratch *x = c->d->scratch;
    const struct family_target *t;
    struct rejection why;
    int status = call_only(c, names, err);
    status = status ? status : call_problem(c, err);
    status = status ? status : call_config(c, &x->config, err);
    status = status ? status : target_of(c, &t, err);
    if (status < 0) {
        return status;
    }
    struct wire_buf *b = &c->s->out;
    bool valid = t->check(&x->request.problem, &x->config, &c->d->device, &why) == 0;
    rpc_put_result(b, c->id);
    wire_put_map(b, valid ? 1 : 6);
    wire_put_kv_bool(b, "valid", valid);
    if (!valid) {
        wire_put_kv_str(b, "rule", why.rule);
        wire_put_kv_str(b, "message", why.text);
        wire_put_kv_str(b, "resource", why.resource);
        wire_put_kv_int(b, "required", why.required);
        wire_put_kv_int(b, "limit", why.limit);
    }
    return 0;
}

/* ---- space ------------------------------------------------------------------------------------------ */

static bool allowed(const void *ctx, const struct record *config)
{
    return request_allows(ctx, config);
}

static void put_value(struct wire_buf *b, const struct value *v)
{
    switch (v->type) {
    case VALUE_BOOL:
        wire_put_bool(b, v->flag);
        return;
    case VALUE_INT:
        wire_put_int(b, v->integer);
        return;
    case VALUE_REAL:
        wire_put_real(b, v->real);
        return;
    case VALUE_TEXT:
        wire_put_str(b, v->text);
        return;
    case VALUE_NONE:
        break;
    }
    wire_put_nil(b);
}

static void put_space(struct wire_buf *b, const struct space *s)
{
    wire_put_map(b, 4);
    wire_put_kv_int(b, "raw", (int64_t)s->raw);
    wire_put_kv_int(b, "legal", s->n);
    wire_put_str(b, "params");
    wire_put_array(b, s->n_params);
    for (uint32_t i = 0; i < s->n_params; i++) {
        const struct param *p = &s->params[i];
        wire_put_map(b, 4);
        wire_put_kv_str(b, "name", p->name);
        wire_put_kv_bool(b, "run_time", p->run_time);
        wire_put_kv_str(b, "help", p->help);
        wire_put_str(b, "values");
        wire_put_array(b, p->n);
        for (uint32_t k = 0; k < p->n; k++) {
            put_value(b, &p->values[k]);
        }
    }
    wire_put_str(b, "dropped");
    wire_put_map(b, s->n_rules);
    for (uint32_t i = 0; i < s->n_rules; i++) {
        wire_put_kv_int(b, s->rules[i].rule, (int64_t)s->rules[i].dropped);
    }
}

int method_space(struct call *c, struct error *err)
{
    struct scratch *x = c->d->scratch;
    const struct family_target *t = NULL;
    int status = request_unpack(&x->request, c->params, err);
    status = status ? status : target_of(c, &t, err);
    struct space *s = status ? NULL : calloc(1, sizeof(*s));
    if (status == 0 && !s) {
        status = error_set(err, ERROR_NO_MEMORY, "no memory for the space");
    }
    if (status < 0) {
        return status;
    }
    status = space_build(s, t, &x->request.problem, &c->d->device, allowed, &x->request, err);
    if (status == 0) {
        rpc_put_result(&c->s->out, c->id);
        put_space(&c->s->out, s);
        space_deinit(s);
    }
    free(s);
    return status;
}

/* ---- module ------------------------------------------------------------------------------------------ */

static int read_id(struct call *c, char id[HASH_HEX], struct error *err)
{
    if (!wire_copy_str(wire_find(c->params, "id"), id, HASH_HEX) || strlen(id) != HASH_HEX - 1 ||
        strspn(id, "0123456789abcdef") != HASH_HEX - 1) {
        return error_set(err, ERROR_INVALID,
                         "'id' must be the 32 hexadecimal digits of an answer's `module`");
    }
    return 0;
}

static void put_chunk(struct call *c, const struct chunk *k, int64_t offset)
{
    struct wire_buf *b = &c->s->out;
    rpc_put_result(b, c->id);
    wire_put_map(b, 4);
    wire_put_kv_int(b, "size", (int64_t)k->size);
    wire_put_str(b, "data");
    wire_put_bin(b, k->n ? k->data : "", k->n);
    wire_put_str(b, "next");
    if ((size_t)offset + k->n < k->size) {
        wire_put_int(b, offset + (int64_t)k->n);
    } else {
        wire_put_nil(b);
    }
    wire_put_kv_str(b, "suffix", k->suffix);
}

/* The whole is checked once, before its first part leaves: a damaged file is removed, so that the
 * next tuning makes it again. What comes later, the client checks. */
static int check_whole(struct call *c, const char *id, int64_t offset, struct error *err)
{
    struct image image = {0};
    int status = offset == 0 ? modules_get(c->d->cache_dir, id, &image, err) : 0;
    image_deinit(&image);
    return status;
}

int method_module(struct call *c, struct error *err)
{
    static const char *const names[] = {"id", "offset", NULL};
    const struct wire_obj *given = wire_find(c->params, "offset");
    char id[HASH_HEX];
    int64_t offset = 0;
    int status = call_only(c, names, err);
    status = status ? status : read_id(c, id, err);
    if (status < 0) {
        return status;
    }
    if (given && (!wire_get_int(given, &offset) || offset < 0)) {
        return error_set(err, ERROR_INVALID, "'offset' must be a number of bytes");
    }
    struct chunk chunk = {0};
    status = check_whole(c, id, offset, err);
    if (status == 0) {
        status = modules_read(c->d->cache_dir, id, (size_t)offset, MODULE_CHUNK_BYTES, &chunk, err);
    }
    if (status == MODULES_MISS) {
        return error_set(err, ERROR_NOT_FOUND,
                         "module %s is not in %s (any more): ask for the answer again by `tune`", id,
                         c->d->cache_dir);
    }
    if (status == 0 && (uint64_t)offset > chunk.size) {
        status = error_set(err, ERROR_INVALID, "'offset' is %lld, the module has %zu bytes",
                           (long long)offset, chunk.size);
    }
    if (status == 0) {
        put_chunk(c, &chunk, offset);
    }
    free(chunk.data);
    return status;
}
