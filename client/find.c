/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Using gemmd must not make a job initialise CUDA. So libcuda is only looked up among the libraries
 * that are already loaded, unless the caller names a CUDA device.
 */
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ask.h"
#include "client/find.h"
#include "client/link.h"
#include "kernels/device.h"
#include "kernels/launcher.h"
#include "kernels/loading.h"

/* The handle of libcuda; NULL: the job has not loaded libcuda. */
static void *loaded_cuda(void)
{
    loading_begin();
    void *cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    loading_end();
    return cuda;
}

bool find_current_cuda(struct device_info *out)
{
    void *cuda = loaded_cuda();
    if (!cuda) {
        return false;
    }
    bool found = cuda_launch_backend.info(out, NULL) == 0;
    loading_close(cuda);
    return found;
}

int find_current_index(void)
{
    void *cuda = loaded_cuda();
    if (!cuda) {
        return -1;
    }
    int (*get)(int *device) = (int (*)(int *))(uintptr_t)dlsym(cuda, "cuCtxGetDevice");
    int device = -1;
    bool found = get && get(&device) == 0; /* CUDA_SUCCESS */
    loading_close(cuda);
    return found ? device : -1;
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

static bool is_cpu(const char *device)
{
    return strcmp(device, "cpu") == 0 || strncmp(device, "cpu:", 4) == 0;
}

/* Makes the socket's name from the device's spec alone. False: the name is known only after the
 * device was probed ("cuda:0" has a socket with the GPU's UUID). */
static bool said_name(const char *device, char out[64])
{
    bool cpu = is_cpu(device); /* the number of threads is not part of the name */
    bool plain = cpu || (strncmp(device, "replay-", 7) == 0 && is_name(device));
    return plain ? snprintf(out, 64, "%s", cpu ? "cpu" : device) < 64 : uuid_of_spec(device, out);
}

static int find_probe_device(const char *device, struct device_info *out, struct error *err)
{
    ask_know_ops(); /* device_probe may read a landscape, which contains problems */
    return device_probe(device, out, err);
}

int find_own_device(const char *spec, struct device_info *out, struct error *err)
{
    const char *named = spec && strcmp(spec, "any") != 0 ? spec : NULL;
    bool cpu = named && is_cpu(named);
    struct device_info info;
    char name[64];
    int r = named && !cpu ? find_probe_device(named, &info, err) : ERROR_NO_DEVICE;
    if (r == ERROR_INVALID && !said_name(named, name)) { /* the spec names no device of any host */
        return r;
    }
    if (!cpu && find_current_cuda(out)) {
        return 0;
    }
    if (r == 0) {
        *out = info;
        return 0;
    }
    return cpu_launch_backend.info(out, err);
}

static int name_socket(struct places *p, const char *device, struct error *err)
{
    struct device_info info;
    if (device && said_name(device, p->device)) {
        return 0;
    }
    int r = device ? find_probe_device(device, &info, err) : 0;
    bool found = device ? r == 0 : find_current_cuda(&info);
    snprintf(p->device, sizeof(p->device), "%s", found ? info.uuid : "cpu");
    return r;
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

/* ---- any ------------------------------------------------------------------------------------ */

/* The sockets in runtime directories on which a daemon listens. */
struct any {
    uint32_t n;
    char path[PATHS_MAX]; /* of the first socket */
    char names[256];      /* of all sockets, for an error message */
};

/* True when a socket's file name has a UUID that may be the GPU `uuid`. Both may be shortened. */
static bool is_spelled(const char *file, const char *uuid)
{
    char stem[64], named[UUID_LENGTH + 1];
    snprintf(stem, sizeof(stem), "%.*s", (int)(strlen(file) - strlen(".sock")), file);
    return uuid_of_spec(stem, named) && uuid_match(named, uuid);
}

/* Adds the sockets in `dir` on which a daemon listens. uuid: only sockets of that GPU; NULL: all.
 */
static void look_into(struct any *a, const char *dir, const char *uuid)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    while (d && (entry = readdir(d))) {
        char path[PATHS_MAX];
        int stem = (int)strlen(entry->d_name) - (int)strlen(".sock");
        /* the socket of an --offline daemon: only clients that were given the path use it */
        bool private = strncmp(entry->d_name, "offline-", 8) == 0;
        bool named = !private && stem > 0 && strcmp(entry->d_name + stem, ".sock") == 0 &&
                     (!uuid || is_spelled(entry->d_name, uuid)) &&
                     snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name) < PATHS_MAX;
        if (named && link_listens(path)) {
            size_t at = strlen(a->names);
            snprintf(a->names + at, sizeof(a->names) - at, "%s%.*s", a->n ? ", " : "", stem,
                     entry->d_name);
            if (a->n++ == 0) {
                strcpy(a->path, path);
            }
        }
    }
    if (d) {
        closedir(d);
    }
}

/* Finds the socket on which a daemon listens; several are ERROR_INVALID. With a GPU's UUID, looks
 * for the system's daemons only if this user has none, as find_places prefers. */
static int find_listening(const char *uuid, struct any *out, struct error *err)
{
    char dir[PATHS_MAX];
    *out = (struct any){.n = 0};
    int r = paths_runtime_dir(dir, err);
    if (r == ERROR_DENIED) {
        strcpy(dir, SYSTEM_RUNTIME_DIR);
    } else if (r) {
        return r;
    }
    look_into(out, dir, uuid);
    if (strcmp(dir, SYSTEM_RUNTIME_DIR) != 0 && !(uuid && out->n > 0)) {
        look_into(out, SYSTEM_RUNTIME_DIR, uuid);
    }
    return out->n > 1 ? error_set(err, ERROR_INVALID,
                                  "several daemons run here (%s): choose a device by --device or "
                                  "GEMMD_DEVICE (libgemmd: the option `device`)",
                                  out->names)
                      : 0;
}

/* For the device "any": finds the socket of the only daemon. Without a daemon, gives the path of
 * the CPU's socket, which the error of the connection then names. */
static int find_any(struct places *p, struct error *err)
{
    struct any a;
    int r = find_listening(NULL, &a, err);
    if (r) {
        return r;
    }
    return a.n > 0 ? one_place(p, a.path, err) : find_places(p, NULL, "cpu", err);
}

int find_spelled(struct places *p, struct error *err)
{
    char uuid[UUID_LENGTH + 1];
    struct any a = {.n = 0};
    int r = uuid_of_spec(p->device, uuid) ? find_listening(uuid, &a, err) : 0;
    strcpy(p->paths[FIND_SPELLED], a.path);
    return r == 0 && a.n == 0 ? ERROR_UNREACHABLE : r;
}

/* ---- the places ----------------------------------------------------------------------------- */

/* Fills in the paths of the sockets that a daemon of p->device may have. When another user has made
 * this user's own directory, only the system's path. */
static int name_paths(struct places *p, struct error *err)
{
    int r = paths_socket(p->device, p->paths[0], err);
    if (r && r != ERROR_DENIED) {
        return r;
    }
    p->refused = r ? *err : ERROR_NULL;
    snprintf(p->paths[r ? 0 : 1], PATHS_MAX, SYSTEM_RUNTIME_DIR "/%s.sock", p->device);
    p->n = r || strcmp(p->paths[0], p->paths[1]) == 0 ? 1 : 2;
    return 0;
}

int find_whole(struct places *p, struct error *err)
{
    char uuid[UUID_LENGTH + 1], spec[64];
    if (!uuid_of_spec(p->device, uuid) || strlen(uuid) == UUID_LENGTH) {
        return 0;
    }
    struct device_info info;
    snprintf(spec, sizeof(spec), "cuda:%s", uuid);
    int r = find_probe_device(spec, &info, err);
    if (r == 0) {
        snprintf(p->device, sizeof(p->device), "%s", info.uuid);
        r = name_paths(p, err);
    }
    return r;
}

int find_places(struct places *p, const char *socket, const char *device, struct error *err)
{
    const char *named = socket ? socket : getenv("GEMMD_SOCKET");
    *p = (struct places){.given = named && *named};
    if (p->given) {
        return one_place(p, named, err);
    }
    if (device && strcmp(device, "any") == 0) {
        return find_any(p, err);
    }
    int r = name_socket(p, device, err);
    return r ? r : name_paths(p, err);
}
