/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/compile/helpers.h"

#include <stdlib.h>
#include <string.h>

/* One that failed, but for what the variant is, may go well the next time. */
static bool is_worth_another(const struct build *b)
{
    return b->state == BUILD_FAILED && !b->refused;
}

static struct build *helpers_find_build(struct helpers *h, const char *hash)
{
    for (uint32_t i = 0; i < h->n; i++) {
        struct build *b = h->builds[i];
        if (strcmp(b->hash, hash) != 0) {
            continue;
        }
        if (!is_worth_another(b)) {
            return b;
        }
        compile_pool_release(h->setup.pool, b);
        h->builds[i] = h->builds[--h->n];
        break;
    }
    return NULL;
}

static int helpers_want_build(struct helpers *h, const struct variant *v, struct build **out,
                              struct error *err)
{
    const struct helpers_setup *s = &h->setup;
    char hash[HASH_HEX];
    variant_hash(v, s->compiler->ops->version(s->compiler), hash);
    *out = helpers_find_build(h, hash);
    if (*out) {
        return 0;
    }
    if (h->n == HELPERS_MAX) {
        return error_set(err, ERROR_INTERNAL, "a device needs more than %d kernels of its own",
                         HELPERS_MAX);
    }
    WIRE_BUF_AUTO words = WIRE_BUF_NULL;
    if (s->words) {
        s->words(s->ctx, &words);
    }
    const struct compile_pool_want want = {
        .variant = v, .hash = hash, .rank = RANK_HELPER, .note = &words};
    int status = compile_pool_want(s->pool, &want, out, err);
    if (status == 0) {
        h->builds[h->n++] = *out;
    }
    return status;
}

int helpers_want(struct helpers *h, const struct family_target *t, struct error *err)
{
    const struct device *d = h->setup.device;
    struct variant *all = d->ops->helpers ? calloc(DEVICE_HELPERS_MAX, sizeof(*all)) : NULL;
    struct build *build;
    int status = 0;
    if (d->ops->helpers && !all) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the device's own kernels");
    }
    uint32_t n = all ? d->ops->helpers(&d->info, t, all) : 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        status = helpers_want_build(h, &all[i], &build, err);
    }
    free(all);
    return status;
}

/* A device_supply's function. The limit is that of what the device is doing. */
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
        h->setup.wait(h->setup.ctx);
        compile_pool_collect(h->setup.pool);
    }
    *out = &b->image;
    return b->state == BUILD_READY ? 0 : error_set(err, b->error.code, "%s", b->error.text);
}

void helpers_init(struct helpers *h, const struct helpers_setup *setup)
{
    *h = (struct helpers){.setup = *setup};
    setup->device->supply = (struct device_supply){.image = helpers_supply_image, .ctx = h};
}
