/* SPDX-License-Identifier: Apache-2.0 */
/* Spans: the same ends that the scan finds, for all forms, and nothing beyond the bytes given. */
#include <stdlib.h>

#include "common.h"
#include "proto/scan.h"
#include "proto/span.h"

static const char *const texts[] = {
    "null",
    "true",
    "0",
    "-1",
    "-33",
    "127",
    "128",
    "255",
    "256",
    "-129",
    "65536",
    "4294967296",
    "-2147483649",
    "1.5",
    "\"\"",
    "\"short\"",
    "\"a text that is longer than thirty-one bytes is\"",
    "[]",
    "{}",
    "[[],[[1,[2,\"three\"]]],{}]",
    "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]",
    "{\"a\":{\"b\":{\"c\":[1,2.5,\"d\"]}},\"e\":[{\"f\":null}]}",
    "{\"a\":1,\"b\":2,\"c\":3,\"d\":4,\"e\":5,\"f\":6,\"g\":7,\"h\":8,\"i\":9,\"j\":10,\"k\":11,"
    "\"l\":12,\"m\":13,\"n\":14,\"o\":15,\"p\":16,\"q\":17}",
};

static void ends_where_the_scan_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        struct scan scan;
        size_t used = 0;
        struct error err;
        assert_ok(err, wire_from_json(&b, texts[i], &err));
        size_t n = b.len;
        wire_put_str(&b, "and more");
        scan_init(&scan, REQUEST_BYTES_MAX);
        assert_int_equal(scan_feed(&scan, b.data, b.len, &used, &err), SCAN_DONE);
        assert_int_equal(used, n);
        assert_int_equal(span_of(b.data, b.len), n);
        assert_int_equal(span_of(b.data, n), n);
        /* a copy of exactly `cut` bytes: ASan detects a read past it */
        for (size_t cut = 0; cut < n; cut++) {
            uint8_t *part = malloc(cut ? cut : 1);
            memcpy(part, b.data, cut);
            assert_int_equal(span_of(part, cut), 0);
            free(part);
        }
    }
}

static void lengths_that_lie(void **state)
{
    (void)state;
    static const uint8_t bad[][9] = {
        {0xdd, 0xff, 0xff, 0xff, 0xff},
        {0xdf, 0xff, 0xff, 0xff, 0xff},
        {0xdb, 0xff, 0xff, 0xff, 0xff},
        {0xc6, 0xff, 0xff, 0xff, 0xff},
        {0xc1},
        {0xc7, 0, 0},
        {0xd4, 1, 2},
        {0x9f, 0x9f, 0x9f},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(span_of(bad[i], sizeof(bad[i])), 0);
    }
}

static void finds_the_items_of_a_container(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct error err;
    size_t count = 0;
    assert_ok(err, wire_from_json(&b, "{\"problems\":[{\"problems\":0},7,\"x\"],\"z\":1}", &err));
    const uint8_t *at = span_map(b.data, b.len, &count);
    assert_int_equal(count, 2);
    assert_ptr_equal(at, b.data + 1);
    at += span_of(at, b.len - 1);
    const uint8_t *first = span_array(at, b.len - (size_t)(at - b.data), &count);
    assert_int_equal(count, 3);
    assert_ptr_equal(first, at + 1);
    assert_null(span_map(at, b.len - (size_t)(at - b.data), &count));
    assert_null(span_array(b.data, b.len, &count));
    assert_null(span_array(b.data, 0, &count));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_where_the_scan_ends),
        cmocka_unit_test(lengths_that_lie),
        cmocka_unit_test(finds_the_items_of_a_container),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
