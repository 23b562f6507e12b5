/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles variants to shared objects with the host's C compiler: $GEMMD_CC, else cc, gcc or clang
 * from PATH. Every compile has a private directory, which is always removed, unless this process is
 * killed. Therefore a runner compiles in child processes.
 *
 * Images are reproducible (no symbols, no build id), so that their content hash is an identity. The
 * effect of -march=native depends on the CPU, so the CPU's name is part of the version.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"
#include "proto/trust.h"

#define FLAGS "-O3 -march=native"
#define FLAGS_MORE                                                                                 \
    "-std=gnu11 -ffp-contract=fast -fno-math-errno -fno-semantic-interposition "                   \
    "-fPIC -shared -s -w -Wl,--build-id=none"

enum {
    COMPILE_LIMIT_MS = 120 * 1000,
    VERSION_LIMIT_MS = 10 * 1000,
    ABANDONED_S = 3600, /* far above COMPILE_LIMIT_MS */
    ARGV_MAX = 128
};

struct cpu_compiler {
    struct compiler base; /* first member: its address is the struct's */
    char path[PATH_MAX];
    char version[96];
    struct stat file; /* stat() of the compiler's file when its version was read */
};

/* ---- finding the compiler -------------------------------------------------------------------- */

static bool cpu_compiler_is_program(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static bool search_path(const char *name, char out[PATH_MAX])
{
    const char *path = getenv("PATH");
    if (strchr(name, '/')) {
        return realpath(name, out) && cpu_compiler_is_program(out);
    }
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        int n = (int)strcspn(at, ":");
        /* Only absolute folders of PATH are searched, because the daemon's current directory is
         * arbitrary. */
        if (*at == '/' && snprintf(out, PATH_MAX, "%.*s/%s", n, at, name) < PATH_MAX &&
            cpu_compiler_is_program(out)) {
            return true;
        }
        at += n + (at[n] == ':');
    }
    return false;
}

/* root runs no program that another user can replace. The gemmd of another user also runs
 * programs that the site's owners install in its PATH, such as a shared tool chain. */
static int check_cc(const char *path, struct error *err)
{
    char whole[PATH_MAX];
    int r = geteuid() == 0 ? trust_file(path, TRUST_SHARED, whole, err) : 0;
    return r < 0 ? error_prefix(err, "root does not run the C compiler %s", path) : 0;
}

static int find_cc(char out[PATH_MAX], struct error *err)
{
    const char *named = getenv("GEMMD_CC");
    if (named && *named) {
        if (!search_path(named, out)) {
            return error_set(err, ERROR_NO_COMPILER,
                             "GEMMD_CC is \"%s\", which is no program: set it to a C compiler, or "
                             "unset it",
                             named);
        }
        return check_cc(out, err);
    }
    static const char *const names[] = {"cc", "gcc", "clang"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (search_path(names[i], out)) {
            return check_cc(out, err);
        }
    }
    return error_set(err, ERROR_NO_COMPILER,
                     "no C compiler found: install gcc (apt-get install gcc) or set GEMMD_CC");
}

/* Writes a version such as "cc 12.2.0 -O3 -march=native (AMD EPYC)". */
static int read_version(const char *cc, char *out, size_t size, struct error *err)
{
    char log[256], model[64];
    int status;
    /* gcc answers the first option with all three numbers; clang takes the second. */
    const char *argv[] = {cc, "-dumpfullversion", "-dumpversion", NULL};
    int r = spawn_run(argv, NULL, VERSION_LIMIT_MS, log, sizeof(log), &status, NULL, err);
    if (r == 0 && status != 0) {
        const char *plain[] = {cc, "-dumpversion", NULL};
        r = spawn_run(plain, NULL, VERSION_LIMIT_MS, log, sizeof(log), &status, NULL, err);
    }
    if (r || status != 0 || !isdigit((unsigned char)log[0])) {
        return error_set(err, ERROR_NO_COMPILER,
                         "%s does not tell its version (-dumpversion), so it is no C compiler that "
                         "gemmd can use: install gcc or set GEMMD_CC",
                         cc);
    }
    cpu_model_name(model, sizeof(model));
    const char *name = strrchr(cc, '/') + 1;
    snprintf(out, size, "%s %.*s " FLAGS " (%s)", name, (int)strcspn(log, "\n"), log, model);
    return 0;
}

static int compiler_open_cpu(const char *spec, struct compiler *base, struct error *err)
{
    struct cpu_compiler *c = (struct cpu_compiler *)base;
    int r = find_cc(c->path, err);
    /* before the version is read: still_itself() notices a later replacement */
    if (r == 0 && stat(c->path, &c->file) < 0) {
        r = error_set(err, ERROR_NO_COMPILER, "%s has just gone: start again", c->path);
    }
    r = r ? r : read_version(c->path, c->version, sizeof(c->version), err);
    if (r == 0) {
        scratch_sweep(ABANDONED_S);
    }
    return r;
}

static void compiler_close_cpu(struct compiler *c)
{
    free(c);
}

static const char *compiler_version_cpu(const struct compiler *c)
{
    return ((const struct cpu_compiler *)c)->version;
}

void cpu_compiler_version(char *out, size_t size)
{
    struct compiler *c;
    struct error err = ERROR_NULL;
    int r = compiler_open("cpu", &c, &err);
    out[0] = '\0';
    if (r == 0) {
        snprintf(out, size, "%s", compiler_version_cpu(c));
        compiler_close_cpu(c);
        /* a compiler exists: the error tells the user why gemmd does not use it */
    } else if (r == ERROR_DENIED) {
        fprintf(stderr, "%s\n", err.text);
    }
}

int cpu_compiler_find(struct error *err)
{
    char path[PATH_MAX];
    return find_cc(path, err);
}

/* ---- a compile ------------------------------------------------------------------------------- */

struct job {
    char folder[PATH_MAX];
    char source[PATH_MAX + 16], output[PATH_MAX + 16];
    char words[OPTIONS_MAX + 512]; /* options, cut into argv */
    const char *argv[ARGV_MAX];
};

static int cpu_compiler_begin_job(struct job *j, const struct cpu_compiler *c,
                                  const struct variant *v, struct error *err)
{
    snprintf(j->source, sizeof(j->source), "%s/kernel.c", j->folder);
    snprintf(j->output, sizeof(j->output), "%s/kernel.so", j->folder);
    FILE *f = fopen(j->source, "we");
    bool written = f && fputs(v->source, f) >= 0;
    if (!f || fclose(f) != 0 || !written) {
        bool full = errno == ENOSPC || errno == EDQUOT || errno == EFBIG;
        return error_set(err, full ? ERROR_DISK_FULL : ERROR_IO, "cannot write %s: %s", j->source,
                         strerror(errno));
    }
    int argc = 0;
    char *rest = NULL;
    snprintf(j->words, sizeof(j->words), FLAGS " " FLAGS_MORE " %s", v->options);
    j->argv[argc++] = c->path;
    for (char *word = strtok_r(j->words, " ", &rest); word && argc < ARGV_MAX - 4;
         word = strtok_r(NULL, " ", &rest)) {
        j->argv[argc++] = word;
    }
    j->argv[argc++] = "-o";
    j->argv[argc++] = j->output;
    j->argv[argc++] = j->source;
    j->argv[argc] = NULL;
    return 0;
}

/* Compilers create the output with our umask, perhaps writable for others; trust_open() removes
 * the others' write permission. Creates an empty file when the output is missing. */
static int read_output(const struct job *j, struct image *out, struct error *err)
{
    struct stat st;
    int fd, r = trust_open(j->output, O_RDONLY | O_CREAT, 0600, &fd, err);
    FILE *f = r ? NULL : fdopen(fd, "r");
    if (r < 0 || !f || fstat(fd, &st) < 0 || st.st_size == 0) {
        if (f) {
            fclose(f);
        }
        return r < 0 ? r
                     : error_set(err, ERROR_COMPILE, "the compiler wrote no output: %s", out->log);
    }
    out->size = (size_t)st.st_size;
    out->data = malloc(out->size + 1);
    bool whole = out->data && fread(out->data, 1, out->size, f) == out->size;
    fclose(f);
    return whole ? 0
                 : error_set(err, ERROR_IO, "cannot read what the compiler wrote (%zu bytes)",
                             out->size);
}

/* True when the log has a place in the source: "....c:12:5: error: ". Errors of the disk, of a
 * limit or of the compiler itself name no place. */
static bool blames_source(const char *log)
{
    static const char word[] = ": error: ";
    for (const char *at = strstr(log, word); at; at = strstr(at + 1, word)) {
        if (at > log && isdigit((unsigned char)at[-1])) {
            return true;
        }
    }
    return false;
}

static const char *const no_room[] = {"No space left on device", "Disk quota exceeded",
                                      "File too large", NULL};
/* Texts of a log when the host had no memory or processes left. gcc: "Killed signal terminated
 * program cc1", "internal compiler error: Killed (program cc1)"; its linker: "ld terminated with
 * signal 9 [Killed]", "memory exhausted"; clang: "unable to execute command: Killed"; no room for
 * one more process: "Resource temporarily unavailable". */
static const char *const no_memory[] = {"Killed",
                                        "Terminated",
                                        "out of memory",
                                        "Cannot allocate memory",
                                        "memory exhausted",
                                        "bad_alloc",
                                        "Resource temporarily unavailable",
                                        NULL};

static bool cpu_compiler_log_says(const char *log, const char *const words[])
{
    while (*words && !strstr(log, *words)) {
        words++;
    }
    return *words != NULL;
}

/* True when a user, or Linux for lack of memory, killed the compiler: no verdict on the variant. */
static bool was_killed(int status)
{
    const int of = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return of == SIGKILL || of == SIGTERM || of == SIGINT || of == SIGHUP;
}

/* Returns the compile's error code, from the compiler's exit status and log. */
static int how_it_ended(const struct job *j, int status, struct image *out, struct error *err)
{
    char text[400];
    if (status == 0) {
        return read_output(j, out, err);
    }
    image_log_excerpt(out->log, j->folder, text, sizeof(text));
    if (cpu_compiler_log_says(out->log, no_room)) { /* a temporary cause: not `refused` */
        return error_set(err, ERROR_DISK_FULL, "the compiler found no room for its files: %s",
                         text);
    }
    if (was_killed(status) || cpu_compiler_log_says(out->log, no_memory)) {
        return error_set(err, ERROR_NO_MEMORY, "the compiler was killed, or had no memory: %s",
                         text);
    }
    out->refused = !WIFSIGNALED(status) && blames_source(out->log);
    if (WIFSIGNALED(status)) {
        return error_set(err, ERROR_COMPILE, "the compiler died of signal %d (%s): %s",
                         WTERMSIG(status), strsignal(WTERMSIG(status)), text);
    }
    return error_set(err, ERROR_COMPILE, "the compiler refused the variant: %s", text);
}

static int run_cc(const struct job *j, const struct variant *v, struct image *out,
                  struct error *err)
{
    int status;
    int r = spawn_run(j->argv, j->folder, COMPILE_LIMIT_MS, out->log, sizeof(out->log), &status, v,
                      err);
    if (r == ERROR_CANCELLED) {
        return error_set(err, ERROR_HUNG, "the compiler was stopped");
    }
    if (r == ERROR_HUNG) {
        return error_set(err, ERROR_COMPILE, "the compiler did not end within %d s and was killed",
                         COMPILE_LIMIT_MS / 1000);
    }
    return r ? r : how_it_ended(j, status, out, err);
}

/* Fails when a system upgrade has replaced the compiler since its version was read: the new
 * compiler's output must not get the old version's stamp. */
static int still_itself(const struct cpu_compiler *c, struct error *err)
{
    struct stat st;
    char version[sizeof(c->version)];
    if (stat(c->path, &st) == 0 && st.st_dev == c->file.st_dev && st.st_ino == c->file.st_ino &&
        st.st_mtim.tv_sec == c->file.st_mtim.tv_sec &&
        st.st_mtim.tv_nsec == c->file.st_mtim.tv_nsec) {
        return 0;
    }
    int r = read_version(c->path, version, sizeof(version), err);
    if (r == 0 && strcmp(version, c->version) != 0) {
        r = error_set(
            err, ERROR_BUSY,
            "the C compiler was replaced: it was %s and is %s; gemmd's next runner will use it",
            c->version, version);
    }
    return r;
}

static void compiler_stop_cpu(struct compiler *c, const struct variant *v)
{
    spawn_end(v);
}

static int compiler_compile_cpu(struct compiler *base, const struct variant *v, struct image *out,
                                struct error *err)
{
    struct cpu_compiler *c = (struct cpu_compiler *)base;
    *out = (struct image){0};
    struct job *j = calloc(1, sizeof(*j));
    if (!j) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to compile");
    }
    double began = device_clock_ms(NULL);
    int r = scratch_make(j->folder, err);
    if (r == 0) {
        r = cpu_compiler_begin_job(j, c, v, err);
        r = r ? r : run_cc(j, v, out, err);
        r = r ? r : still_itself(c, err);
        scratch_remove(j->folder);
    }
    free(j);
    if (r) {
        free(out->data);
        out->data = NULL;
        return r;
    }
    image_describe(out, v, c->version, device_clock_ms(NULL) - began);
    return 0;
}

const struct compiler_ops cpu_compiler_ops = {
    .suffix = "so",
    /* when the runner is killed, its child stops the C compiler and removes the files */
    .apart = true,
    .size = sizeof(struct cpu_compiler),
    .open = compiler_open_cpu,
    .close = compiler_close_cpu,
    .version = compiler_version_cpu,
    .compile = compiler_compile_cpu,
    .stop = compiler_stop_cpu,
};
