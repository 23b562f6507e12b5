/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the reachable peaks of this CPU, since no table lists every CPU: multiply-adds with the
 * widest vectors on all threads at once, and reads of a buffer. Takes a few tens of milliseconds.
 *
 * This file has its own compiler flags (kernels/meson.build): optimised in every build, and
 * multiply and add contracted, as kernels are compiled.
 */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "kernels/devices/cpu/cpu.h"

enum { CHAINS = 10, ROUNDS = 30000, REPEATS = 3, READ_BYTES = 64 * 1024 * 1024, READ_CHUNKS = 256 };

/* Enough independent multiply-adds to fill the pipelines of one core. */
#define DEFINE_FMA(name, bytes, attribute)                                                         \
    attribute static float name(float seed)                                                        \
    {                                                                                              \
        typedef float lanes __attribute__((vector_size(bytes)));                                   \
        const lanes zero = {0}, scale = zero + seed, more = zero + 1e-3f;                          \
        lanes sum[CHAINS];                                                                         \
        for (int c = 0; c < CHAINS; c++) {                                                         \
            sum[c] = zero + (float)c;                                                              \
        }                                                                                          \
        for (int i = 0; i < ROUNDS; i++) {                                                         \
            for (int c = 0; c < CHAINS; c++) {                                                     \
                sum[c] = sum[c] * scale + more;                                                    \
            }                                                                                      \
        }                                                                                          \
        for (int c = 1; c < CHAINS; c++) {                                                         \
            sum[0] += sum[c];                                                                      \
        }                                                                                          \
        return sum[0][0];                                                                          \
    }

DEFINE_FMA(fma_16, 16, __attribute__((noinline)))
#if defined(__x86_64__)
DEFINE_FMA(fma_32, 32, __attribute__((noinline, target("avx2,fma"))))
DEFINE_FMA(fma_64, 64, __attribute__((noinline, target("avx512f"))))
#endif

static float (*widest(int *lanes))(float)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        *lanes = 16;
        return fma_64;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *lanes = 8;
        return fma_32;
    }
#endif
    *lanes = 4;
    return fma_16;
}

struct peaks {
    float (*fma)(float);
    const uint64_t *data;
    atomic_uint_fast64_t sink; /* takes the results, so that compilers cannot drop the work */
};

static void run_fma(void *ctx, uint32_t i)
{
    struct peaks *p = ctx;
    p->sink = (uint64_t)p->fma(0.5f + (float)i * 1e-6f);
}

static void run_read(void *ctx, uint32_t i)
{
    struct peaks *p = ctx;
    enum { WORDS = READ_BYTES / READ_CHUNKS / 8 };
    uint64_t sum = 0;
    const uint64_t *at = p->data + (size_t)i * WORDS;
    for (size_t k = 0; k < WORDS; k++) {
        sum += at[k];
    }
    p->sink = sum;
}

/* Milliseconds of the fastest of a few rounds: other rounds may have been disturbed. */
static double best_ms(struct pool *pool, void (*run)(void *, uint32_t), struct peaks *p, uint32_t n)
{
    double best = 1e9;
    for (int i = 0; i < REPEATS; i++) {
        double began = device_clock_ms(NULL);
        pool_run(pool, run, p, n);
        double ms = device_clock_ms(NULL) - began;
        best = ms < best ? ms : best;
    }
    return best;
}

void cpu_measure_peaks(struct device_info *info, struct pool *pool)
{
    int lanes;
    struct peaks p = {.fma = widest(&lanes)};
    /* average number of calls of a thread; a late thread makes fewer, the others more */
    enum { PER_THREAD = 4 };
    uint32_t n = (uint32_t)info->sm_count * PER_THREAD;
    double flops = (double)n * ROUNDS * CHAINS * lanes * 2;
    info->peak_tflops = flops / (best_ms(pool, run_fma, &p, n) * 1e9);
    void *data = mmap(NULL, READ_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        return; /* peak_gbps stays 0: family_floor_us() then uses the compute time alone */
    }
    memset(data, 1, READ_BYTES);
    p.data = data;
    info->peak_gbps = READ_BYTES / (best_ms(pool, run_read, &p, READ_CHUNKS) * 1e6);
    munmap(data, READ_BYTES);
}
