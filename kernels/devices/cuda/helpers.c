/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that the device needs beside candidates: the kernels of tools.cu, and the op's reference.
 * They are normal variants, so that they are compiled and cached in the normal way. */
#include "kernels/devices/cuda/gpu.h"

static const char HELPERS[] = "helpers";                                  /* their family */
static const char TOOLS[] = "cuda_tools", REFERENCE[] = "cuda_reference"; /* entries */

uint32_t cuda_helpers(const struct device_info *info, const struct family_target *t,
                      struct variant out[DEVICE_HELPERS_MAX])
{
    variant_init(&out[0], HELPERS, "cuda", TOOLS, cuda_tools_source, info->arch);
    variant_init(&out[1], HELPERS, "cuda", REFERENCE, t->reference_source, info->arch);
    return 2;
}

static int cuda_helper_load(struct cuda_device *d, struct cuda_helper *h, const char *entry,
                            const char *source, struct error *err)
{
    const struct device_supply *supply = &d->base.supply;
    struct variant v;
    struct cuda_nvrtc n;
    struct image own = {0};
    const struct image *image = &own;
    if (h->module.module && h->source == source) {
        return 0;
    }
    variant_init(&v, HELPERS, "cuda", entry, source, d->base.info.arch);
    cuda_module_unload(&h->module);
    h->source = source;
    int r = supply->image ? supply->image(supply->ctx, &v, &image, err)
                          : cuda_nvrtc_open(cuda.version, &n, err);
    r = r || supply->image ? r : cuda_nvrtc_compile(&n, &v, &own, err);
    r = r ? r : cuda_module_load(&h->module, image->data, entry, err);
    image_deinit(&own);
    return r;
}

int cuda_load_tools(struct cuda_device *d, struct error *err)
{
    return cuda_helper_load(d, &d->tools, TOOLS, cuda_tools_source, err);
}

int cuda_load_reference(struct cuda_device *d, const struct family_target *t, struct error *err)
{
    return cuda_helper_load(d, &d->reference, REFERENCE, t->reference_source, err);
}
