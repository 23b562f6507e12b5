/* SPDX-License-Identifier: Apache-2.0 */
/* The text of quantise's reference.cu that only GPUs run, for the CPU: e4m3 and the kernel. */
#include "tests/unit/cuda/emulate.h"

#define __device__
#define __global__
#define __launch_bounds__(n)
#define __forceinline__
#define __uint_as_float(v) bits_of_uint(v)
#define __float_as_uint(v) uint_of_bits(v)
#define bits_to_float      reference_bits_to_float
#define float_to_bits      reference_float_to_bits
static struct {
    long long x;
} blockIdx, threadIdx;

static float bits_of_uint(unsigned v)
{
    float f;
    memcpy(&f, &v, sizeof(f));
    return f;
}

static unsigned uint_of_bits(float v)
{
    unsigned b;
    memcpy(&b, &v, sizeof(b));
    return b;
}

#define REFERENCE_ENTRY void
#include "kernels/families/quantise/reference.cu"

static void emulate_entry(void)
{
    blockIdx.x = emulate.block[0];
    threadIdx.x = emulate.current;
    quantise_reference(*(const struct reference_params *)emulate.l.params);
}
