/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops are few, registered once before any thread starts, and only read afterwards. Sorting their
 * field names here is what makes canonical order free for every problem that comes later.
 */
#include <assert.h>
#include <string.h>

#include "proto/op.h"
#include "proto/record.h"

static const char custom_prefix[] = "custom:";
enum { CUSTOM_NAME_MAX = 48 };
static const struct op custom_op = {.name = custom_prefix};

static struct op_index indexes[OPS_MAX];
static size_t n_indexes;

/* The first 8 bytes of a name as a number that sorts as the name does. */
static uint64_t front_of(const char *name, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < 8; i++) {
        v = v << 8 | (i < n ? (uint8_t)name[i] : 0);
    }
    return v;
}

static void index_op(struct op_index *x, const struct op *op)
{
    assert(op->n_fields <= RECORD_FIELDS_MAX);
    x->op = op;
    for (size_t i = 0; i < op->n_fields; i++) {
        size_t at = i;
        while (at > 0 && strcmp(op->fields[x->order[at - 1]].name, op->fields[i].name) > 0) {
            x->order[at] = x->order[at - 1];
            at--;
        }
        x->order[at] = (uint8_t)i;
    }
    for (size_t i = 0; i < op->n_fields; i++) {
        const char *name = op->fields[x->order[i]].name;
        size_t n = strlen(name);
        assert(record_name_ok(name, n));
        x->name_n[i] = (uint8_t)n;
        x->front[i] = front_of(name, n);
        memset(x->names[i], 0, RECORD_NAME_MAX);
        memcpy(x->names[i], name, n);
    }
}

void ops_set(const struct op *const *list)
{
    n_indexes = 0;
    for (; *list; list++) {
        assert(n_indexes < OPS_MAX);
        index_op(&indexes[n_indexes++], *list);
    }
}

const struct op_index *op_index_of(const struct op *op)
{
    for (size_t i = 0; i < n_indexes; i++) {
        if (indexes[i].op == op) {
            return &indexes[i];
        }
    }
    return NULL;
}

bool op_is_custom(const struct op *op)
{
    return op == &custom_op;
}

bool op_is_gemm_alias(const char *name, size_t n)
{
    return text_is("gemm", name, n);
}

static bool is_custom_name(const char *name, size_t n)
{
    size_t prefix = strlen(custom_prefix);
    if (n <= prefix || n > prefix + CUSTOM_NAME_MAX || memcmp(name, custom_prefix, prefix) != 0) {
        return false;
    }
    for (size_t i = prefix; i < n; i++) {
        char c = name[i];
        bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.' || c == '-';
        if (!ok) {
            return false;
        }
    }
    return true;
}

static const struct op *op_find_registered(const char *name, size_t n)
{
    for (size_t i = 0; i < n_indexes; i++) {
        if (text_is(indexes[i].op->name, name, n)) {
            return indexes[i].op;
        }
    }
    return NULL;
}

const struct op *op_find_n(const char *name, size_t n)
{
    const struct op *op = op_find_registered(name, n);
    if (op) {
        return op;
    }
    if (op_is_gemm_alias(name, n)) {
        return op_find_registered("grouped_gemm", strlen("grouped_gemm"));
    }
    return is_custom_name(name, n) ? &custom_op : NULL;
}

const struct op *op_find(const char *name)
{
    return op_find_n(name, strlen(name));
}

void op_names(struct text_out *o)
{
    for (size_t i = 0; i < n_indexes; i++) {
        text_puts(o, indexes[i].op->name);
        text_puts(o, ", ");
    }
    text_puts(o, op_find_registered("grouped_gemm", strlen("grouped_gemm")) ? "gemm, " : "");
    text_puts(o, "custom:<name> (1 to 48 of A-Z a-z 0-9 _ . -)");
}

static int op_compare_field(const struct op_index *x, size_t at, uint64_t front, const char *name,
                            size_t n)
{
    if (x->front[at] != front) {
        return x->front[at] < front ? -1 : 1;
    }
    int c = n > 8 ? strncmp(x->names[at] + 8, name + 8, n - 8) : 0;
    return c != 0 ? c : (int)x->name_n[at] - (int)n;
}

int op_index_field(const struct op_index *x, size_t guess, const char *name, size_t n)
{
    size_t count = x->op->n_fields;
    if (n >= RECORD_NAME_MAX) {
        return -1;
    }
    for (size_t at = guess; at < count && at < guess + 2;
         at++) { /* one default is often left out */
        if (x->name_n[at] == n && memcmp(x->names[at], name, n) == 0) {
            return (int)at;
        }
    }
    uint64_t front = front_of(name, n);
    size_t low = 0;
    size_t high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int c = op_compare_field(x, middle, front, name, n);
        if (c == 0) {
            return (int)middle;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return -1;
}
