/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
static int none(const char *spec, struct device **out, struct error *err)
{
    (void)spec;
    *out = NULL;
    return error_set(err, ERROR_NO_DEVICE, "no replay device");
}
static int cnone(const char *spec, struct compiler **out, struct error *err)
{
    (void)spec;
    *out = NULL;
    return error_set(err, ERROR_NO_DEVICE, "no replay device");
}
int replay_probe(const char *spec, struct device_info *out, struct error *err)
{
    (void)spec;
    (void)out;
    return error_set(err, ERROR_NO_DEVICE, "no replay device");
}
const struct device_ops replay_device_ops = {.kind = "replay", .open = none};
const struct compiler_ops replay_compiler_ops = {.kind = "replay", .suffix = "so", .open = cnone};
