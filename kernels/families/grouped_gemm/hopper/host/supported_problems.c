/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which problems the target "hopper" does: those that its smallest config is legal for. That one
 * fits wherever any does, so what check() says of it, it says of the problem (types, sums into
 * bf16, rows that TMA cannot read, more experts than fit into shared memory), and the rules stand
 * in one place. All other problems are the portable kernel's.
 */
#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

int grouped_gemm_hopper_takes(const struct problem *p, const struct device_info *info,
                              struct rejection *why)
{
    struct record smallest;
    record_init(&smallest);
    record_put_int(&smallest, "BLOCK_SIZE_M", 64);
    record_put_int(&smallest, "BLOCK_SIZE_N", 64);
    record_put_int(&smallest, "BLOCK_SIZE_K", 64);
    record_put_int(&smallest, "num_warps", 8);
    record_put_int(&smallest, "num_stages", 2);
    record_put_text(&smallest, "schedule", "cooperative");
    return hopper_check(p, &smallest, info, why);
}
