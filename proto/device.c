/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/device.h"

SCHEMA_DEFINE(device_info, DEVICE_INFO_FIELDS);

void device_class_format(struct device_info *info)
{
    snprintf(info->class, sizeof(info->class),
             "%.80s/%s/sm%" PRId64 "/smem%" PRId64 "/mem%" PRId64 "/mig-%s/pl%" PRId64, info->name,
             info->arch, info->sm_count, info->smem_optin, info->memory_bytes >> 30, info->mig,
             info->power_limit_w);
}

/* Finds "<arch>/sm<count>" in the text of a class. Counts its fields from the end, because the
 * device's name may hold a slash. Returns the length; 0: not a class. */
static size_t find_kind(const char *class_, const char **out)
{
    enum { BEFORE_SMEM = 4, BEFORE_ARCH = 6 };
    const char *end = NULL;
    int n = 0;
    for (const char *at = class_ + strlen(class_); at > class_; at--) {
        n += at[-1] == '/';
        if (at[-1] == '/' && n == BEFORE_SMEM) {
            end = at - 1;
        } else if (at[-1] == '/' && n == BEFORE_ARCH) {
            *out = at;
            return (size_t)(end - at);
        }
    }
    return 0;
}

bool device_class_alike(const char *a, const char *b)
{
    const char *x, *y;
    const size_t n = find_kind(a, &x);
    return n > 0 && find_kind(b, &y) == n && memcmp(x, y, n) == 0;
}

enum { KIND_LENGTH = 4 }; /* of "GPU-" and "MIG-" */

bool uuid_of_spec(const char *spec, char out[UUID_LENGTH + 1])
{
    const char *name = spec + (strncmp(spec, "cuda:", 5) == 0 ? 5 : 0);
    const size_t n = strlen(name);
    if ((strncasecmp(name, "GPU-", KIND_LENGTH) && strncasecmp(name, "MIG-", KIND_LENGTH)) ||
        n <= KIND_LENGTH || n > UUID_LENGTH) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)name[i];
        if (!isalnum(c) && c != '-') {
            return false;
        }
        out[i] = (char)(i < KIND_LENGTH ? toupper(c) : tolower(c));
    }
    out[n] = '\0';
    return true;
}

bool uuid_match(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    return strncasecmp(a, b, n < m ? n : m) == 0;
}
