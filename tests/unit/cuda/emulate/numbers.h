/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 and fp16, to and from float, rounded to nearest even as the GPU does. Between EMULATE_FAST
 * and EMULATE_FAST_END is code that a run spends most of its time in, and that GCC optimises more
 * than the rest, which compiles sooner without.
 */
#ifndef GEMMD_TESTS_EMULATE_NUMBERS_H
#define GEMMD_TESTS_EMULATE_NUMBERS_H

#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
#define EMULATE_FAST     _Pragma("GCC push_options") _Pragma("GCC optimize(\"O2\")")
#define EMULATE_FAST_END _Pragma("GCC pop_options")
#else
#define EMULATE_FAST
#define EMULATE_FAST_END
#endif

EMULATE_FAST
static float bits_to_float(uint32_t v)
{
    float f;
    memcpy(&f, &v, sizeof(f));
    return f;
}

static uint32_t float_to_bits(float v)
{
    uint32_t b;
    memcpy(&b, &v, sizeof(b));
    return b;
}

static float emulate_bf16_to_float(uint16_t v)
{
    return bits_to_float((uint32_t)v << 16);
}

static uint16_t emulate_float_to_bf16(float v)
{
    uint32_t b = float_to_bits(v);
    return v != v ? 0x7fff : (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static float half_to_float(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 1023;
    if (exponent == 31) {
        return bits_to_float(sign | 0x7f800000 | mantissa << 13);
    }
    float size = exponent ? bits_to_float((exponent + 112) << 23 | mantissa << 13)
                          : (float)mantissa * 0x1p-24f;
    return sign ? -size : size;
}

static uint16_t float_to_half(float v)
{
    uint32_t bits = float_to_bits(v), sign = bits >> 16 & 0x8000;
    float size = bits_to_float(bits & 0x7fffffff);
    if (v != v) {
        return 0x7fff;
    }
    if (size >= 65520) {
        return (uint16_t)(sign | 0x7c00);
    }
    if (size < 0x1p-14f) { /* fp16 has multiples of 2^-24 here; adding 2^-1 rounds to them */
        return (uint16_t)(sign | (float_to_bits(size + 0.5f) - float_to_bits(0.5f)));
    }
    bits = float_to_bits(size);
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}
EMULATE_FAST_END

#endif
