/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "kernels/modules.h"
#include "runner/base/cache_dir.h"

enum { THREADS_MAX = 256 };

int cache_dir_find(const char *given, char out[PATHS_MAX], struct error *err)
{
    int r = 0;
    if (given) {
        r = snprintf(out, PATHS_MAX, "%s", given) < PATHS_MAX
                ? 0
                : error_set(err, ERROR_INVALID, "--cache-dir is too long");
    } else {
        r = paths_cache_dir(out, err);
    }
    r = r ? r : paths_make_dir(out, 0750, err);
    return r ? r : modules_check(out, err);
}

unsigned cache_dir_threads(int64_t asked)
{
    int64_t n = asked > 0 ? asked : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (unsigned)n;
}
