/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/compile/apart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/schema.h"

static const uint64_t FRAME_MOST = 1u << 30; /* larger lengths are invalid */

/* ---- frames ---------------------------------------------------------------------------------- */

static bool send_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

bool apart_send(int fd, const struct wire_buf *b)
{
    uint64_t n = b->len;
    return !b->failed && send_all(fd, &n, sizeof(n)) && send_all(fd, b->data, b->len);
}

void apart_frame_deinit(struct apart_frame *f)
{
    wire_doc_free(f->doc);
    free(f->data);
    *f = (struct apart_frame){0};
}

bool apart_receive(int fd, struct apart_frame *f)
{
    uint64_t n;
    *f = (struct apart_frame){0};
    if (!receive_all(fd, &n, sizeof(n)) || n > FRAME_MOST) {
        return false;
    }
    f->data = malloc(n + 1);
    f->doc = wire_doc_new();
    if (f->data && f->doc && receive_all(fd, f->data, n) &&
        wire_decode(f->doc, f->data, n, &f->map, NULL) == 0) {
        return true;
    }
    apart_frame_deinit(f);
    return false;
}

/* ---- variants -------------------------------------------------------------------------------- */

void apart_put_variant(struct wire_buf *b, const struct variant *v)
{
    wire_put_map(b, 7);
    wire_put_kv_str(b, "family", v->family);
    wire_put_kv_str(b, "kind", v->kind);
    wire_put_kv_str(b, "arch", v->arch);
    wire_put_kv_str(b, "entry", v->entry);
    wire_put_kv_str(b, "options", v->options);
    wire_put_kv_str(b, "source_hash", v->source_hash);
    wire_put_str(b, "source"); /* with its terminating zero */
    wire_put_bin(b, v->source, strlen(v->source) + 1);
}

bool apart_get_variant(const struct wire_obj *map, struct variant *out)
{
    const void *source;
    size_t n;
    if (!wire_get_bin(wire_find(map, "source"), &source, &n) || n == 0 ||
        ((const char *)source)[n - 1]) {
        return false;
    }
    out->source = source;
#define COPY(name) wire_copy_str(wire_find(map, #name), out->name, sizeof(out->name))
    return COPY(family) && COPY(kind) && COPY(arch) && COPY(entry) && COPY(options) &&
           COPY(source_hash);
#undef COPY
}

/* ---- answers --------------------------------------------------------------------------------- */

void apart_put_answer(struct wire_buf *b, const char *compiler, int code, const struct image *image,
                      const struct error *err)
{
    wire_put_map(b, 7);
    wire_put_kv_str(b, "compiler", compiler);
    wire_put_kv_int(b, "code", code);
    wire_put_kv_str(b, "text", err->text);
    wire_put_kv_bool(b, "refused", image->refused);
    wire_put_kv_str(b, "log", image->log);
    wire_put_str(b, "module");
    schema_encode(b, &module_schema, &image->meta);
    wire_put_str(b, "image");
    wire_put_bin(b, image->data, image->size);
}

bool apart_is_from(const struct wire_obj *map, const char *compiler)
{
    return wire_is_str(wire_find(map, "compiler"), compiler);
}

static int take_image(const void *data, size_t n, struct image *out, struct error *err)
{
    out->data = malloc(n);
    if (!out->data) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for an image of %zu bytes", n);
    }
    memcpy(out->data, data, n);
    out->size = n;
    return 0;
}

int apart_get_answer(const struct wire_obj *map, struct image *out, struct error *err)
{
    struct image image = {0};
    char text[ERROR_TEXT_MAX];
    const void *data;
    size_t n;
    int64_t code;
    *out = image;
    if (!wire_get_int(wire_find(map, "code"), &code) ||
        !wire_copy_str(wire_find(map, "text"), text, sizeof(text)) ||
        !wire_get_bool(wire_find(map, "refused"), &image.refused) ||
        !wire_copy_str(wire_find(map, "log"), image.log, sizeof(image.log)) ||
        !wire_get_bin(wire_find(map, "image"), &data, &n) ||
        schema_decode(&module_schema, SCHEMA_LENIENT, wire_find(map, "module"), &image.meta,
                      NULL)) {
        return error_set(err, ERROR_INTERNAL,
                         "the answer of the compiler's process cannot be read");
    }
    *out = image;
    return code ? error_set(err, (int)code, "%s", text) : take_image(data, n, out, err);
}
