/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that has not touched CUDA must not be made to by asking gemmd: libcuda is only looked for
 * among the libraries that are loaded already, unless the caller names a CUDA device.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/find.h"
#include "kernels/device.h"
#include "kernels/launcher.h"

#define SYSTEM_RUNTIME_DIR "/run/gemmd"

bool find_current_cuda(struct device_info *out)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    if (!cuda) {
        return false;
    }
    bool found = cuda_launch_backend.info(out, NULL) == 0;
    dlclose(cuda);
    return found;
}

static bool is_name(const char *s)
{
    for (const char *c = s; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("-_.", *c)) {
            return false;
        }
    }
    return *s != '\0' && *s != '.';
}

/* A device's spec to the name of its socket. */
static int device_name_of(const char *device, char *out, size_t size, struct error *err)
{
    if (strncmp(device, "cuda:GPU-", 9) == 0 || strncmp(device, "cuda:MIG-", 9) == 0) {
        device += 5;
    }
    if (strncmp(device, "cpu:", 4) == 0) { /* the threads do not name the socket */
        device = "cpu";
    }
    bool plain = strcmp(device, "cpu") == 0 || strncmp(device, "GPU-", 4) == 0 ||
                 strncmp(device, "MIG-", 4) == 0 || strncmp(device, "replay-", 7) == 0;
    if (plain && is_name(device) && strlen(device) < size) {
        snprintf(out, size, "%s", device);
        return 0;
    }
    struct device_info info;
    int r = device_probe(device, &info, err);
    if (r) {
        return r;
    }
    snprintf(out, size, "%s", info.uuid);
    return 0;
}

static int name_socket(struct places *p, const char *device, struct error *err)
{
    struct device_info info;
    if (device) {
        return device_name_of(device, p->device, sizeof(p->device), err);
    }
    snprintf(p->device, sizeof(p->device), "%s", find_current_cuda(&info) ? info.uuid : "cpu");
    return 0;
}

static int one_place(struct places *p, const char *path, struct error *err)
{
    int r = paths_check_socket(path, err);
    if (r) {
        return r;
    }
    p->n = 1;
    snprintf(p->paths[0], sizeof(p->paths[0]), "%s", path);
    return 0;
}

int find_places(struct places *p, const char *socket, const char *device, struct error *err)
{
    p->n = 0;
    p->device[0] = '\0';
    const char *named = socket ? socket : getenv("GEMMD_SOCKET");
    if (named && *named) {
        return one_place(p, named, err);
    }
    int r = name_socket(p, device, err);
    if (r) {
        return r;
    }
    r = paths_socket(p->device, p->paths[0], err);
    if (r) {
        return r;
    }
    p->n = 1;
    snprintf(p->paths[1], sizeof(p->paths[1]), SYSTEM_RUNTIME_DIR "/%s.sock", p->device);
    if (strcmp(p->paths[0], p->paths[1]) != 0) {
        p->n = 2;
    }
    return 0;
}
