/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "proto/uuid.h"

enum { KIND_LENGTH = 4 }; /* "GPU-" */

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
