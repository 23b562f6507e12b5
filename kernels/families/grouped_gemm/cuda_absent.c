/* SPDX-License-Identifier: Apache-2.0 */
/* The targets of the cuda device, when built without CUDA: they support no device. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"

static bool supports(const struct device_info *info)
{
    (void)info;
    return false;
}

const struct family_target grouped_gemm_cuda = {.kind = "cuda", .label = "portable", .source = "",
                                                .supports = supports};
const struct family_target grouped_gemm_hopper = {.kind = "cuda", .label = "hopper", .source = "",
                                                  .supports = supports};
