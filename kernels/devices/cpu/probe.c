/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device without opening it: the machine, what it can do at most, and its compiler. */
#include "kernels/devices/cpu/cpu.h"

int cpu_probe(const char *spec, struct device_info *out, struct error *err)
{
    int r = cpu_describe(spec, out, err);
    if (r) {
        return r;
    }
    struct pool *pool = pool_new((uint32_t)out->sm_count);
    if (!pool) {
        return error_set(err, ERROR_NO_MEMORY, "cannot start %d threads", (int)out->sm_count);
    }
    cpu_measure_peaks(out, pool);
    pool_free(pool);
    cpu_compiler_version(out->compiler, sizeof(out->compiler));
    return 0;
}
