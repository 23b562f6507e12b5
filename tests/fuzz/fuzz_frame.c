/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scan alone, which finds the ends of messages in a client's stream and bounds their size. The
 * first two bytes of an input give the size limit and the size of the pieces in which the scan gets
 * the rest, the stream. The size of the pieces must not change the verdict or the ends of messages.
 * The decoder accepts every message that the scan accepts. No message exceeds the limit.
 */
#include "proto/rpc.h"
#include "proto/scan.h"
#include "tests/fuzz/fuzz.h"

enum { ENDS_MAX = 64 };

struct verdict {
    int status; /* of the last feed */
    int n;
    size_t end[ENDS_MAX]; /* of the first messages */
};

static struct verdict scan_all(const uint8_t *data, size_t n, size_t limit, size_t piece)
{
    struct verdict v = {.status = SCAN_MORE};
    struct scan s;
    scan_init(&s, limit);
    for (size_t at = 0; at < n && v.status >= 0 && v.n < ENDS_MAX;) {
        size_t take = piece < n - at ? piece : n - at, used = 0;
        struct error err = ERROR_NULL;
        v.status = scan_feed(&s, data + at, take, &used, &err);
        CHECK(v.status >= 0 || err.text[0]);
        CHECK(used <= take && (v.status != SCAN_MORE || used == take));
        at += used;
        if (v.status == SCAN_DONE) {
            v.end[v.n++] = at;
        }
    }
    return v;
}

static void decode_all(const uint8_t *data, const struct verdict *v, size_t limit)
{
    static struct wire_doc *doc;
    size_t begin = 0;
    doc = doc ? doc : wire_doc_new();
    CHECK(doc);
    for (int i = 0; i < v->n; i++) {
        struct rpc_message m;
        struct error err = ERROR_NULL;
        const struct wire_obj *root;
        size_t n = v->end[i] - begin;
        CHECK(n > 0 && n <= limit);
        CHECK(wire_decode(doc, data + begin, n, &root, &err) == 0);
        CHECK(rpc_decode(doc, data + begin, n, &m, &err) == 0 || err.text[0]);
        begin = v->end[i];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2) {
        return 0;
    }
    size_t limit = data[0] % 2 ? 16 + (size_t)data[0] * 4 : REQUEST_BYTES_MAX;
    size_t piece = 1 + data[1] % 32;
    data += 2;
    n -= 2;
    struct verdict whole = scan_all(data, n, limit, n ? n : 1);
    struct verdict cut = scan_all(data, n, limit, piece);
    CHECK(whole.n == cut.n && memcmp(whole.end, cut.end, sizeof(whole.end)) == 0);
    CHECK(whole.status == cut.status);
    decode_all(data, &whole, limit);
    return 0;
}
