/* SPDX-License-Identifier: Apache-2.0 */
/* See checks.h. */
#include "tests/fuzz/checks.h"
#include "proto/scan.h"

static struct wire_doc *doc2;

bool same_bytes(const struct wire_buf *a, const struct wire_buf *b)
{
    return !a->failed && !b->failed && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

const struct wire_obj *decode_again(const struct wire_buf *b)
{
    const struct wire_obj *o = NULL;
    struct scan s;
    size_t used = 0;
    doc2 = doc2 ? doc2 : wire_doc_new();
    CHECK(doc2 && !b->failed);
    scan_init(&s, RUNNER_MESSAGE_BYTES_MAX);
    CHECK(scan_feed(&s, b->data, b->len, &used, NULL) == SCAN_DONE && used == b->len);
    CHECK(wire_decode(doc2, b->data, b->len, &o, NULL) == 0);
    return o;
}

void check_record(const struct record *r)
{
    static char text[5 * RECORD_TEXT_MAX], json[7 * RECORD_TEXT_MAX];
    static struct record again;
    struct error err;
    CHECK(record_format(r, text, sizeof(text)) < sizeof(text));
    CHECK(record_parse(&again, text, &err) == 0 && record_equal(r, &again));
    size_t n = record_to_json(r, json, sizeof(json));
    CHECK(n < sizeof(json));
    CHECK(record_from_json(&again, json, n, &err) == 0 && record_equal(r, &again));
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    record_pack(&b, r);
    CHECK(record_unpack(&again, decode_again(&b), &err) == 0 && record_equal(r, &again));
}

static void check_key(const struct problem *p)
{
    static struct key k, k2;
    static struct problem again;
    char class[192];
    CHECK(key_make(&k, p, "device class", NULL) == 0);
    CHECK(key_decode(k.bytes, k.len, &again, class, NULL) == 0);
    CHECK(key_make(&k2, &again, class, NULL) == 0);
    CHECK(k2.hash == k.hash && k2.len == k.len && memcmp(k2.bytes, k.bytes, k.len) == 0);
}

static void check_buckets(const struct problem *p)
{
    static struct problem bucket, again;
    for (int scheme = BUCKET_EXACT; scheme <= BUCKET_SQRT2; scheme++) {
        problem_bucket(p, (enum bucket_scheme)scheme, &bucket);
        CHECK(problem_make(&again, bucket.op_name, &bucket.fields, NULL) == 0);
        CHECK(record_equal(&again.fields, &bucket.fields));
        problem_bucket(&bucket, (enum bucket_scheme)scheme, &again);
        CHECK(record_equal(&again.fields, &bucket.fields));
        check_key(&bucket);
    }
}

void check_problem(const struct problem *p)
{
    static char text[5 * RECORD_TEXT_MAX];
    static struct problem again;
    CHECK(problem_format(p, text, sizeof(text)) < sizeof(text));
    CHECK(problem_parse(&again, text, NULL) == 0);
    CHECK(record_equal(&again.fields, &p->fields) && strcmp(again.op_name, p->op_name) == 0);
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    problem_pack(&b, p);
    CHECK(problem_unpack(&again, decode_again(&b), NULL) == 0);
    CHECK(record_equal(&again.fields, &p->fields) && strcmp(again.op_name, p->op_name) == 0);
    check_record(&p->fields);
    check_buckets(p);
}
