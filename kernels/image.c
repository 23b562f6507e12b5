/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "kernels/device.h"

void image_deinit(struct image *i)
{
    free(i->data);
    *i = (struct image){0};
}
