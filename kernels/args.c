/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/args.h"

#include <string.h>

enum { SIZE_MOST = 64 * 1024 };

int args_copy(const void *args, void *out, size_t known, size_t least, const char *name,
              struct error *err)
{
    uint32_t size;
    memcpy(&size, args, sizeof(size));
    if (size < least || size > SIZE_MOST) {
        return error_set(err, ERROR_INVALID,
                         "args.size is %u: set it to sizeof(struct %s), %zu bytes in this version",
                         size, name, known);
    }
    for (size_t i = known; i < size; i++) {
        if (((const uint8_t *)args)[i]) {
            return error_set(err, ERROR_INVALID,
                             "args come from a newer gemmd (%u bytes, %zu known here) and use a "
                             "field that this one does not know",
                             size, known);
        }
    }
    memset(out, 0, known);
    memcpy(out, args, size < known ? size : known);
    size = (uint32_t)known;
    memcpy(out, &size, sizeof(size));
    return 0;
}
