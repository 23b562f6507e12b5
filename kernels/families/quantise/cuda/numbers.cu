/* SPDX-License-Identifier: Apache-2.0 */
/* ---- quantise, numbers: maxima, scales, e4m3 --------------------------------------------------- */
#define INFINITE 0x7f80u /* bf16 */

/* The sizes of two bf16. With `finite`, infinities and NaN become 0; without, a NaN still loses in max_pairs. */
INLINE u32 sizes(u32 pair, int finite)
{
    u32 low = pair & 0x7fffu, high = pair >> 16 & 0x7fffu;
    if (!finite)
        return pair & 0x7fff7fffu;
    low = low < INFINITE ? low : 0;
    high = high < INFINITE ? high : 0;
    return low | high << 16;
}

INLINE u32 larger(u32 a, u32 b)
{
    return a > b ? a : b;
}

/* The larger of a pair's two sizes. */
INLINE u32 larger_of_pair(u32 pair)
{
    return larger(pair & 0xffffu, pair >> 16);
}

INLINE u32 max_of_words(const struct words *v, int finite)
{
    u32 r = 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        r = max_pairs(r, sizes(v->w[i], finite));
    return larger_of_pair(r);
}

INLINE float scale_of(u32 amax, float eps)
{
    const float size = bits_to_float(amax << 16), scale = quotient(size > eps ? size : eps, 448.0f);
    if (float_to_bits(scale) < 0x00800000u) /* below 2^-126 */
        return 1.0f;
#if POW2
    return bits_to_float((float_to_bits(scale) + 0x7fffffu) & 0x7f800000u);
#else
    return scale;
#endif
}

#if !HAS_E4M3
INLINE u32 to_e4m3(float v)
{
    const u32 bits = float_to_bits(v), size = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    if (size > 0x7f800000u)
        return 0x7fu;
    if (size >= 0x43e00000u) /* 448 */
        return sign | 0x7eu;
    if (size < 0x3c800000u) /* below 2^-6: multiples of 2^-9, which adding 2^14 rounds to */
        return sign | (float_to_bits(bits_to_float(size) + 16384.0f) - 0x46800000u);
    return sign | (((size + 0x7ffffu + (size >> 20 & 1u)) >> 20) - 960u);
}

INLINE u32 to_e4m3_pair(float low, float high)
{
    return to_e4m3(low) | to_e4m3(high) << 8;
}
#endif

/* The two bf16 of a word. */
INLINE float low_float(u32 pair)
{
    return bits_to_float(pair << 16);
}

INLINE float high_float(u32 pair)
{
    return bits_to_float(pair & 0xffff0000u);
}

/* Four values with a common scale. */
INLINE u32 quantise_four(u32 a, u32 b, float inverse)
{
    return to_e4m3_pair(product(low_float(a), inverse), product(high_float(a), inverse)) |
           to_e4m3_pair(product(low_float(b), inverse), product(high_float(b), inverse)) << 16;
}
