/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma of e4m3 operands: tiles of 64 rows and 32 elements along the sum. Its arithmetic is
 * Hopper's by the model of MMA-Sim (arXiv 2511.10909): the 32 products and the old sum are aligned
 * to the largest exponent among them, each is cut toward zero to 13 bits behind the point, they are
 * added exactly, and the result is cut to 13 bits behind its own point. A kernel that adds up too
 * much before it promotes so loses bits here, too.
 */
#ifndef GEMMD_TESTS_EMULATE_WGMMA_FP8_H
#define GEMMD_TESTS_EMULATE_WGMMA_FP8_H

#include <math.h>

/* Sums are whole numbers of 2^-36. The least product of two subnormals is 2^-18. */
enum { FP8_UNIT = 36, FP8_BITS = 13, FP8_NAN = INT32_MAX };

/* e4m3 as a whole number of 2^-9; FP8_NAN. */
static int32_t fp8_number(uint8_t v)
{
    const int exponent = v >> 3 & 15, mantissa = v & 7;
    const int32_t size = exponent ? (8 + mantissa) << (exponent - 1) : mantissa;
    return (v & 0x7f) == 0x7f ? FP8_NAN : v & 0x80 ? -size : size;
}

/* Cuts v toward zero to FP8_BITS bits behind the bit `top`. */
static int64_t fp8_cut(int64_t v, int top)
{
    const int away = top - FP8_BITS;
    if (away <= 0) {
        return v;
    }
    return v < 0 ? -(-v >> away << away) : v >> away << away;
}

static int64_t fp8_size(int64_t v)
{
    return v < 0 ? -v : v;
}

/* The highest bit of a number above 0. */
static int fp8_top_bit(int64_t v)
{
    return 63 - __builtin_clzll((unsigned long long)v);
}

/* old + the sum of a[i] b[i], as the instruction computes it. No number is NaN. */
static float fp8_dot(const int32_t a[32], const int32_t b[32], float old)
{
    int64_t terms[33], sum = 0, bits = 0, cut = 0;
    for (int i = 0; i < 32; i++) {
        terms[i] = (int64_t)a[i] * b[i] * (INT64_C(1) << (FP8_UNIT - 18));
    }
    terms[32] = (int64_t)((double)old * 0x1p36);
    for (int i = 0; i < 33; i++) {
        sum += terms[i];
        bits |= fp8_size(terms[i]);
    }
    if (bits == 0) {
        return 0;
    }
    const int top = fp8_top_bit(bits);
    if (__builtin_ctzll((unsigned long long)bits) < top - FP8_BITS) { /* a term loses bits */
        for (int i = 0; i < 33; i++) {
            cut += fp8_cut(terms[i], top);
        }
        sum = cut;
    }
    sum = sum ? fp8_cut(sum, fp8_top_bit(fp8_size(sum))) : 0;
    return (float)((double)sum * 0x1p-36);
}

/* Reads 32 elements of row `mn`, which lie one after the other along the sum. False: one is NaN. */
static int fp8_operand(int rank, uint64_t desc, int mn, int32_t out[32])
{
    int is_number = 1;
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4;
    const uint32_t stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    const uint32_t at = start + (uint32_t)(mn / 8) * stride + (uint32_t)(mn % 8) * 128;
    if (desc >> 62 != 1 || (desc >> 49 & 7) || at + 32 > emulate.l.shared_bytes) {
        async_fail("a wgmma descriptor", desc);
        return 0;
    }
    for (uint32_t k = 0; k < 32; k++) {
        out[k] = fp8_number(
            (uint8_t)async_.memory[(uint32_t)rank * EMULATE_SHARED_MAX + swizzle_128(at + k)]);
        is_number &= out[k] != FP8_NAN;
    }
    return is_number;
}

static void run_wgmma(const struct emulate_op *op)
{
    static int32_t a[64][32], b[256][32];
    static int a_is_number[64], b_is_number[256];
    const int rank = op->actor / (int)(emulate.l.threads / 128);
    for (int m = 0; m < 64; m++) {
        a_is_number[m] = fp8_operand(rank, op->a, m, a[m]);
    }
    for (int n = 0; n < op->columns; n++) {
        b_is_number[n] = fp8_operand(rank, op->b, n, b[n]);
    }
    for (int m = 0; m < 64; m++) {
        for (int n = 0; n < op->columns; n++) {
            float *d =
                op->d[m / 16 * 32 + m % 8 * 4 + n % 8 / 2] + n / 8 * 4 + m / 8 % 2 * 2 + n % 2;
            const float old = op->scale ? *d : 0;
            const int is_number = a_is_number[m] && b_is_number[n] && old == old;
            *d = is_number ? fp8_dot(a[m], b[n], old) : NAN;
        }
    }
}

/* ---- what fp8.cu does beside wgmma ---- */

static void promote_8(float *d, int set, int g, const float s[8], int width)
{
    for (int i = 0; i < 8 && g * 16 + i * 2 < width; i++) {
        d[i] = fmaf(async_.temporary[set][emulate.current][g * 8 + i], s[i], d[i]);
    }
}

/* A prefetch of output, which no load follows. */
static void ask_output(const struct tensor_map *map, int x, int y, int z)
{
    if (!map->map.base || x < 0 || y < 0 || z < 0) {
        emulate_fail("a prefetch of the output at %d %d %d of %p", x, y, z, map->map.base);
    }
}

static float shared_scale(uint32_t at)
{
    float v;
    if (at % 4 || at % EMULATE_SHARED_MAX + 4 > emulate.l.shared_bytes) {
        emulate_fail("load of a scale at %u", at);
    }
    memcpy(&v, emulate_memory + at, sizeof(v));
    return v;
}

static void shared_scales(uint32_t at, float *a, float *b)
{
    if (at % 8) {
        emulate_fail("load of two scales at %u", at);
    }
    *a = shared_scale(at);
    *b = shared_scale(at + 4);
}

static float global_scale(const char *from)
{
    float v;
    for (uint32_t i = 0; i < emulate.l.n_ranges; i++) {
        if (from >= emulate.l.ranges[i].begin && from + 4 <= emulate.l.ranges[i].end) {
            memcpy(&v, from, sizeof(v));
            return v;
        }
    }
    emulate_fail("load of a scale outside the operands: %p", (const void *)from);
    return 0;
}

#endif
