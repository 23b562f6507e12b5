/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device: the same pipeline as on a GPU, with real kernels and real times, for newcomers
 * and for CI. A candidate that crashes or hangs takes the process with it, as on a GPU. */
#include <dlfcn.h>
#include <stdlib.h>

#include "kernels/devices/cpu/cpu.h"

static void device_close_cpu(struct device *base)
{
    pool_free(((struct cpu_device *)base)->pool);
    free(base);
}

static int device_open_cpu(const char *spec, struct device *base, struct error *err)
{
    struct cpu_device *d = (struct cpu_device *)base;
    int r = cpu_describe(spec, &base->info, err);
    if (r) {
        return r;
    }
    const int threads = (int)base->info.sm_count;
    d->pool = pool_new((uint32_t)threads);
    if (!d->pool) {
        return error_set(err, ERROR_NO_MEMORY, "cannot start %d threads: use cpu:<threads>",
                         threads);
    }
    cpu_measure_peaks(&base->info, d->pool);
    cpu_compiler_version(base->info.compiler, sizeof(base->info.compiler));
    return 0;
}

/* Every loaded kernel can be launched: a CPU has no launch limits. */
static int device_load_cpu(struct device *base, const struct image *image, const struct variant *v,
                           struct kernel **out, struct rejection *why, struct error *err)
{
    struct cpu_device *d = (struct cpu_device *)base;
    *out = NULL;
    struct cpu_kernel *k = calloc(1, sizeof(*k));
    if (!k) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a kernel");
    }
    int r = cpu_module_open(image->data, image->size, &k->module, err);
    if (r) {
        free(k);
        return r;
    }
    if (!dlsym(k->module.dl, v->entry)) {
        cpu_module_close(&k->module);
        free(k);
        return error_set(err, ERROR_INVALID, "the module has no entry \"%s\"", v->entry);
    }
    k->module.pool = d->pool;
    k->base.variant = *v;
    *out = &k->base;
    return 0;
}

static void device_unload_cpu(struct device *d, struct kernel *base)
{
    struct cpu_kernel *k = (struct cpu_kernel *)base;
    if (k) {
        cpu_module_close(&k->module);
        free(k);
    }
}

const struct device_ops cpu_device_ops = {
    .kind = "cpu",
    .size = sizeof(struct cpu_device),
    .open = device_open_cpu,
    .close = device_close_cpu,
    .load = device_load_cpu,
    .unload = device_unload_cpu,
    .fits = cpu_fits,
    .prepare = cpu_prepare,
    .release = prepared_free,
    .verify = prepared_verify,
    .time = prepared_time,
    .clock_ms = device_clock_ms,
};
