/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Describes a GPU without a context on it: gemmd calls this at start and then leaves the GPU alone.
 *
 * Peaks are rates that kernels reach, not data sheet values: measured for known cards, else
 * estimated from attributes (see estimate_peaks).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/devices/cuda/driver.h"
#include "kernels/devices/cuda/nvrtc.h"

/* ---- finding a device ----------------------------------------------------------------------- */

static void format_uuid(const CUuuid *uuid, bool mig, char out[64])
{
    const unsigned char *b = (const unsigned char *)uuid->bytes;
    snprintf(out, 64, "%s-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             mig ? "MIG" : "GPU", b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10],
             b[11], b[12], b[13], b[14], b[15]);
}

/* The MIG profile is the end of the device's name: "NVIDIA H100 80GB HBM3 MIG 1g.10gb". NULL:
 * the device is no MIG instance. */
static const char *mig_of_name(const char *name)
{
    const char *at = strstr(name, " MIG ");
    return at ? at + 5 : NULL;
}

static int read_uuid(CUdevice device, const char *name, char out[64], struct error *err)
{
    CUuuid uuid;
    int r = cuda_check(cuda.device_uuid(&uuid, device), err, "asking the GPU its UUID");
    if (r == 0) {
        format_uuid(&uuid, mig_of_name(name) != NULL, out);
    }
    return r;
}

static int find_uuid(const char *wanted, int n, CUdevice *out, struct error *err)
{
    char found[64] = "";
    for (int i = 0; i < n; i++) {
        CUdevice device;
        char name[128], own[64];
        int r = cuda_check(cuda.device_get(&device, i), err, "asking for GPU %d", i);
        r = r ? r
              : cuda_check(cuda.device_name(name, sizeof(name), device), err,
                           "asking GPU %d its name", i);
        r = r ? r : read_uuid(device, name, own, err);
        if (r) {
            return r;
        }
        if (!uuid_match(wanted, own)) {
            continue;
        }
        if (found[0]) {
            return error_set(err, ERROR_INVALID,
                             "%s is the beginning of several UUIDs here, %s and %s: write more "
                             "of it",
                             wanted, found, own);
        }
        strcpy(found, own);
        *out = device;
    }
    return found[0] ? 0
                    : error_set(err, ERROR_NO_DEVICE,
                                "no GPU here has UUID %s (%d looked at): check nvidia-smi -L "
                                "and CUDA_VISIBLE_DEVICES",
                                wanted, n);
}

int cuda_find(const char *spec, CUdevice *out, struct error *err)
{
    const char *which = strncmp(spec, "cuda:", 5) == 0 ? spec + 5 : "0";
    int n;
    int r = cuda_check(cuda.device_count(&n), err, "counting GPUs");
    if (r) {
        return r;
    }
    if (n == 0) {
        return error_set(err, ERROR_NO_DEVICE,
                         "the driver sees no GPU: check nvidia-smi and "
                         "CUDA_VISIBLE_DEVICES, or ask for cpu instead");
    }
    char uuid[UUID_LENGTH + 1];
    if (uuid_of_spec(which, uuid)) {
        return find_uuid(uuid, n, out, err);
    }
    char *end;
    errno = 0;
    long index = strtol(which, &end, 10);
    if (end == which || *end || errno || index < 0) {
        return error_set(err, ERROR_INVALID,
                         "unknown device \"%s\": use cuda:<index> or cuda:GPU-<uuid>", spec);
    }
    if (index >= n) {
        return error_set(err, ERROR_NO_DEVICE,
                         "there is no GPU %ld: the driver sees %d, counted from "
                         "cuda:0; check nvidia-smi and CUDA_VISIBLE_DEVICES",
                         index, n);
    }
    return cuda_check(cuda.device_get(out, (int)index), err, "asking for GPU %ld", index);
}

/* ---- describing a device -------------------------------------------------------------------- */

static int read_attributes(CUdevice device, struct device_info *info, struct error *err)
{
    const struct {
        CUdevice_attribute which;
        int64_t *to;
    } all[] = {
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &info->sm_count},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &info->cc_major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &info->cc_minor},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &info->smem_optin},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &info->smem_per_sm},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, &info->regs_per_block},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, &info->warp_size},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &info->l2_bytes},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &info->clock_khz},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        int value;
        int r = cuda_check(cuda.device_attribute(&value, all[i].which, device), err,
                           "asking the GPU for attribute %d", (int)all[i].which);
        if (r) {
            return r;
        }
        *all[i].to = value;
    }
    return 0;
}

/* Compute capability 9.0 has instructions (wgmma, TMA) that only the target "sm_90a" may use. */
static void cuda_probe_set_arch(struct device_info *info)
{
    snprintf(info->arch, sizeof(info->arch), "sm_%d%d%s", (int)info->cc_major, (int)info->cc_minor,
             info->cc_major == 9 && info->cc_minor == 0 ? "a" : "");
}

static void set_mig(struct device_info *info)
{
    const char *profile = mig_of_name(info->name);
    if (profile) {
        snprintf(info->mig, sizeof(info->mig), "%.*s", (int)sizeof(info->mig) - 1, profile);
    }
}

/* Peaks of known cards, measured with large bf16 products of random data and with
 * device-to-device copies. */
static const struct {
    const char *name;
    int64_t sms;
    double tflops, gbps;
} measured[] = {
    {"NVIDIA H200", 132, 788, 4300},
    {"NVIDIA H100 80GB HBM3", 132, 800, 3030},
};

/* FLOP per SM and cycle of dense bf16 products with fp32 sums, by compute capability. A compute
 * capability that consumer and data-centre chips share gets the consumer chips' half rate. */
static double flops_per_cycle(const struct device_info *info)
{
    switch (info->cc_major * 10 + info->cc_minor) {
    case 80:
        return 2048;
    case 87:
        return 1024;
    case 90:
        return 4096;
    case 100:
    case 103:
        return 8192;
    default: /* 86, 89, 110, 120, 121 and unknown */
        return 512;
    }
}

/* Reachable share of the tensor rate at the highest clock. Measured Hopper cards reach 0.74 and
 * 0.75, because their power limit does not sustain that clock. */
static double tensor_share(const struct device_info *info)
{
    return info->cc_major == 9 ? 0.74 : 0.8;
}

/* Estimates reachable peaks from attributes: tensor rate = FLOP/cycle/SM x SMs x clock x a share;
 * memory = bus width x memory clock x 2 (double data rate) x 0.88, as on the measured cards. */
static void estimate_peaks(CUdevice device, struct device_info *info)
{
    int width = 0, khz = 0;
    cuda.device_attribute(&width, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device);
    cuda.device_attribute(&khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device);
    info->peak_tflops = flops_per_cycle(info) * (double)info->sm_count * (double)info->clock_khz *
                        1e-9 * tensor_share(info);
    info->peak_gbps = width / 8.0 * khz * 2e-6 * 0.88;
}

static void set_peaks(CUdevice device, struct device_info *info)
{
    for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]); i++) {
        if (strcmp(info->name, measured[i].name) == 0 && info->sm_count == measured[i].sms) {
            info->peak_tflops = measured[i].tflops;
            info->peak_gbps = measured[i].gbps;
            return;
        }
    }
    estimate_peaks(device, info);
}

struct nvml *cuda_nvml(CUdevice device)
{
    char pci[32] = "";
    return cuda.device_pci(pci, sizeof(pci), device) == CUDA_SUCCESS ? nvml_open(pci) : NULL;
}

int cuda_describe(CUdevice device, const struct nvml *nvml, struct device_info *out,
                  struct error *err)
{
    *out = (struct device_info){.kind = "cuda", .index = device};
    size_t bytes;
    int r = read_attributes(device, out, err);
    r = r ? r
          : cuda_check(cuda.device_name(out->name, sizeof(out->name), device), err,
                       "asking the GPU its name");
    r = r ? r : read_uuid(device, out->name, out->uuid, err);
    r = r ? r : cuda_check(cuda.device_memory(&bytes, device), err, "asking the GPU its memory");
    if (r) {
        return r;
    }
    out->memory_bytes = (int64_t)bytes;
    cuda_probe_set_arch(out);
    set_mig(out);
    set_peaks(device, out);
    snprintf(out->driver, sizeof(out->driver), "CUDA %d.%d", cuda.version / 1000,
             cuda.version % 1000 / 10);
    if (nvml) {
        nvml_describe(nvml, out);
    }
    struct cuda_nvrtc nvrtc;
    if (cuda_nvrtc_open(cuda.version, &nvrtc, NULL) == 0) {
        snprintf(out->compiler, sizeof(out->compiler), "%s", nvrtc.name);
    }
    device_class_format(out);
    return 0;
}
