/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of a tensor on this host: converts a float to bf16, fp16 or fp32, and back. */
#ifndef GEMMD_KERNELS_DEVICES_CPU_ELEMENTS_H
#define GEMMD_KERNELS_DEVICES_CPU_ELEMENTS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/vocabulary.h"

static inline uint16_t element_to_bf16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16); /* v is finite */
}

/* v is finite. Rounds to nearest even. */
static inline uint16_t element_to_fp16(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    float size = fabsf(v);
    if (size >= 65520) {
        return sign | 0x7c00;
    }
    if (size < 0x1p-14f) { /* subnormal: a multiple of 2^-24 */
        return sign | (uint16_t)lrintf(size * 0x1p24f);
    }
    memcpy(&bits, &size, sizeof(bits));
    bits += 0xfff + ((bits >> 13) & 1);
    return sign | (uint16_t)((bits - (UINT32_C(112) << 23)) >> 13);
}

static inline void element_write(enum dtype t, void *data, int64_t i, float v)
{
    if (t == DTYPE_FP32) {
        ((float *)data)[i] = v;
    } else {
        ((uint16_t *)data)[i] = t == DTYPE_BF16 ? element_to_bf16(v) : element_to_fp16(v);
    }
}

static inline double element_read(enum dtype t, const void *data, int64_t i)
{
    if (t == DTYPE_FP32) {
        return ((const float *)data)[i];
    }
    uint16_t half = ((const uint16_t *)data)[i];
    if (t == DTYPE_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float v;
        memcpy(&v, &bits, sizeof(v));
        return v;
    }
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    double size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -size : size;
}

#endif
