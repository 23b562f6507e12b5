/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the GPU within our share of it, and the launches of tools.cu over it. */
#include <string.h>

#include "kernels/devices/cuda/gpu.h"

/* ---- memory --------------------------------------------------------------------------------- */

static int64_t sweep_bytes(const struct cuda_device *d)
{
    return 2 * (d->base.info.l2_bytes > 0 ? d->base.info.l2_bytes : 64 << 20) / 16 * 16;
}

int cuda_memory_limit(struct cuda_device *d, int64_t *bytes, struct error *err)
{
    size_t available, total;
    int r = cuda_check(d->cu, d->cu->memory_info(&available, &total), err,
                       "asking the GPU for its free memory");
    int64_t share = r ? 0 : (int64_t)((double)available * device_memory_share());
    int64_t swept = d->sweep ? 0 : sweep_bytes(d);
    *bytes = share > swept ? share - swept : 0;
    return r;
}

int cuda_too_much(double need, double limit, const char *of, struct error *err)
{
    return error_set(
        err, ERROR_NO_MEMORY,
        "the problem's buffers need %.1f MiB, but only %.1f MiB (%g %% of the GPU's %s) may be "
        "used: free GPU "
        "memory, ask for a smaller problem, or raise gemmd's --memory-percent (GEMMD_MEMORY_SHARE)",
        need / 0x1p20, limit / 0x1p20, device_memory_share() * 100, of);
}

int cuda_allocate(struct cuda_device *d, int64_t bytes, CUdeviceptr *out, struct error *err)
{
    return cuda_check(d->cu, d->cu->memory_allocate(out, (size_t)bytes), err,
                      "allocating %.1f MiB of GPU memory", (double)bytes / 0x1p20);
}

void cuda_release(struct cuda_device *d, CUdeviceptr *at)
{
    if (*at) {
        d->cu->memory_free(*at);
        *at = 0;
    }
}

int cuda_wait(struct cuda_device *d, const char *what, struct error *err)
{
    return cuda_check(d->cu, d->cu->stream_wait(d->stream), err, "%s", what);
}

/* ---- tools.cu: the structs are its own ------------------------------------------------------ */

enum { THREADS = 256 };

static int cuda_launch_tool(struct cuda_device *d, const char *entry, uint32_t blocks,
                            const void *params, size_t size, struct error *err)
{
    struct launch l = {
        .grid = {blocks, 1, 1}, .block = {THREADS, 1, 1}, .params_bytes = (uint32_t)size};
    strcpy(l.entry, entry);
    memcpy(l.params, params, size);
    return cuda_module_launch(&d->tools, &l, d->stream, err);
}

/* Enough blocks to fill the GPU; the kernels walk over the rest. */
static uint32_t blocks_for(const struct cuda_device *d, int64_t count)
{
    int64_t wanted = (count + THREADS - 1) / THREADS, most = d->base.info.sm_count * 8;
    return (uint32_t)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

int cuda_fill(struct cuda_device *d, const struct buffer *b, uint64_t seed, void *to,
              struct error *err)
{
    const struct {
        void *to;
        uint64_t count, seed;
        float scale;
        int32_t dtype;
    } p = {to, (uint64_t)b->count, seed, (float)b->scale, b->dtype};
    return cuda_launch_tool(d, "cuda_fill", blocks_for(d, b->count), &p, sizeof(p), err);
}

int cuda_compare(struct cuda_device *d, const struct prepared *w, const struct tolerance *tol,
                 struct error *err)
{
    const struct workload *load = &w->workload;
    const enum dtype type = load->buffers[load->output].dtype;
    const struct {
        const void *data;
        CUdeviceptr at, expected, out;
        uint64_t length;
        double atol, rtol, grain;
        int32_t dtype, reserved;
    } p = {w->buffers[0][load->output],
           w->check_at,
           w->expected,
           w->row_errors,
           (uint64_t)load->check_length,
           tol->atol,
           tol->rtol,
           dtype_grain(type),
           type,
           0};
    return cuda_launch_tool(d, "cuda_compare", load->n_checks, &p, sizeof(p), err);
}

int cuda_add_rows(struct cuda_device *d, const struct prepared *w, struct error *err)
{
    const struct workload *load = &w->workload;
    const struct {
        const void *data;
        CUdeviceptr at, expected;
        uint64_t length;
        int32_t dtype, reserved;
    } p = {w->buffers[0][load->output],
           w->check_at,
           w->expected,
           (uint64_t)load->check_length,
           load->buffers[load->output].dtype,
           0};
    return cuda_launch_tool(d, "cuda_add_rows", load->n_checks, &p, sizeof(p), err);
}

int cuda_spin(struct cuda_device *d, double us, struct error *err)
{
    const struct {
        int64_t cycles;
    } p = {(int64_t)(us * (double)d->base.info.clock_khz * 1e-3)};
    return cuda_launch_tool(d, "cuda_spin", 1, &p, sizeof(p), err);
}

int cuda_sweep_l2(struct cuda_device *d, struct error *err)
{
    int64_t bytes = sweep_bytes(d);
    int r = d->sweep ? 0 : cuda_allocate(d, bytes, &d->sweep, err);
    if (r) {
        return r;
    }
    const struct {
        CUdeviceptr data;
        uint64_t count;
        CUdeviceptr out;
    } p = {d->sweep, (uint64_t)bytes / 16, d->counters};
    return cuda_launch_tool(d, "cuda_sweep", blocks_for(d, bytes / 16), &p, sizeof(p), err);
}

int cuda_count_poison(struct cuda_device *d, const void *data, int64_t count, size_t size,
                      uint32_t counter, struct error *err)
{
    const struct {
        const void *data;
        uint64_t count;
        CUdeviceptr out;
        int32_t size, reserved;
    } p = {data, (uint64_t)count, d->counters + counter * sizeof(uint64_t), (int32_t)size, 0};
    return cuda_launch_tool(d, "cuda_count_poison", blocks_for(d, count), &p, sizeof(p), err);
}

int cuda_clear_counters(struct cuda_device *d, struct error *err)
{
    return cuda_check(
        d->cu, d->cu->memory_set(d->counters, 0, CUDA_COUNTERS * sizeof(uint64_t), d->stream), err,
        "clearing the counters");
}

int cuda_read_counters(struct cuda_device *d, uint64_t out[CUDA_COUNTERS], struct error *err)
{
    return cuda_check(d->cu,
                      d->cu->memory_download(out, d->counters, CUDA_COUNTERS * sizeof(uint64_t)),
                      err, "reading the counters");
}
