/* SPDX-License-Identifier: Apache-2.0 */
/* Writing, by msgpack-c. Text on the wire is always UTF-8 (strict readers exist in every language):
 * wire_put_strn replaces invalid bytes by '?' for all senders. Reading is in wire_read.c. */
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "proto/wire_inner.h"

enum { FIRST_CAPACITY = 256 };

/* msgpack-c's writer into a buffer. Writes items in their shortest forms. */
#define PACKER(b) (&(msgpack_packer){(b), wire_append})

void wire_buf_deinit(struct wire_buf *b)
{
    free(b->data);
    *b = WIRE_BUF_NULL;
}

void wire_buf_clear(struct wire_buf *b)
{
    b->len = 0;
    b->failed = false;
}

static __attribute__((noinline)) bool wire_grow_buffer(struct wire_buf *b, size_t need)
{
    size_t cap = b->cap ? b->cap : FIRST_CAPACITY;
    while (cap - b->len < need) {
        if (cap > SIZE_MAX / 2) {
            return false;
        }
        cap *= 2;
    }
    uint8_t *data = realloc(b->data, cap);
    if (!data) {
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

/* The msgpack_packer_write of PACKER. Inline, because most items have few bytes. */
static inline __attribute__((always_inline)) int wire_append(void *buf, const char *bytes, size_t n)
{
    struct wire_buf *b = buf;
    b->failed = b->failed || (b->cap - b->len < n && !wire_grow_buffer(b, n));
    if (!b->failed && n > 0) {
        memcpy(b->data + b->len, bytes, n);
        b->len += n;
    }
    return 0;
}

void wire_put_raw(struct wire_buf *b, const void *packed, size_t n)
{
    wire_append(b, packed, n);
}

void wire_put_nil(struct wire_buf *b)
{
    msgpack_pack_nil(PACKER(b));
}

void wire_put_bool(struct wire_buf *b, bool v)
{
    v ? msgpack_pack_true(PACKER(b)) : msgpack_pack_false(PACKER(b));
}

void wire_put_int(struct wire_buf *b, int64_t v)
{
    msgpack_pack_int64(PACKER(b), v);
}

void wire_put_uint(struct wire_buf *b, uint64_t v)
{
    msgpack_pack_uint64(PACKER(b), v);
}

void wire_put_real(struct wire_buf *b, double v)
{
    msgpack_pack_double(PACKER(b), v);
}

void wire_put_array(struct wire_buf *b, size_t n)
{
    b->failed = b->failed || n > UINT32_MAX;
    msgpack_pack_array(PACKER(b), n);
}

void wire_put_map(struct wire_buf *b, size_t n)
{
    b->failed = b->failed || n > UINT32_MAX;
    msgpack_pack_map(PACKER(b), n);
}

void wire_put_str(struct wire_buf *b, const char *v)
{
    if (v) {
        wire_put_strn(b, v, strlen(v));
    } else {
        wire_put_nil(b);
    }
}

void wire_put_strn(struct wire_buf *b, const char *v, size_t n)
{
    b->failed = b->failed || n > UINT32_MAX;
    msgpack_pack_str(PACKER(b), n);
    wire_put_raw(b, v, n);
    if (!b->failed) {
        text_utf8_clean((char *)b->data + b->len - n, n);
    }
}

void wire_put_bin(struct wire_buf *b, const void *v, size_t n)
{
    b->failed = b->failed || n > UINT32_MAX;
    msgpack_pack_bin(PACKER(b), n);
    wire_put_raw(b, v, n);
}

void wire_put_obj(struct wire_buf *b, const struct wire_obj *o)
{
    msgpack_pack_object(PACKER(b), *wire_in(o));
}
