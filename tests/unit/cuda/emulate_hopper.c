/* SPDX-License-Identifier: Apache-2.0 */
/* A variant of the hopper template for the CPU; test_emulated.c compiles it with its options. */
#include "kernels/families/grouped_gemm/hopper/params.cu"

#include "tests/unit/cuda/emulate_hopper.h"

#include "kernels/families/grouped_gemm/hopper/scheduler.cu"
#include "kernels/families/grouped_gemm/hopper/cluster.cu"
#include "kernels/families/grouped_gemm/hopper/one_expert.cu"
#include "kernels/families/grouped_gemm/hopper/producer.cu"
#include "kernels/families/grouped_gemm/hopper/scales.cu"
#include "kernels/families/grouped_gemm/hopper/gather.cu"
#include "kernels/families/grouped_gemm/hopper/mainloop.cu"
#include "kernels/families/grouped_gemm/hopper/fp8.cu"
#include "kernels/families/grouped_gemm/hopper/output.cu"
#include "kernels/families/grouped_gemm/hopper/epilogue.cu"
#include "kernels/families/grouped_gemm/hopper/sender.cu"
#include "kernels/families/grouped_gemm/hopper/swapped.cu"
#include "kernels/families/grouped_gemm/hopper/split.cu"
#include "kernels/families/grouped_gemm/hopper/staggered.cu"
#include "kernels/families/grouped_gemm/hopper/deferred.cu"
#include "kernels/families/grouped_gemm/hopper/kernel.cu"
#include "kernels/families/grouped_gemm/hopper/permute.cu"

static void emulate_entry(void)
{
#if PERMUTE_COPY
    if (strcmp(emulate.l.entry, "grouped_gemm_permute") == 0) {
        grouped_gemm_permute(*(const struct permute_params *)emulate.l.params);
        return;
    }
    if (strcmp(emulate.l.entry, "grouped_gemm_places") == 0) {
        grouped_gemm_places(*(const struct permute_params *)emulate.l.params);
        return;
    }
#endif
    grouped_gemm_hopper(*(const struct hopper_params *)emulate.l.params);
}
