/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile bytes on the way that a client's bytes go: scan, decode, request, problem, bucket, key;
 * and the same bytes taken as a key of a store, as a line of text and as JSON. Nothing may crash,
 * and what is accepted must keep the promises: it goes round in every form, its bucket is a legal
 * problem that rounds to itself, its key is canonical.
 *
 * As a test it replays files and folders. To search for more:
 *   CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false \
 *       -Dc_args=-fsanitize=fuzzer-no-link
 *   ninja -C build-fuzz tests/fuzz/fuzz_message
 *   build-fuzz/tests/fuzz/fuzz_message -max_len=4096 new-corpus tests/fuzz/corpus/message
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "kernels/family.h"
#include "proto/request.h"
#include "proto/rpc.h"
#include "proto/scan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* An assert that is also there in a release build. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct wire_doc *doc, *doc2;

/* ---- records and problems -------------------------------------------------------------------- */

static const struct wire_obj *decode_again(const struct wire_buf *b)
{
    const struct wire_obj *o = NULL;
    struct scan s;
    size_t used = 0;
    CHECK(!b->failed);
    scan_init(&s, RUNNER_MESSAGE_BYTES_MAX);
    CHECK(scan_feed(&s, b->data, b->len, &used, NULL) == SCAN_DONE && used == b->len);
    CHECK(wire_decode(doc2, b->data, b->len, &o, NULL) == 0);
    return o;
}

static void check_record(const struct record *r)
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

static void check_problem(const struct problem *p)
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

/* ---- messages -------------------------------------------------------------------------------- */

static bool same_bytes(const struct wire_buf *a, const struct wire_buf *b)
{
    return !a->failed && !b->failed && a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static void check_request(const struct wire_obj *params)
{
    static struct request r, again;
    struct error err = ERROR_NULL;
    if (request_unpack(&r, params, &err) < 0) {
        CHECK(err.code < 0 && err.text[0] && !r.restrict_ && !r.configs && !r.text);
        return;
    }
    check_problem(&r.problem);
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    WIRE_BUF_AUTO b2 = WIRE_BUF_NULL;
    request_pack(&b, &r);
    CHECK(request_unpack(&again, decode_again(&b), &err) == 0);
    request_pack(&b2, &again);
    CHECK(same_bytes(&b, &b2));
    for (uint32_t i = 0; i < r.n_configs; i++) {
        check_record(&r.configs[i]);
        request_allows(&r, &r.configs[i]);
    }
    request_deinit(&r);
    request_deinit(&again);
}

static void check_order(const struct wire_obj *params)
{
    static struct tune_order o, again;
    struct error err = ERROR_NULL;
    if (tune_order_unpack(&o, params, &err) < 0) {
        CHECK(err.code < 0 && err.text[0] && !o.done && !o.hints && !o.avoid);
        return;
    }
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    WIRE_BUF_AUTO b2 = WIRE_BUF_NULL;
    tune_order_pack(&b, &o);
    CHECK(tune_order_unpack(&again, decode_again(&b), &err) == 0);
    tune_order_pack(&b2, &again);
    CHECK(same_bytes(&b, &b2));
    tune_order_deinit(&o);
    tune_order_deinit(&again);
}

static void check_schemas(const struct wire_obj *map)
{
    static const struct schema *const all[] = {
        &answer_schema,       &progress_schema, &run_schema,         &trial_schema,
        &module_schema,       &best_schema,     &event_schema,       &quarantine_schema,
        &runner_hello_schema, &attempt_schema,  &tune_result_schema, &device_info_schema};
    static _Alignas(16) char object[sizeof(struct trial) + sizeof(struct best)];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        CHECK(all[i]->size <= sizeof(object));
        if (schema_decode(all[i], SCHEMA_LENIENT, map, object, NULL) == 0) {
            WIRE_BUF_AUTO b = WIRE_BUF_NULL;
            WIRE_BUF_AUTO b2 = WIRE_BUF_NULL;
            schema_encode(&b, all[i], object);
            CHECK(schema_decode(all[i], SCHEMA_STRICT, decode_again(&b), object, NULL) == 0);
            schema_encode(&b2, all[i], object);
            CHECK(same_bytes(&b, &b2));
        }
    }
}

static void check_message(const uint8_t *data, size_t n)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    const struct wire_obj *root;
    char *json;
    CHECK(wire_decode(doc, data, n, &root, NULL) == 0); /* the scan has let it through */
    CHECK(wire_to_json(root, &json, NULL) == 0);
    free(json);
    if (rpc_decode(doc, data, n, &m, &err) < 0) {
        CHECK(err.text[0]);
        return;
    }
    if (m.type == RPC_RESPONSE) {
        CHECK(rpc_get_error(m.error, &err) < 0 && err.text[0]);
        check_schemas(m.result);
        return;
    }
    check_request(m.params);
    check_order(m.params);
    check_schemas(m.params);
}

/* The end of the first message in data, when it comes in pieces of `piece` bytes; or a code. */
static long scan_first(const uint8_t *data, size_t n, size_t piece)
{
    struct scan s;
    scan_init(&s, REQUEST_BYTES_MAX);
    for (size_t at = 0; at < n;) {
        size_t take = piece < n - at ? piece : n - at;
        size_t used = 0;
        int r = scan_feed(&s, data + at, take, &used, NULL);
        if (r < 0) {
            return r;
        }
        at += used;
        if (r == SCAN_DONE) {
            return (long)at;
        }
        CHECK(used == take);
    }
    return 0;
}

static void check_stream(const uint8_t *data, size_t n)
{
    while (n > 0) {
        long end = scan_first(data, n, n);
        CHECK(scan_first(data, n, 1) == end && scan_first(data, n, 3) == end);
        if (end <= 0) {
            return;
        }
        check_message(data, (size_t)end);
        data += end;
        n -= (size_t)end;
    }
}

/* ---- the same bytes as something else -------------------------------------------------------- */

static void check_as_key(const uint8_t *data, size_t n)
{
    static struct problem p;
    char class[192];
    struct error err = ERROR_NULL;
    if (key_decode(data, n, &p, class, &err) == 0) {
        check_problem(&p);
    } else {
        CHECK(err.text[0]);
    }
}

static void check_as_text(const uint8_t *data, size_t n)
{
    static struct record r;
    static struct problem p;
    struct error err = ERROR_NULL;
    char *text = strndup((const char *)data, n);
    CHECK(text);
    if (record_parse(&r, text, &err) == 0) {
        check_record(&r);
    }
    if (problem_parse(&p, text, &err) == 0) {
        check_problem(&p);
    }
    if (record_from_json(&r, text, strlen(text), &err) == 0) {
        check_record(&r);
    }
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    if (wire_from_json(&b, text, &err) == 0) {
        check_stream(b.data, b.len);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!doc) {
        families_register();
        doc = wire_doc_new();
        doc2 = wire_doc_new();
        CHECK(doc && doc2);
    }
    check_stream(data, n);
    check_as_key(data, n);
    check_as_text(data, n);
    return 0;
}

/* ---- replay ---------------------------------------------------------------------------------- */

#ifndef FUZZ_LIBFUZZER

static int replay_file(const char *path, off_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc((size_t)size + 1);
    if (!f || !data || fread(data, 1, (size_t)size, f) != (size_t)size) {
        fprintf(stderr, "cannot read %s\n", path);
        abort();
    }
    fclose(f);
    uint8_t *exact = realloc(data, size > 0 ? (size_t)size : 1); /* so that an overrun is seen */
    LLVMFuzzerTestOneInput(exact ? exact : data, (size_t)size);
    free(exact ? exact : data);
    return 1;
}

/* How many inputs were run. */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "there is no %s\n", path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        return replay_file(path, st.st_size);
    }
    int runs = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char below[4096];
        if (e->d_name[0] != '.' &&
            snprintf(below, sizeof(below), "%s/%s", path, e->d_name) < (int)sizeof(below)) {
            runs += replay(below);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return runs;
}

int main(int argc, char **argv)
{
    int runs = 0;
    for (int i = 1; i < argc; i++) {
        runs += replay(argv[i]);
    }
    wire_doc_free(doc);
    wire_doc_free(doc2);
    printf("%d inputs replayed\n", runs);
    return runs > 0 ? 0 : 1; /* no inputs: a wrong path, not a success */
}

#endif
