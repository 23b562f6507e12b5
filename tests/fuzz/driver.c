/* SPDX-License-Identifier: Apache-2.0 */
/* A main() that passes the content of files, also of all files in folders, to a fuzz target. */
#include <dirent.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static int replay_file(const char *path, off_t size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = malloc((size_t)size + 1);
    if (!f || !data || fread(data, 1, (size_t)size, f) != (size_t)size) {
        fprintf(stderr, "cannot read %s\n", path);
        abort();
    }
    fclose(f);
    uint8_t *exact = realloc(data, size > 0 ? (size_t)size : 1); /* ASan reports an overrun */
    LLVMFuzzerTestOneInput(exact ? exact : data, (size_t)size);
    free(exact ? exact : data);
    return 1;
}

/* Returns the number of inputs. */
static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "there is no %s\n", path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        return replay_file(path, st.st_size);
    }
    int runs = 0;
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char below[4096];
        if (e->d_name[0] != '.' &&
            snprintf(below, sizeof(below), "%s/%s", path, e->d_name) < (int)sizeof(below)) {
            runs += replay(below);
        }
    }
    if (dir) {
        closedir(dir);
    }
    return runs;
}

int main(int argc, char **argv)
{
    int runs = 0;
    for (int i = 1; i < argc; i++) {
        runs += replay(argv[i]);
    }
    printf("%d inputs replayed\n", runs);
    return runs > 0 ? 0 : 1; /* no input: a wrong path */
}
