/* SPDX-License-Identifier: Apache-2.0 */
/* A variant of quantise's cuda template for the CPU; compiled by test_quantise_emulated.c with the
 * variant's options. */
#define IN_BF16    1 /* the warp's instructions of emulate.h ask for them */
#define NUM_STAGES 2
#include "tests/unit/cuda/emulate.h"

#include "kernels/families/quantise/cuda/params.cu"

#undef PARAMS
#define PARAMS   struct quantise_params
#define HAS_E4M3 0

struct words {
    u32 w[4];
};

static struct words read16(const char *from)
{
    struct words r;
    emulate_allowed(from, 16, "load");
    memcpy(&r, from, 16);
    return r;
}

static void write16(char *to, struct words v)
{
    emulate_allowed(to, 16, "store");
    memcpy(to, &v, 16);
}

static void write8(char *to, u32 a, u32 b)
{
    emulate_allowed(to, 8, "store");
    memcpy(to, (u32[]){a, b}, 8);
}

/* A meeting of all threads that a second meeting separates from the next. */
static int barrier_any(int yes)
{
    static int any;
    any |= yes;
    barrier();
    const int result = any;
    barrier();
    any = 0;
    barrier();
    return result;
}

static int sum_lanes(int v)
{
    for (int by = 16; by > 0; by /= 2) {
        v += (int)shuffle_xor((u32)v, by);
    }
    return v;
}

static u32 max_halves(u32 a, u32 b)
{
    const float x = bits_to_float(a << 16), y = bits_to_float(b << 16);
    return x != x ? b : y != y ? a : x > y ? a : b;
}

static u32 max_pairs(u32 a, u32 b)
{
    return (max_halves(a & 0xffff, b & 0xffff) & 0xffff) | max_halves(a >> 16, b >> 16) << 16;
}

static float product(float a, float b)
{
    return a * b;
}

static float quotient(float a, float b)
{
    return a / b;
}

#include "kernels/families/quantise/cuda/experts.cu"
#include "kernels/families/quantise/cuda/numbers.cu"
#include "kernels/families/quantise/cuda/rows.cu"
#include "kernels/families/quantise/cuda/columns.cu"
#include "kernels/families/quantise/cuda/whole.cu"
#include "kernels/families/quantise/cuda/kernel.cu"

static void emulate_entry(void)
{
    quantise_portable(*(const struct quantise_params *)emulate.l.params);
}
