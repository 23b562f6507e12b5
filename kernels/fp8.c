/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/fp8.h"

#include <math.h>
#include <string.h>

enum { CODE_NAN = 0x7f, CODE_MAX = 0x7e, MANTISSA = 3, CUT = 23 - MANTISSA };
/* The exponent of a code, less the exponent of the same value as a float. */
static const uint32_t REBIAS = (127 - 7) << MANTISSA;

uint8_t fp8_encode(float value)
{
    const float size = fabsf(value);
    const uint8_t sign = signbit(value) ? 0x80 : 0;
    if (isnan(value)) {
        return CODE_NAN;
    }
    if (size >= FP8_MAX) {
        return sign | CODE_MAX;
    }
    if (size < 0x1p-6f) { /* a multiple of 2^-9; adding 2^14 leaves no smaller bits in a float */
        return sign | (uint8_t)((size + 0x1p14f - 0x1p14f) * 0x1p9f);
    }
    uint32_t bits;
    memcpy(&bits, &size, sizeof(bits));
    bits += (1u << (CUT - 1)) - 1 + (bits >> CUT & 1);
    return sign | (uint8_t)((bits >> CUT) - REBIAS);
}

float fp8_decode(uint8_t code)
{
    const int exponent = code >> MANTISSA & 15, mantissa = code & 7;
    const float size = (code & 0x7f) == CODE_NAN ? NAN
                       : exponent                ? ldexpf((float)(8 + mantissa), exponent - 10)
                                                 : ldexpf((float)mantissa, -9);
    return code & 0x80 ? -size : size;
}
