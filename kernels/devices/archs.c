/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: the limits that their devices share, and the SMs and L2 cache of the usual
 * chip. Part of every build, so that users can plan for a GPU on a machine without one. */
#include <stdio.h>
#include <string.h>

#include "kernels/device.h"

static const struct arch {
    const char *name;
    int major, minor, sms, smem_optin, smem_per_sm, l2_mib;
} archs[] = {
    {"sm_80", 8, 0, 108, 166912, 167936, 40},   {"sm_86", 8, 6, 84, 101376, 102400, 6},
    {"sm_87", 8, 7, 16, 166912, 167936, 4},     {"sm_89", 8, 9, 142, 101376, 102400, 96},
    {"sm_90a", 9, 0, 132, 232448, 233472, 50},  {"sm_100", 10, 0, 148, 232448, 233472, 126},
    {"sm_120", 12, 0, 170, 101376, 102400, 96},
};

static const struct arch *archs_find(const char *name)
{
    for (size_t i = 0; i < sizeof(archs) / sizeof(archs[0]); i++) {
        if (strcmp(archs[i].name, name) == 0) {
            return &archs[i];
        }
    }
    return NULL;
}

int arch_describe(const char *arch, struct device_info *out, struct error *err)
{
    const struct arch *a = archs_find(arch);
    if (!a) {
        return error_set(err, ERROR_INVALID,
                         "unknown architecture \"%s\": sm_80, sm_86, sm_87, sm_89, "
                         "sm_90a, sm_100 and sm_120 are known",
                         arch);
    }
    *out = (struct device_info){.kind = "cuda",
                                .index = -1,
                                .sm_count = a->sms,
                                .cc_major = a->major,
                                .cc_minor = a->minor,
                                .smem_optin = a->smem_optin,
                                .smem_per_sm = a->smem_per_sm,
                                .regs_per_block = 65536,
                                .warp_size = 32,
                                .l2_bytes = (int64_t)a->l2_mib << 20};
    snprintf(out->name, sizeof(out->name), "any %s", arch);
    snprintf(out->arch, sizeof(out->arch), "%s", arch);
    device_class_format(out);
    return 0;
}
