/* SPDX-License-Identifier: Apache-2.0 */
/* The op grouped_gemm: accepted problems, refused problems with their error messages, and buckets.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

#define BASE "grouped_gemm mode=forward M=1024 N=768 K=2048 experts=128 topk=8 "

static void refuse(const char *text, int code, const char *part)
{
    struct problem p;
    assert_fails(problem_parse(&p, text, err), code, part);
}

static void test_defaults(void **state)
{
    (void)state;
    struct problem p;
    problem_of(&p, "grouped_gemm mode=dW M=12 N=7 K=5");
    const struct record *f = &p.fields;
    assert_int_equal(record_int(f, "experts", 0), 1);
    assert_int_equal(record_int(f, "topk", 0), 1);
    assert_string_equal(record_text(f, "dtype_in", ""), "bf16");
    assert_string_equal(record_text(f, "dtype_out", ""), "bf16");
    assert_string_equal(record_text(f, "dtype_acc", ""), "fp32");
    assert_string_equal(record_text(f, "routing", ""), "uniform");
    assert_string_equal(record_text(f, "family", ""), "grouped_gemm");
    assert_false(record_bool(f, "permute_x", true));
    assert_false(record_bool(f, "accumulate", true));
    problem_of(&p, "grouped_gemm mode=forward M=12 N=7 K=5 dtype_in=fp16");
    assert_string_equal(record_text(&p.fields, "dtype_out", ""), "fp16");
    problem_of(&p, "grouped_gemm mode=dW M=12 N=7 K=5 dtype_out=fp32 accumulate=true");
    assert_string_equal(record_text(&p.fields, "dtype_out", ""), "fp32");
}

static void test_ranges(void **state)
{
    (void)state;
    refuse("grouped_gemm mode=forward M=0 N=8 K=8", ERROR_INVALID, "M");
    refuse("grouped_gemm mode=forward M=8 N=-4 K=8", ERROR_INVALID, "N");
    refuse("grouped_gemm mode=forward M=8 N=8 K=1073741825", ERROR_INVALID, "K");
    refuse("grouped_gemm mode=forward M=8 N=8", ERROR_INVALID, "K");
    refuse("grouped_gemm mode=sideways M=8 N=8 K=8", ERROR_INVALID, "mode");
    refuse("grouped_gemm mode=forward M=8 N=8 K=8 dtype_in=fp8", ERROR_INVALID, "dtype_in");
    refuse("grouped_gemm mode=forward M=8 N=8 K=8 quant=mxfp8", ERROR_INVALID,
           "none, fp8_block or fp8_row");
    refuse("grouped_gemm mode=forward M=8 N=8 K=8 experts=2000", ERROR_INVALID, "experts");
    refuse("grouped_gemm mode=forward M=8 N=8 K=8 colour=red", ERROR_UNKNOWN_FIELD, "colour");
    refuse("grouped_gemm mode=forward M=1073741824 N=1073741824 K=8", ERROR_INVALID, "2^40");
    refuse("grouped_gemm mode=dX M=8 N=1048576 K=1048576 experts=4", ERROR_INVALID, "2^40");
}

static void test_contradictions(void **state)
{
    (void)state;
    refuse(BASE "permute_x=true permute_y=true", ERROR_CONFLICT, "both true");
    refuse(BASE "fuse_mul_post=true", ERROR_CONFLICT, "permute_y=true");
    refuse("grouped_gemm mode=dX M=64 N=8 K=8 permute_y=true fuse_mul_post=true", ERROR_CONFLICT,
           "mode dX");
    refuse("grouped_gemm mode=dW M=64 N=8 K=8 permute_y=true fuse_mul_post=true", ERROR_CONFLICT,
           "mode dW");
    refuse(BASE "accumulate=true", ERROR_CONFLICT, "only dW");
    refuse("grouped_gemm mode=forward M=20 N=8 K=8 experts=8 topk=6", ERROR_INVALID,
           "not a multiple of topk 6");
    refuse("grouped_gemm mode=forward M=16 N=8 K=8 experts=4 topk=8", ERROR_CONFLICT,
           "8 of 4 experts");
    refuse(BASE "dtype_out=fp32", ERROR_CONFLICT, "only dW may be fp32");
    refuse("grouped_gemm mode=dW M=64 N=8 K=8 dtype_in=fp16 dtype_out=bf16", ERROR_CONFLICT,
           "or fp32");
}

/* A problem has the flag only where it is true, so keys of problems without it stay as they are. */
static void test_batch_invariant(void **state)
{
    (void)state;
    static struct key plain_key, off_key, on_key;
    struct problem plain, off, on, bucket;
    problem_of(&plain, BASE);
    problem_of(&off, BASE "batch_invariant=false");
    problem_of(&on, BASE "batch_invariant=true");
    assert_ok(key_make(&plain_key, &plain, "class", err));
    assert_ok(key_make(&off_key, &off, "class", err));
    assert_ok(key_make(&on_key, &on, "class", err));
    assert_false(record_bool(&plain.fields, "batch_invariant", false));
    assert_int_equal(off_key.len, plain_key.len);
    assert_memory_equal(off_key.bytes, plain_key.bytes, plain_key.len);
    assert_int_not_equal(on_key.hash, plain_key.hash);

    problem_of(&on, BASE "batch_invariant=true");
    problem_bucket(&on, BUCKET_SQRT2, &bucket);
    assert_true(record_bool(&bucket.fields, "batch_invariant", false));
    problem_unrestrict(&on, &on);
    assert_true(record_equal(&on.fields, &plain.fields));

    refuse("grouped_gemm mode=dW M=64 N=8 K=8 batch_invariant=true", ERROR_CONFLICT,
           "sums over the rows of the batch");
    refuse(BASE "batch_invariant=1", ERROR_INVALID, "true or false");
}

/* The types and the scales follow from quant and the mode. */
static void test_quant(void **state)
{
    (void)state;
    static const struct {
        const char *mode, *quant, *more, *block, *out;
    } cases[] = {
        {"forward", "fp8_block", "", "1x128,128x128", "bf16"},
        {"forward", "fp8_block", "dtype_in=fp8_e4m3 scale_block=\"1x128,128x128\" scale_type=fp32",
         "1x128,128x128", "bf16"},
        {"dX", "fp8_block", "permute_y=true", "1x128,128x128", "bf16"},
        {"dW", "fp8_block", "", "1x128,1x128", "bf16"},
        {"dW", "fp8_block", "dtype_out=fp32 accumulate=true", "1x128,1x128", "fp32"},
        {"forward", "fp8_row", "permute_x=true", "row", "bf16"},
        {"dX", "fp8_row", "dtype_out=bf16", "row", "bf16"},
        {"dW", "fp8_row", "dtype_out=fp32", "row", "fp32"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct problem p;
        struct gemm v;
        char text[256];
        snprintf(text, sizeof(text),
                 "grouped_gemm mode=%s M=64 N=32 K=48 experts=4 topk=2 quant=%s %s", cases[i].mode,
                 cases[i].quant, cases[i].more);
        problem_of(&p, text);
        gemm_view(&p, &v);
        assert_string_equal(record_text(&p.fields, "dtype_in", ""), "fp8_e4m3");
        assert_string_equal(record_text(&p.fields, "dtype_out", ""), cases[i].out);
        assert_string_equal(record_text(&p.fields, "scale_block", ""), cases[i].block);
        assert_string_equal(record_text(&p.fields, "scale_type", ""), "fp32");
        assert_true(v.quant->is_scaled && v.in == DTYPE_FP8_E4M3);
        assert_string_equal(v.quant->name, cases[i].quant);
    }
    struct problem p;
    problem_of(&p, BASE);
    assert_false(record_has_n(&p.fields, "scale_type", strlen("scale_type")));
}

static void test_quant_contradictions(void **state)
{
    (void)state;
    refuse(BASE "dtype_in=fp8_e4m3", ERROR_CONFLICT, "quant=fp8_block or quant=fp8_row");
    refuse(BASE "quant=fp8_row dtype_in=fp16", ERROR_CONFLICT,
           "dtype_in is fp16 with quant=fp8_row, whose operands are fp8_e4m3");
    refuse(BASE "quant=fp8_block dtype_out=fp32", ERROR_CONFLICT, "only dW may be fp32");
    refuse(BASE "quant=fp8_block scale_block=row", ERROR_CONFLICT, "which has 1x128,128x128");
    refuse(BASE "quant=fp8_block scale_block=\"1x128,1x128\"", ERROR_CONFLICT,
           "1x128,1x128 with quant=fp8_block in mode forward, which has 1x128,128x128");
    refuse(BASE "scale_block=row", ERROR_CONFLICT, "with quant=none");
    refuse(BASE "scale_type=fp32", ERROR_CONFLICT, "there are no scales");
#define SMALL "grouped_gemm M=64 experts=4 topk=2 quant=fp8_block "
    refuse(SMALL "mode=forward N=32 K=40", ERROR_INVALID, "K is 40, not a multiple of 16");
    refuse(SMALL "mode=forward N=36 K=48", ERROR_INVALID, "N is 36, not a multiple of 8");
    refuse(SMALL "mode=dX N=40 K=48", ERROR_INVALID, "N is 40, not a multiple of 16");
    refuse(SMALL "mode=dX N=32 K=44", ERROR_INVALID, "K is 44, not a multiple of 8");
    refuse(SMALL "mode=dW N=3 K=12", ERROR_INVALID, "K is 12, not a multiple of 8");
    refuse(SMALL "mode=dW N=3 K=6 dtype_out=fp32", ERROR_INVALID, "K is 6, not a multiple of 4");
    refuse(SMALL "mode=dW N=32 K=48 permute_x=true", ERROR_CONFLICT,
           "permute_x is true in mode dW with quant=fp8_block");
    refuse(SMALL "mode=dW N=32 K=48 permute_y=true", ERROR_CONFLICT, "permute_y is true");
    struct problem p;
    problem_of(&p, SMALL "mode=dW N=3 K=12 dtype_out=fp32"); /* dW sums over neither */
}

/* Permutes are independent of the mode. */
static void test_permutes_everywhere(void **state)
{
    (void)state;
    static const char *const modes[] = {"forward", "dX", "dW"};
    for (size_t i = 0; i < 3; i++) {
        for (int y = 0; y < 2; y++) {
            char text[128];
            struct problem p;
            snprintf(text, sizeof(text),
                     "grouped_gemm mode=%s M=64 N=8 K=8 experts=8 topk=2 %s=true", modes[i],
                     y ? "permute_y" : "permute_x");
            problem_of(&p, text);
        }
    }
}

static void test_routing(void **state)
{
    (void)state;
    struct problem p;
    char text[512];
    problem_of(&p, "grouped_gemm mode=dW M=12 N=8 K=8 experts=3 routing=\"rows:5,0,07\"");
    assert_string_equal(record_text(&p.fields, "routing", ""), "rows:5,0,7");
    /* A problem's text, which contains commas, gives the same problem again. */
    problem_format(&p, text, sizeof(text));
    struct problem again;
    problem_of(&again, text);
    assert_true(record_equal(&p.fields, &again.fields));
    problem_of(&p, "grouped_gemm mode=dW M=12 N=8 K=8 experts=3 routing=zipf:1.20");
    problem_of(&again, "grouped_gemm mode=dW M=12 N=8 K=8 experts=3 routing=zipf:1.2");
    assert_true(record_equal(&p.fields, &again.fields));
    problem_of(&p, "grouped_gemm mode=dW M=12 N=8 K=8 experts=3 routing=zipf:-0");
    assert_string_equal(record_text(&p.fields, "routing", ""), "zipf:0.0");

    refuse(BASE "routing=random", ERROR_INVALID, "use uniform, zipf:<s> or rows:<a,b,...>");
    refuse(BASE "routing=zipf:", ERROR_INVALID, "zipf:1.2");
    refuse(BASE "routing=zipf:9", ERROR_INVALID, "0 to 8");
    refuse(BASE "routing=zipf:nan", ERROR_INVALID, "0 to 8");
    refuse(BASE "routing=\"rows:1,2\"", ERROR_CONFLICT, "2 experts, but experts is 128");
    refuse("grouped_gemm mode=dW M=12 N=8 K=8 experts=2 routing=\"rows:5,5\"", ERROR_CONFLICT,
           "10 rows in all, but M is 12");
    refuse("grouped_gemm mode=dW M=12 N=8 K=8 experts=2 routing=\"rows:13,-1\"", ERROR_INVALID,
           "rows of expert 1");
    refuse("grouped_gemm mode=dW M=12 N=8 K=8 experts=2 routing=\"rows:12,\"", ERROR_INVALID,
           "rows of expert 1");
}

/* Other machines and later releases find keys by their bytes. The expected bytes come from another
 * MessagePack and another xxHash (Python's). The first key is from before routing was a field, and
 * keys without quantisation lack scale_type. */
static void test_routing_in_keys(void **state)
{
    (void)state;
    static const char class[] = "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700";
    static const struct {
        const char *problem, *id;
        size_t bytes;
    } golden[] = {
        {"topk=8 mode=forward M=32768 N=1536 K=2048 experts=128 permute_x=true",
         "a2ab90a87686bb08d7bad5c51c8e4b0d", 274},
        {"topk=8 mode=forward M=32768 N=1536 K=2048 experts=128 permute_x=true routing=uniform",
         "a2ab90a87686bb08d7bad5c51c8e4b0d", 274},
        {"mode=dX M=512 N=64 K=128 experts=4 topk=2 routing=zipf:1.20",
         "f459ef41200ebbbaf1333d03f9217b14", 266},
        {"mode=dX M=512 N=64 K=128 experts=4 topk=2 routing=zipf:1",
         "7a059f039a44426d1a3e506cf6b2fcb0", 266},
        {"mode=dW M=10 N=64 K=128 experts=4 topk=2 routing=\"rows:7,00,+3,0\"",
         "74a734e9aa2a7124c6d6ca980f8668da", 268},
        {"mode=forward M=512 N=64 K=128 quant=fp8_block", "062923b039e29eb6e9338f3d1c6d4778", 304},
        {"mode=dW M=512 N=64 K=128 experts=4 quant=fp8_row dtype_out=fp32",
         "cd47c129c8942b4d1655b6c6f9b89547", 287},
    };
    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        struct problem p;
        struct key k;
        char text[256];
        snprintf(text, sizeof(text), "grouped_gemm %s", golden[i].problem);
        problem_of(&p, text);
        assert_int_equal(key_make(&k, &p, class, NULL), 0);
        key_id(&k);
        assert_string_equal(k.id, golden[i].id);
        assert_int_equal(k.len, golden[i].bytes);
    }
}

static void test_long_lists_in_keys(void **state)
{
    (void)state;
    char text[2048] = "grouped_gemm mode=forward M=12300 N=64 K=128 experts=300 routing=\"rows:41";
    struct problem p;
    struct key k;
    for (int e = 1; e < 300; e++) {
        strcat(text, ",41");
    }
    problem_of(&p, strcat(text, "\""));
    assert_int_equal(
        key_make(&k, &p, "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700", NULL), 0);
    key_id(&k);
    assert_string_equal(k.id, "c617ce10dbc0625cc89d02cc92c3f2e9");
    assert_int_equal(k.len, 1171);
}

/* The op's place() gives a routing's unevenness: 0 for an even routing, log2(experts) if a single
 * expert has all rows. */
static void test_places(void **state)
{
    (void)state;
#define ROUTED "grouped_gemm mode=dW M=64 N=8 K=8 experts=4 routing="
    static const struct {
        const char *problem;
        double place;
    } cases[] = {
        {ROUTED "uniform", 0},
        {ROUTED "zipf:0", 0},
        {ROUTED "\"rows:16,16,16,16\"", 0},
        {ROUTED "\"rows:0,64,0,0\"", 2},
        {ROUTED "\"rows:32,32,0,0\"", 1},
    };
    struct problem p;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        problem_of(&p, cases[i].problem);
        assert_true(fabs(p.op->place(&p, "routing") - cases[i].place) < 1e-9);
        assert_true(isnan(p.op->place(&p, "mode")));
    }
    double before = 0;
    for (int tenths = 5; tenths <= 80; tenths += 5) { /* steeper is more uneven */
        char text[128];
        snprintf(text, sizeof(text), ROUTED "zipf:%d.%d", tenths / 10, tenths % 10);
        problem_of(&p, text);
        double place = p.op->place(&p, "routing");
        assert_true(place >= before && place <= 2);
        before = place;
    }
    assert_true(before > 1.9);
}

static void expect_bucket(const char *text, enum bucket_scheme scheme, const char *expected)
{
    struct problem p, q, e;
    problem_of(&p, text);
    problem_of(&e, expected);
    problem_bucket(&p, scheme, &q);
    char got[512];
    problem_format(&q, got, sizeof(got));
    if (!record_equal(&q.fields, &e.fields)) {
        fail_msg("bucket of \"%s\" is \"%s\", expected \"%s\"", text, got, expected);
    }
    problem_bucket(&q, scheme, &p);
    assert_true(record_equal(&p.fields, &q.fields)); /* idempotent */
}

static void test_buckets(void **state)
{
    (void)state;
    expect_bucket("grouped_gemm mode=forward M=1000 N=1000 K=777", BUCKET_EXACT,
                  "grouped_gemm mode=forward M=1000 N=1000 K=777");
    expect_bucket("grouped_gemm mode=forward M=1000 N=1000 K=2048", BUCKET_POW2,
                  "grouped_gemm mode=forward M=1024 N=1016 K=2048");
    expect_bucket("grouped_gemm mode=forward M=1000 N=1000 K=2048", BUCKET_SQRT2,
                  "grouped_gemm mode=forward M=1024 N=1000 K=2048");
    /* With topk 6, M stays a multiple of 6. The rows per expert are rounded up in steps. */
    expect_bucket("grouped_gemm mode=dX M=6000 N=8 K=8 experts=64 topk=6", BUCKET_POW2,
                  "grouped_gemm mode=dX M=6144 N=8 K=8 experts=64 topk=6");
    struct problem p, q;
    problem_of(&p, "grouped_gemm mode=dX M=6000 N=8 K=8 experts=64 topk=6");
    problem_bucket(&p, BUCKET_SQRT2, &q);
    int64_t m = record_int(&q.fields, "M", 0);
    assert_int_equal(m, bucket_sqrt2_rows(6000, 64, 6));
    assert_int_equal(m % 6, 0);
    assert_in_range(m, 6000, 6000 * 1.42);
    /* A problem with given rows per expert keeps its exact M. */
    expect_bucket("grouped_gemm mode=dX M=1000 N=8 K=12 experts=2 routing=\"rows:999,1\"",
                  BUCKET_POW2,
                  "grouped_gemm mode=dX M=1000 N=8 K=12 experts=2 routing=\"rows:999,1\"");
    /* A size stays as given where rounding up would pass a limit. */
    expect_bucket("grouped_gemm mode=dX M=1073741824 N=8 K=8 experts=3 topk=1", BUCKET_SQRT2,
                  "grouped_gemm mode=dX M=1073741824 N=8 K=8 experts=3 topk=1");
    struct problem large, rounded; /* M x N is below the limit of 2^40, but not with M rounded up */
    problem_of(&large, "grouped_gemm mode=dX M=1048577 N=1048575 K=8");
    problem_bucket(&large, BUCKET_POW2, &rounded);
    assert_int_equal(record_int(&rounded.fields, "M", 0), 1048577);
}

static void test_alias(void **state)
{
    (void)state;
    struct problem p;
    problem_of(&p, "gemm mode=forward M=12 N=7 K=5");
    assert_string_equal(p.op->name, "grouped_gemm");
    assert_string_equal(family_of_problem(&p)->name, "grouped_gemm");
    problem_of(&p, "gemm_a8w8_blockscale M=16 N=1024 K=2048");
    assert_string_equal(p.op_name, "grouped_gemm");
    assert_string_equal(record_text(&p.fields, "mode", ""), "forward");
    assert_string_equal(record_text(&p.fields, "quant", ""), "fp8_block");
    assert_int_equal(record_int(&p.fields, "experts", 0), 1);
    refuse("gemm_a8w8_blockscale M=16 N=1024 K=2048 mode=dX", ERROR_CONFLICT,
           "gemm_a8w8_blockscale has mode=forward");
    refuse("gemm_a8w8_blockscale M=16 N=1024 K=2048 experts=8", ERROR_CONFLICT, "experts=1");
    refuse("attention M=3", ERROR_UNKNOWN_OP, "grouped_gemm, gemm, gemm_a8w8_blockscale");
}

static int setup(void **state)
{
    (void)state;
    families_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_batch_invariant),
        cmocka_unit_test(test_quant),
        cmocka_unit_test(test_quant_contradictions),
        cmocka_unit_test(test_permutes_everywhere),
        cmocka_unit_test(test_routing),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_alias),
        cmocka_unit_test(test_routing_in_keys),
        cmocka_unit_test(test_long_lists_in_keys),
        cmocka_unit_test(test_places),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
