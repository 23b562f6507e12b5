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
