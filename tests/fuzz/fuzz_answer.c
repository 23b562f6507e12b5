/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile answers. The client reads answers straight from the bytes (proto/pull.h, answer_pull).
 * answer_unpack, which reads a decoded tree, must accept the same answers with the same fields.
 * answer_pull must refuse a truncated answer and must not read past the end.
 */
#include <string.h>

#include "client/answer.h"
#include "proto/message.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "tests/fuzz/checks.h"

static struct wire_doc *doc;

/* Compares two reals: NaN equals NaN, but 0 differs from -0. */
static bool same_real(double a, double b)
{
    return (a != a && b != b) || memcmp(&a, &b, sizeof(a)) == 0;
}

static bool same_answer(const struct gemmd_answer *a, const struct gemmd_answer *b)
{
    bool texts = !strcmp(a->key, b->key) && !strcmp(a->tier, b->tier) &&
                 !strcmp(a->source, b->source) && !strcmp(a->family, b->family) &&
                 !strcmp(a->config, b->config) && !strcmp(a->module, b->module) &&
                 !strcmp(a->note, b->note) && !strcmp(a->target, b->target) &&
                 !strcmp(a->stamp, b->stamp);
    bool reals = same_real(a->time_us, b->time_us) && same_real(a->spread, b->spread) &&
                 same_real(a->reference_us, b->reference_us) && same_real(a->tflops, b->tflops) &&
                 same_real(a->gbps, b->gbps) && same_real(a->floor_us, b->floor_us);
    return texts && reals && a->measured == b->measured && a->generation == b->generation &&
           a->created_s == b->created_s && a->saved == b->saved && a->local == b->local;
}

/* Reads an answer from a tree and straight from the bytes: both must agree. `order`: the order of
 * the fields in earlier answers, which makes answer_pull quick. */
static void check_answer(struct pull item, struct answer_order *order)
{
    struct gemmd_answer by_tree, by_bytes = {.size = sizeof(by_bytes)};
    struct error err;
    const struct wire_obj *o;
    memset(by_bytes.config, 'x', sizeof(by_bytes.config) - 1); /* old contents */
    memset(by_bytes.stamp, 'x', sizeof(by_bytes.stamp) - 1);
    CHECK(wire_decode(doc, item.at, pull_left(&item), &o, &err) == 0);
    bool is_good = answer_unpack(o, &by_tree, &err) == 0;
    struct pull p = item;
    if (answer_pull(&p, &by_bytes, order)) {
        CHECK(p.at == item.end && is_good && wire_find(o, "tier"));
        CHECK(by_bytes.size == sizeof(by_bytes) && same_answer(&by_tree, &by_bytes));
    } else {
        CHECK(p.at == item.at);
    }
    p = item;
    CHECK((answer_read(&p, doc, &by_bytes, order, &err) == 0) == is_good && p.at == item.end);
    CHECK(!is_good || same_answer(&by_tree, &by_bytes));
}

/* Decodes a message's fields straight from the bytes and from a tree: both must agree. */
static void check_schema(struct pull item, const struct schema *s)
{
    static _Alignas(16) char by_tree[4096], by_bytes[4096];
    WIRE_BUF_AUTO a = WIRE_BUF_NULL;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    const struct wire_obj *o;
    CHECK(s->size <= sizeof(by_tree) && wire_decode(doc, item.at, pull_left(&item), &o, NULL) == 0);
    memset(by_bytes, 'x', sizeof(by_bytes));
    if (pull_schema(&item, s, NULL, NULL, NULL, by_bytes)) {
        CHECK(schema_decode(s, SCHEMA_LENIENT, o, by_tree, NULL) == 0);
        schema_encode(&a, s, by_tree);
        schema_encode(&b, s, by_bytes);
        CHECK(same_bytes(&a, &b));
    }
}

static void check_item(struct pull item, struct answer_order *order)
{
    static const struct schema *const all[] = {&progress_schema, &run_schema, &module_schema};
    const struct wire_obj *o;
    CHECK(wire_decode(doc, item.at, pull_left(&item), &o, NULL) == 0);
    struct pull found = item;
    bool is_there = pull_find(&found, "answer");
    CHECK(is_there == (wire_find(o, "answer") != NULL));
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        check_schema(item, all[i]);
    }
    check_answer(item, order);
    check_answer(item, order); /* with the learned field order */
}

/* Every truncated item is refused, without a read past the end. */
static void check_cuts(struct pull item)
{
    size_t n = pull_left(&item), step = n < 256 ? 1 : n / 256;
    for (size_t cut = 0; cut < n; cut += step) {
        uint8_t *part = malloc(cut ? cut : 1); /* exact size, for ASan */
        CHECK(part);
        memcpy(part, item.at, cut);
        struct pull p = {part, part + cut}, inner;
        struct gemmd_answer a = {.size = sizeof(a)};
        struct answer_order order = {0};
        CHECK(!answer_pull(&p, &a, &order) && !pull_item(&p, &inner) && !pull_skip(&p));
        pull_find(&p, "answers");
        CHECK(p.at >= part && p.at <= p.end);
        free(part);
    }
}

static void check_message(const uint8_t *data, size_t n)
{
    struct pull p = {data, data + n}, result, item;
    struct answer_order order = {0};
    struct rpc_message m;
    struct error err;
    uint32_t id;
    size_t count;
    bool is_result = rpc_decode(doc, data, n, &m, &err) == 0 && m.type == RPC_RESPONSE && !m.error;
    CHECK(rpc_pull_result(data, n, &id, &result) == is_result);
    CHECK(!is_result || id == m.id);
    check_cuts(p);
    check_item(p, &order);
    if (pull_array(&p, &count)) { /* the answers of a get_many */
        for (; count > 0; count--) {
            CHECK(pull_item(&p, &item));
            check_item(item, &order);
        }
        CHECK(p.at == p.end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct scan s;
    size_t used;
    doc = doc ? doc : wire_doc_new();
    CHECK(doc);
    scan_init(&s, RESPONSE_BYTES_MAX);
    if (n > 0 && scan_feed(&s, data, n, &used, NULL) == SCAN_DONE) {
        uint8_t *whole = malloc(used);
        CHECK(whole);
        memcpy(whole, data, used);
        check_message(whole, used);
        free(whole);
    }
    return 0;
}
