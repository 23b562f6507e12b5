/* SPDX-License-Identifier: Apache-2.0 */
/* The driver calls of the Hopper bench, opened at run time. A refused call ends the process with an
 * error, and the watcher starts another process. All work goes to a single stream, in order. */
#ifndef GEMMD_TESTS_GPU_HOPPER_GPU_H
#define GEMMD_TESTS_GPU_HOPPER_GPU_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/family.h"

enum { GPU_ENTRIES_MAX = 8 };

struct gpu_module {
    void *module;
    uint32_t n;
    struct {
        char name[64];
        void *function;
        uint32_t smem;
    } entries[GPU_ENTRIES_MAX];
};

void gpu_open(
    struct device_info *info); /* opens GPU 0, retains its primary context, and creates a stream */
void *gpu_alloc(size_t bytes);
void gpu_free(void *p);
void gpu_upload(void *to, const void *from, size_t bytes);
void gpu_download(void *to, const void *from, size_t bytes);
void gpu_fill(void *to, uint8_t value, size_t bytes);    /* asynchronous */
void gpu_copy(void *to, const void *from, size_t bytes); /* asynchronous */
void gpu_wait(void);
size_t gpu_free_bytes(void);

void gpu_load(struct gpu_module *m, const void *image);
void gpu_unload(struct gpu_module *m);
/* Call this before clusters are launched: it measures how the device deals clusters to SMs
 * (kernels/launch_order.h). With $HOPPER_BENCH_NO_ORDER it assumes the order of their numbers. */
void gpu_learn_order(struct gpu_module *tools, const struct device_info *info);
/* Encodes the launch's tensor maps, then launches without waiting. */
void gpu_launch(struct gpu_module *m, const struct launch *l);
/* Launches a kernel whose only parameter is a struct by value. */
void gpu_run(struct gpu_module *m, const char *entry, uint32_t blocks_x, uint32_t blocks_y,
             uint32_t threads, const void *params, size_t bytes);

void gpu_mark(int which);    /* records event 0 or 1 */
double gpu_elapsed_us(void); /* waits for event 1: time from event 0 to 1 */

#endif
