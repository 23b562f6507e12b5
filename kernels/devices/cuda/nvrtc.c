/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles with NVRTC; the compiler of the cuda device.
 *
 * Options are fixed here, except a variant's own:
 * - the architecture sm_XX, not compute_XX, so that the result is a cubin and the driver compiles
 * nothing
 * - ptxas writes registers and spills into the log
 * - no cache of NVRTC, which since 12.9 may answer without a log
 *
 * -Ofast-compile is never used: it ignores setmaxnreg and serialises wgmma.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/cuda/driver.h"
#include "kernels/devices/cuda/nvrtc.h"

/* ---- compiling ------------------------------------------------------------------------------ */

enum { OPTIONS_COUNT_MAX = 64 };

struct compile_job {
    const struct cuda_nvrtc *n;
    nvrtcProgram program;
    char arch[64];
    char words[OPTIONS_MAX]; /* the variant's options, split */
    const char *options[OPTIONS_COUNT_MAX];
    int n_options;
    char *log; /* owned */
};

/* Cubins run on later minor versions of their architecture: for a GPU that NVRTC does not know,
 * takes the newest architecture that runs there. */
static int nvrtc_set_arch(struct compile_job *j, const char *arch, struct error *err)
{
    int n = 0, known[64], wanted = atoi(arch + (strncmp(arch, "sm_", 3) == 0 ? 3 : 0)), best = 0;
    if (j->n->arch_count(&n) != NVRTC_SUCCESS || n > 64 || j->n->archs(known) != NVRTC_SUCCESS) {
        n = 0;
    }
    for (int i = 0; i < n; i++) {
        bool same_major = known[i] / 10 == wanted / 10;
        best = same_major && known[i] <= wanted && known[i] > best ? known[i] : best;
    }
    if (n > 0 && best == 0) {
        return error_set(err, ERROR_NO_COMPILER,
                         "%s does not know %s: install a newer NVRTC, or set GEMMD_NVRTC to it",
                         j->n->name, arch);
    }
    if (n == 0 || best == wanted) {
        snprintf(j->arch, sizeof(j->arch), "--gpu-architecture=%.16s", arch);
    } else {
        snprintf(j->arch, sizeof(j->arch), "--gpu-architecture=sm_%d", best);
    }
    return 0;
}

static void add_option(struct compile_job *j, const char *option)
{
    if (j->n_options < OPTIONS_COUNT_MAX) {
        j->options[j->n_options++] = option;
    }
}

static void nvrtc_add_words(struct compile_job *j, const char *options)
{
    char *rest = NULL;
    snprintf(j->words, sizeof(j->words), "%s", options);
    for (char *word = strtok_r(j->words, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        add_option(j, word);
    }
}

static int set_options(struct compile_job *j, const struct variant *v, struct error *err)
{
    int r = nvrtc_set_arch(j, v->arch, err);
    add_option(j, j->arch);
    add_option(j, "--std=c++17");
    add_option(j, "-default-device");
    add_option(j, "--diag-suppress=177"); /* unused functions of a variant */
    add_option(j, "-Xptxas=-v");
    if (j->n->major > 12 || j->n->minor >= 9) {
        add_option(j, "--no-cache");
    }
    nvrtc_add_words(j, v->options);
    return r;
}

static int nvrtc_fail(const struct compile_job *j, nvrtcResult r, int code, const char *what,
                      struct error *err)
{
    return error_set(err, r == NVRTC_ERROR_OUT_OF_MEMORY ? ERROR_NO_MEMORY : code, "%s: %s %s",
                     what, j->n->name, j->n->error_string(r));
}

static int read_log(struct compile_job *j, struct image *out, struct error *err)
{
    size_t size = 0;
    nvrtcResult r = j->n->log_size(j->program, &size);
    j->log = r ? NULL : calloc(1, size + 1);
    if (!r && !j->log) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the compiler's log of %zu bytes",
                         size);
    }
    r = r ? r : j->n->log(j->program, j->log);
    if (r) {
        return nvrtc_fail(j, r, ERROR_COMPILE, "reading the compiler's log", err);
    }
    snprintf(out->log, sizeof(out->log), "%s", j->log);
    return 0;
}

/* Recognises lack of memory in NVRTC 13.0's log. The front end logs "catastrophic error: out of
 * memory"; ptxas only that it gave up. Both return the error code of an invalid program. */
static bool ran_short(const char *log)
{
    return strstr(log, "out of memory") || strstr(log, "Memory allocation failure") ||
           (strstr(log, "aborted due to errors") && !strstr(log, "error   :") &&
            !strstr(log, ": error"));
}

/* ERROR_COMPILE is a verdict on the variant; the other codes are temporary. */
static int code_of(nvrtcResult r, const char *log)
{
    if (r == NVRTC_ERROR_OUT_OF_MEMORY || ran_short(log)) {
        return ERROR_NO_MEMORY;
    }
    return r == NVRTC_ERROR_BUILTIN_OPERATION_FAILURE ? ERROR_NO_COMPILER : ERROR_COMPILE;
}

static int nvrtc_refuse_variant(const struct compile_job *j, const struct variant *v, nvrtcResult r,
                                struct image *out, struct error *err)
{
    char text[320];
    image_log_excerpt(j->log, NULL, text, sizeof(text));
    int code = code_of(r, j->log);
    out->refused = code == ERROR_COMPILE && r == NVRTC_ERROR_COMPILATION;
    return error_set(err, code, "%s %s for %s (%s): %s", j->n->name,
                     code == ERROR_COMPILE     ? "refused the variant"
                     : code == ERROR_NO_MEMORY ? "had no memory to compile"
                                               : "could not compile",
                     v->arch, j->n->error_string(r), text[0] ? text : "no log");
}

static int read_cubin(struct compile_job *j, struct image *out, struct error *err)
{
    nvrtcResult r = j->n->cubin_size(j->program, &out->size);
    if (r || out->size == 0) {
        return nvrtc_fail(j, r, ERROR_COMPILE, "the compiler made no cubin", err);
    }
    out->data = malloc(out->size);
    if (!out->data) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a cubin of %zu bytes", out->size);
    }
    r = j->n->cubin(j->program, out->data);
    return r ? nvrtc_fail(j, r, ERROR_COMPILE, "reading the cubin", err) : 0;
}

static int nvrtc_run_job(struct compile_job *j, const struct variant *v, struct image *out,
                         struct error *err)
{
    char name[80];
    snprintf(name, sizeof(name), "%s.cu", v->entry);
    double began = device_clock_ms(NULL);
    nvrtcResult made = j->n->create(&j->program, v->source, name, 0, NULL, NULL);
    if (made) {
        return nvrtc_fail(j, made, ERROR_COMPILE, "starting the compiler", err);
    }
    nvrtcResult compiled = j->n->compile(j->program, j->n_options, j->options);
    int r = read_log(j, out, err);
    if (r) {
        return r; /* without the log the error cannot be told from lack of memory */
    }
    if (compiled) {
        return nvrtc_refuse_variant(j, v, compiled, out, err);
    }
    r = read_cubin(j, out, err);
    if (r) {
        return r;
    }
    image_describe(out, v, j->n->name, device_clock_ms(NULL) - began);
    r = cuda_ptxas_judge(j->log, &out->meta, err);
    out->refused = r != 0;
    return r;
}

int cuda_nvrtc_compile(const struct cuda_nvrtc *n, const struct variant *v, struct image *out,
                       struct error *err)
{
    *out = (struct image){0};
    struct compile_job *j = calloc(1, sizeof(*j));
    if (!j) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to compile");
    }
    j->n = n;
    int r = set_options(j, v, err);
    r = r ? r : nvrtc_run_job(j, v, out, err);
    if (j->program) {
        n->destroy(&j->program);
    }
    free(j->log);
    free(j);
    if (r) {
        free(out->data);
        out->data = NULL;
        out->size = 0;
    }
    return r;
}

/* ---- the compiler of the cuda device -------------------------------------------------------- */

struct cuda_compiler {
    struct compiler base; /* first member: its address is the struct's */
    struct cuda_nvrtc nvrtc;
};

static void compiler_close_cuda(struct compiler *c)
{
    free(c);
}

/* "cuda:sm_90a" compiles for machines with that GPU, regardless of the driver here. */
static int compiler_open_cuda(const char *spec, struct compiler *c, struct error *err)
{
    const bool local = strncmp(spec, "cuda:sm_", 8) != 0 && cuda_driver_open(false, NULL) == 0;
    return cuda_nvrtc_open(local ? cuda.version : 0, &((struct cuda_compiler *)c)->nvrtc, err);
}

static const char *compiler_version_cuda(const struct compiler *c)
{
    return ((const struct cuda_compiler *)c)->nvrtc.name;
}

static int compiler_compile_cuda(struct compiler *c, const struct variant *v, struct image *out,
                                 struct error *err)
{
    return cuda_nvrtc_compile(&((const struct cuda_compiler *)c)->nvrtc, v, out, err);
}

const struct compiler_ops cuda_compiler_ops = {
    .suffix = "cubin",
    .apart = true,
    .size = sizeof(struct cuda_compiler),
    .open = compiler_open_cuda,
    .close = compiler_close_cuda,
    .version = compiler_version_cuda,
    .compile = compiler_compile_cuda,
};
