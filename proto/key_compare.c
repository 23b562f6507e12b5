/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In what two keys differ, from their canonical bytes alone: a daemon looks through all that it
 * knows to say which is nearest to a key that it does not know, and decoding each would take long.
 * Names are sorted in every key, so one pass over both finds what is missing in either.
 */
#include <string.h>

#include "proto/problem.h"
#include "proto/pull.h"

struct fields {
    struct pull at;
    size_t left;
    const char *name; /* of the next one; NULL: there is none */
    size_t name_n;
    struct pull value;
};

static bool key_is_same_item(const struct pull *a, const struct pull *b)
{
    return pull_left(a) == pull_left(b) && memcmp(a->at, b->at, pull_left(a)) == 0;
}

/* False: these bytes are no key's. */
static bool next_field(struct fields *f)
{
    f->name = NULL;
    if (f->left == 0) {
        return true;
    }
    f->left--;
    return pull_str(&f->at, &f->name, &f->name_n) && pull_item(&f->at, &f->value);
}

static int key_compare_names(const struct fields *a, const struct fields *b)
{
    if (!a->name || !b->name) {
        return a->name ? -1 : 1;
    }
    size_t n = a->name_n < b->name_n ? a->name_n : b->name_n;
    int c = memcmp(a->name, b->name, n);
    return c ? c : (int)a->name_n - (int)b->name_n;
}

static int count_differences(struct fields *a, struct fields *b)
{
    int n = 0;
    bool good = next_field(a) && next_field(b);
    while (good && (a->name || b->name)) {
        int order = key_compare_names(a, b);
        n += order != 0 || !key_is_same_item(&a->value, &b->value);
        good = (order > 0 || next_field(a)) && (order < 0 || next_field(b));
    }
    return good ? n : -1;
}

int key_differences(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len)
{
    enum { HEAD = 2 }; /* of the array, and the version */
    if (a_len <= HEAD || b_len <= HEAD || memcmp(a, b, HEAD) != 0) {
        return -1;
    }
    struct fields x = {.at = {a + HEAD, a + a_len}}, y = {.at = {b + HEAD, b + b_len}};
    struct pull op, other;
    if (!pull_item(&x.at, &op) || !pull_item(&y.at, &other) || !key_is_same_item(&op, &other) ||
        !pull_map(&x.at, &x.left) || !pull_map(&y.at, &y.left)) {
        return -1;
    }
    return count_differences(&x, &y);
}
