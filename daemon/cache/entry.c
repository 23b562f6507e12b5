/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry's answer has two packed pieces: its own fields, and fields shared by many entries,
 * interned by content. schema_encode makes both pieces from parts of answer_schema, so that a new
 * field of struct answer is in one of the pieces without new code. A reply is the shared piece
 * followed by the own piece: the shared piece begins with the map header for the fields of both.
 */
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/entry.h"

struct shared {
    struct shared *next;
    size_t refs, len;
    uint8_t bytes[]; /* the map header of a whole answer, then the shared fields */
};

enum { FIELDS_MAX = 32 };

/* The fields of answer_schema, divided into two schemas. Made at the first use. */
static struct {
    struct schema_field own_fields[FIELDS_MAX], shared_fields[FIELDS_MAX];
    struct schema own, shared;
} parts;

static bool is_shared(const char *name)
{
    static const char *const names[] = {"tier", "source", "family", "stamp", "note", "saved"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void make_parts(void)
{
    if (parts.own.n) {
        return;
    }
    assert(answer_schema.n <= FIELDS_MAX);
    parts.own = parts.shared = answer_schema;
    parts.own.fields = parts.own_fields;
    parts.shared.fields = parts.shared_fields;
    parts.own.n = parts.shared.n = 0;
    for (size_t i = 0; i < answer_schema.n; i++) {
        if (is_shared(answer_schema.fields[i].name)) {
            parts.shared_fields[parts.shared.n++] = answer_schema.fields[i];
        } else {
            parts.own_fields[parts.own.n++] = answer_schema.fields[i];
        }
    }
}

/* Bytes of a MessagePack map header for n pairs. */
static size_t header_of(size_t n)
{
    return n < 16 ? 1 : 3;
}

/* ---- shared pieces --------------------------------------------------------------------------- */

/* Puts the shared fields, behind a map header that counts all fields of the answer. */
static void put_shared(struct wire_buf *b, const struct answer *a)
{
    size_t skip = header_of(parts.shared.n);
    wire_put_map(b, answer_schema.n);
    size_t at = b->len;
    schema_encode(b, &parts.shared, a);
    if (!b->failed) {
        memmove(b->data + at, b->data + at + skip, b->len - at - skip);
        b->len -= skip;
    }
}

static struct shared *entry_share_bytes(struct entries *x, const uint8_t *bytes, size_t n)
{
    for (struct shared *s = x->shared; s; s = s->next) {
        if (s->len == n && memcmp(s->bytes, bytes, n) == 0) {
            s->refs++;
            return s;
        }
    }
    struct shared *s = malloc(sizeof(*s) + n);
    if (s) {
        *s = (struct shared){.next = x->shared, .refs = 1, .len = n};
        memcpy(s->bytes, bytes, n);
        x->shared = s;
    }
    return s;
}

static void entry_unshare_bytes(struct entries *x, struct shared *s)
{
    if (--s->refs > 0) {
        return;
    }
    struct shared **at = &x->shared;
    while (*at != s) {
        at = &(*at)->next;
    }
    *at = s->next;
    free(s);
}

/* ---- the set of entries ---------------------------------------------------------------------- */

int entries_init(struct entries *x, const char *device_class, struct error *err)
{
    *x = (struct entries){.doc = wire_doc_new()};
    wire_put_str(&x->class_, device_class);
    if (!x->doc || x->class_.failed) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the cache");
    }
    return 0;
}

void entries_free_all(struct entries *x)
{
    wire_buf_deinit(&x->class_);
    wire_buf_deinit(&x->scratch);
    wire_doc_free(x->doc);
    *x = (struct entries){0};
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t entry_mix_hash(uint64_t h, uint64_t part)
{
    return (h ^ part) * UINT64_C(0x9e3779b97f4a7c15);
}

void entry_lists(const struct problem *bucket, uint64_t of[CACHE_LISTS], float dims[CACHE_DIMS])
{
    const struct op *op = bucket->op;
    uint64_t group = hash64(bucket->op_name, strlen(bucket->op_name)), sizes = group, shape = 0;
    size_t n = 0;
    memset(dims, 0, CACHE_DIMS * sizeof(dims[0]));
    for (size_t i = 0; i < bucket->fields.n; i++) {
        const struct record_field *f = &bucket->fields.fields[i];
        struct value v = record_at(&bucket->fields, i);
        uint64_t part = hash64(f->name, strlen(f->name));
        if (v.type == VALUE_INT) {
            uint64_t size = part ^ hash64(&v.integer, sizeof(v.integer));
            bool rows = op->rows && strcmp(op->rows, f->name) == 0;
            sizes = entry_mix_hash(sizes, size);
            shape = rows ? shape : entry_mix_hash(shape, size);
        }
        if (v.type == VALUE_INT && n < CACHE_DIMS) {
            dims[n++] = (float)log2((double)(v.integer > 0 ? v.integer : 0) + 1);
        } else if (v.type == VALUE_TEXT) {
            double place = op->place ? op->place(bucket, f->name) : NAN;
            if (isfinite(place) && n < CACHE_DIMS) {
                dims[n++] = (float)place;
            } else {
                part ^= hash64(v.text, strlen(v.text));
            }
        } else if (v.type == VALUE_BOOL) {
            part += v.flag;
        } else {
            part ^= hash64(&v.integer, sizeof(v.integer));
        }
        group = entry_mix_hash(group, part);
    }
    of[LIST_GROUP] = group;
    of[LIST_SHAPE] = entry_mix_hash(group, shape);
    of[LIST_SIZES] = sizes;
}

uint64_t entry_group(const struct problem *bucket, float dims[CACHE_DIMS])
{
    uint64_t of[CACHE_LISTS];
    entry_lists(bucket, of, dims);
    return of[LIST_GROUP];
}

double entry_distance(const float a[CACHE_DIMS], const float b[CACHE_DIMS])
{
    double sum = 0;
    for (int i = 0; i < CACHE_DIMS; i++) {
        sum += fabs((double)a[i] - (double)b[i]);
    }
    return sum;
}

struct id id_read(const char hex[HASH_HEX])
{
    char front[HASH_HEX / 2 + 1] = {0};
    memcpy(front, hex, HASH_HEX / 2);
    return (struct id){.front = strtoull(front, NULL, 16),
                       .back = strtoull(hex + HASH_HEX / 2, NULL, 16)};
}

void cache_entry_id(const struct cache_entry *e, char out[HASH_HEX])
{
    snprintf(out, HASH_HEX, "%016" PRIx64 "%016" PRIx64, e->id.front, e->id.back);
}

/* What each launch of the answer saves against the analytic default, which gemmd served before the
 * key was tuned. 0: not measured. */
static uint32_t entry_saved_ns(const struct answer *a)
{
    const double ns = (a->reference_us - a->time_us) * 1000;
    return ns > 0 && ns < UINT32_MAX ? (uint32_t)ns : 0;
}

struct cache_entry *entry_make(struct entries *x, const struct key *k, const struct problem *bucket,
                               const struct answer *a, struct error *err)
{
    make_parts();
    struct wire_buf *b = &x->scratch;
    size_t own_skip = header_of(parts.own.n);
    wire_buf_clear(b);
    put_shared(b, a);
    size_t own_at = b->len;
    schema_encode(b, &parts.own, a);
    struct cache_entry *e = NULL;
    struct shared *shared = NULL;
    size_t key_len = k->len - x->class_.len;
    size_t own_len = b->failed ? 0 : b->len - own_at - own_skip;
    if (!b->failed) {
        shared = entry_share_bytes(x, b->data, own_at);
    }
    if (shared) {
        e = malloc(sizeof(*e) + key_len + own_len);
    }
    if (!e) {
        if (shared) {
            entry_unshare_bytes(x, shared);
        }
        error_set(err, ERROR_NO_MEMORY, "no memory to keep one more key");
        return NULL;
    }
    char id[HASH_HEX];
    hash128_hex(k->bytes, k->len, id);
    *e = (struct cache_entry){.id = id_read(id),
                              .generation = a->generation,
                              .shared = shared,
                              .key_len = (uint32_t)key_len,
                              .own_len = (uint32_t)own_len,
                              .saved_ns = entry_saved_ns(a),
                              .saved = a->saved};
    uint64_t of[CACHE_LISTS];
    entry_lists(bucket, of, e->dims);
    for (int i = 0; i < CACHE_LISTS; i++) {
        e->in[i].of = of[i];
    }
    memcpy(e->bytes, b->data + own_at + own_skip, own_len);
    memcpy(e->bytes + own_len, k->bytes, key_len);
    return e;
}

struct cache_entry *entry_free(struct entries *x, struct cache_entry *e)
{
    entry_unshare_bytes(x, e->shared);
    free(e);
    return NULL;
}

void cache_reply(const struct cache_entry *e, struct wire_buf *out)
{
    wire_put_raw(out, e->shared->bytes, e->shared->len);
    wire_put_raw(out, e->bytes, e->own_len);
}

bool cache_verified(const struct cache_entry *e, double atol, double rtol)
{
    return atol >= e->atol && rtol >= e->rtol;
}
