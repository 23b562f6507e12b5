/* SPDX-License-Identifier: Apache-2.0 */
/* The scan against a plain recursive walker over the whole message: same end, same verdict, over
 * every split of good messages and over thousands of mutated messages. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/rpc.h"
#include "tests/unit/proto/common.h"

enum { LIMIT = 4096 };

/* ---- the walker ------------------------------------------------------------------------------ */

enum { WALK_MORE = -1, WALK_REFUSED = -2 };

struct walk {
    const uint8_t *p;
    size_t n, at;
};

static uint64_t walk_be(struct walk *w, int bytes, bool *more)
{
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) {
        if (w->at == w->n) {
            *more = true;
            return 0;
        }
        v = v << 8 | w->p[w->at++];
    }
    return v;
}

static int walk_object(struct walk *w, int depth);

static int walk_children(struct walk *w, uint64_t n, int depth)
{
    if (depth == MESSAGE_DEPTH_MAX) {
        return WALK_REFUSED;
    }
    for (uint64_t i = 0; i < n; i++) {
        int r = walk_object(w, depth + 1);
        if (r != 0) {
            return r;
        }
    }
    return 0;
}

static int walk_skip(struct walk *w, uint64_t n)
{
    if (n > w->n - w->at) {
        return WALK_MORE;
    }
    w->at += n;
    return 0;
}

static int walk_object(struct walk *w, int depth)
{
    static const int sizes[] = {1, 2, 4, 8, 1, 2, 4, 8}; /* uint, int */
    bool more = false;
    uint8_t c = (uint8_t)walk_be(w, 1, &more);
    if (more) {
        return WALK_MORE;
    }
    if (c < 0x80 || c >= 0xe0 || c == 0xc0 || c == 0xc2 || c == 0xc3) {
        return 0;
    }
    if (c < 0x90) {
        return walk_children(w, 2 * (c & 15u), depth);
    }
    if (c < 0xa0) {
        return walk_children(w, c & 15, depth);
    }
    if (c < 0xc0) {
        return walk_skip(w, c & 31);
    }
    if (c == 0xc1 || (c >= 0xc7 && c <= 0xc9) || (c >= 0xd4 && c <= 0xd8)) {
        return WALK_REFUSED;
    }
    if (c == 0xca || c == 0xcb) {
        return walk_skip(w, c == 0xca ? 4 : 8);
    }
    if (c >= 0xcc && c <= 0xd3) {
        return walk_skip(w, (uint64_t)sizes[c - 0xcc]);
    }
    if (c >= 0xdc) {
        uint64_t n = walk_be(w, c & 1 ? 4 : 2, &more);
        return more ? WALK_MORE : walk_children(w, c >= 0xde ? 2 * n : n, depth);
    }
    uint64_t n = walk_be(w, 1 << (c >= 0xd9 ? c - 0xd9 : c - 0xc4), &more);
    return more ? WALK_MORE : walk_skip(w, n);
}

/* The end of the first object in data, or WALK_*. */
static long walk(const uint8_t *data, size_t n)
{
    struct walk w = {data, n, 0};
    int r = walk_object(&w, 0);
    return r == 0 ? (long)w.at : r;
}

/* ---- the scan, in pieces --------------------------------------------------------------------- */

/* Feeds data in pieces of random sizes (all at once: rng NULL). End of the message, or WALK_*. */
static long feed(const uint8_t *data, size_t n, size_t limit, struct rng *rng)
{
    struct scan s;
    scan_init(&s, limit);
    size_t at = 0;
    while (at < n) {
        size_t piece = rng ? (size_t)rng_in(rng, 1, 7) : n;
        piece = piece < n - at ? piece : n - at;
        uint8_t *copy = malloc(piece); /* a copy of its own: ASan detects a read past the piece */
        memcpy(copy, data + at, piece);
        size_t used = 99999;
        int r = scan_feed(&s, copy, piece, &used, NULL);
        free(copy);
        if (r < 0) {
            return WALK_REFUSED;
        }
        assert_true(used <= piece);
        at += used;
        if (r == SCAN_DONE) {
            return (long)at;
        }
        assert_int_equal(used, piece);
    }
    return WALK_MORE;
}

static void put_message(struct wire_buf *b, int which)
{
    static char text[300];
    memset(text, 'x', sizeof(text) - 1);
    static const char *const params[] = {
        "{\"problem\":{\"op\":\"grouped_gemm\",\"M\":32768,\"N\":1536,\"mode\":\"dW\"}}",
        "[[[[[[[1,[]]]]]]]]", /* with the array around it, the text is eight levels deep */
        "{}",
        "[]",
        "\"text\"",
        "[1,-1,300,-300,70000,-70000,5000000000,-5000000000,1.5,null,true,false]",
    };
    enum { N = sizeof(params) / sizeof(params[0]) };
    if (which < N) {
        if (which == 0) {
            rpc_put_request(b, 70000, "get");
        }
        wire_from_json(b, params[which], NULL);
        return;
    }
    wire_put_array(b, 3 + 17);
    wire_put_bin(b, text, 256);
    wire_put_strn(b, text, 299);
    wire_put_bin(b, text, 0);
    for (int i = 0; i < 17; i++) {
        wire_put_map(b, 1);
        wire_put_str(b, "key");
        wire_put_real(b, i);
    }
}

enum { MESSAGES = 7 };

static void test_every_split(void **state)
{
    (void)state;
    for (int i = 0; i < MESSAGES; i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        put_message(&b, i);
        assert_int_equal(walk(b.data, b.len), (long)b.len);
        for (size_t first = 0; first <= b.len; first++) {
            for (size_t second = first; second <= b.len; second += 1 + b.len / 60) {
                struct scan s;
                size_t used = 0;
                scan_init(&s, LIMIT);
                const size_t cuts[] = {0, first, second, b.len};
                for (int part = 0; part < 3; part++) {
                    size_t n = cuts[part + 1] - cuts[part];
                    int r = scan_feed(&s, b.data + cuts[part], n, &used, NULL);
                    bool last = cuts[part + 1] == b.len && n > 0;
                    assert_int_equal(r, last ? SCAN_DONE : SCAN_MORE);
                    assert_int_equal(used, n);
                    if (last) {
                        break;
                    }
                }
            }
        }
    }
}

static void test_stream_of_messages(void **state)
{
    (void)state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct rng rng = {3};
    size_t ends[200];
    for (int i = 0; i < 200; i++) {
        put_message(&b, (int)rng_in(&rng, 0, MESSAGES - 1));
        ends[i] = b.len;
    }
    struct scan s;
    scan_init(&s, LIMIT);
    size_t at = 0, seen = 0;
    while (at < b.len) {
        size_t piece = (size_t)rng_in(&rng, 1, 400);
        piece = piece < b.len - at ? piece : b.len - at;
        size_t used;
        int r = scan_feed(&s, b.data + at, piece, &used, NULL);
        at += used;
        if (r == SCAN_DONE) {
            assert_int_equal(at, ends[seen++]);
            assert_int_equal(s.taken, 0);
        }
    }
    assert_int_equal(seen, 200);
}

static void test_mutations_agree(void **state)
{
    (void)state;
    struct rng rng = {5};
    long verdicts[3] = {0};
    for (int round = 0; round < 60000; round++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        put_message(&b, (int)rng_in(&rng, 0, MESSAGES - 1));
        for (int64_t flips = rng_in(&rng, 1, 3); flips > 0; flips--) {
            b.data[rng_in(&rng, 0, (int64_t)b.len - 1)] = (uint8_t)rng_next(&rng);
        }
        long expected = walk(b.data, b.len);
        long whole = feed(b.data, b.len, LIMIT, NULL);
        assert_int_equal(feed(b.data, b.len, LIMIT, &rng), whole);
        if (expected == WALK_MORE && whole == WALK_REFUSED) {
            /* the message promises more than the limit, or the walker cannot see a fault in the
             * missing part */
            continue;
        }
        assert_int_equal(whole, expected);
        verdicts[whole >= 0 ? 0 : -whole]++;
    }
    assert_true(verdicts[0] > 1000 && verdicts[1] > 1000 && verdicts[2] > 1000);
}

/* msgpack-c accepts all that the scan accepts, and ends at the same byte. */
static void test_decoder_agrees(void **state)
{
    (void)state;
    struct rng rng = {7};
    struct wire_doc *doc = wire_doc_new();
    int done = 0;
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[64];
        for (size_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)rng_next(&rng);
            bytes[i] = rng_next(&rng) % 3 ? bytes[i] & 0x9f : bytes[i]; /* more containers */
        }
        long end = feed(bytes, sizeof(bytes), sizeof(bytes), NULL);
        if (end > 0) {
            const struct wire_obj *o;
            struct error err;
            assert_ok(err, wire_decode(doc, bytes, (size_t)end, &o, &err));
            done++;
        }
    }
    assert_true(done > 1000);
    wire_doc_free(doc);
}

/* ---- limits ---------------------------------------------------------------------------------- */

static void test_huge_promises(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } cases[] = {
        {"\xdd\x20\x00\x00\x00", 5},                              /* array32 of 2^29 */
        {"\xdd\xff\xff\xff\xff", 5}, {"\xdf\xff\xff\xff\xff", 5}, /* map32: twice as many */
        {"\xdf\x80\x00\x00\x00", 5}, {"\xdb\xff\xff\xff\xff", 5}, /* str32 */
        {"\xc6\xff\xff\xff\xff", 5},                              /* bin32 */
        {"\xdc\xff\xff", 3},         {"\x92\xdc\x0f\xff", 4},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scan s;
        size_t used;
        struct error err = ERROR_NULL;
        scan_init(&s, LIMIT);
        assert_error(err, ERROR_TOO_LARGE, "4096",
                     scan_feed(&s, cases[i].bytes, cases[i].n, &used, &err));
    }
}

static void test_limit_exact(void **state)
{
    (void)state;
    for (int i = 0; i < MESSAGES; i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        struct rng rng = {11};
        put_message(&b, i);
        assert_int_equal(feed(b.data, b.len, b.len, NULL), (long)b.len);
        assert_int_equal(feed(b.data, b.len, b.len, &rng), (long)b.len);
        assert_int_equal(feed(b.data, b.len, b.len - 1, NULL), WALK_REFUSED);
        assert_int_equal(feed(b.data, b.len, b.len - 1, &rng), WALK_REFUSED);
    }
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    static char text[REQUEST_BYTES_MAX];
    memset(text, 'x', sizeof(text));
    wire_put_strn(&b, text, REQUEST_BYTES_MAX - 3);
    assert_int_equal(b.len, REQUEST_BYTES_MAX);
    assert_int_equal(scan_all(b.data, b.len, REQUEST_BYTES_MAX, NULL), SCAN_DONE);
    wire_buf_clear(&b);
    wire_put_strn(&b, text, REQUEST_BYTES_MAX - 2);
    assert_int_equal(scan_all(b.data, b.len, REQUEST_BYTES_MAX, NULL), ERROR_TOO_LARGE);
}

static void test_depth(void **state)
{
    (void)state;
    static const uint8_t arrays[] = {0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x90};
    static const uint8_t deeper[] = {0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x90};
    static const uint8_t maps[] = {0x81, 1,    0x81, 1,    0x81, 1,    0x81, 1,   0x81,
                                   1,    0x81, 1,    0x81, 1,    0x81, 1,    0x80};
    struct error err;
    assert_int_equal(scan_all(arrays, sizeof(arrays), LIMIT, NULL), SCAN_DONE);
    assert_error(err, ERROR_MALFORMED, "8 levels", scan_all(deeper, sizeof(deeper), LIMIT, &err));
    assert_error(err, ERROR_MALFORMED, "8 levels", scan_all(maps, sizeof(maps), LIMIT, &err));
}

static void test_unused_types(void **state)
{
    (void)state;
    static const uint8_t refused[] = {0xc1, 0xc7, 0xc8, 0xc9, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8};
    for (size_t i = 0; i < sizeof(refused); i++) {
        uint8_t bytes[] = {0x91, refused[i], 0, 0};
        struct error err;
        assert_error(err, ERROR_MALFORMED, "offset 1", scan_all(bytes, sizeof(bytes), LIMIT, &err));
    }
}

static void test_nothing_is_more(void **state)
{
    (void)state;
    struct scan s;
    size_t used = 5;
    scan_init(&s, LIMIT);
    assert_int_equal(scan_feed(&s, "", 0, &used, NULL), SCAN_MORE);
    assert_int_equal(used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),     cmocka_unit_test(test_stream_of_messages),
        cmocka_unit_test(test_mutations_agree), cmocka_unit_test(test_decoder_agrees),
        cmocka_unit_test(test_huge_promises),   cmocka_unit_test(test_limit_exact),
        cmocka_unit_test(test_depth),           cmocka_unit_test(test_unused_types),
        cmocka_unit_test(test_nothing_is_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
