/* SPDX-License-Identifier: Apache-2.0 */
/* Compiling many variants on all cores, each once. */
#ifndef GEMMD_TESTS_GPU_BATCH_H
#define GEMMD_TESTS_GPU_BATCH_H

#include "kernels/device.h"

struct batch;

struct batch *
batch_open(const char *spec); /* ends the program with 77 and the reason without NVRTC */
void batch_close(struct batch *p);
/* A place for the variant's image; the same for the same variant. */
int batch_add(struct batch *p, const struct variant *v);
/* Compiles the variants added since the last run, and returns when all are done. Prints and counts
 * failures. */
int batch_run(struct batch *p);
const struct image *batch_image(const struct batch *p, int which); /* NULL: did not compile */
int batch_count(const struct batch *p);

#endif
