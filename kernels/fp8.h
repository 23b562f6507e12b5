/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The number format e4m3 ("e4m3fn"), in which fp8 operands are stored: a sign, four bits of
 * exponent with bias 7, three bits of mantissa. It has no infinities.
 *
 *   0x00        0            0x08   2^-6, the smallest normal number
 *   0x01        2^-9         0x7e   448, the largest number
 *   0x07   7 * 2^-9          0x7f   NaN.
 *
 * The functions give the same bits as the GPU's conversions (cvt.rn.satfinite.e4m3x2.f32 and back):
 * workloads, references and tests on every device rely on this.
 */
#ifndef GEMMD_KERNELS_FP8_H
#define GEMMD_KERNELS_FP8_H

#include <stdint.h>

#define FP8_MAX 448.0f

/* Rounds to nearest, ties to even. Finite values and infinities beyond FP8_MAX become FP8_MAX with
 * their sign; every NaN becomes 0x7f. Zeros keep their sign. */
uint8_t fp8_encode(float value);
/* Exact for every code. */
float fp8_decode(uint8_t code);

#endif
