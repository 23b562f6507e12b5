/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>

#include "proto/device.h"

SCHEMA_DEFINE(device_info, DEVICE_INFO_FIELDS);

void device_class_format(struct device_info *info)
{
    snprintf(info->class, sizeof(info->class),
             "%.80s/%s/sm%" PRId64 "/smem%" PRId64 "/mem%" PRId64 "/mig-%s/pl%" PRId64, info->name,
             info->arch, info->sm_count, info->smem_optin, info->memory_bytes >> 30, info->mig,
             info->power_limit_w);
}
