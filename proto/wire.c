/* SPDX-License-Identifier: Apache-2.0 */
/* Writing. Text on the wire is always UTF-8 (strict readers exist in every language): wire_put_strn
 * replaces invalid bytes by '?' for all senders. Reading is in wire_read.c. */
#include <stdlib.h>
#include <string.h>

#include "proto/pack.h"
#include "proto/text.h"
#include "proto/wire.h"

enum { FIRST_CAPACITY = 256 };

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

static bool wire_grow_buffer(struct wire_buf *b, size_t need)
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

/* Room for n more bytes, or NULL. */
static uint8_t *wire_reserve_bytes(struct wire_buf *b, size_t n)
{
    if (b->failed) {
        return NULL;
    }
    if (b->cap - b->len < n && !wire_grow_buffer(b, n)) {
        b->failed = true;
        return NULL;
    }
    return b->data + b->len;
}

void wire_put_nil(struct wire_buf *b)
{
    uint8_t head[PACK_HEAD_MAX];
    wire_put_raw(b, head, (size_t)(pack_nil(head) - head));
}

void wire_put_bool(struct wire_buf *b, bool v)
{
    uint8_t head[PACK_HEAD_MAX];
    wire_put_raw(b, head, (size_t)(pack_bool(head, v) - head));
}

void wire_put_int(struct wire_buf *b, int64_t v)
{
    uint8_t head[PACK_HEAD_MAX];
    wire_put_raw(b, head, (size_t)(pack_int(head, v) - head));
}

void wire_put_uint(struct wire_buf *b, uint64_t v)
{
    uint8_t head[PACK_HEAD_MAX];
    wire_put_raw(b, head, (size_t)(pack_uint(head, v) - head));
}

void wire_put_real(struct wire_buf *b, double v)
{
    uint8_t head[PACK_HEAD_MAX];
    wire_put_raw(b, head, (size_t)(pack_real(head, v) - head));
}

void wire_put_array(struct wire_buf *b, size_t n)
{
    uint8_t head[PACK_HEAD_MAX];
    b->failed = b->failed || n > UINT32_MAX;
    wire_put_raw(b, head, (size_t)(pack_array_head(head, n) - head));
}

void wire_put_map(struct wire_buf *b, size_t n)
{
    uint8_t head[PACK_HEAD_MAX];
    b->failed = b->failed || n > UINT32_MAX;
    wire_put_raw(b, head, (size_t)(pack_map_head(head, n) - head));
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
    uint8_t *p = n <= UINT32_MAX ? wire_reserve_bytes(b, PACK_HEAD_MAX + n) : NULL;
    if (!p) {
        b->failed = true;
        return;
    }
    p = pack_str_head(p, n);
    if (n > 0) {
        memcpy(p, v, n);
        text_utf8_clean((char *)p, n);
    }
    b->len = (size_t)(p + n - b->data);
}

void wire_put_bin(struct wire_buf *b, const void *v, size_t n)
{
    uint8_t *p = n <= UINT32_MAX ? wire_reserve_bytes(b, PACK_HEAD_MAX + n) : NULL;
    if (!p) {
        b->failed = true;
        return;
    }
    p = pack_bin_head(p, n);
    if (n > 0) {
        memcpy(p, v, n);
    }
    b->len = (size_t)(p + n - b->data);
}

void wire_put_raw(struct wire_buf *b, const void *packed, size_t n)
{
    uint8_t *p = wire_reserve_bytes(b, n);
    if (p && n > 0) {
        memcpy(p, packed, n);
        b->len = (size_t)(p + n - b->data);
    }
}
