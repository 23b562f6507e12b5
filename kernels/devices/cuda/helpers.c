/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that the device needs beside candidates: the kernels of tools.cu, and the op's reference.
 * They are normal variants, so that they are compiled and cached in the normal way. */
#include <stdio.h>
#include <string.h>

#include "kernels/devices/cuda/gpu.h"

static void cuda_helper_describe(const struct device_info *info, const char *entry,
                                 const char *source, struct variant *v)
{
    *v = (struct variant){.family = "helpers", .kind = "cuda"};
    variant_set_source(v, source);
    snprintf(v->entry, sizeof(v->entry), "%s", entry);
    snprintf(v->arch, sizeof(v->arch), "%s", info->arch);
}

static void describe_tools(const struct device_info *info, struct variant *v)
{
    cuda_helper_describe(info, "cuda_tools", cuda_tools_source, v);
}

static void describe_reference(const struct device_info *info, const struct family_target *t,
                               struct variant *v)
{
    cuda_helper_describe(info, "cuda_reference", t->reference_source, v);
}

uint32_t cuda_helpers(const struct device_info *info, const struct family_target *t,
                      struct variant out[DEVICE_HELPERS_MAX])
{
    describe_tools(info, &out[0]);
    describe_reference(info, t, &out[1]);
    return 2;
}

static int cuda_helper_load(struct cuda_device *d, struct cuda_helper *h, const struct variant *v,
                            struct error *err)
{
    const struct device_supply *supply = &d->base.supply;
    struct cuda_nvrtc n;
    struct image own = {0};
    const struct image *image = &own;
    if (h->module.module && h->source == v->source) {
        return 0;
    }
    cuda_module_unload(&h->module);
    h->source = v->source;
    int r = supply->image ? supply->image(supply->ctx, v, &image, err)
                          : cuda_nvrtc_open(d->cu->version, &n, err);
    r = r || supply->image ? r : cuda_nvrtc_compile(&n, v, &own, err);
    r = r ? r : cuda_module_load(&h->module, d->cu, image->data, v->entry, err);
    image_deinit(&own);
    return r;
}

int cuda_load_tools(struct cuda_device *d, struct error *err)
{
    struct variant v;
    describe_tools(&d->base.info, &v);
    return cuda_helper_load(d, &d->tools, &v, err);
}

int cuda_load_reference(struct cuda_device *d, const struct family_target *t, struct error *err)
{
    struct variant v;
    describe_reference(&d->base.info, t, &v);
    return cuda_helper_load(d, &d->reference, &v, err);
}
