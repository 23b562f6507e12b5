/* SPDX-License-Identifier: Apache-2.0 */
/* Caches of other machines and releases find entries by a key's bytes, so the bytes are written
 * down here. A change that alters the bytes must raise KEY_VERSION. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/proto/common.h"

static struct key key, other;
static struct problem problem, again;
static struct error err;

static const char h200[] = "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700";

/* Keys made with another MessagePack and another xxHash (Python's): sorted names, shortest
 * forms. */
static const struct {
    const char *problem, *class, *id;
    const char *hex;
} golden[] = {
    {"custom:x", "", "c074a787cd5451a8c1c91267f42d65ec", "9401a8637573746f6d3a7880a0"},
    {"grouped_gemm topk=8 mode=forward M=32768 N=1536 K=2048 experts=128 permute_x=true",
     "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700", "a2ab90a87686bb08d7bad5c51c8e4b0d",
     "9401ac67726f757065645f67656d6dde0011a14bcd0800a14dcd8000a14ecd0600aa616363756d756c61"
     "7465c2a964747970655f616363a466703332a864747970655f696ea462663136a964747970655f6f7574"
     "a462663136a765787065727473cc80a666616d696c79ac67726f757065645f67656d6dad667573655f6d"
     "756c5f706f7374c2a46d6f6465a7666f7277617264a97065726d7574655f78c3a97065726d7574655f79"
     "c2a57175616e74a46e6f6e65a7726f7574696e67a7756e69666f726dab7363616c655f626c6f636ba46e"
     "6f6e65a4746f706b08d9354e564944494120483230302f736d5f3930612f736d3133322f736d656d3233"
     "323434382f6d656d3134302f6d69672d2f706c373030"},
    {"grouped_gemm mode=dW M=6144 N=1016 K=96 experts=64 topk=6 accumulate=true "
     "routing=zipf:1.2",
     "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700", "9decc3b4134c94ddae4fbe917f5b0354",
     "9401ac67726f757065645f67656d6dde0011a14b60a14dcd1800a14ecd03f8aa616363756d756c617465"
     "c3a964747970655f616363a466703332a864747970655f696ea462663136a964747970655f6f7574a462"
     "663136a76578706572747340a666616d696c79ac67726f757065645f67656d6dad667573655f6d756c5f"
     "706f7374c2a46d6f6465a26457a97065726d7574655f78c2a97065726d7574655f79c2a57175616e74a4"
     "6e6f6e65a7726f7574696e67a87a6970663a312e32ab7363616c655f626c6f636ba46e6f6e65a4746f70"
     "6b06d9354e564944494120483230302f736d5f3930612f736d3133322f736d656d3233323434382f6d65"
     "6d3134302f6d69672d2f706c373030"},
    {"gemm mode=forward M=1073741824 N=127 K=128", "cpu", "88d7cf40e5eda06030f4574cf2aa9968",
     "9401ac67726f757065645f67656d6dde0011a14bcc80a14dce40000000a14e7faa616363756d756c6174"
     "65c2a964747970655f616363a466703332a864747970655f696ea462663136a964747970655f6f7574a4"
     "62663136a76578706572747301a666616d696c79ac67726f757065645f67656d6dad667573655f6d756c"
     "5f706f7374c2a46d6f6465a7666f7277617264a97065726d7574655f78c2a97065726d7574655f79c2a5"
     "7175616e74a46e6f6e65a7726f7574696e67a7756e69666f726dab7363616c655f626c6f636ba46e6f6e"
     "65a4746f706b01a3637075"},
    {"custom:my.op-1 h=true g=\"h\xc3"
     "\xa9"
     "llo \\\"x\\\"\" f=\"\" e=-2.5 d=-0.0 c=9223372036854775807 "
     "b=-9223372036854775808 a=-33 _=255 Z=65536",
     "c", "3d8a5f3e86fd7ed969c5c2ebe3380b6f",
     "9401ae637573746f6d3a6d792e6f702d318aa15ace00010000a15fccffa161d0dfa162d3800000000000"
     "0000a163cf7fffffffffffffffa164cb0000000000000000a165cbc004000000000000a166a0a167aa68"
     "c3a96c6c6f20227822a168c3a163"},
};

static void expect_hex(const struct key *k, const char *hex)
{
    static char got[2 * KEY_BYTES_MAX + 1];
    for (size_t i = 0; i < k->len; i++) {
        snprintf(got + 2 * i, 3, "%02x", k->bytes[i]);
    }
    assert_string_equal(got, hex);
}

static void make(const char *text, const char *class, struct key *k)
{
    assert_ok(err, problem_parse(&problem, text, &err));
    assert_ok(err, key_make(k, &problem, class, &err));
    key_id(k);
}

static void test_hex(void **state)
{
    (void)state;
    assert_true(hash_is_hex("c074a787cd5451a8c1c91267f42d65ec"));
    assert_false(hash_is_hex(""));
    assert_false(hash_is_hex("c074a787cd5451a8c1c91267f42d65e"));
    assert_false(hash_is_hex("c074a787cd5451a8c1c91267f42d65ec0"));
    assert_false(hash_is_hex("C074A787CD5451A8C1C91267F42D65EC"));
    assert_false(hash_is_hex("c074a787cd5451a8-1c91267f42d65ec"));
}

static void test_golden(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        make(golden[i].problem, golden[i].class, &key);
        char front[17];
        snprintf(front, sizeof(front), "%s", golden[i].id);
        expect_hex(&key, golden[i].hex);
        assert_true(key.hash == strtoull(front, NULL, 16));
        assert_string_equal(key.id, golden[i].id);
    }
}

static void test_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        char class[192];
        make(golden[i].problem, golden[i].class, &key);
        assert_ok(err, key_decode(key.bytes, key.len, &again, class, &err));
        assert_string_equal(class, golden[i].class);
        assert_string_equal(again.op_name, problem.op_name);
        assert_true(record_equal(&again.fields, &problem.fields));
        assert_ok(err, key_make(&other, &again, class, &err));
        assert_int_equal(other.len, key.len);
        assert_memory_equal(other.bytes, key.bytes, key.len);
    }
}

/* Every order of the fields gives the same key; any other value gives another key. */
static void test_order_does_not_matter(void **state)
{
    (void)state;
    static const char *const parts[] = {"mode=dX", "M=512", "N=64", "K=128", "experts=4", "topk=2"};
    struct rng rng = {1};
    make("grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2", h200, &key);
    for (int i = 0; i < 200; i++) {
        const char *order[6];
        char text[200] = "grouped_gemm";
        memcpy(order, parts, sizeof(parts));
        for (size_t j = 0; j < 6; j++) {
            size_t pick = (size_t)rng_in(&rng, (int64_t)j, 5);
            const char *part = order[pick];
            order[pick] = order[j];
            strcat(strcat(text, " "), part);
        }
        make(text, h200, &other);
        assert_int_equal(other.len, key.len);
        assert_memory_equal(other.bytes, key.bytes, key.len);
    }
    static const char *const others[] = {
        "grouped_gemm mode=dW M=512 N=64 K=128 experts=4 topk=2",
        "grouped_gemm mode=dX M=514 N=64 K=128 experts=4 topk=2",
        "grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2 permute_y=true",
        "grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2 routing=zipf",
    };
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        make(others[i], h200, &other);
        assert_true(other.hash != key.hash);
        assert_string_not_equal(other.id, key.id);
    }
    make("grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2", "another", &other);
    assert_true(other.hash != key.hash);
}

static void test_largest(void **state)
{
    (void)state;
    char class[192], longer[193], name[RECORD_NAME_MAX + 1];
    static char text[RECORD_TEXT_MAX];
    memset(class, 'c', sizeof(class) - 1);
    class[sizeof(class) - 1] = 0;
    memset(longer, 'c', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = 0;
    assert_ok(err, problem_parse(&problem,
                                 "custom:x23456789012345678901234567890123456789012345678", &err));
    memset(text, 't', sizeof(text) - 1);
    for (int i = 0; i < RECORD_FIELDS_MAX; i++) {
        snprintf(name, sizeof(name), "f%02d%028d", i, 0);
        record_put_text(&problem.fields, name, i == 0 ? text + RECORD_FIELDS_MAX - 1 : "");
    }
    assert_ok(err, key_make(&key, &problem, class, &err));
    assert_true(key.len > RECORD_TEXT_MAX && key.len <= KEY_BYTES_MAX);
    char out[192];
    assert_ok(err, key_decode(key.bytes, key.len, &again, out, &err));
    assert_true(record_equal(&again.fields, &problem.fields));
    assert_error(err, ERROR_INVALID, "at most 191 bytes", key_make(&key, &problem, longer, &err));
}

static void test_not_a_key(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int code;
    } bad[] = {
        {"[1,\"custom:x\",{}]", ERROR_MALFORMED},
        {"[2,\"custom:x\",{},\"c\"]", ERROR_MALFORMED}, /* a key of a later version */
        {"[1,5,{},\"c\"]", ERROR_MALFORMED},
        {"[1,\"custom:x\",{},5]", ERROR_MALFORMED},
        {"[1,\"custom:x\",7,\"c\"]", ERROR_INVALID},
        {"[1,\"nop\",{},\"c\"]", ERROR_UNKNOWN_OP},
        {"[1,\"grouped_gemm\",{},\"c\"]", ERROR_INVALID},
        {"{}", ERROR_MALFORMED},
        {"null", ERROR_MALFORMED},
    };
    char class[192];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        WIRE_BUF_AUTO b = WIRE_BUF_NULL;
        assert_ok(err, wire_from_json(&b, bad[i].json, &err));
        assert_error(err, bad[i].code, "", key_decode(b.data, b.len, &again, class, &err));
    }
    make(golden[1].problem, golden[1].class, &key);
    for (size_t n = 0; n < key.len; n++) { /* cut anywhere */
        assert_error(err, ERROR_MALFORMED, "", key_decode(key.bytes, n, &again, class, &err));
    }
    key.bytes[key.len] = 0;
    assert_error(err, ERROR_MALFORMED, "", key_decode(key.bytes, key.len + 1, &again, class, &err));
}

/* A damaged key must be an error, never a crash; bytes that still decode must give a valid key. */
static void test_damaged(void **state)
{
    (void)state;
    struct rng rng = {9};
    char class[192];
    int refused = 0;
    make(golden[1].problem, golden[1].class, &key);
    for (int i = 0; i < 20000; i++) {
        uint8_t *copy = malloc(key.len);
        memcpy(copy, key.bytes, key.len);
        copy[rng_in(&rng, 0, (int64_t)key.len - 1)] ^= (uint8_t)(1 << rng_in(&rng, 0, 7));
        if (key_decode(copy, key.len, &again, class, NULL) == 0) {
            assert_ok(err, key_make(&other, &again, class, &err));
        } else {
            refused++;
        }
        free(copy);
    }
    assert_true(refused > 1000 && refused < 20000);
}

static int differences(const char *a, const char *b)
{
    make(a, h200, &key);
    make(b, "another", &other);
    int n = key_differences(key.bytes, key.len, other.bytes, other.len);
    size_t class = strlen("another") + 1, longer = strlen(h200) + 2;
    assert_int_equal(n, key_differences(other.bytes, other.len, key.bytes, key.len));
    /* the daemon's cache stores keys without the field `class` */
    assert_int_equal(n,
                     key_differences(key.bytes, key.len - longer, other.bytes, other.len - class));
    return n;
}

static void test_differences(void **state)
{
    (void)state;
    static const char base[] = "grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2";
    static const struct {
        const char *other;
        int n;
    } cases[] = {
        {"grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2", 0},
        {"grouped_gemm mode=dX M=100000 N=64 K=128 experts=4 topk=2", 1},
        {"grouped_gemm mode=dW M=512 N=64 K=128 experts=4 topk=2", 1},
        {"grouped_gemm mode=dX M=512 N=64 K=128 experts=4 topk=2 routing=zipf", 1},
        {"grouped_gemm mode=dW M=4 N=8 K=70000 experts=5 topk=1 dtype_in=fp16", 7},
        {"gemm mode=dX M=512 N=64 K=128", 2},
        {"custom:x M=512", -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int n = differences(base, cases[i].other);
        assert_int_equal(n, cases[i].n);
    }
    assert_int_equal(differences("custom:x", "custom:x a=1"), 1);
    assert_int_equal(differences("custom:x a=1 c=-70000 e=0.5", "custom:x b=1 c=-70000 e=true"), 3);
    assert_int_equal(differences("custom:x ab=1 t=\"\"", "custom:x a=1 t=long"), 3);
}

/* For bytes that are no key any result is right, but no byte behind the end may be read. */
static void test_differences_of_damage(void **state)
{
    (void)state;
    struct rng rng = {5};
    make(golden[2].problem, golden[2].class, &key);
    for (size_t n = 0; n < key.len; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, key.bytes, n);
        assert_true(key_differences(cut, n, key.bytes, key.len) <= 0);
        if (n > 0) {
            cut[rng_in(&rng, 0, (int64_t)n - 1)] = (uint8_t)rng_in(&rng, 0, 255);
            (void)key_differences(cut, n, key.bytes, key.len);
        }
        free(cut);
    }
}

static void test_hashes(void **state)
{
    (void)state;
    char id[HASH_HEX], pieces[HASH_HEX];
    assert_true(hash64("", 0) == UINT64_C(0x2d06800538d394c2)); /* XXH3's own test vectors */
    hash128_hex("", 0, id);
    assert_string_equal(id, "99aa06d3014798d86001c324468d497f");
    hash128_hex("two\0 pieces", 12, id);
    hash128_texts((const char *const[]){"two", " pieces"}, 2, pieces);
    assert_string_equal(pieces, id);
}

static int set_up(void **state)
{
    (void)state;
    test_ops_set();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hex),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_decode),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_not_a_key),
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_differences_of_damage),
        cmocka_unit_test(test_hashes),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
