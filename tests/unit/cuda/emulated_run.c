/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a variant's source for the CPU, and runs its launches (emulate.h). */
#include "tests/unit/cuda/emulated_run.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/gemmd-emulated-XXXXXX";

/* ---- compiling ------------------------------------------------------------------------------ */

/* Compiled variants stay loaded for all tests: other problems and launches often need a variant
 * that an earlier case has compiled. */
enum { COMPILED_MAX = 512 };
static struct {
    const char *source;
    char *options; /* owned */
    void *so;
    bool is_special; /* compiled with changed files */
} compiled[COMPILED_MAX];
static int n_compiled;

/* A variant takes longer to compile than to run: -Og compiles in two thirds of -O1's time. The
 * emulator's arithmetic asks for -O2 (emulate/numbers.h). */
static void *build(const char *first, const char *source, const char *options)
{
    char path[256], command[4096];
    snprintf(path, sizeof(path), "%s/%d.so", folder, n_compiled);
    snprintf(command, sizeof(command),
             "cc -Og -w -Wno-psabi -shared -fPIC -I%s -I%s %s %s/tests/unit/cuda/%s -o %s",
             first ? first : SOURCE_ROOT, SOURCE_ROOT, options, SOURCE_ROOT, source, path);
    assert_int_equal(system(command), 0);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fail_msg("%s", dlerror());
    }
    unlink(path);
    return so;
}

void *emulated_compile(const char *first, const char *source, const char *options)
{
    for (int i = 0; i < n_compiled && !first; i++) {
        if (!compiled[i].is_special && strcmp(compiled[i].source, source) == 0 &&
            strcmp(compiled[i].options, options) == 0) {
            return compiled[i].so;
        }
    }
    void *so = build(first, source, options);
    assert_true(n_compiled < COMPILED_MAX);
    compiled[n_compiled].source = source;
    compiled[n_compiled].is_special = first != NULL;
    compiled[n_compiled].options = strdup(options);
    compiled[n_compiled++].so = so;
    return so;
}

bool emulated_begin(void)
{
    if (!mkdtemp(folder)) {
        perror(folder);
        return false;
    }
    return true;
}

void emulated_end(void)
{
    while (n_compiled > 0) {
        dlclose(compiled[--n_compiled].so);
        free(compiled[n_compiled].options);
    }
    rmdir(folder);
}

/* Writes the description of each tensor map (struct emulate_map) into the params. */
static void encode_maps(struct launch *l)
{
    for (uint32_t i = 0; i < l->n_maps; i++) {
        const struct tensor_map *m = &l->maps[i];
        assert_true(m->base && (uintptr_t)m->base % 16 == 0 && m->offset % TENSOR_MAP_ALIGN == 0 &&
                    m->offset + TENSOR_MAP_BYTES <= l->params_bytes && m->swizzle == 128);
        struct emulate_map map = {
            .base = m->base, .rank = m->rank, .element = (uint32_t)dtype_size(m->dtype)};
        memcpy(map.size, m->size, sizeof(m->size));
        memcpy(map.stride, m->stride, sizeof(m->stride));
        memcpy(map.box, m->box, sizeof(m->box));
        for (uint32_t d = 0; d < m->rank; d++) {
            assert_true(m->size[d] > 0 && m->size[d] <= UINT64_C(1) << 32 && m->box[d] > 0 &&
                        m->box[d] <= 256);
            assert_true(d == 0 || (m->stride[d - 1] % 16 == 0 && m->stride[d - 1] >> 40 == 0));
        }
        assert_true(m->box[0] * map.element <= 128);
        memcpy(l->params + m->offset, &map, sizeof(map));
    }
}

/* Gives each cluster a place that differs from its number, as a device's launch order does. */
static void give_places(struct launch *l)
{
    const uint32_t n = l->order_at ? l->grid[0] / l->cluster[0] : 0;
    for (uint32_t i = 0; i < n; i++) {
        l->params[l->order_at + i] = (uint8_t)(n - 1 - i);
    }
}

const char *emulated_try(void *so, struct launch *l, struct emulate_launch *e)
{
    int (*launch)(const struct emulate_launch *);
    *(void **)&launch = dlsym(so, "emulate_launch"); /* ISO C has no cast for function pointers */
    encode_maps(l);
    give_places(l);
    e->entry = l->entry;
    e->grid[0] = l->grid[0];
    e->grid[1] = l->grid[1];
    e->grid[2] = l->grid[2];
    e->cluster = l->cluster[0];
    e->threads = l->block[0];
    e->shared_bytes = l->smem_bytes;
    e->params = l->params;
    return launch(e) ? (const char *)dlsym(so, "emulate_error") : NULL;
}

void emulated_run(const char *what, void *so, struct launch *l, struct emulate_launch *e)
{
    const char *error = emulated_try(so, l, e);
    if (error) {
        fail_msg("%s: %s", what, error);
    }
}
