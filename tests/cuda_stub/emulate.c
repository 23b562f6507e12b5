/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the libcuda stub that runs kernels (emulate.h). */
#include "tests/cuda_stub/emulate.h"

#include <dlfcn.h>
#include <elf.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/fp8.h"
#include "tests/unit/cuda/emulate_launch.h"

struct emulated {
    void *library;
    int (*launch)(const struct emulate_launch *l);
    const char *error;
};

/* ---- images ---------------------------------------------------------------------------------- */

static void *open_file(const void *image, size_t size)
{
    char path[] = "/tmp/gemmd-stub-XXXXXX"; /* a new name for each image: for a name that dlopen
                                               has loaded it returns the loaded library */
    int fd = mkstemp(path);
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof(head));
    head.e_machine = EM_X86_64;
    bool written = fd >= 0 && write(fd, &head, sizeof(head)) == (ssize_t)sizeof(head) &&
                   write(fd, (const char *)image + sizeof(head), size - sizeof(head)) ==
                       (ssize_t)(size - sizeof(head));
    void *library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "stub: %s\n", written ? dlerror() : "cannot write an image");
    }
    if (fd >= 0) {
        close(fd);
        unlink(path);
    }
    return library;
}

struct emulated *emulated_load(const void *image)
{
    Elf64_Ehdr head;
    memcpy(&head, image, sizeof(head));
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_shoff == 0) { /* PTX, or no sections */
        return NULL;
    }
    struct emulated *e = calloc(1, sizeof(*e));
    e->library = open_file(image, head.e_shoff + (size_t)head.e_shnum * head.e_shentsize);
    if (e->library) {
        *(void **)&e->launch = dlsym(e->library, "emulate_launch");
        e->error = dlsym(e->library, "emulate_error");
    }
    return e;
}

void emulated_unload(struct emulated *e)
{
    if (e) {
        if (e->library) {
            dlclose(e->library);
        }
        free(e);
    }
}

/* ---- kernels of tools.cu and tests/gpu, in C, with the same structs of parameters ------------ */

enum { BF16 = 1, FP16 = 2, FP32 = 3, FP8 = 6 };

static float bits_to_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static float decode(int dtype, const void *data, uint64_t i)
{
    if (dtype == FP32) {
        return ((const float *)data)[i];
    }
    uint16_t v = ((const uint16_t *)data)[i];
    if (dtype == BF16) {
        return bits_to_float((uint32_t)v << 16);
    }
    uint32_t exponent = v >> 10 & 31, mantissa = v & 1023;
    float size = exponent == 31 ? bits_to_float(0x7f800000 | mantissa << 13)
                 : exponent     ? bits_to_float((exponent + 112) << 23 | mantissa << 13)
                                : (float)mantissa * 0x1p-24f;
    return v & 0x8000 ? -size : size;
}

static uint16_t encode(int dtype, float v)
{
    uint32_t bits, sign;
    memcpy(&bits, &v, sizeof(bits));
    if (dtype == BF16) {
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (fabsf(v) < 0x1p-14f) {
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(v) * 0x1p24f));
    }
    return (uint16_t)(sign | (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13);
}

static void fill(const void *params)
{
    const struct {
        void *to;
        uint64_t count, seed;
        const uint8_t *columns;
        uint64_t n_columns;
        float scale;
        int dtype, scales, reserved;
    } *p = params;
    for (uint64_t i = 0; i < p->count; i++) {
        uint64_t z = p->seed + (i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        z ^= z >> 31;
        int sum =
            (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
        float v = (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
        v = p->scales ? ldexpf(1 + (float)(z >> 41) * 0x1p-23f, (int)(z & 3) - 2) : v;
        v = p->columns && !p->columns[i % p->n_columns] ? 0 : v * p->scale;
        if (p->dtype == FP32) {
            ((float *)p->to)[i] = v;
        } else if (p->dtype == FP8) {
            ((uint8_t *)p->to)[i] = fp8_encode(v);
        } else {
            ((uint16_t *)p->to)[i] = encode(p->dtype, v);
        }
    }
}

static void count_poison(const void *params)
{
    const struct {
        const char *data;
        uint64_t count, *out;
        int size, reserved;
    } *p = params;
    for (uint64_t i = 0; i < p->count; i++) {
        *p->out +=
            memcmp(p->data + i * (uint64_t)p->size, "\xff\xff\xff\xff", (size_t)p->size) == 0;
    }
}

struct row_error {
    double max_error, difference, norm, excess;
    int64_t worst;
    double got, expected;
};

static double not_nan(double v)
{
    return isnan(v) ? (double)INFINITY : v;
}

static void compare_rows(const void *params, uint32_t checks)
{
    const struct {
        const void *data;
        const int64_t *at;
        const double *expected;
        struct row_error *out;
        uint64_t length;
        double atol, rtol, grain;
        int dtype, reserved;
    } *p = params;
    for (uint32_t i = 0; i < checks; i++) {
        struct row_error e = {.worst = (int64_t)p->length};
        for (uint64_t j = 0; j < p->length; j++) {
            double got = (double)decode(p->dtype, p->data, (uint64_t)p->at[i] + j);
            double expected = p->expected[i * p->length + j], x = not_nan(fabs(got - expected));
            double over = not_nan(x - (p->atol + p->rtol * fabs(expected)));
            if (over > e.excess) {
                e.excess = over;
                e.worst = (int64_t)j;
                e.got = got;
                e.expected = expected;
            }
            e.max_error = fmax(e.max_error, x);
            e.difference += fmax(x - p->grain, 0) * fmax(x - p->grain, 0);
            e.norm += expected * expected;
        }
        p->out[i] = e;
    }
}

static void add_rows(const void *params, uint32_t checks)
{
    const struct {
        const void *data;
        const int64_t *at;
        double *expected;
        uint64_t length;
        int dtype, reserved;
    } *p = params;
    for (uint64_t i = 0; i < checks * p->length; i++) {
        p->expected[i] +=
            (double)decode(p->dtype, p->data, (uint64_t)p->at[i / p->length] + i % p->length);
    }
}

static void compare(const void *params)
{
    const struct {
        const char *a, *b;
        uint64_t n, *out;
    } *p = params;
    for (uint64_t i = 0; i < p->n; i++) {
        *p->out += p->a[i] != p->b[i];
    }
}

/* ---- launching ------------------------------------------------------------------------------ */

int emulated_launch(struct emulated *e, const char *entry, const uint32_t grid[3], uint32_t cluster,
                    uint32_t threads, uint32_t shared_bytes, const void *params)
{
    if (strcmp(entry, "cuda_fill") == 0) {
        fill(params);
    } else if (strcmp(entry, "cuda_count_poison") == 0) {
        count_poison(params);
    } else if (strcmp(entry, "cuda_add_rows") == 0) {
        add_rows(params, grid[0]);
    } else if (strcmp(entry, "cuda_compare") == 0) {
        compare_rows(params, grid[0]);
    } else if (strcmp(entry, "compare") == 0) {
        compare(params);
    }
    if (!e || !e->launch) {
        return 0;
    }
    struct emulate_launch l = {.entry = entry,
                               .grid = {grid[0], grid[1], grid[2]},
                               .cluster = cluster,
                               .threads = threads,
                               .shared_bytes = shared_bytes,
                               .params = params,
                               .seed = 1,
                               .n_ranges = 1};
    l.ranges[0].end = (const char *)(uintptr_t)-1;
    if (e->launch(&l)) {
        fprintf(stderr, "stub: %s\n", e->error);
        return 719;
    }
    return 0;
}
