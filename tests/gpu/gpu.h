/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU tests' calls of libcuda: memory, streams, graphs, in the current context of a gemmd
 * device. A failed call ends the program with CUDA's name of the error.
 */
#ifndef GEMMD_TESTS_GPU_H
#define GEMMD_TESTS_GPU_H

#include <stddef.h>
#include <stdint.h>

typedef void *gpu_stream;
typedef void *gpu_graph; /* ready to be launched */

void gpu_open(void); /* after device_open */
void *gpu_alloc(size_t bytes);
void gpu_free(void *at);
void gpu_upload(void *to, const void *from, size_t bytes);
void gpu_download(void *to, const void *from, size_t bytes);
void gpu_set(void *at, int byte, size_t bytes, gpu_stream stream);
void gpu_copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                   size_t rows);
void gpu_wait(void); /* until the device has done all work */

gpu_stream gpu_stream_new(void);
void gpu_stream_free(gpu_stream stream);
void gpu_capture_begin(gpu_stream stream);
gpu_graph gpu_capture_end(gpu_stream stream);
void gpu_graph_launch(gpu_graph graph, gpu_stream stream);
void gpu_graph_free(gpu_graph graph);

/* Seconds of the monotonic clock. */
double seconds(void);

#endif
