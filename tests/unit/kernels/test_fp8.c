/* SPDX-License-Identifier: Apache-2.0 */
/* The number format e4m3: all codes, and the rounding between every two neighbours. */
#include <math.h>

#include "kernels/fp8.h"
#include "tests/unit/kernels/common.h"

enum { MAX_CODE = 0x7e, NAN_CODE = 0x7f };

static void test_landmarks(void **state)
{
    (void)state;
    static const struct {
        uint8_t code;
        float value;
    } known[] = {
        {0x00, 0},    {0x01, 0x1p-9f}, {0x07, 7 * 0x1p-9f}, {0x08, 0x1p-6f}, {0x0f, 15 * 0x1p-9f},
        {0x30, 0.5f}, {0x38, 1},       {0x3c, 1.5f},        {0x40, 2},       {0x77, 240},
        {0x78, 256},  {MAX_CODE, 448}, {0xb8, -1},          {0xfe, -448}};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        assert_true(fp8_decode(known[i].code) == known[i].value);
    }
    assert_true(signbit(fp8_decode(0x80)) && fp8_decode(0x80) == 0);
    assert_true(isnan(fp8_decode(NAN_CODE)) && isnan(fp8_decode(0xff)));
}

static void test_every_code_survives(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        const uint8_t again = fp8_encode(fp8_decode((uint8_t)code));
        assert_int_equal(again, (code & 0x7f) == NAN_CODE ? NAN_CODE : code);
    }
}

/* Values between two neighbours go to the nearer; the middle goes to the even code. */
static void test_rounding(void **state)
{
    (void)state;
    for (uint8_t code = 0; code < MAX_CODE; code++) {
        const float low = fp8_decode(code), high = fp8_decode(code + 1), middle = (low + high) / 2;
        assert_true(low < high);
        for (int minus = 0; minus < 2; minus++) {
            const uint8_t sign = minus ? 0x80 : 0;
            const float s = minus ? -1 : 1;
            assert_int_equal(fp8_encode(s * nextafterf(low, INFINITY)), sign | code);
            assert_int_equal(fp8_encode(s * nextafterf(middle, 0)), sign | code);
            assert_int_equal(fp8_encode(s * middle), sign | (code + code % 2));
            assert_int_equal(fp8_encode(s * nextafterf(middle, INFINITY)), sign | (code + 1));
            assert_int_equal(fp8_encode(s * nextafterf(high, 0)), sign | (code + 1));
        }
    }
}

static void test_saturation_and_specials(void **state)
{
    (void)state;
    static const float large[] = {448, 449, 464, 465, 480, 1e30f, INFINITY};
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        assert_int_equal(fp8_encode(large[i]), MAX_CODE);
        assert_int_equal(fp8_encode(-large[i]), 0x80 | MAX_CODE);
    }
    assert_int_equal(fp8_encode(NAN), NAN_CODE);
    assert_int_equal(fp8_encode(-NAN), NAN_CODE);
    assert_int_equal(fp8_encode(-0.0f), 0x80);
    assert_int_equal(fp8_encode(0x1p-149f), 0);
    assert_int_equal(fp8_encode(-0x1p-149f), 0x80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_landmarks),
        cmocka_unit_test(test_every_code_survives),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_saturation_and_specials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
