/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libcuda: memory. GPU memory is host memory, and copies copy. */
#include <malloc.h>

#include "tests/cuda_stub/libcuda.h"

static size_t used; /* bytes of all allocations */

STUB_EXPORT result cuMemAlloc_v2(pointer *at, size_t bytes);
STUB_EXPORT result cuMemAlloc_v2(pointer *at, size_t bytes)
{
    MAY_FAIL();
    if (bytes >= 1 << 20) {
        stub_wait_gate();
    }
    void *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    used += malloc_usable_size(memory);
    *at = (pointer)(size_t)memory;
    stub_objects++;
    return SUCCESS;
}

STUB_EXPORT result cuMemFree_v2(pointer at);
STUB_EXPORT result cuMemFree_v2(pointer at)
{
    used -= malloc_usable_size((void *)(size_t)at);
    free((void *)(size_t)at);
    stub_objects--;
    return SUCCESS;
}

STUB_EXPORT result cuMemGetInfo_v2(size_t *available, size_t *total);
STUB_EXPORT result cuMemGetInfo_v2(size_t *available, size_t *total)
{
    MAY_FAIL();
    const size_t memory = (size_t)stub_number("GEMMD_STUB_FREE", 1 << 30);
    *available = memory > used ? memory - used : 0;
    *total = (size_t)80 << 30;
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream);
STUB_EXPORT result cuMemcpyHtoDAsync_v2(pointer to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memcpy((void *)(size_t)to, from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes);
STUB_EXPORT result cuMemcpyDtoH_v2(void *to, pointer from, size_t bytes)
{
    MAY_FAIL();
    memcpy(to, (const void *)(size_t)from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t bytes, void *stream);
STUB_EXPORT result cuMemcpyDtoHAsync_v2(void *to, pointer from, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memcpy(to, (const void *)(size_t)from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *stream);
STUB_EXPORT result cuMemcpyDtoDAsync_v2(pointer to, pointer from, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memcpy((void *)(size_t)to, (const void *)(size_t)from, bytes);
    return SUCCESS;
}

STUB_EXPORT result cuMemsetD8Async(pointer at, unsigned char value, size_t bytes, void *stream);
STUB_EXPORT result cuMemsetD8Async(pointer at, unsigned char value, size_t bytes, void *stream)
{
    (void)stream;
    MAY_FAIL();
    memset((void *)(size_t)at, value, bytes);
    return SUCCESS;
}

/* ---- calls of tests/gpu only ---------------------------------------------------------------- */

struct copy_2d { /* CUDA_MEMCPY2D */
    size_t from_x, from_y;
    unsigned from_type;
    const void *from_host;
    pointer from;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    unsigned to_type;
    void *to_host;
    pointer to;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
};

STUB_EXPORT result cuMemcpy2DUnaligned_v2(const struct copy_2d *c);
STUB_EXPORT result cuMemcpy2DUnaligned_v2(const struct copy_2d *c)
{
    for (size_t i = 0; i < c->height; i++) {
        memcpy((char *)(size_t)c->to + i * c->to_pitch,
               (const char *)(size_t)c->from + i * c->from_pitch, c->width);
    }
    return SUCCESS;
}

STUB_EXPORT result cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes);
STUB_EXPORT result cuMemcpyHtoD_v2(pointer to, const void *from, size_t bytes)
{
    memcpy((void *)(size_t)to, from, bytes);
    return SUCCESS;
}
