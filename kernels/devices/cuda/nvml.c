/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only NVML knows: the power limit, which decides what a GPU reaches, and the driver's
 * version. Its absence is fine. The few prototypes are written out, so that nvml.h is not needed to
 * build. $GEMMD_LIBNVML names another file.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/devices/cuda/driver.h"

typedef struct nvml_device *nvml_device;

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char *text, unsigned size);
    int (*device_of_pci)(const char *bus_id, nvml_device *device);
    int (*power_limit)(nvml_device device, unsigned *milliwatts);
};

static void *open_library(void)
{
    const char *named = getenv("GEMMD_LIBNVML");
    return dlopen(named && *named ? named : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
}

static bool load_symbols(void *library, struct nvml *n)
{
    *(void **)&n->init = dlsym(library, "nvmlInit_v2");
    *(void **)&n->shutdown = dlsym(library, "nvmlShutdown");
    *(void **)&n->driver_version = dlsym(library, "nvmlSystemGetDriverVersion");
    *(void **)&n->device_of_pci = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&n->power_limit = dlsym(library, "nvmlDeviceGetPowerManagementLimit");
    return n->init && n->shutdown && n->driver_version && n->device_of_pci && n->power_limit;
}

void cuda_nvml_read(const char *pci_bus_id, struct device_info *info)
{
    struct nvml n;
    void *library = open_library();
    if (!library) {
        return;
    }
    if (load_symbols(library, &n) && n.init() == 0) {
        char version[32];
        nvml_device device;
        unsigned milliwatts;
        if (n.driver_version(version, sizeof(version)) == 0) {
            snprintf(info->driver, sizeof(info->driver), "%s", version);
        }
        if (n.device_of_pci(pci_bus_id, &device) == 0 && n.power_limit(device, &milliwatts) == 0) {
            info->power_limit_w = (milliwatts + 500) / 1000;
        }
        n.shutdown();
    }
    dlclose(library);
}
