/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes and decodes bf16 and fp16 for the emulated cases. Kernels and emulator have other code
 * for this, so that a fault there shows. */
#ifndef GEMMD_TESTS_UNIT_CUDA_EMULATED_NUMBERS_H
#define GEMMD_TESTS_UNIT_CUDA_EMULATED_NUMBERS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/abi.h"
#include "kernels/fp8.h"

static inline double decode(enum dtype t, const void *data, int64_t at)
{
    if (t == DTYPE_FP32) {
        return ((const float *)data)[at];
    }
    if (t == DTYPE_FP8_E4M3) {
        return fp8_decode(((const uint8_t *)data)[at]);
    }
    uint16_t v = ((const uint16_t *)data)[at];
    if (t == DTYPE_BF16) {
        uint32_t bits = (uint32_t)v << 16;
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    /* Shifted to the place of a float's exponent, the bits are a float 2^112 times too small. */
    uint32_t bits = (uint32_t)(v & 0x7fff) << 13;
    float scaled;
    memcpy(&scaled, &bits, sizeof(scaled));
    double size = (v & 0x7c00) == 0x7c00 ? (double)NAN : (double)scaled * 0x1p112;
    return v & 0x8000 ? -size : size;
}

/* Encodes a small multiple of 1/8, which is exact in bf16, in fp16 and, up to 2, in fp8. */
static inline uint16_t encode_small(enum dtype t, int eighths)
{
    float f = (float)eighths / 8;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (t == DTYPE_FP8_E4M3) {
        return fp8_encode(f);
    }
    if (t == DTYPE_BF16) {
        return (uint16_t)(bits >> 16);
    }
    return eighths
               ? (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13))
               : 0;
}

static inline double round_to(enum dtype t, double v)
{
    int exponent;
    if (v == 0 || !isfinite(v)) {
        return v;
    }
    frexp(v, &exponent);
    int digits = t == DTYPE_BF16 ? 8 : 11;
    return ldexp(nearbyint(ldexp(v, digits - exponent)), exponent - digits);
}

#endif
