/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/compile/pool.h"

static int helpers_want_build(struct helpers *h, const struct variant *v, struct build **out,
                              struct error *err)
{
    char hash[HASH_HEX];
    variant_hash(v, h->compiler->ops->version(h->compiler), hash);
    const struct compile_pool_want want = {.variant = v, .hash = hash, .rank = RANK_HELPER};
    return compile_pool_want(h->pool, &want, out, err);
}

int helpers_want(struct helpers *h, const struct family_target *t, struct error *err)
{
    const struct device *d = h->device;
    struct variant all[DEVICE_HELPERS_MAX];
    const uint32_t n = d->ops->helpers ? d->ops->helpers(&d->info, t, all) : 0;
    int status = 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        status = helpers_want_build(h, &all[i], NULL, err);
    }
    return status;
}

/* The device calls this when it needs the image of one of its own kernels (device_supply). Waits
 * for the compile without a limit of its own: the limit of the current device step's `attempt`
 * applies. */
static int helpers_supply_image(void *ctx, const struct variant *v, const struct image **out,
                                struct error *err)
{
    struct helpers *h = ctx;
    struct build *b;
    int status = helpers_want_build(h, v, &b, err);
    if (status) {
        return status;
    }
    while (b->state == BUILD_PENDING) {
        h->wait(h->ctx);
        compile_pool_collect(h->pool);
    }
    *out = &b->image;
    status = b->state == BUILD_READY ? 0 : error_set(err, b->error.code, "%s", b->error.text);
    compile_pool_release(h->pool, b);
    return status;
}

int helpers_wait(struct helpers *h, const struct family_target *t, struct error *err)
{
    const struct device *d = h->device;
    struct variant all[DEVICE_HELPERS_MAX];
    const uint32_t n = d->ops->helpers ? d->ops->helpers(&d->info, t, all) : 0;
    const struct image *image;
    int status = 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        status = helpers_supply_image(h, &all[i], &image, err);
    }
    return status;
}

void helpers_init(struct helpers *h)
{
    h->device->supply = (struct device_supply){.image = helpers_supply_image, .ctx = h};
}
