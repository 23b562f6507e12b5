/* SPDX-License-Identifier: Apache-2.0 */
/* The replay compiler: its image only names a variant. Its version begins with "replay ", so these
 * images never share a cache entry with real images. Thread-safe: only reads the landscape. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/devices/replay/replay.h"

struct replay_compiler {
    struct compiler base; /* first member: its address is the struct's */
    struct landscape *l;  /* owned */
    char version[128];
};

static void set_version(struct replay_compiler *c)
{
    uint64_t faults = 0;
    for (uint32_t i = 0; i < c->l->n_faults; i++) {
        const struct fault *f = &c->l->faults[i];
        if (f->stage == STAGE_COMPILE) {
            faults = faults * 31 + replay_config_hash(&f->pattern) + f->kind + (unsigned)f->code;
        }
    }
    const char *recorded = c->l->info.compiler;
    if (faults) {
        snprintf(c->version, sizeof(c->version), "%s faults=%08x", recorded, (unsigned)faults);
    } else {
        snprintf(c->version, sizeof(c->version), "%s", recorded);
    }
}

static int replay_compiler_open(const char *spec, struct compiler *base, struct error *err)
{
    struct replay_compiler *c = (struct replay_compiler *)base;
    int r = landscape_load(spec, &c->l, err);
    if (r == 0) {
        set_version(c);
    }
    return r;
}

static void replay_compiler_close(struct compiler *base)
{
    landscape_free(((struct replay_compiler *)base)->l);
    free(base);
}

static const char *replay_version(const struct compiler *base)
{
    return ((const struct replay_compiler *)base)->version;
}

static int replay_make_image(const struct replay_compiler *c, const struct variant *v, double ms,
                             struct image *out, struct error *err)
{
    char *text;
    int n = asprintf(&text, "gemmd replay image of a variant, not to be run\n%s %s %s %s\n%s\n",
                     v->family, v->arch, v->entry, v->source_hash, v->options);
    if (n < 0) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for an image");
    }
    *out = (struct image){.data = text, .size = (size_t)n};
    image_describe(out, v, c->version, ms);
    return 0;
}

static int replay_compile(struct compiler *base, const struct variant *v, struct image *out,
                          struct error *err)
{
    const struct replay_compiler *c = (const struct replay_compiler *)base;
    *out = (struct image){0};
    int r = fault_happen(fault_find(c->l, STAGE_COMPILE, NULL, v), err);
    if (r) {
        return r;
    }
    uint64_t hash = replay_variant_hash(v);
    double ms = landscape_compile_ms(c->l, hash);
    landscape_sleep(c->l, ms);
    const struct landscape_entry *failed = landscape_failure(c->l, hash, ERROR_COMPILE);
    if (failed) {
        return error_set(err, ERROR_COMPILE, "%s", failed->why.text);
    }
    return replay_make_image(c, v, ms, out, err);
}

static double replay_takes_ms(struct compiler *base, const struct variant *v)
{
    return landscape_compile_ms(((struct replay_compiler *)base)->l, replay_variant_hash(v));
}

const struct compiler_ops replay_compiler_ops = {
    .suffix = "replay",
    .size = sizeof(struct replay_compiler),
    .open = replay_compiler_open,
    .close = replay_compiler_close,
    .version = replay_version,
    .compile = replay_compile,
    .takes_ms = replay_takes_ms,
};
