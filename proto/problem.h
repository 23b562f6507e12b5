/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Problems, ops, buckets, keys.
 *
 * A *problem* is an op and a canonical record of named fields. Every field of the op is present
 * (defaults filled in), except a false op_field.restricts. So the same problem has the same bytes
 * on every machine, for any order and completeness of the input. Ops are open: a family brings a
 * `struct op`, a table of its fields; "custom:<name>" takes any fields and is never rounded.
 *
 * A *bucket* is a problem too: sizes are rounded up by a scheme, so that the bucket can really be
 * run and measured. Rounding is idempotent, keeps M a multiple of topk, and never loses the power
 * of two (up to 128) that divides N or K, since a kernel's validity depends on that power: 1000
 * becomes 1016, not 1024.
 *
 * A *key* is op, bucket and device class as canonical MessagePack bytes:
 *   [KEY_VERSION, op, {fields in order}, device class]
 */
#ifndef GEMMD_PROTO_PROBLEM_H
#define GEMMD_PROTO_PROBLEM_H

#include "proto/hash.h"
#include "proto/record.h"
#include "proto/wire.h"

enum { OP_NAME_MAX = 64 };

struct problem;
enum bucket_scheme { BUCKET_EXACT, BUCKET_POW2, BUCKET_SQRT2 };

struct op_field {
    const char *name;
    enum value_type type;
    bool required;
    int64_t min, max;           /* VALUE_INT, inclusive */
    const char *const *choices; /* VALUE_TEXT: NULL-terminated list, or NULL for any text */
    struct value fallback;      /* when not required and absent */
    /* VALUE_BOOL without a fallback: true makes fewer configs legal, and the work and the data stay
     * the same. A problem has the field only where it is true. So a field added later changes no
     * key. */
    bool restricts;
    const char *help; /* one line, with unit */
};

/* Another name of an op, which sets some fields: "gemm" is grouped_gemm with one expert. A problem
 * by this name may not give the fields other values. Answers name the op. */
enum { OP_ALIAS_SETS_MAX = 4 };
struct op_alias {
    const char *name;
    struct {
        const char *field; /* NULL: no further field */
        struct value value;
    } sets[OP_ALIAS_SETS_MAX];
};

struct op {
    const char *name;
    const struct op_field *fields;
    size_t n_fields;
    const struct op_alias *aliases; /* up to an alias without name; NULL: the op has none */
    /* Checks relations between fields (contradicting flags, divisibility, products). All fields are
     * present and in range. May also replace a value by its canonical form (routing lists). 0 or
     * ERROR_*. */
    int (*check)(struct problem *p, struct error *err);
    /* Rounds the sizes; NULL: every scheme is exact. */
    void (*bucket)(struct problem *p, enum bucket_scheme scheme);
    /* Maps the value of a text field (a routing profile) to a number, from which the distance of
     * two keys is computed: a difference of 1 is as far as a factor of 2 between sizes. NAN, or a
     * NULL function: keys with different texts are never near. */
    double (*place)(const struct problem *p, const char *field);
    /* The integer field whose value differs most among a job's queries: the rows of the input.
     * NULL: no such field. */
    const char *rows;
};

struct problem {
    const struct op *op;       /* borrowed, static */
    char op_name[OP_NAME_MAX]; /* op->name, or the full "custom:<name>" */
    struct record fields;
};

/* Sets the ops that problem_* know, a NULL-terminated list; called once at start (families_register
 * in kernels/). The "custom:" op is always known. */
void ops_set(const struct op *const *list);

/* Makes the canonical problem of an op, or of its alias, from the given fields. ERROR_UNKNOWN_OP,
 * ERROR_UNKNOWN_FIELD, ERROR_INVALID, ERROR_CONFLICT; error messages name the field, the value and
 * the accepted values. An integer field takes a real with an integral value too, a real field an
 * integer; no other types convert. `fields` may not be p->fields. */
int problem_make(struct problem *p, const char *op_name, const struct record *fields,
                 struct error *err);
/* Reads a wire map {"op": ..., fields}; nil means "not given". An array of integers for a text
 * field without choices (routing) becomes the text "rows:1,2,3". */
int problem_unpack(struct problem *p, const struct wire_obj *map, struct error *err);
void problem_pack(struct wire_buf *b, const struct problem *p); /* as problem_unpack() reads it */
/* The problem with the same work and data, and all configs legal (op_field.restricts). `out` may be
 * p. */
void problem_unrestrict(const struct problem *p, struct problem *out);
/* Writes all fields as "grouped_gemm K=2048 M=32768 ..."; returns like snprintf. */
size_t problem_format(const struct problem *p, char *out, size_t size);
/* Reads problem_format's text; fields with defaults may be missing. */
int problem_parse(struct problem *p, const char *text, struct error *err);

const char *bucket_scheme_name(enum bucket_scheme s); /* "exact" "pow2" "sqrt2" */
int bucket_scheme_parse(const char *name, enum bucket_scheme *out, struct error *err);
/* Rounds the problem into its bucket. `out` may be p. BUCKET_EXACT copies the problem. */
void problem_bucket(const struct problem *p, enum bucket_scheme scheme, struct problem *out);

/* Building blocks for op->bucket, exported for tests and other ops. When rounding would pass
 * GEMM_SIZE_MAX, and for sizes below 1, the result is the given size. Each function is idempotent.
 * More rows never give a smaller result, and a multiple of topk gives a multiple of topk. Among
 * sizes that the same power of two (up to 128) divides, a larger size never has a smaller
 * bucket_pow2(). */
/* N or K: rounds up to 2^k, less the power of two that divides n, if that is below 128. */
int64_t bucket_pow2(int64_t n);
/* Rounds rows up, in steps of sqrt(2) of the rows per expert: the smallest M_i >= rows with M_i =
 * topk * ceil(floor(experts * 2^(i/2)) / topk), i any integer. */
int64_t bucket_sqrt2_rows(int64_t rows, int64_t experts, int64_t topk);
int64_t bucket_pow2_rows(int64_t rows, int64_t topk); /* rounds rows up to topk * 2^k */

enum { KEY_BYTES_MAX = 12 * 1024 };

struct key {
    uint64_t hash;     /* of the bytes: the first 16 digits of the id */
    char id[HASH_HEX]; /* hash128 of the bytes as hex: for users and SQL */
    size_t len;
    uint8_t bytes[KEY_BYTES_MAX];
};

/* Makes the key of a bucket (the caller has rounded the problem) and a device class. Fills len,
 * hash and bytes. key_id fills id, which a hit in the cache does not need. */
int key_make(struct key *k, const struct problem *bucket, const char *device_class,
             struct error *err);
void key_id(struct key *k);
/* Decodes op, fields and class (for listing and checks). class_out of size 192. */
int key_decode(const void *bytes, size_t n, struct problem *p, char *class_out, struct error *err);
/* The number of fields in which the problems of two keys differ. Ignores the device classes, which
 * may be missing: a key's bytes may end after its fields. -1: two different ops, or not keys. */
int key_differences(const uint8_t *a, size_t a_len, const uint8_t *b, size_t b_len);

#endif
