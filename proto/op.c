/* SPDX-License-Identifier: Apache-2.0 */
/* The table of ops. A program registers its few ops once, before it starts a thread, and then only
 * reads the table. Field names are sorted at registration, so that making a problem needs no sort.
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

static void index_op(struct op_index *x, const struct op *op)
{
    assert(op->n_fields <= RECORD_FIELDS_MAX);
    x->op = op;
    record_init(&x->names);
    for (size_t i = 0; i < op->n_fields; i++) {
        record_put_int(&x->names, op->fields[i].name, (int64_t)i);
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

static const struct op *op_find_alias(const char *name, size_t n, const struct op_alias **alias)
{
    for (size_t i = 0; i < n_indexes; i++) {
        const struct op_alias *a = indexes[i].op->aliases;
        for (; a && a->name; a++) {
            if (text_is(a->name, name, n)) {
                *alias = a;
                return indexes[i].op;
            }
        }
    }
    return NULL;
}

const struct op *op_find_n(const char *name, size_t n, const struct op_alias **alias)
{
    *alias = NULL;
    for (size_t i = 0; i < n_indexes; i++) {
        if (text_is(indexes[i].op->name, name, n)) {
            return indexes[i].op;
        }
    }
    const struct op *op = op_find_alias(name, n, alias);
    return op || !is_custom_name(name, n) ? op : &custom_op;
}

void op_names(struct text_out *o)
{
    for (size_t i = 0; i < n_indexes; i++) {
        text_puts(o, indexes[i].op->name);
        text_puts(o, ", ");
        for (const struct op_alias *a = indexes[i].op->aliases; a && a->name; a++) {
            text_puts(o, a->name);
            text_puts(o, ", ");
        }
    }
    text_puts(o, "custom:<name> (1 to 48 of A-Z a-z 0-9 _ . -)");
}
