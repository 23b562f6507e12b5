/* SPDX-License-Identifier: Apache-2.0 */
/* The stub of libnvrtc (stub.h). Every program compiles to the same small ELF file. With
 * GEMMD_STUB_EMULATE (emulate.h), kernels of grouped_gemm compile to shared objects for the CPU. */
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/cuda_stub/stub.h"

typedef int result;
static int stub_calls;

struct program {
    int cached; /* 1: the log is empty, as when NVRTC takes a result from its own cache: from
                   version 12.9 on, without --no-cache */
    char name[64];
    char *image;
    size_t size;
};

static void set_head(struct program *p)
{
    Elf64_Ehdr head = {.e_ident = ELFMAG};
    if (p->image) {
        memcpy(&head, p->image, sizeof(head));
    } else {
        p->size = sizeof(head);
        p->image = malloc(p->size);
        head.e_ident[EI_CLASS] = ELFCLASS64;
    }
    head.e_machine = EM_CUDA;
    memcpy(p->image, &head, sizeof(head));
}

static int read_image(struct program *p, const char *path)
{
    FILE *f = fopen(path, "r");
    if (!f) {
        return -1;
    }
    fseek(f, 0, SEEK_END);
    p->size = (size_t)ftell(f);
    rewind(f);
    p->image = malloc(p->size);
    int r = fread(p->image, p->size, 1, f) == 1 ? 0 : -1;
    fclose(f);
    return r;
}

/* The kept image of a compile: a file in the folder GEMMD_STUB_IMAGES, named by the command.
 * Returns false without this variable. */
static bool name_kept(const char *command, char path[4096])
{
    const char *folder = getenv("GEMMD_STUB_IMAGES");
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *c = command; *c; c++) {
        hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    }
    return folder && snprintf(path, 4096, "%s/%016llx", folder, (unsigned long long)hash) < 4096;
}

/* Compiles the template's file in the tree `root` for the CPU, unless the image is kept from an
 * earlier compile. The caller's program must have the same source text, which the stub does not
 * read. */
static int emulate(struct program *p, const char *root, int n, const char *const *options)
{
    const char *file = strstr(p->name, "portable")    ? "emulate_portable.c"
                       : strstr(p->name, "hopper")    ? "emulate_hopper.c"
                       : strstr(p->name, "reference") ? "emulate_reference.c"
                                                      : NULL;
    char path[] = "/tmp/gemmd-stub-XXXXXX", kept[4096], command[4096];
    if (!file) {
        return 0;
    }
    size_t used = (size_t)snprintf(command, sizeof(command),
                                   "cc -Og -s -w -Wno-psabi -shared -fPIC -Wl,--build-id=none -I%s "
                                   "%s/tests/unit/cuda/%s",
                                   root, root, file);
    for (int i = 0; i < n && used < sizeof(command); i++) {
        if (strncmp(options[i], "-D", 2) == 0) {
            used += (size_t)snprintf(command + used, sizeof(command) - used, " %s", options[i]);
        }
    }
    const bool keeps = name_kept(command, kept);
    if (keeps && read_image(p, kept) == 0) {
        return 0;
    }
    int fd = mkstemp(path);
    if (fd < 0 || used >= sizeof(command)) {
        return -1;
    }
    snprintf(command + used, sizeof(command) - used, " -o %s", path);
    int r = system(command) == 0 ? read_image(p, path) : -1;
    close(fd);
    if (r || !keeps || rename(path, kept) < 0) {
        unlink(path);
    }
    return r;
}

#define MAY_FAIL() STUB_MAY_FAIL(result)

static void append(const char *variable, const char *text)
{
    const char *path = getenv(variable);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) {
        if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
            abort();
        }
        close(fd);
    }
}

static void keep_tally(void)
{
    char pid[24];
    snprintf(pid, sizeof(pid), "%ld\n", (long)getpid());
    append("GEMMD_STUB_TALLY", "x");
    append("GEMMD_STUB_PIDS", pid);
    usleep((useconds_t)stub_number("GEMMD_STUB_MS", 0) * 1000);
    if (getenv("GEMMD_STUB_SIGNAL")) {
        raise((int)stub_number("GEMMD_STUB_SIGNAL", 0));
    }
}

static const char *log_text(const struct program *p)
{
    const char *text = p->cached ? "" : getenv("GEMMD_STUB_LOG");
    return text ? text : "ptxas info    : Used 64 registers, used 1 barriers, 8 bytes smem\n";
}

STUB_EXPORT result nvrtcVersion(int *major, int *minor);
STUB_EXPORT result nvrtcVersion(int *major, int *minor)
{
    long version = stub_number("GEMMD_STUB_NVRTC", 13000);
    *major = (int)(version / 1000);
    *minor = (int)(version % 1000 / 10);
    return 0;
}

STUB_EXPORT const char *nvrtcGetErrorString(result r);
STUB_EXPORT const char *nvrtcGetErrorString(result r)
{
    return r == 6   ? "NVRTC_ERROR_COMPILATION"
           : r == 1 ? "NVRTC_ERROR_OUT_OF_MEMORY"
                    : "NVRTC_ERROR";
}

STUB_EXPORT result nvrtcCreateProgram(struct program **program, const char *source,
                                      const char *name, int n, const char *const *headers,
                                      const char *const *names);
STUB_EXPORT result nvrtcCreateProgram(struct program **program, const char *source,
                                      const char *name, int n, const char *const *headers,
                                      const char *const *names)
{
    (void)source, (void)n, (void)headers, (void)names;
    MAY_FAIL();
    *program = calloc(1, sizeof(**program));
    snprintf((*program)->name, sizeof((*program)->name), "%s", name);
    return 0;
}

STUB_EXPORT result nvrtcDestroyProgram(struct program **program);
STUB_EXPORT result nvrtcDestroyProgram(struct program **program)
{
    free((*program)->image);
    free(*program);
    *program = NULL;
    return 0;
}

STUB_EXPORT result nvrtcCompileProgram(struct program *program, int n, const char *const *options);
STUB_EXPORT result nvrtcCompileProgram(struct program *program, int n, const char *const *options)
{
    enum { COMPILATION = 6 };
    const char *root = getenv("GEMMD_STUB_EMULATE");
    keep_tally();
    program->cached = stub_number("GEMMD_STUB_NVRTC", 13000) >= 12090;
    for (int i = 0; i < n; i++) {
        program->cached = program->cached && strcmp(options[i], "--no-cache") != 0;
    }
    MAY_FAIL();
    if (root && emulate(program, root, n, options)) {
        return COMPILATION;
    }
    set_head(program);
    return 0;
}

STUB_EXPORT result nvrtcGetProgramLogSize(struct program *program, size_t *size);
STUB_EXPORT result nvrtcGetProgramLogSize(struct program *program, size_t *size)
{
    MAY_FAIL();
    *size = strlen(log_text(program)) + 1;
    return 0;
}

STUB_EXPORT result nvrtcGetProgramLog(struct program *program, char *text);
STUB_EXPORT result nvrtcGetProgramLog(struct program *program, char *text)
{
    MAY_FAIL();
    strcpy(text, log_text(program));
    return 0;
}

STUB_EXPORT result nvrtcGetCUBINSize(struct program *program, size_t *size);
STUB_EXPORT result nvrtcGetCUBINSize(struct program *program, size_t *size)
{
    MAY_FAIL();
    *size = program->size;
    return 0;
}

STUB_EXPORT result nvrtcGetCUBIN(struct program *program, char *out);
STUB_EXPORT result nvrtcGetCUBIN(struct program *program, char *out)
{
    MAY_FAIL();
    memcpy(out, program->image, program->size);
    return 0;
}

STUB_EXPORT result nvrtcGetNumSupportedArchs(int *n);
STUB_EXPORT result nvrtcGetNumSupportedArchs(int *n)
{
    *n = 3;
    return 0;
}

STUB_EXPORT result nvrtcGetSupportedArchs(int *archs);
STUB_EXPORT result nvrtcGetSupportedArchs(int *archs)
{
    archs[0] = 80;
    archs[1] = 90;
    archs[2] = 120;
    return 0;
}
