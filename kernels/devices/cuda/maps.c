/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor maps: the driver encodes the maps of a launch into the kernel's params. Encoding takes
 * 0.05 microseconds per map and no call to the GPU, so maps are not cached. */
#include "kernels/devices/cuda/module.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(CUtensorMap) == TENSOR_MAP_BYTES, "family.h says how large a map is");

static const CUtensorMapDataType map_types[] = {
    [DTYPE_BF16] = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, [DTYPE_FP16] = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
    [DTYPE_FP32] = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,  [DTYPE_INT32] = CU_TENSOR_MAP_DATA_TYPE_INT32,
    [DTYPE_INT64] = CU_TENSOR_MAP_DATA_TYPE_INT64,
};

static CUtensorMapSwizzle swizzle_of(uint32_t bytes)
{
    return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
           : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
           : bytes == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                         : CU_TENSOR_MAP_SWIZZLE_NONE;
}

static CUtensorMapL2promotion promotion_of(uint32_t bytes)
{
    return bytes == 256   ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
           : bytes == 128 ? CU_TENSOR_MAP_L2_PROMOTION_L2_128B
           : bytes == 64  ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B
                          : CU_TENSOR_MAP_L2_PROMOTION_NONE;
}

static int cuda_map_encode(const struct tensor_map *m, CUtensorMap *out, struct error *err)
{
    static const cuuint32_t step[5] = {1, 1, 1, 1, 1};
    return cuda_check(cuda.map_encode(out, map_types[m->dtype], m->rank, (void *)(uintptr_t)m->base,
                                      m->size, m->stride, m->box, step,
                                      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(m->swizzle),
                                      promotion_of(m->l2_promotion),
                                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                      err, "encoding a tensor map of %u dimensions over %p", m->rank, m->base);
}

int cuda_maps_encode(const struct launch *l, struct cuda_params *out, struct error *err)
{
    int r = 0;
    if (!cuda.map_encode) {
        return error_set(err, ERROR_NO_DEVICE,
                         "the driver has no cuTensorMapEncodeTiled, which kernel "
                         "%s needs: update it to 525 or newer",
                         l->entry);
    }
    memcpy(out->bytes, l->params, l->params_bytes);
    for (uint32_t i = 0; i < l->n_maps && r == 0; i++) {
        CUtensorMap map;
        assert(l->maps[i].offset + sizeof(map) <= l->params_bytes);
        r = cuda_map_encode(&l->maps[i], &map, err);
        if (!r) {
            memcpy(out->bytes + l->maps[i].offset, &map, sizeof(map));
        }
    }
    return r;
}
