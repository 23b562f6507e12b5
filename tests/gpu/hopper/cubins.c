/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/cubins.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/device.h"
#include "tests/gpu/hopper/options.h"

void cubin_hash(const struct variant *v, char out[HASH_HEX])
{
    variant_hash(v, "bench", out);
}

static void path_of(const struct variant *v, const char *suffix, char *out, size_t size)
{
    char hash[HASH_HEX];
    cubin_hash(v, hash);
    snprintf(out, size, "%s/%s.%s", options.cubins, hash, suffix);
}

bool cubin_known(const struct variant *v)
{
    char path[512];
    path_of(v, "cubin", path, sizeof(path));
    if (access(path, R_OK) == 0) {
        return true;
    }
    path_of(v, "refused", path, sizeof(path));
    return access(path, R_OK) == 0;
}

/* Returns the file's text, ended by a zero; NULL if the file does not exist. */
static char *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    char *data = NULL;
    if (!f) {
        return NULL;
    }
    if (fstat(fileno(f), &st) == 0) {
        const size_t n = (size_t)st.st_size;
        data = calloc(1, n + 1);
        if (fread(data, 1, n, f) != n) {
            free(data);
            data = NULL;
        }
    }
    fclose(f);
    return data;
}

/* Writes to another name first, because other processes may read the file. */
static void write_whole(const char *path, const void *data, size_t size)
{
    char aside[600];
    snprintf(aside, sizeof(aside), "%s.%d", path, (int)getpid());
    FILE *f = fopen(aside, "wb");
    bool written = f && fwrite(data, 1, size, f) == size;
    if (!f || fclose(f) || !written || rename(aside, path)) {
        perror(path);
        unlink(aside);
    }
}

static struct compiler *compiler_here(struct error *err)
{
    static struct compiler *compiler;
    if (!compiler) {
        compiler_open("cuda:sm_90a", &compiler, err);
    }
    return compiler;
}

static enum cubin compile(const struct variant *v, void **data, char *why, size_t size)
{
    char path[512];
    struct image image = {0};
    struct error err = ERROR_NULL;
    struct compiler *c = compiler_here(&err);
    const int r = c ? c->ops->compile(c, v, &image, &err) : ERROR_NO_COMPILER;
    snprintf(why, size, "%s", r ? err.text : "");
    if (r == ERROR_RESOURCE) {
        path_of(v, "refused", path, sizeof(path));
        write_whole(path, why, strlen(why));
        return CUBIN_REFUSED;
    }
    if (r) {
        return CUBIN_BROKEN;
    }
    path_of(v, "cubin", path, sizeof(path));
    write_whole(path, image.data, image.size);
    *data = image.data;
    return CUBIN_HERE;
}

void cubins_open(void)
{
    if (mkdir(options.cubins, 0777) && errno != EEXIST) {
        fprintf(stderr, "--cubins %s: this folder cannot be made: %s\n", options.cubins,
                strerror(errno));
        exit(2);
    }
}

enum cubin cubin_get(const struct variant *v, void **data, char *why, size_t size)
{
    char path[512];
    path_of(v, "cubin", path, sizeof(path));
    *data = read_whole(path);
    if (*data) {
        return CUBIN_HERE;
    }
    path_of(v, "refused", path, sizeof(path));
    char *refused = read_whole(path);
    if (refused) {
        snprintf(why, size, "%s", refused);
        free(refused);
        return CUBIN_REFUSED;
    }
    return compile(v, data, why, size);
}
