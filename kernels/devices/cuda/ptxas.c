/* SPDX-License-Identifier: Apache-2.0 */
/* Reads ptxas's report on a kernel in NVRTC's log: registers, spills, missed optimisations. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/cuda/nvrtc.h"

/* The largest number before the text `unit` in the log; -1: none. */
static int64_t greatest_before(const char *log, const char *unit)
{
    int64_t most = -1;
    for (const char *at = strstr(log, unit); at; at = strstr(at + 1, unit)) {
        const char *digit = at;
        while (digit > log && isdigit((unsigned char)digit[-1])) {
            digit--;
        }
        int64_t value = digit < at ? strtoll(digit, NULL, 10) : -1;
        most = value > most ? value : most;
    }
    return most;
}

static void ptxas_read(const char *log, struct module *m)
{
    int64_t spills = greatest_before(log, " bytes spill stores");
    int64_t shared = greatest_before(log, " bytes smem");
    m->registers = greatest_before(log, " registers");
    m->spill_bytes = spills > 0 ? spills : 0;
    m->smem_static = shared > 0 ? shared : 0;
}

/* Finds a line with "(C75xx)", as in "(C7510)": ptxas serialised the kernel's wgmmas or ignored its
 * setmaxnreg, which makes the kernel slow. */
static const char *find_advisory(const char *log)
{
    for (const char *at = strstr(log, "(C75"); at; at = strstr(at + 1, "(C75")) {
        if (isdigit((unsigned char)at[4]) && isdigit((unsigned char)at[5]) && at[6] == ')') {
            while (at > log && at[-1] != '\n') {
                at--;
            }
            return at;
        }
    }
    return NULL;
}

int cuda_ptxas_judge(const char *log, struct module *m, struct error *err)
{
    ptxas_read(log, m);
    const char *advisory = find_advisory(log);
    if (advisory) {
        return error_set(err, ERROR_RESOURCE, "ptxas cannot compile the variant well: %.*s",
                         (int)strcspn(advisory, "\n"), advisory);
    }
    if (m->spill_bytes > CUDA_SPILL_BYTES_MAX) {
        return error_set(err, ERROR_RESOURCE,
                         "ptxas spills %lld bytes of registers (%lld per thread "
                         "are not enough; %d bytes are tolerated)",
                         (long long)m->spill_bytes, (long long)m->registers, CUDA_SPILL_BYTES_MAX);
    }
    return 0;
}
