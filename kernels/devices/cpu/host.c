/* SPDX-License-Identifier: Apache-2.0 */
/* Describes this machine. A GPU's fields get the nearest bound of a CPU kernel: an "SM" is a
 * thread, a block's shared memory is a core's L2 cache, the L2 cache is the last-level cache. */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"

/* Cache sizes to assume when sysfs is hidden, as in containers. */
enum { L2_BYTES_GUESS = 1024 * 1024, LLC_BYTES_GUESS = 32 * 1024 * 1024 };

/* ---- description ----------------------------------------------------------------------------- */

static int allowed_threads(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* the machine has more CPUs than a cpu_set_t can hold */
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (int)n : 1;
}

int cpu_threads(const char *spec, struct error *err)
{
    if (strcmp(spec, "cpu") == 0) {
        int n = allowed_threads();
        return n < CPU_THREADS_MAX ? n : CPU_THREADS_MAX;
    }
    char *end = NULL;
    errno = 0;
    long n = strncmp(spec, "cpu:", 4) == 0 ? strtol(spec + 4, &end, 10) : 0;
    if (!end || end == spec + 4 || *end || errno || n < 1 || n > CPU_THREADS_MAX) {
        return error_set(err, ERROR_INVALID,
                         "device \"%s\": use cpu or cpu:<threads> with 1 to %d threads", spec,
                         CPU_THREADS_MAX);
    }
    return (int)n;
}

/* The value after "<name> :" in /proc/cpuinfo or /proc/meminfo; false when not found. */
static bool proc_value(const char *file, const char *name, char *out, size_t size)
{
    FILE *f = fopen(file, "re");
    char line[512];
    bool found = false;
    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && strchr(":\t ", line[n])) {
            char *value = strchr(line, ':');
            value = value ? value + 1 + strspn(value + 1, " \t") : line + n;
            value[strcspn(value, "\n")] = '\0';
            snprintf(out, size, "%s", value);
            found = true;
        }
    }
    if (f) {
        fclose(f);
    }
    return found;
}

void cpu_model_name(char *out, size_t size)
{
    char part[64];
    if (proc_value("/proc/cpuinfo", "model name", out, size)) {
        return;
    }
    struct utsname u;
    uname(&u);
    bool known = proc_value("/proc/cpuinfo", "CPU part", part, sizeof(part)); /* arm64 */
    snprintf(out, size, "%.20s%s%.20s", u.machine, known ? " CPU part " : "", known ? part : "");
}

static int64_t cpu_read_number(const char *path)
{
    FILE *f = fopen(path, "re");
    long long value = 0;
    char unit = 0;
    if (f) {
        if (fscanf(f, "%lld%c", &value, &unit) < 1) {
            value = 0;
        }
        fclose(f);
    }
    return unit == 'K' ? value * 1024 : unit == 'M' ? value * 1024 * 1024 : value;
}

static void read_caches(struct device_info *info)
{
    int last = 0;
    info->smem_optin = L2_BYTES_GUESS;
    info->l2_bytes = LLC_BYTES_GUESS;
    for (int i = 0; i < 8; i++) {
        char path[96];
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        int level = (int)cpu_read_number(path);
        snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        int64_t bytes = cpu_read_number(path);
        if (level == 2 && bytes > 0) {
            info->smem_optin = bytes;
        }
        if (level > last && bytes > 0) {
            info->l2_bytes = bytes;
            last = level;
        }
    }
    info->smem_per_sm = info->smem_optin;
}

static int64_t clock_khz(void)
{
    int64_t khz = cpu_read_number("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    char mhz[32];
    if (khz == 0 && proc_value("/proc/cpuinfo", "cpu MHz", mhz, sizeof(mhz))) {
        khz = (int64_t)(strtod(mhz, NULL) * 1000);
    }
    return khz;
}

static int64_t cpu_read_meminfo(const char *name, int64_t unknown)
{
    char text[64];
    return proc_value("/proc/meminfo", name, text, sizeof(text)) ? strtoll(text, NULL, 10) * 1024
                                                                 : unknown;
}

int cpu_describe(const char *spec, struct device_info *out, struct error *err)
{
    *out = (struct device_info){0};
    int threads = cpu_threads(spec, err);
    if (threads < 0) {
        return threads;
    }
    struct utsname u;
    uname(&u);
    snprintf(out->kind, sizeof(out->kind), "cpu");
    cpu_model_name(out->name, sizeof(out->name));
    snprintf(out->uuid, sizeof(out->uuid), "cpu");
    snprintf(out->arch, sizeof(out->arch), "%.15s", u.machine);
    snprintf(out->driver, sizeof(out->driver), "%.31s", u.release);
    out->sm_count = threads;
    out->warp_size = 1;
    read_caches(out);
    out->memory_bytes = cpu_read_meminfo("MemTotal", 0);
    out->clock_khz = clock_khz();
    device_class_format(out);
    return 0;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* A problem takes only a share of the free memory, since gemmd is a guest beside a training job.
 * The search and the device each hold a copy of a problem's drawn rows. */
enum { WORKLOADS = 2 };

static int64_t free_bytes(void)
{
    int64_t available = cpu_read_meminfo("MemAvailable", INT64_MAX);
    /* A container's cgroup may have a lower memory limit. */
    int64_t max = cpu_read_number("/sys/fs/cgroup/memory.max");
    int64_t used = cpu_read_number("/sys/fs/cgroup/memory.current");
    if (max > 0 && max - used < available) {
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
