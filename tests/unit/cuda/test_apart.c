/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiles by child processes (daemon/runner/apart.h), over the stub of NVRTC: this program is its own child, as
 * gemmd-runner is.
 */
#include "tests/unit/cuda/stubbed.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/runner/apart.h"

static const struct variant variant = {.family = "grouped_gemm",
                                       .kind = "cuda",
                                       .arch = "sm_90a",
                                       .entry = "grouped_gemm_second",
                                       .options = "-DBLOCK_SIZE_M=64 -DBLOCK_SIZE_N=128",
                                       .source = "/* \xc2\xb5s, \"quoted\" */",
                                       .source_hash = "0123456789abcdef0123456789abcdef"};

static struct compiler *open_one(bool children)
{
    struct compiler *c;
    struct error err = ERROR_NULL;
    if (children) {
        apart_enable();
    }
    expect(apart_open("cuda:sm_90a", &c, &err), 0, &err, NULL);
    CHECK(c->ops->apart && strcmp(c->ops->suffix, "cubin") == 0);
    CHECK(strcmp(c->ops->version(c), "nvrtc 13.0") == 0);
    return c;
}

static int compile(struct compiler *c, struct image *out, struct error *err)
{
    return c->ops->compile(c, &variant, out, err);
}

/* ---- what comes back --------------------------------------------------------------------------- */

static void same_image(const void *arg)
{
    (void)arg;
    struct image here, apart;
    struct error err = ERROR_NULL;
    struct compiler *c = open_one(false);
    expect(compile(c, &here, &err), 0, &err, NULL);
    c->ops->close(c);
    c = open_one(true);
    expect(compile(c, &apart, &err), 0, &err, NULL);
    CHECK(apart.size == here.size && memcmp(apart.data, here.data, here.size) == 0);
    CHECK(strcmp(apart.log, here.log) == 0 && strstr(apart.log, "64 registers"));
    CHECK(!apart.refused && apart.meta.registers == 64 && apart.meta.compile_ms >= 0);
    apart.meta.compile_ms = here.meta.compile_ms; /* all else is the same, to the byte */
    apart.meta.created_s = here.meta.created_s;
    apart.meta.used_s = here.meta.used_s;
    CHECK(memcmp(&apart.meta, &here.meta, sizeof(here.meta)) == 0);
    image_deinit(&here);
    image_deinit(&apart);
    c->ops->close(c);
}

static void test_same_image(void **state)
{
    (void)state;
    in_child(same_image, NULL);
}

struct outcome {
    const char *name, *value; /* of the environment */
    int code;
    bool refused;
    const char *words;
};

/* What is wrong is said as if it had been compiled here, and the next compile goes well. */
static void fails_once(const void *arg)
{
    const struct outcome *o = arg;
    struct image image;
    struct error err = ERROR_NULL;
    struct compiler *c = open_one(true);
    setenv(o->name, o->value, 1);
    expect(compile(c, &image, &err), o->code, &err, o->words);
    CHECK(image.refused == o->refused && !image.data && image.size == 0);
    unsetenv(o->name);
    c->ops->close(c); /* the child has what is no more in our environment */
    c = open_one(true);
    expect(compile(c, &image, &err), 0, &err, NULL);
    image_deinit(&image);
    c->ops->close(c);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct outcome cases[] = {
        {"GEMMD_STUB_FAIL", "nvrtcCompileProgram:1:6", ERROR_COMPILE, true, "NVRTC_ERROR_COMPILATION"},
        {"GEMMD_STUB_FAIL", "nvrtcCreateProgram:1:1", ERROR_NO_MEMORY, false, "starting the compiler"},
        {"GEMMD_STUB_LOG", "ptxas info : 64 bytes spill stores, 64 bytes spill loads\n", ERROR_RESOURCE, true, "spill"},
        {"GEMMD_STUB_SIGNAL", "11", ERROR_CRASHED, false, "crashed: signal 11"},
        {"GEMMD_STUB_SIGNAL", "6", ERROR_CRASHED, false, "crashed: signal 6"},
        {"GEMMD_STUB_SIGNAL", "9", ERROR_NO_MEMORY, false, "killed (signal 9)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(fails_once, &cases[i]);
    }
}

/* A crash costs the child alone: the same compiler goes on with another. */
static void crash_and_go_on(const void *arg)
{
    (void)arg;
    struct image image;
    struct error err = ERROR_NULL;
    struct compiler *c = open_one(true);
    setenv("GEMMD_STUB_SIGNAL", "11", 1);
    for (int i = 0; i < 3; i++) {
        expect(compile(c, &image, &err), ERROR_CRASHED, &err, "signal 11");
    }
    unsetenv("GEMMD_STUB_SIGNAL");
    expect(compile(c, &image, &err), 0, &err, NULL);
    image_deinit(&image);
    c->ops->close(c);
}

static void test_crash(void **state)
{
    (void)state;
    in_child(crash_and_go_on, NULL);
}

/* ---- where no child can be had ----------------------------------------------------------------- */

static void compile_well(struct compiler *c)
{
    struct image image;
    struct error err = ERROR_NULL;
    expect(compile(c, &image, &err), 0, &err, NULL);
    CHECK(image.meta.registers == 64);
    image_deinit(&image);
    c->ops->close(c);
}

static void no_descriptor(const void *arg)
{
    (void)arg;
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = 3};
    struct compiler *c = open_one(true);
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    compile_well(c);
}

static void child_that_cannot_begin(const void *arg)
{
    (void)arg;
    struct compiler *c = open_one(true);
    setenv("GEMMD_NVRTC", "/no/such/libnvrtc.so", 1);
    compile_well(c);
}

static void test_compiles_here(void **state)
{
    (void)state;
    in_child(no_descriptor, NULL);
    in_child(child_that_cannot_begin, NULL);
}

/* ---- many at a time ---------------------------------------------------------------------------- */

enum { THREADS = 8, EACH = 25, MS = 20 };

static void *compile_some(void *arg)
{
    struct compiler *c = arg;
    for (int i = 0; i < EACH; i++) {
        struct image image;
        struct error err = ERROR_NULL;
        expect(compile(c, &image, &err), 0, &err, NULL);
        CHECK(image.size > 0);
        image_deinit(&image);
    }
    return NULL;
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void many(const void *arg)
{
    (void)arg;
    char wait[16];
    pthread_t threads[THREADS];
    snprintf(wait, sizeof(wait), "%d", MS);
    setenv("GEMMD_STUB_MS", wait, 1);
    struct compiler *c = open_one(true);
    double began = now_s();
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, compile_some, c) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    CHECK(now_s() - began < THREADS * EACH * MS * 1e-3 * 0.75); /* they were compiled side by side */
    c->ops->close(c);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child is left, nor is one waited for */
}

static void test_many(void **state)
{
    (void)state;
    in_child(many, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "--compile") == 0) {
        return apart_child(argv[3], atoi(argv[5]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_image), cmocka_unit_test(test_failures), cmocka_unit_test(test_crash),
        cmocka_unit_test(test_compiles_here), cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
