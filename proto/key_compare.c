/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what two keys differ, from their canonical bytes alone: a daemon looks through all that it
 * knows to say which is nearest to a key that it does not know, and decoding each would take long.
 * Names are sorted in every key, so one pass over both finds what is missing in either.
 */
#include <string.h>

#include "proto/problem.h"

/* What is left of a key's bytes; `at` NULL: they were not a key's. */
struct cursor {
    const uint8_t *at, *end;
};

struct item {
    const uint8_t *bytes; /* with its head */
    size_t size;
};

static uint64_t big_endian(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        v = v << 8 | p[i];
    }
    return v;
}

/* Bytes of the scalar that begins here, of the forms that pack.h writes; 0: it is none of them. */
static size_t scalar_size(const uint8_t *p, size_t left)
{
    uint8_t tag = p[0];
    if (tag < 0x80 || tag >= 0xe0 || tag == 0xc0 || tag == 0xc2 || tag == 0xc3) {
        return 1;
    }
    if (tag >= 0xa0 && tag < 0xc0) {
        return 1 + (size_t)(tag & 0x1f);
    }
    if (tag == 0xcb) {
        return 9;
    }
    if (tag >= 0xcc && tag <= 0xd3) {
        return 1 + ((size_t)1 << (tag & 3));
    }
    size_t width = tag == 0xd9 ? 1 : tag == 0xda ? 2 : tag == 0xdb ? 4 : 0;
    return width && left > width ? 1 + width + (size_t)big_endian(p + 1, width) : 0;
}

static struct item next_item(struct cursor *c)
{
    struct item item = {c->at, 0};
    size_t left = c->at ? (size_t)(c->end - c->at) : 0;
    item.size = left > 0 ? scalar_size(c->at, left) : 0;
    if (item.size == 0 || item.size > left) {
        *c = (struct cursor){NULL, NULL};
        return (struct item){NULL, 0};
    }
    c->at += item.size;
    return item;
}

static bool key_is_same_item(struct item a, struct item b)
{
    return a.size == b.size && a.bytes && b.bytes && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static size_t map_count(struct cursor *c)
{
    size_t left = c->at ? (size_t)(c->end - c->at) : 0;
    if (left >= 1 && (c->at[0] & 0xf0) == 0x80) {
        return *c->at++ & 0x0f;
    }
    if (left >= 3 && c->at[0] == 0xde) {
        c->at += 3;
        return (size_t)big_endian(c->at - 2, 2);
    }
    *c = (struct cursor){NULL, NULL};
    return 0;
}

/* The text of an item that is a name: of these the head is one byte (RECORD_NAME_MAX). */
static int key_compare_names(struct item a, struct item b)
{
    size_t n = a.size < b.size ? a.size : b.size;
    int c = memcmp(a.bytes + 1, b.bytes + 1, n - 1);
    return c ? c : (int)a.size - (int)b.size;
}

struct fields {
    struct cursor at;
    size_t left;
    struct item name, value; /* of the next one; its name has no bytes: there is none */
};

static void next_field(struct fields *f)
{
    f->name = f->value = (struct item){NULL, 0};
    if (f->left > 0) {
        f->left--;
        f->name = next_item(&f->at);
        f->value = next_item(&f->at);
    }
}

static int count_differences(struct fields *a, struct fields *b)
{
    int n = 0;
    next_field(a);
    next_field(b);
    while (a->name.bytes || b->name.bytes) {
        int order = !b->name.bytes ? -1 : !a->name.bytes ? 1 : key_compare_names(a->name, b->name);
        n += order != 0 || !key_is_same_item(a->value, b->value);
        if (order <= 0) {
            next_field(a);
        }
        if (order >= 0) {
            next_field(b);
        }
    }
    return a->at.at && b->at.at ? n : -1;
}

int key_differences(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    enum { HEAD = 2 }; /* of the array, and the version */
    if (a_len <= HEAD || b_len <= HEAD || memcmp(a, b, HEAD) != 0) {
        return -1;
    }
    struct fields x = {.at = {a + HEAD, a + a_len}}, y = {.at = {b + HEAD, b + b_len}};
    if (!key_is_same_item(next_item(&x.at), next_item(&y.at))) {
        return -1;
    }
    x.left = map_count(&x.at);
    y.left = map_count(&y.at);
    return count_differences(&x, &y);
}
