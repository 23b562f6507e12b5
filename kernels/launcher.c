/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/launcher.h"

struct launcher {
    const struct family *family;          /* borrowed, static */
    const struct family_target *target;   /* borrowed, static */
    const struct launch_backend *backend; /* borrowed, static */
    struct problem problem;
    struct record config;
    struct device_info info;
    void *handle; /* owned: the loaded module */
};

static const struct launch_backend *const backends[] = {&cuda_launch_backend, &cpu_launch_backend};

static int backend_of(const void *image, size_t size, const struct launch_backend **out,
                      struct error *err)
{
    Elf64_Ehdr head;
    if (size < sizeof(head) || memcmp(image, ELFMAG, SELFMAG) != 0) {
        return error_set(err, ERROR_INVALID,
                         "the image is not an ELF file (%zu bytes): fetch the module again", size);
    }
    memcpy(&head, image, sizeof(head));
    if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_shoff > size ||
        (uint64_t)head.e_shnum * head.e_shentsize > size - head.e_shoff) {
        return error_set(err, ERROR_INVALID,
                         "the image is cut short or damaged (%zu bytes): fetch the module again",
                         size);
    }
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (backends[i]->elf_machine == head.e_machine) {
            *out = backends[i];
            return 0;
        }
    }
    return error_set(
        err, ERROR_INVALID,
        "the image is for ELF machine %u: this program can launch CUDA cubins (%u) and "
        "shared objects of this CPU (%u)",
        head.e_machine, cuda_launch_backend.elf_machine, cpu_launch_backend.elf_machine);
}

int launcher_new(const struct family *f, const struct problem *p, const struct record *config,
                 const void *image, size_t size, const struct device_info *info,
                 struct launcher **out, struct error *err)
{
    *out = NULL;
    const struct launch_backend *backend = NULL;
    struct rejection why;
    int r = backend_of(image, size, &backend, err);
    if (r) {
        return r;
    }
    struct launcher *l = calloc(1, sizeof(*l));
    if (!l) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a launcher");
    }
    l->family = f;
    l->backend = backend;
    l->problem = *p;
    record_copy(&l->config, config);
    if (info) {
        l->info = *info;
    } else {
        r = backend->info(&l->info, err);
    }
    /* The config decides the target: it may be another than the device chooses for the problem. */
    l->target = r ? NULL : family_target_of_config(f, p, &l->info, config, &why);
    if (r == 0 && !l->target) {
        r = error_set(err, why.code, "the config cannot be launched: %s", why.text);
    }
    r = r ? r : backend->load(image, size, &l->handle, err);
    if (r) {
        free(l);
        return r;
    }
    *out = l;
    return 0;
}

struct launcher *launcher_free(struct launcher *l)
{
    if (l) {
        l->backend->unload(l->handle);
        free(l);
    }
    return NULL;
}

static int launcher_make_plan(struct launcher *l, const void *args, struct launch_context *context,
                              struct launch_plan *out, struct error *err)
{
    if (!args) {
        return error_set(err, ERROR_INVALID, "the launch arguments are NULL");
    }
    out->n = 0;
    out->workspace_bytes = -1; /* unknown */
    int r = l->target->plan(&l->problem, &l->config, &l->info, args, out, err);
    /* plan() has checked the size of args: now a member of them may be read. */
    if (out->workspace_bytes >= 0) {
        l->family->context(args, context);
    }
    return r;
}

int launcher_workspace(struct launcher *l, const void *args, int64_t *bytes, struct error *err)
{
    struct launch_plan steps;
    struct launch_context context;
    int r = launcher_make_plan(l, args, &context, &steps, err);
    if (r && !(steps.workspace_bytes > 0 &&
               (!context.workspace || context.workspace_bytes < steps.workspace_bytes))) {
        return r; /* an error other than a missing or too small workspace */
    }
    if (err) {
        *err = ERROR_NULL;
    }
    *bytes = steps.workspace_bytes;
    return 0;
}

int launcher_launch(struct launcher *l, const void *args, struct error *err)
{
    struct launch_plan steps;
    struct launch_context context;
    int r = launcher_make_plan(l, args, &context, &steps, err);
    if (r) {
        return r;
    }
    for (uint32_t i = 0; i < steps.n; i++) {
        r = l->backend->launch(l->handle, &steps.steps[i], context.stream, err);
        if (r) {
            return r;
        }
    }
    return 0;
}
