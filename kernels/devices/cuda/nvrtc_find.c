/* SPDX-License-Identifier: Apache-2.0 */
/* Finds an NVRTC that fits the driver. Opened libraries stay open. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/cuda/nvrtc.h"
#include "kernels/loading.h"

enum { MAJOR_NEWEST = 14, MAJOR_OLDEST = 12 };

static bool nvrtc_load_symbols(void *library, struct cuda_nvrtc *n)
{
    bool all = true;
#define X(member, function)                                                                        \
    *(void **)&n->member = dlsym(library, #function);                                              \
    all = all && n->member;
    NVRTC_FUNCTIONS(X)
#undef X
    return all && n->version(&n->major, &n->minor) == NVRTC_SUCCESS;
}

/* NVRTC opens its builtins library by name alone, so it finds a library that is already open.
 * Opening the builtins from NVRTC's own folder here makes folders outside the linker's path usable,
 * such as a Python package's. */
static void load_builtins(const struct cuda_nvrtc *n)
{
    Dl_info own;
    char file[PATH_MAX];
    const char *end =
        dladdr(*(void *const *)&n->compile, &own) ? strrchr(own.dli_fname, '/') : NULL;
    if (end) {
        snprintf(file, sizeof(file), "%.*s/libnvrtc-builtins.so.%d.%d", (int)(end - own.dli_fname),
                 own.dli_fname, n->major, n->minor);
        /* stays open; when the file is missing, NVRTC searches for its builtins itself */
        dlopen(file, RTLD_NOW | RTLD_LOCAL);
    }
}

/* False when the file cannot be opened or is no usable NVRTC; `why` has the reason. */
static bool nvrtc_open_library(const char *file, struct cuda_nvrtc *n, char *why, size_t size)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(why, size, "%s", dlerror());
        return false;
    }
    if (!nvrtc_load_symbols(library, n) || n->major < MAJOR_OLDEST) {
        snprintf(why, size, "%s is not NVRTC 12.0 or newer", file);
        dlclose(library);
        return false;
    }
    load_builtins(n);
    snprintf(n->name, sizeof(n->name), "nvrtc %d.%d", n->major, n->minor);
    return true;
}

static bool nvrtc_fits_driver(const struct cuda_nvrtc *n, int driver_version)
{
    return driver_version == 0 || n->major <= driver_version / 1000;
}

/* Searches by major version, the newest for the driver first, then names without a version. When
 * false, *newer is the last library found that is too new for the driver. */
static bool nvrtc_search_names(int driver_version, struct cuda_nvrtc *out, struct cuda_nvrtc *newer)
{
    static const char *const folders[] = {
        "", "/usr/local/cuda/lib64/", "/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/"};
    char file[128], why[256];
    for (int major = MAJOR_NEWEST; major >= MAJOR_OLDEST - 1; major--) {
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
            snprintf(file, sizeof(file), "%slibnvrtc.so", folders[i]);
            if (major >= MAJOR_OLDEST) {
                snprintf(file, sizeof(file), "%slibnvrtc.so.%d", folders[i], major);
            }
            if (!nvrtc_open_library(file, out, why, sizeof(why))) {
                continue;
            }
            if (nvrtc_fits_driver(out, driver_version)) {
                return true;
            }
            *newer = *out;
        }
    }
    return false;
}

static int nvrtc_find_any(int driver_version, struct cuda_nvrtc *out, struct error *err)
{
    const char *named = getenv("GEMMD_NVRTC");
    struct cuda_nvrtc newer = {0};
    if (named && *named) {
        char why[256];
        if (!nvrtc_open_library(named, out, why, sizeof(why))) {
            return error_set(err, ERROR_NO_COMPILER, "GEMMD_NVRTC cannot be used: %s", why);
        }
        if (nvrtc_fits_driver(out, driver_version)) {
            return 0;
        }
        newer = *out;
    } else if (nvrtc_search_names(driver_version, out, &newer)) {
        return 0;
    }
    if (newer.major) {
        return error_set(
            err, ERROR_NO_COMPILER,
            "%s is newer than the driver, which supports CUDA %d.%d and cannot load what "
            "it compiles: update the driver, or install libnvrtc.so.%d (cuda-nvrtc-%d-%d) "
            "or set GEMMD_NVRTC to it",
            newer.name, driver_version / 1000, driver_version % 1000 / 10, driver_version / 1000,
            driver_version / 1000, driver_version % 1000 / 10);
    }
    return error_set(err, ERROR_NO_COMPILER,
                     "NVRTC was not found: install it (cuda-nvrtc of the CUDA toolkit), or set "
                     "GEMMD_NVRTC to a libnvrtc.so");
}

int cuda_nvrtc_open(int driver_version, struct cuda_nvrtc *out, struct error *err)
{
    loading_begin();
    int r = nvrtc_find_any(driver_version, out, err);
    loading_end();
    return r;
}
