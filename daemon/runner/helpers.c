/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/runner/helpers.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/runner/runner.h"

enum { LOOK_MS = 100 };

static struct build *known(const struct helpers *h, const char *hash)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (strcmp(h->builds[i]->hash, hash) == 0) {
            return h->builds[i];
        }
    }
    return NULL;
}

static int want(struct runner *r, const struct variant *v, struct build **out, struct error *err)
{
    struct helpers *h = &r->helpers;
    char hash[HASH_HEX];
    variant_hash(v, r->compiler->ops->version(r->compiler), hash);
    *out = known(h, hash);
    if (*out) {
        return 0;
    }
    if (h->n == HELPERS_MAX) {
        return error_set(err, ERROR_INTERNAL, "a device needs more than %d kernels of its own",
                         HELPERS_MAX);
    }
    WIRE_BUF_AUTO words = WIRE_BUF_NULL;
    runner_last_words(r, &words);
    int status = builds_want(r->builds, v, hash, words.data, words.failed ? 0 : words.len, out, err);
    if (status == 0) {
        h->builds[h->n++] = *out;
    }
    return status;
}

int helpers_want(struct runner *r, const struct family_target *t, struct error *err)
{
    const struct device_ops *ops = r->device->ops;
    struct variant *all = ops->helpers ? calloc(DEVICE_HELPERS_MAX, sizeof(*all)) : NULL;
    struct build *build;
    int status = 0;
    if (ops->helpers && !all) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the device's own kernels");
    }
    uint32_t n = all ? ops->helpers(r->device, t, all) : 0;
    for (uint32_t i = 0; i < n && status == 0; i++) {
        status = want(r, &all[i], &build, err);
    }
    free(all);
    return status;
}

int helpers_image(void *ctx, const struct variant *v, const struct image **out, struct error *err)
{
    struct runner *r = ctx;
    struct build *b;
    int status = want(r, v, &b, err);
    if (status) {
        return status;
    }
    enum phase before = timeline_enter(&r->timeline, PHASE_HELPERS);
    while (b->state == BUILD_PENDING) { /* the limit is that of what the device is doing */
        channel_wait(&r->channel, builds_fd(r->builds), LOOK_MS);
        builds_collect(r->builds);
        runner_pump(r);
    }
    timeline_enter(&r->timeline, before);
    *out = &b->image;
    return b->state == BUILD_READY ? 0 : error_set(err, b->error.code, "%s", b->error.text);
}
