/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "tests/bench/serving/problems.h"

struct gemmd_problem bench_problem(int i)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.mode = modes[i % 3];
    p.m = 32768;
    p.n = 128 * (1 + i / 3 % 256);
    p.k = 128 * (1 + i / 768);
    p.experts = 128;
    p.topk = 8;
    return p;
}

void bench_config(int i, struct record *out)
{
    static const int sizes[] = {32, 64, 128, 256};
    record_init(out);
    record_put_int(out, "BLOCK_SIZE_M", sizes[i % 4]);
    record_put_int(out, "BLOCK_SIZE_N", sizes[i / 4 % 4]);
    record_put_int(out, "BLOCK_SIZE_K", sizes[i / 16 % 3]);
    record_put_int(out, "GROUP_SIZE_M", 8);
    record_put_int(out, "NUM_KSPLIT", 1);
    record_put_int(out, "num_warps", 4 << i % 2);
    record_put_int(out, "num_stages", 2 + i % 4);
    record_put_bool(out, "use_tma_load_x", i % 2);
    record_put_bool(out, "use_tma_load_w", true);
    record_put_bool(out, "use_tma_store", i % 3 == 0);
    record_put_bool(out, "flatten", i % 5 == 0);
    record_put_text(out, "cluster_shape_mn", "2x1");
}

double bench_time_us(int i)
{
    return 100 + i / 8.0;
}

int *bench_order(int n)
{
    int *order = malloc((size_t)n * sizeof(*order));
    uint64_t random = 1;
    for (int i = 0; order && i < n; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        int at = (int)((random >> 33) % (uint64_t)(i + 1));
        order[i] = order[at];
        order[at] = i;
    }
    return order;
}
