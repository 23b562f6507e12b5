/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libnvidia-ml (stub.h). */
#include "tests/cuda_stub/stub.h"

typedef int result;
static int stub_calls;
static char device_of_stub;

#define MAY_FAIL() STUB_MAY_FAIL(result)

STUB_EXPORT result nvmlInit_v2(void);
STUB_EXPORT result nvmlInit_v2(void)
{
    MAY_FAIL();
    return 0;
}

STUB_EXPORT result nvmlShutdown(void);
STUB_EXPORT result nvmlShutdown(void)
{
    return 0;
}

STUB_EXPORT result nvmlSystemGetDriverVersion(char *text, unsigned size);
STUB_EXPORT result nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    MAY_FAIL();
    snprintf(text, size, "580.99.01");
    return 0;
}

STUB_EXPORT result nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device);
STUB_EXPORT result nvmlDeviceGetHandleByPciBusId_v2(const char *id, void **device)
{
    (void)id;
    MAY_FAIL();
    *device = &device_of_stub;
    return 0;
}

STUB_EXPORT result nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts);
STUB_EXPORT result nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    MAY_FAIL();
    *milliwatts = 699600;
    return 0;
}

STUB_EXPORT result nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
STUB_EXPORT result nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    (void)uuid;
    MAY_FAIL();
    *device = &device_of_stub;
    return 0;
}

/* ---- state ---------------------------------------------------------------------------------- */

STUB_EXPORT result nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);
STUB_EXPORT result nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    (void)device;
    MAY_FAIL();
    *mhz = which == 2 ? 3201 : (unsigned)stub_number("GEMMD_STUB_MHZ", 1575);
    return 0;
}

STUB_EXPORT result nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
STUB_EXPORT result nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)device, (void)sensor;
    MAY_FAIL();
    *celsius = 61;
    return 0;
}

STUB_EXPORT result nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
STUB_EXPORT result nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    MAY_FAIL();
    *milliwatts = 412345;
    return 0;
}

STUB_EXPORT result nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out);
STUB_EXPORT result nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *out)
{
    (void)device;
    MAY_FAIL();
    *out = (unsigned long long)stub_number("GEMMD_STUB_THROTTLE", 0x4);
    return 0;
}

STUB_EXPORT result nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2]);
STUB_EXPORT result nvmlDeviceGetUtilizationRates(void *device, unsigned percent[2])
{
    (void)device;
    MAY_FAIL();
    percent[0] = (unsigned)stub_number("GEMMD_STUB_BUSY", 0);
    percent[1] = 0;
    return 0;
}

STUB_EXPORT result nvmlDeviceGetMemoryInfo(void *device, unsigned long long bytes[3]);
STUB_EXPORT result nvmlDeviceGetMemoryInfo(void *device, unsigned long long bytes[3])
{
    (void)device;
    MAY_FAIL();
    bytes[0] = 80ull << 30;
    bytes[1] = (unsigned long long)stub_number("GEMMD_STUB_FREE_MIB", 60 << 10) << 20;
    bytes[2] = bytes[0] - bytes[1];
    return 0;
}

STUB_EXPORT result nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos);
STUB_EXPORT result nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *n, void *infos)
{
    enum { INSUFFICIENT_SIZE = 7 };
    (void)device, (void)infos;
    MAY_FAIL();
    *n = (unsigned)stub_number("GEMMD_STUB_PROCESSES", 0);
    return *n ? INSUFFICIENT_SIZE : 0;
}

/* ---- clocks --------------------------------------------------------------------------------- */

static result note_clocks(const char *what, unsigned mhz)
{
    const char *path = getenv("GEMMD_STUB_CLOCKS");
    FILE *f = path ? fopen(path, "a") : NULL;
    if (f) {
        fprintf(f, "%s %u\n", what, mhz);
        fclose(f);
    }
    return 0;
}

STUB_EXPORT result nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most);
STUB_EXPORT result nvmlDeviceSetGpuLockedClocks(void *device, unsigned least, unsigned most)
{
    (void)device;
    MAY_FAIL();
    return note_clocks(least == most ? "lock" : "range", most);
}

STUB_EXPORT result nvmlDeviceResetGpuLockedClocks(void *device);
STUB_EXPORT result nvmlDeviceResetGpuLockedClocks(void *device)
{
    (void)device;
    MAY_FAIL();
    return note_clocks("unlock", 0);
}
