/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts from users and files: a config or a problem on one line or as JSON, and JSON that becomes a
 * message. Accepted records and problems must keep the promises of checks.h.
 */
#include "kernels/family.h"
#include "proto/scan.h"
#include "tests/fuzz/checks.h"

static void check_json(const char *text)
{
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    WIRE_BUF_AUTO b2 = WIRE_BUF_NULL;
    char *json = NULL;
    if (wire_from_json(&b, text, &err) || b.len > REQUEST_BYTES_MAX) {
        return;
    }
    struct scan s;
    size_t used = 0;
    scan_init(&s, RUNNER_MESSAGE_BYTES_MAX);
    if (scan_feed(&s, b.data, b.len, &used, &err) != SCAN_DONE) {
        return; /* JSON is nested deeper than a message may be */
    }
    CHECK(wire_to_json(decode_again(&b), &json, &err) == 0);
    CHECK(wire_from_json(&b2, json, &err) == 0);
    free(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool registered;
    static struct record r;
    static struct problem p;
    struct error err = ERROR_NULL;
    if (!registered) {
        families_register();
        registered = true;
    }
    char *text = fuzz_text(data, n);
    if (record_parse(&r, text, &err) == 0) {
        check_record(&r);
    }
    if (problem_parse(&p, text, &err) == 0) {
        check_problem(&p);
    }
    if (record_from_json(&r, text, strlen(text), &err) == 0) {
        check_record(&r);
    }
    check_json(text);
    free(text);
    return 0;
}
