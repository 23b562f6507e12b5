/* SPDX-License-Identifier: Apache-2.0 */
/* NVML, opened at run time. Its prototypes stand here, so that a build needs no nvml.h.
 * $GEMMD_LIBNVML names another library. */
#include "kernels/devices/cuda/driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/loading.h"

typedef struct nvml_device *nvml_device;
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, NOT_PERMITTED = 4, INSUFFICIENT_SIZE = 7 };

struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory; /* percent of NVML's last sampling period in which each was busy */
};

/* X(member, "symbol", parameters): required; OPTIONAL functions may be missing. */
#define NEEDED(X)                                                                                  \
    X(init, "nvmlInit_v2", (void))                                                                 \
    X(shutdown, "nvmlShutdown", (void))                                                            \
    X(device_of_pci, "nvmlDeviceGetHandleByPciBusId_v2", (const char *id, nvml_device *device))
#define OPTIONAL(X)                                                                                \
    X(device_of_uuid, "nvmlDeviceGetHandleByUUID", (const char *uuid, nvml_device *device))        \
    X(driver_version, "nvmlSystemGetDriverVersion", (char *text, unsigned size))                   \
    X(power_limit, "nvmlDeviceGetPowerManagementLimit", (nvml_device d, unsigned *milliwatts))     \
    X(clock, "nvmlDeviceGetClockInfo", (nvml_device d, int which, unsigned *mhz))                  \
    X(temperature, "nvmlDeviceGetTemperature", (nvml_device d, int sensor, unsigned *celsius))     \
    X(power, "nvmlDeviceGetPowerUsage", (nvml_device d, unsigned *milliwatts))                     \
    X(throttling, "nvmlDeviceGetCurrentClocksThrottleReasons",                                     \
      (nvml_device d, unsigned long long *reasons))                                                \
    X(utilization, "nvmlDeviceGetUtilizationRates", (nvml_device d, struct utilization * out))     \
    X(memory, "nvmlDeviceGetMemoryInfo", (nvml_device d, struct memory * out))                     \
    X(processes, "nvmlDeviceGetComputeRunningProcesses_v3",                                        \
      (nvml_device d, unsigned *count, void *infos))                                               \
    X(lock, "nvmlDeviceSetGpuLockedClocks", (nvml_device d, unsigned least, unsigned most))        \
    X(unlock, "nvmlDeviceResetGpuLockedClocks", (nvml_device d))

struct nvml {
    void *library; /* owned */
    nvml_device device;
#define X(member, symbol, parameters) int(*member) parameters;
    NEEDED(X)
    OPTIONAL(X)
#undef X
};

/* ---- opening -------------------------------------------------------------------------------- */

static bool nvml_load_symbols(struct nvml *n)
{
    bool all = true;
#define X(member, symbol, parameters) *(void **)&n->member = dlsym(n->library, symbol);
    OPTIONAL(X)
#undef X
#define X(member, symbol, parameters)                                                              \
    *(void **)&n->member = dlsym(n->library, symbol);                                              \
    all = all && n->member;
    NEEDED(X)
#undef X
    return all;
}

static bool nvml_find_gpu(struct nvml *n, const char *gpu)
{
    if (strncmp(gpu, "GPU-", 4) == 0) {
        return n->device_of_uuid && n->device_of_uuid(gpu, &n->device) == 0;
    }
    return n->device_of_pci(gpu, &n->device) == 0;
}

struct nvml *nvml_open(const char *gpu)
{
    const char *named = getenv("GEMMD_LIBNVML");
    struct nvml *n = calloc(1, sizeof(*n));
    if (!n) {
        return NULL;
    }
    loading_begin();
    n->library = dlopen(named && *named ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    bool begun = n->library && nvml_load_symbols(n) && n->init() == 0;
    bool found = begun && nvml_find_gpu(n, gpu);
    if (begun && !found) {
        n->shutdown();
    }
    loading_end();
    if (found) {
        return n;
    }
    if (n->library) {
        loading_close(n->library);
    }
    free(n);
    return NULL;
}

void nvml_close(struct nvml *n)
{
    if (n) {
        loading_begin();
        n->shutdown();
        loading_end();
        loading_close(n->library);
        free(n);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

void nvml_describe(const struct nvml *n, struct device_info *info)
{
    char version[32];
    unsigned milliwatts;
    if (n->driver_version && n->driver_version(version, sizeof(version)) == 0) {
        snprintf(info->driver, sizeof(info->driver), "%s", version);
    }
    if (n->power_limit && n->power_limit(n->device, &milliwatts) == 0) {
        info->power_limit_w = (milliwatts + 500) / 1000;
    }
}

/* Names the reasons for which the GPU lowers its clocks, from the bits of NVML's clock event
 * reasons. Idle (1) and clocks set by a user (2, 256) are left out, because they are intended. */
static void name_throttling(unsigned long long reasons, char *out, size_t size)
{
    static const struct {
        unsigned long long bits;
        const char *name;
    } names[] = {
        {0x4, "power"}, {0x20 | 0x40, "thermal"}, {0x80 | 0x8, "hardware"}, {0x10, "sync"}};
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (reasons & names[i].bits) {
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " " : "", names[i].name);
        }
    }
}

static void sample_clocks(const struct nvml *n, struct device_health *out)
{
    unsigned value;
    unsigned long long reasons;
    if (n->clock && n->clock(n->device, CLOCK_SM, &value) == 0) {
        out->sm_mhz = value;
    }
    if (n->clock && n->clock(n->device, CLOCK_MEMORY, &value) == 0) {
        out->memory_mhz = value;
    }
    if (n->temperature && n->temperature(n->device, 0, &value) == 0) {
        out->temperature_c = value;
    }
    if (n->power && n->power(n->device, &value) == 0) {
        out->power_w = (value + 500) / 1000;
    }
    if (n->throttling && n->throttling(n->device, &reasons) == 0) {
        name_throttling(reasons, out->throttle, sizeof(out->throttle));
    }
}

static void sample_users(const struct nvml *n, struct device_health *out)
{
    struct utilization busy;
    struct memory memory;
    unsigned count = 0;
    out->busy_percent = out->processes = -1;
    if (n->utilization && n->utilization(n->device, &busy) == 0) {
        out->busy_percent = busy.gpu;
    }
    if (n->memory && n->memory(n->device, &memory) == 0) {
        out->free_mib = (int64_t)(memory.free >> 20);
        out->total_mib = (int64_t)(memory.total >> 20);
    }
    /* the call fails because the array has no room, but still returns the number of processes */
    if (n->processes) {
        int r = n->processes(n->device, &count, NULL);
        out->processes = r == 0 || r == INSUFFICIENT_SIZE ? (int64_t)count : -1;
    }
}

void nvml_sample(const struct nvml *n, struct device_health *out)
{
    *out = (struct device_health){.busy_percent = -1, .processes = -1};
    sample_clocks(n, out);
    sample_users(n, out);
}

/* ---- clocks --------------------------------------------------------------------------------- */

static int nvml_set_clocks(const struct nvml *n, int64_t mhz, struct error *err)
{
    const char *what = mhz > 0 ? "locking the clocks" : "unlocking the clocks";
    if (mhz > 0 && (!n->lock || !n->unlock)) {
        return error_set(err, ERROR_NO_DEVICE,
                         "%s: the driver's NVML is too old: update it, or do not ask for locked "
                         "clocks",
                         what);
    }
    int code = mhz > 0     ? n->lock(n->device, (unsigned)mhz, (unsigned)mhz)
               : n->unlock ? n->unlock(n->device)
                           : 0;
    if (code == NOT_PERMITTED) {
        return error_set(err, ERROR_DENIED, "%s: the driver allows it to root only", what);
    }
    return code ? error_set(err, ERROR_NO_DEVICE, "%s: NVML error %d", what, code) : 0;
}

int device_set_clocks(const char *uuid, int64_t mhz, struct error *err)
{
    struct nvml *n = nvml_open(uuid);
    if (!n) {
        return error_set(err, ERROR_NO_DEVICE,
                         "NVML (libnvidia-ml.so.1) is not there, or does not know %s", uuid);
    }
    int r = nvml_set_clocks(n, mhz, err);
    nvml_close(n);
    return r;
}
