/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile bytes on the path of a client's message: scan, decode, request, problem, bucket, key. The
 * same bytes are also decoded as a key of a store. No input may cause a crash. Accepted
 * records and problems must keep the promises of checks.h.
 */
#include "kernels/family.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "tests/fuzz/checks.h"

static struct wire_doc *doc;

/* ---- messages -------------------------------------------------------------------------------- */

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
        &answer_schema,     &progress_schema,     &run_schema,     &trial_schema,
        &module_schema,     &best_schema,         &event_schema,   &quarantine_schema,
        &served_row_schema, &runner_hello_schema, &attempt_schema, &tune_result_schema,
        &device_info_schema};
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
    CHECK(wire_decode(doc, data, n, &root, NULL) == 0); /* the scan accepted the message */
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

/* Feeds pieces of `piece` bytes. Returns the first message's end, 0 without an end, or ERROR_*. */
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

/* ---- keys ------------------------------------------------------------------------------------ */

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!doc) {
        families_register();
        doc = wire_doc_new();
        CHECK(doc);
    }
    check_stream(data, n);
    check_as_key(data, n);
    return 0;
}
