/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles every distinct variant of every kind of problem of a target, or a seeded sample, with
 * NVRTC. The cuda device's compiler judges each variant, as in gemmd-runner, which never launches a
 * refused variant. A legal config must compile: any outcome but "ok" is a fault of the legality
 * rules.
 *
 *   compile_space [--target LABEL] [--arch ARCH] [--kind PATTERN] [--config PATTERN]
 *                 [--with FIELDS] [--sample N] [--seed S] [--jobs N] [--seconds S] [--results FILE]
 *                 [--summary] [--list]
 *
 *   --target   hopper (default) or portable.
 *   --arch     architecture (default sm_90a).
 *   --kind     only matching kinds, for example 'dW*.bf16*'.
 *   --config   only matching configs, for example '*schedule=pingpong*use_tma_store=false*'.
 *   --with     fields added to each config, where legal; for values outside the space, for example
 *              'cluster_shape_mn=1x2'.
 *   --sample   only N variants, divided evenly among the kinds.
 *   --seed     seed of the sample (default 1).
 *   --jobs     threads (default: all processors), each at the lowest priority.
 *   --seconds  start no compile after S seconds.
 *   --results  append a line per variant, and skip variants that have a line: a stopped run
 *              continues. Lines of other sources or compilers are ignored.
 *   --summary  compile nothing, print the table.
 *   --list     compile nothing, print kind, hash, config and a problem of each variant.
 *
 * Exit: 0 all ok, 1 a variant refused or failed, 2 usage or fault, 77 no NVRTC.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "tests/compile/summary.h"

enum { THREADS_MAX = 256, SKIP = 77 };

struct options {
    struct kinds_setup kinds;
    const char *results;
    long sample, jobs;
    double seconds;
    bool summary, list;
};

/* Shared by the threads. */
struct job {
    struct compiler *compiler;
    const struct kinds *kinds;
    struct results *results;
    const uint32_t *order; /* indices into kinds->entries */
    uint32_t n, next, done, bad;
    double began, end, said;
    int status; /* the first fault, which ends the run */
    struct error error;
    pthread_mutex_t lock;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- compiling ------------------------------------------------------------------------------ */

/* CPU time of this thread: excludes other work on the machine. */
static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const struct entry *take(struct job *j)
{
    pthread_mutex_lock(&j->lock);
    const struct entry *e = NULL;
    if (j->status == 0 && j->next < j->n && now() < j->end) {
        e = &j->kinds->entries[j->order[j->next++]];
    }
    pthread_mutex_unlock(&j->lock);
    return e;
}

static void say_progress(struct job *j)
{
    double t = now();
    if (t - j->said < 60) {
        return;
    }
    j->said = t;
    fprintf(stderr, "compile_space: %u of %u, %u not well, about %.0f min left\n", j->done, j->n,
            j->bad, (t - j->began) / j->done * (j->n - j->done) / 60);
}

static void give(struct job *j, const struct entry *e, const struct result *r, const char *text)
{
    pthread_mutex_lock(&j->lock);
    j->done++;
    j->bad += r->outcome != OUTCOME_OK;
    int status = results_add(j->results, r, j->kinds->kinds[e->kind].name, e->config, text,
                             j->status ? NULL : &j->error);
    j->status = j->status ? j->status : status;
    say_progress(j);
    pthread_mutex_unlock(&j->lock);
}

static void stop(struct job *j, int status, const struct error *err)
{
    pthread_mutex_lock(&j->lock);
    if (j->status == 0) {
        j->status = status;
        j->error = *err;
    }
    pthread_mutex_unlock(&j->lock);
}

/* A fault other than a verdict on the variant, such as no memory, ends the run. */
static void compile(struct job *j, const struct entry *e)
{
    struct variant v;
    struct image image = {0};
    struct error err = ERROR_NULL;
    struct result r = {0};
    double began = cpu_seconds();
    int status = kinds_variant(j->kinds, e, &v, &err);
    if (status == 0) {
        status = j->compiler->ops->compile(j->compiler, &v, &image, &err);
        if (status && !image.meta.registers) {
            image.meta.registers = -1; /* not reported */
        }
    }
    if (status == 0 || status == ERROR_RESOURCE || status == ERROR_COMPILE) {
        memcpy(r.hash, e->hash, sizeof(r.hash));
        r.seconds = cpu_seconds() - began;
        result_judge(&r, status, &image, err.text);
        give(j, e, &r, err.text);
    } else {
        stop(j, status, &err);
    }
    image_deinit(&image);
}

static void *work(void *arg)
{
    struct job *j = arg;
    for (const struct entry *e; (e = take(j));) {
        compile(j, e);
    }
    return NULL;
}

static int work_all(struct job *j, long jobs)
{
    pthread_t threads[THREADS_MAX];
    long n = 0;
    while (n < jobs && pthread_create(&threads[n], NULL, work, j) == 0) {
        n++;
    }
    for (long i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
    }
    if (n == 0) {
        return error_set(&j->error, ERROR_NO_MEMORY, "cannot start a thread");
    }
    return j->status;
}

/* Keeps the entries of the sample that have no result. Returns their number. */
static uint32_t select_entries(const struct kinds *k, const struct results *r, long sample,
                               uint32_t *order, uint32_t all)
{
    uint32_t n = 0, most = sample > 0 && sample < (long)all ? (uint32_t)sample : all;
    for (uint32_t i = 0; i < most; i++) {
        if (!results_find(r, k->entries[order[i]].hash)) {
            order[n++] = order[i];
        }
    }
    return n;
}

static int compile_entries(struct compiler *c, const struct kinds *k, struct results *r,
                           const struct options *o, struct error *err)
{
    uint32_t n, *order = kinds_order(k, &n);
    if (!order) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u variants", k->n);
    }
    struct job j = {.compiler = c, .kinds = k, .results = r, .order = order};
    j.n = select_entries(k, r, o->sample, order, n);
    j.began = j.said = now();
    j.end = o->seconds > 0 ? j.began + o->seconds : 1e30;
    pthread_mutex_init(&j.lock, NULL);
    setpriority(PRIO_PROCESS, 0, 19);
    int status = work_all(&j, o->jobs);
    pthread_mutex_destroy(&j.lock);
    printf("%u of %u compiled in %.1f s with %ld threads and %s, %u not well\n", j.done, j.n,
           now() - j.began, o->jobs, c->ops->version(c), j.bad);
    *err = j.error;
    free(order);
    results_sort(r);
    return status;
}

/* ---- the program ---------------------------------------------------------------------------- */

static int list(const struct kinds *k, struct error *err)
{
    int r = 0;
    for (uint32_t i = 0; i < k->n && r == 0; i++) {
        const struct entry *e = &k->entries[i];
        struct problem p;
        char fields[1024];
        r = kinds_problem(k, e, &p, err);
        if (r == 0) {
            record_format(&p.fields, fields, sizeof(fields));
            printf("%s\t%s\t%s\t%s\n", k->kinds[e->kind].name, e->hash, e->config, fields);
        }
    }
    return r;
}

/* Returns 0, 1 (a variant is not ok) or ERROR_*. */
static int run(struct compiler *c, const struct options *o, struct error *err)
{
    struct kinds k;
    struct results results;
    int r = kinds_init(&k, &o->kinds, err);
    if (r) {
        return r;
    }
    r = results_init(&results, o->results, err);
    if (r == 0 && o->list) {
        r = list(&k, err);
    } else if (r == 0) {
        r = o->summary ? 0 : compile_entries(c, &k, &results, o, err);
        r = r ? r : summary_print(&k, &results) > 0;
    }
    results_deinit(&results);
    kinds_deinit(&k);
    return r;
}

static bool read_number(const char *name, const char *text, double least, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end == text || *end || !(*out >= least)) {
        fprintf(stderr, "compile_space: --%s %s: a number of at least %g is wanted\n", name, text,
                least);
        return false;
    }
    return true;
}

static const struct option option_table[] = {
    {"target", required_argument, NULL, 't'},
    {"arch", required_argument, NULL, 'a'},
    {"kind", required_argument, NULL, 'k'},
    {"config", required_argument, NULL, 'c'},
    {"sample", required_argument, NULL, 'n'},
    {"seed", required_argument, NULL, 's'},
    {"jobs", required_argument, NULL, 'j'},
    {"seconds", required_argument, NULL, 'e'},
    {"results", required_argument, NULL, 'r'},
    {"summary", no_argument, NULL, 'u'},
    {"list", no_argument, NULL, 'l'},
    {"with", required_argument, NULL, 'w'},
    {NULL, 0, NULL, 0},
};

static bool set_number(struct options *o, int c)
{
    double v;
    bool good = read_number(c == 'n'   ? "sample"
                            : c == 's' ? "seed"
                            : c == 'j' ? "jobs"
                                       : "seconds",
                            optarg, c == 'n' || c == 'j' ? 1 : 0, &v);
    if (good && c == 'n') {
        o->sample = (long)v;
    } else if (good && c == 's') {
        o->kinds.seed = (uint64_t)v;
    } else if (good && c == 'j') {
        o->jobs = v < THREADS_MAX ? (long)v : THREADS_MAX;
    } else if (good) {
        o->seconds = v;
    }
    return good;
}

static bool set_option(struct options *o, int c)
{
    switch (c) {
    case 't':
        o->kinds.target = optarg;
        return true;
    case 'a':
        o->kinds.arch = optarg;
        return true;
    case 'k':
        o->kinds.kind = optarg;
        return true;
    case 'c':
        o->kinds.config = optarg;
        return true;
    case 'w':
        o->kinds.with = optarg;
        return true;
    case 'r':
        o->results = optarg;
        return true;
    case 'u':
        return o->summary = true;
    case 'l':
        return o->list = true;
    case '?':
        return false; /* getopt_long printed the error */
    default:
        return set_number(o, c);
    }
}

static bool read_options(int argc, char **argv, struct options *o)
{
    for (int c; (c = getopt_long(argc, argv, "", option_table, NULL)) != -1;) {
        if (!set_option(o, c)) {
            return false;
        }
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct options o = {.kinds = {.target = "hopper", .arch = "sm_90a", .seed = 1},
                        .jobs = sysconf(_SC_NPROCESSORS_ONLN)};
    if (!read_options(argc, argv, &o)) {
        fprintf(stderr,
                "usage: compile_space [--target LABEL] [--arch ARCH] [--kind PATTERN] "
                "[--config PATTERN] [--with FIELDS]\n"
                "           [--sample N] [--seed S] [--jobs N] [--seconds S] [--results FILE] "
                "[--summary] [--list]\n");
        return 2;
    }
    char spec[32];
    struct compiler *compiler;
    struct error err = ERROR_NULL;
    snprintf(spec, sizeof(spec), "cuda:%.20s", o.kinds.arch);
    if (compiler_open(spec, &compiler, &err)) {
        printf("SKIP: %s\n", err.text);
        return SKIP;
    }
    families_register();
    o.kinds.compiler = compiler->ops->version(compiler);
    int r = run(compiler, &o, &err);
    compiler->ops->close(compiler);
    if (r < 0) {
        fprintf(stderr, "compile_space: %s\n", err.text);
        return 2;
    }
    return r;
}
