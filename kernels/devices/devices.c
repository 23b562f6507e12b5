/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of device compiled in, and the lookup of a spec's kind. A new kind is a line here
 * and a folder beside this file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "proto/hash.h"
#include "proto/text.h"

#define MEMORY_SHARE "GEMMD_MEMORY_SHARE"

static const struct {
    const struct device_ops *device;
    const struct compiler_ops *compiler;
} kinds[] = {
    {&cuda_device_ops, &cuda_compiler_ops},
    {&cpu_device_ops, &cpu_compiler_ops},
    {&replay_device_ops, &replay_compiler_ops},
};

enum { N_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* The row of a spec's kind, the part before ':'; negative when not found. */
static int devices_find_kind(const char *spec, struct error *err)
{
    size_t n = strcspn(spec, ":");
    for (int i = 0; i < N_KINDS; i++) {
        const char *kind = kinds[i].device->kind;
        if (strlen(kind) == n && memcmp(kind, spec, n) == 0) {
            return i;
        }
    }
    return error_set(err, ERROR_INVALID,
                     "unknown device \"%s\": use cuda:<index>, cuda:GPU-<uuid>, cpu, "
                     "cpu:<threads> or replay:<file>",
                     spec);
}

int device_open(const char *spec, struct device **out, struct error *err)
{
    int i = devices_find_kind(spec, err);
    const struct device_ops *ops = i < 0 ? NULL : kinds[i].device;
    *out = NULL;
    if (!ops) {
        return i;
    }
    struct device *d = calloc(1, ops->size);
    if (!d) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a device");
    }
    d->ops = ops;
    int r = ops->open(spec, d, err);
    if (r == 0) {
        *out = d;
    } else if (ops->close) {
        ops->close(d);
    } else {
        free(d);
    }
    return r;
}

static int devices_describe_arch(const char *spec, struct device_info *out, struct error *err)
{
    struct compiler *c;
    int r = arch_describe(spec + strlen("cuda:"), out, err);
    if (r == 0 && compiler_open(spec, &c, NULL) == 0) {
        snprintf(out->compiler, sizeof(out->compiler), "%s", c->ops->version(c));
        c->ops->close(c);
    }
    return r;
}

int device_probe(const char *spec, struct device_info *out, struct error *err)
{
    struct device *d;
    *out = (struct device_info){0};
    if (strncmp(spec, "cuda:sm_", 8) == 0) {
        return devices_describe_arch(spec, out, err);
    }
    int r = device_open(spec, &d, err);
    if (r == 0) {
        *out = d->info;
        d->ops->close(d);
    }
    return r;
}

double device_clock_ms(struct device *d)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

void device_sleep_ms(double ms)
{
    if (ms > 0) {
        struct timespec t = {.tv_sec = (time_t)(ms / 1e3)};
        t.tv_nsec = (long)((ms - (double)t.tv_sec * 1e3) * 1e6);
        nanosleep(&t, NULL);
    }
}

/* 0: not a valid share. */
static double share_said(const char *text)
{
    char *end;
    double share = strtod(text, &end);
    return end != text && *end == 0 && share > 0 && share <= 1 ? share : 0;
}

double device_memory_share(void)
{
    const char *text = getenv(MEMORY_SHARE);
    double share = text ? share_said(text) : 0;
    return share > 0 ? share : 0.5;
}

int device_memory_share_check(struct error *err)
{
    const char *text = getenv(MEMORY_SHARE);
    return !text || share_said(text) > 0
               ? 0
               : error_set(err, ERROR_INVALID,
                           MEMORY_SHARE
                           " is \"%s\", but takes a fraction above 0 and up to 1, such as 0.3",
                           text_show(text, strlen(text)).text);
}

uint32_t device_helpers(const char *spec, const struct device_info *info,
                        const struct family_target *t, struct variant out[DEVICE_HELPERS_MAX])
{
    int i = devices_find_kind(spec, NULL);
    bool any = i >= 0 && kinds[i].device->helpers;
    return any ? kinds[i].device->helpers(info, t, out) : 0;
}

int compiler_open(const char *spec, struct compiler **out, struct error *err)
{
    int i = devices_find_kind(spec, err);
    const struct compiler_ops *ops = i < 0 ? NULL : kinds[i].compiler;
    *out = NULL;
    if (!ops) {
        return i;
    }
    struct compiler *c = calloc(1, ops->size);
    if (!c) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a compiler");
    }
    c->ops = ops;
    int r = ops->open(spec, c, err);
    if (r == 0) {
        *out = c;
    } else if (ops->close) {
        ops->close(c);
    } else {
        free(c);
    }
    return r;
}

void module_describe(struct module *m, const struct variant *v, const char *compiler)
{
    variant_hash(v, compiler, m->variant);
    snprintf(m->family, sizeof(m->family), "%s", v->family);
    snprintf(m->target, sizeof(m->target), "%s", v->arch);
    snprintf(m->compiler, sizeof(m->compiler), "%s", compiler);
    snprintf(m->flags, sizeof(m->flags), "%.*s", (int)sizeof(m->flags) - 1, v->options);
    snprintf(m->source, sizeof(m->source), "%s", v->source_hash);
    snprintf(m->entry, sizeof(m->entry), "%s", v->entry);
    m->used_s = (int64_t)time(NULL);
    m->created_s = m->created_s ? m->created_s : m->used_s;
}

void image_describe(struct image *i, const struct variant *v, const char *compiler,
                    double compile_ms)
{
    hash128_hex(i->data, i->size, i->meta.id);
    module_describe(&i->meta, v, compiler);
    i->meta.registers = -1;
    i->meta.size = (int64_t)i->size;
    i->meta.compile_ms = compile_ms;
}

void image_log_excerpt(const char *log, const char *folder, char *out, size_t size)
{
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n') {
        at--;
    }
    at = at ? at : log;
    size_t skip = folder ? strlen(folder) + 1 : 0, have = 0;
    for (int lines = 0; *at && lines < 3 && have + 1 < size;) {
        if (folder && strncmp(at, folder, skip - 1) == 0) {
            at += skip;
            continue;
        }
        lines += *at == '\n';
        out[have++] = *at == '\n' ? ' ' : *at;
        at++;
    }
    while (have > 0 && out[have - 1] == ' ') {
        have--;
    }
    out[have] = '\0';
}
