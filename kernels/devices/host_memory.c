/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the host's memory a problem may take: never more than a share of what is free, since
 * gemmd is a guest beside a training job. The share is a half, or what GEMMD_MEMORY_SHARE says.
 */
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"

/* What is drawn for a problem is there twice: for the search, and for the device. */
enum { WORKLOADS = 2 };

static int64_t read_bytes(const char *file, const char *name)
{
    FILE *f = fopen(file, "re");
    char line[256];
    long long value = -1;
    while (f && value < 0 && fgets(line, sizeof(line), f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && sscanf(line + n, "%lld", &value) != 1) {
            value = -1; /* "max" */
        }
    }
    if (f) {
        fclose(f);
    }
    return value;
}

static int64_t free_bytes(void)
{
    int64_t kib = read_bytes("/proc/meminfo", "MemAvailable:");
    int64_t available = kib >= 0 ? kib * 1024 : INT64_MAX;
    /* In a container the limit of the group may be the nearer one. */
    int64_t max = read_bytes("/sys/fs/cgroup/memory.max", "");
    int64_t used = read_bytes("/sys/fs/cgroup/memory.current", "");
    if (max > 0 && used >= 0 && max - used < available) {
        available = max > used ? max - used : 0;
    }
    return available;
}

int64_t device_host_limit(void)
{
    return (int64_t)((double)free_bytes() * device_memory_share());
}

double device_host_lists(const struct family *f, const struct problem *p)
{
    return f->workload_bytes ? WORKLOADS * f->workload_bytes(p) : 0;
}

int device_too_much(double need, double limit, const char *memory, struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY,
                     "the problem's buffers need %.1f MiB, but only %.1f MiB (%g %% of %s) may be "
                     "used: free some of it, ask for a smaller problem, or raise gemmd's "
                     "--memory-percent (GEMMD_MEMORY_SHARE)",
                     need / 0x1p20, limit / 0x1p20, device_memory_share() * 100, memory);
}

int device_host_fits(double need, struct error *err)
{
    const double limit = (double)device_host_limit();
    return need <= limit ? 0 : device_too_much(need, limit, "the free memory", err);
}
