/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles many variants on all cores, each variant once. batch_add numbers the variants;
 * batch_image returns the compiled image of a number. */
#ifndef GEMMD_TESTS_GPU_BATCH_H
#define GEMMD_TESTS_GPU_BATCH_H

#include "kernels/device.h"

struct batch;

struct batch *
batch_open(const char *spec); /* without NVRTC, prints the reason and exits with status 77 */
void batch_close(struct batch *p);
/* Returns the place of the variant's image; the same variant always gets the same place. */
int batch_add(struct batch *p, const struct variant *v);
/* Compiles the variants added since the last run, and returns when all are done. Prints and counts
 * failures. */
int batch_run(struct batch *p);
const struct image *batch_image(const struct batch *p, int which); /* NULL: did not compile */
int batch_count(const struct batch *p);

#endif
