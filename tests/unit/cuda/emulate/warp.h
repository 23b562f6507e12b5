/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions that a warp's 32 threads execute together: its 32 fibers meet. The input type is the
 * variant's: bf16 or fp16.
 */
#ifndef GEMMD_TESTS_EMULATE_WARP_H
#define GEMMD_TESTS_EMULATE_WARP_H

#include "tests/unit/cuda/emulate/block.h"
#include "tests/unit/cuda/emulate/memory.h"
#include "tests/unit/cuda/emulate/numbers.h"

#ifndef SCALED
#define SCALED 0 /* hopper's variants */
#endif

EMULATE_FAST
/* An operand of mma.sync: fp8 operands are multiplied as fp16. */
static float emulate_operand(uint16_t v)
{
    return IN_BF16 && !SCALED ? emulate_bf16_to_float(v) : half_to_float(v);
}

static float widen(uint16_t v)
{
    return IN_BF16 ? emulate_bf16_to_float(v) : half_to_float(v);
}
EMULATE_FAST_END

static uint32_t round_pair(float low, float high)
{
    return IN_BF16 ? emulate_float_to_bf16(low) | (uint32_t)emulate_float_to_bf16(high) << 16
                   : float_to_half(low) | (uint32_t)float_to_half(high) << 16;
}

static void copy_wait(void)
{
    emulate_wait(NUM_STAGES - 2);
}

static uint16_t emulate_matrix(const struct emulate_warp *w, int matrix, int row, int column)
{
    uint16_t v;
    memcpy(&v, emulate_memory + w->in[matrix * 8 + row][0] + column * 2, sizeof(v));
    return v;
}

static void emulate_ldmatrix(struct emulate_warp *w, int transposed)
{
    for (int lane = 0; lane < 32; lane++) {
        for (int m = 0; m < 4; m++) {
            uint32_t word = 0;
            for (int half = 0; half < 2; half++) {
                int major = lane / 4, minor = lane % 4 * 2 + half;
                uint16_t v = transposed ? emulate_matrix(w, m, minor, major)
                                        : emulate_matrix(w, m, major, minor);
                word |= (uint32_t)v << (16 * half);
            }
            w->out[lane][m] = word;
        }
    }
}

static void emulate_ldmatrix_plain(struct emulate_warp *w)
{
    emulate_ldmatrix(w, 0);
}

static void emulate_ldmatrix_trans(struct emulate_warp *w)
{
    emulate_ldmatrix(w, 1);
}

static void load_matrix(uint32_t r[4], uint32_t at)
{
    emulate_shared(at, "ldmatrix");
    memcpy(r, emulate_exchange("ldmatrix", &at, 1, emulate_ldmatrix_plain), 16);
}

static void load_matrix_transposed(uint32_t r[4], uint32_t at)
{
    emulate_shared(at, "ldmatrix.trans");
    memcpy(r, emulate_exchange("ldmatrix.trans", &at, 1, emulate_ldmatrix_trans), 16);
}

/* m16n8k16: words 0-3 of a lane are A, 4-5 B, 6-9 the accumulators. */
static void emulate_mma(struct emulate_warp *w)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            for (int half = 0; half < 2; half++) {
                a[g + i % 2 * 8][t * 2 + half + i / 2 * 8] =
                    emulate_operand((uint16_t)(w->in[lane][i] >> (16 * half)));
            }
        }
        for (int i = 0; i < 2; i++) {
            for (int half = 0; half < 2; half++) {
                b[t * 2 + half + i * 8][g] =
                    emulate_operand((uint16_t)(w->in[lane][4 + i] >> (16 * half)));
            }
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            float sum = bits_to_float(w->in[lane][6 + i]);
            for (int k = 0; k < 16; k++) {
                sum += a[g + i / 2 * 8][k] * b[k][t * 2 + i % 2];
            }
            w->out[lane][i] = float_to_bits(sum);
        }
    }
}

static void multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    uint32_t in[10] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(in + 6, d, 16);
    memcpy(d, emulate_exchange("mma", in, 10, emulate_mma), 16);
}

#if SCALED
/* A number of fp8 (e4m3). */
static float emulate_e4m3(uint8_t v)
{
    const float size =
        v & 0x78 ? (float)(8 + (v & 7)) * (float)(1 << (v >> 3 & 15)) / 1024 : (float)(v & 7) / 512;
    return (v & 0x7f) == 0x7f ? bits_to_float(0x7fffffff) : v & 0x80 ? -size : size;
}

/* m16n8k32 of fp8, with the words of emulate_mma. */
static void emulate_mma_fp8(struct emulate_warp *w)
{
    float a[16][32], b[32][8];
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4 * 4; i++) {
            a[g + i / 4 % 2 * 8][t * 4 + i % 4 + i / 8 * 16] =
                emulate_e4m3((uint8_t)(w->in[lane][i / 4] >> (8 * (i % 4))));
        }
        for (int i = 0; i < 2 * 4; i++) {
            b[t * 4 + i % 4 + i / 4 * 16][g] =
                emulate_e4m3((uint8_t)(w->in[lane][4 + i / 4] >> (8 * (i % 4))));
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 4; i++) {
            float sum = bits_to_float(w->in[lane][6 + i]);
            for (int k = 0; k < 32; k++) {
                sum += a[g + i / 2 * 8][k] * b[k][t * 2 + i % 2];
            }
            w->out[lane][i] = float_to_bits(sum);
        }
    }
}

static void multiply_fp8(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    uint32_t in[10] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(in + 6, d, 16);
    memcpy(d, emulate_exchange("mma of fp8", in, 10, emulate_mma_fp8), 16);
}
#endif

static void emulate_xor(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = w->in[lane ^ (int)w->in[lane][1]][0];
    }
}

static uint32_t shuffle_xor(uint32_t v, int mask)
{
    return *emulate_exchange("shfl.bfly", (uint32_t[]){v, (uint32_t)mask}, 2, emulate_xor);
}

static void emulate_up(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        int from = lane - (int)w->in[lane][1];
        w->out[lane][0] = w->in[from < 0 ? lane : from][0];
    }
}

static int shuffle_up(int v, int by)
{
    return (int)*emulate_exchange("shfl.up", (uint32_t[]){(uint32_t)v, (uint32_t)by}, 2,
                                  emulate_up);
}

static void emulate_from(struct emulate_warp *w)
{
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = w->in[w->in[lane][1]][0];
    }
}

static int shuffle_from(int v, int lane)
{
    return (int)*emulate_exchange("shfl.idx", (uint32_t[]){(uint32_t)v, (uint32_t)lane}, 2,
                                  emulate_from);
}

static void emulate_count(struct emulate_warp *w)
{
    uint32_t n = 0;
    for (int lane = 0; lane < 32; lane++) {
        n += w->in[lane][0] != 0;
    }
    for (int lane = 0; lane < 32; lane++) {
        w->out[lane][0] = n;
    }
}

static int count_lanes(int yes)
{
    return (int)*emulate_exchange("vote", (uint32_t[]){(uint32_t)yes}, 1, emulate_count);
}

static int any_lane(int yes)
{
    return count_lanes(yes) > 0;
}

#endif
