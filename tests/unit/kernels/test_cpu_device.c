/* SPDX-License-Identifier: Apache-2.0 */
/* The cpu device and its compiler: specs, probing, memory limits, timing; missing, refusing,
 * hanging and lying compilers; images that do not load. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "kernels/devices/cpu/cpu.h"
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

#define TILE "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=32 unroll_rows=4 unroll_cols=1"
static const char dense[] = "gemm mode=forward M=64 N=64 K=64";

/* ---- specs and probing ----------------------------------------------------------------------- */

static void test_specs(void **state)
{
    (void)state;
    struct device *d;
    struct device_info info;
    struct compiler *c;
    static const char *const bad[] = {"cpu:", "cpu:0", "cpu:-1", "cpu:4x", "cpu:99999", "cpu:1:2"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_fails(device_open(bad[i], &d, err), ERROR_INVALID, "cpu:<threads>");
        assert_fails(device_probe(bad[i], &info, err), ERROR_INVALID, bad[i]);
    }
    assert_fails(device_open("tpu:0", &d, err), ERROR_INVALID, "unknown device \"tpu:0\"");
    assert_fails(device_probe("", &info, err), ERROR_INVALID, "unknown device \"\"");
    assert_fails(compiler_open("cpux", &c, err), ERROR_INVALID, "unknown device");
}

static void test_probe(void **state)
{
    (void)state;
    struct device_info info;
    assert_ok(device_probe("cpu:3", &info, err));
    assert_string_equal(info.kind, "cpu");
    assert_string_equal(info.uuid, "cpu");
    assert_int_equal(info.sm_count, 3);
    assert_true(info.name[0] && info.arch[0] && info.driver[0] && info.class[0]);
    assert_true(info.smem_optin >= 32 * 1024);
    assert_true(info.l2_bytes >= info.smem_optin);
    assert_true(info.memory_bytes > 0);
    assert_true(isfinite(info.peak_tflops) && info.peak_tflops > 0);
    assert_true(isfinite(info.peak_gbps) && info.peak_gbps > 0);
    assert_non_null(strstr(info.class, "/sm3/"));
    assert_non_null(strstr(info.compiler, "-O3 -march=native"));
}

/* ---- memory and time ------------------------------------------------------------------------- */

static double available_bytes(void)
{
    FILE *f = fopen("/proc/meminfo", "r");
    char line[128];
    double kib = 0;
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %lf", &kib) != 1) {
    }
    fclose(f);
    return kib * 1024;
}

/* The operands take 8 MiB; the lists of their rows take four times as much. */
static void
test_rows_that_the_host_has_no_memory_for_are_refused_before_they_are_drawn(void **state)
{
    (void)state;
    struct device *d;
    struct problem p;
    char share[32];
    assert_ok(device_open("cpu:1", &d, err));
    problem_of(&p, "grouped_gemm mode=forward M=2097152 N=1 K=1 experts=1024 topk=1");
    snprintf(share, sizeof(share), "%.9f", 18e6 / available_bytes());
    setenv("GEMMD_MEMORY_SHARE", share, 1);
    assert_fails(d->ops->fits(d, &grouped_gemm_family, &p, err), ERROR_NO_MEMORY, "MiB");
    unsetenv("GEMMD_MEMORY_SHARE");
    assert_ok(d->ops->fits(d, &grouped_gemm_family, &p, err));
    d->ops->close(d);
}

static void test_memory_share(void **state)
{
    (void)state;
    struct device *d;
    struct problem p;
    struct prepared *w = NULL;
    assert_ok(device_open("cpu:1", &d, err));
    problem_of(&p, "gemm mode=forward M=4096 N=512 K=512");
    setenv("GEMMD_MEMORY_SHARE", "0.000001", 1);
    assert_fails(d->ops->prepare(d, &grouped_gemm_family, &p, 1, &w, err), ERROR_NO_MEMORY,
                 "GEMMD_MEMORY_SHARE");
    assert_null(w);
    setenv("GEMMD_MEMORY_SHARE", "nonsense", 1); /* invalid: the default share holds */
    assert_ok(d->ops->prepare(d, &grouped_gemm_family, &p, 1, &w, err));
    d->ops->release(d, w);
    unsetenv("GEMMD_MEMORY_SHARE");
    /* This problem is refused by its size alone, before any routing is drawn. */
    problem_of(&p, "grouped_gemm mode=forward M=1073741824 N=512 K=512 experts=64 topk=2");
    assert_fails(d->ops->prepare(d, &grouped_gemm_family, &p, 1, &w, err), ERROR_NO_MEMORY, "MiB");
    d->ops->close(d);
}

static struct image compile_with(struct compiler *c, const char *problem, struct variant *v)
{
    struct problem p;
    struct record config;
    struct image image;
    problem_of(&p, problem);
    config_of(&config, TILE);
    assert_ok(grouped_gemm_cpu.variant(&p, &config, "x86_64", v, err));
    assert_ok(c->ops->compile(c, v, &image, err));
    return image;
}

static void test_time(void **state)
{
    (void)state;
    struct device *d;
    struct compiler *c;
    struct variant v;
    struct kernel *k;
    struct prepared *w;
    struct rejection why;
    struct problem p;
    struct record config;
    assert_ok(device_open("cpu:1", &d, err));
    assert_ok(compiler_open("cpu:1", &c, err));
    struct image image = compile_with(c, dense, &v);
    assert_ok(d->ops->load(d, &image, &v, &k, &why, err));
    problem_of(&p, dense);
    config_of(&config, TILE);
    assert_ok(d->ops->prepare(d, &grouped_gemm_family, &p, 1, &w, err));
    /* small operands have copies, so that launches do not find them in the cache */
    assert_true(w->n_copies > 1);
    assert_ptr_not_equal(w->buffers[0][0], w->buffers[1][0]);

    double samples[SAMPLES_MAX];
    uint32_t n = 0;
    struct timing t = {.warmup = 2, .samples = 10, .gap_ms = 0.1};
    assert_ok(d->ops->time(d, w, k, &config, &t, samples, &n, err));
    assert_int_equal(n, 10);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(samples[i] > 0 && samples[i] < 1e6);
    }
    t.stop_after_us = 1e-3; /* no kernel takes less than a nanosecond */
    assert_ok(d->ops->time(d, w, k, &config, &t, samples, &n, err));
    assert_int_equal(n, 1);
    double before = d->ops->clock_ms(d);
    assert_true(d->ops->clock_ms(d) >= before);
    d->ops->release(d, w);
    d->ops->release(d, NULL);
    d->ops->unload(d, k);
    image_deinit(&image);
    c->ops->close(c);
    d->ops->close(d);
}

static void test_bad_image(void **state)
{
    (void)state;
    struct device *d;
    struct compiler *c;
    struct variant v;
    struct kernel *k;
    struct rejection why;
    assert_ok(device_open("cpu:1", &d, err));
    assert_ok(compiler_open("cpu:1", &c, err));
    struct image image = compile_with(c, dense, &v);
    struct variant other = v;
    strcpy(other.entry, "no_such_entry");
    assert_fails(d->ops->load(d, &image, &other, &k, &why, err), ERROR_INVALID,
                 "no entry \"no_such_entry\"");
    memset(image.data, 'x', image.size);
    assert_fails(d->ops->load(d, &image, &v, &k, &why, err), ERROR_INVALID, "cannot be loaded");
    assert_null(k);
    image_deinit(&image);
    c->ops->close(c);
    d->ops->close(d);
}

/* ---- compilers ------------------------------------------------------------------------------- */

/* A program for GEMMD_CC, written for a single test. */
static void use_script(const char *body)
{
    static char path[64];
    strcpy(path, "/tmp/gemmd-cc-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s\n", body);
    fchmod(fd, 0700);
    close(fd);
    setenv("GEMMD_CC", path, 1);
}

static int drop_script(void **state)
{
    (void)state;
    if (getenv("GEMMD_CC")) {
        unlink(getenv("GEMMD_CC"));
        unsetenv("GEMMD_CC");
    }
    return 0;
}

static void test_missing_compiler(void **state)
{
    (void)state;
    struct compiler *c;
    struct device_info info;
    char *path = strdup(getenv("PATH"));
    setenv("PATH", "/nowhere:relative", 1);
    assert_fails(compiler_open("cpu", &c, err), ERROR_NO_COMPILER,
                 "no C compiler found: install gcc (apt-get install gcc) or set GEMMD_CC");
    /* the probe finds the device even without a compiler */
    assert_ok(device_probe("cpu:1", &info, err));
    assert_string_equal(info.compiler, "");
    setenv("PATH", path, 1);
    free(path);
    setenv("GEMMD_CC", "/no/such/cc", 1);
    assert_fails(compiler_open("cpu", &c, err), ERROR_NO_COMPILER, "GEMMD_CC is \"/no/such/cc\"");
    setenv("GEMMD_CC", "/bin/true", 1);
    assert_fails(compiler_open("cpu", &c, err), ERROR_NO_COMPILER, "does not tell its version");
    unsetenv("GEMMD_CC");
}

static void compile_fails(const char *script, int code, const char *part)
{
    struct compiler *c;
    struct variant v = {.kind = "cpu", .entry = "f", .options = "-DX=1", .source = "int f;\n"};
    struct image image;
    use_script(script);
    assert_ok(compiler_open("cpu", &c, err));
    assert_fails(c->ops->compile(c, &v, &image, err), code, part);
    assert_null(image.data);
    c->ops->close(c);
    drop_script(NULL);
}

/* With umask 0, cc makes a file that all users may write to; its folder keeps them out. */
static void test_a_loose_umask_refuses_no_output_of_the_compiler(void **state)
{
    (void)state;
    struct compiler *c;
    struct image image;
    const struct variant v = {.kind = "cpu", .entry = "f", .options = "", .source = "int f;\n"};
    const mode_t before = umask(0);
    assert_ok(compiler_open("cpu", &c, err));
    assert_ok(c->ops->compile(c, &v, &image, err));
    umask(before);
    assert_true(image.size > 0);
    image_deinit(&image);
    c->ops->close(c);
}

#define VERSION "case $1 in -dump*) echo 9.9.9; exit;; esac; "

static void test_compilers_that_fail(void **state)
{
    (void)state;
    compile_fails(VERSION "echo 'kernel.c:3: error: no such thing'; exit 1", ERROR_COMPILE,
                  "refused the variant: kernel.c:3: error: no such thing");
    compile_fails(VERSION "kill -SEGV $$", ERROR_COMPILE, "died of signal 11");
    compile_fails(VERSION "kill -KILL $$", ERROR_NO_MEMORY, "was killed");
    compile_fails(VERSION "exit 0", ERROR_COMPILE, "wrote no output");
}

/* cc ends normally, with a message that its part (cc1, ld) was killed or had no memory. The compile
 * fails, but the variant is not marked as refused. */
static void test_a_part_of_the_compiler_that_was_killed_refuses_nothing(void **state)
{
    (void)state;
    static const char *const words[] = {
        "collect2: fatal error: ld terminated with signal 9 [Killed]",
        "gcc: internal compiler error: Killed (program cc1)",
        "gcc: fatal error: Terminated signal terminated program as",
        "clang: error: unable to execute command: Killed",
        "kernel.c:3:1: error: out of memory",
        "/usr/bin/ld: final link failed: memory exhausted",
        "gcc: fatal error: cannot execute cc1: vfork: Resource temporarily unavailable",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        char script[256];
        snprintf(script, sizeof(script), VERSION "echo '%s' >&2; exit 1", words[i]);
        compile_fails(script, ERROR_NO_MEMORY, "killed, or had no memory");
    }
    compile_fails(VERSION "echo 'kernel.c:3:1: error: No space left on device' >&2; exit 1",
                  ERROR_DISK_FULL, "found no room");
}

static void test_version(void **state)
{
    (void)state;
    struct compiler *c;
    use_script(VERSION);
    assert_ok(compiler_open("cpu", &c, err));
    assert_non_null(strstr(c->ops->version(c), " 9.9.9 -O3 -march=native ("));
    c->ops->close(c);
    drop_script(NULL);
}

static void test_real_errors(void **state)
{
    (void)state;
    struct compiler *c;
    struct variant v = {.kind = "cpu",
                        .entry = "f",
                        .options = "-DX=1",
                        .source = "#include <stdint.h>\nint f(void) { return missing; }\n"};
    struct image image;
    struct error e = ERROR_NULL;
    assert_ok(compiler_open("cpu", &c, err));
    assert_int_equal(c->ops->compile(c, &v, &image, &e), ERROR_COMPILE);
    assert_non_null(strstr(e.text, "missing"));
    /* a private path means nothing to the reader of the message */
    assert_null(strstr(e.text, "/tmp"));
    assert_non_null(strstr(image.log, "missing"));
    v.source = "int f(void) { return X; }\n";
    assert_ok(c->ops->compile(c, &v, &image, err));
    assert_int_equal(image.meta.size, image.size);
    assert_string_equal(image.meta.flags, "-DX=1");
    assert_string_equal(image.meta.entry, "f");
    assert_true(image.meta.compile_ms > 0);
    struct image again;
    assert_ok(c->ops->compile(c, &v, &again, err));
    assert_string_equal(image.meta.id, again.meta.id); /* reproducible */
    image_deinit(&again);
    image_deinit(&image);
    c->ops->close(c);
}

static void test_temporary_folder(void **state)
{
    (void)state;
    struct compiler *c;
    struct variant v = {.kind = "cpu", .entry = "f", .source = "int f;\n"};
    struct image image;
    assert_ok(compiler_open("cpu", &c, err));
    setenv("TMPDIR", "/no/such/folder", 1);
    assert_fails(c->ops->compile(c, &v, &image, err), ERROR_IO, "/no/such/folder");
    unsetenv("TMPDIR");
    c->ops->close(c);
}

static void make_folder(const char *path, int age_s)
{
    char file[PATH_MAX];
    struct timespec then[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    snprintf(file, sizeof(file), "%s/cc1.s", path);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
}

/* Files that a compiler leaves beside its output are removed with it; files of killed processes
 * after an hour. Young files stay, and files that the name marks as another user's. */
static void test_files_that_compilers_leave(void **state)
{
    (void)state;
    char tmp[] = "/tmp/gemmd-scratch-XXXXXX", path[3][64];
    struct compiler *c;
    struct variant v = {.kind = "cpu", .entry = "f", .source = "int f;\n"};
    struct image image;
    static const char *const names[] = {"gemmd-cc-old", "gemmd-cc-new", "other-old"};
    static const int ages[] = {4000, 100, 4000};
    assert_non_null(mkdtemp(tmp));
    for (int i = 0; i < 3; i++) {
        snprintf(path[i], sizeof(path[i]), "%s/%s", tmp, names[i]);
        make_folder(path[i], ages[i]);
    }
    setenv("TMPDIR", tmp, 1);
    use_script(VERSION "echo x > $TMPDIR/left.o; exit 1");
    assert_ok(compiler_open("cpu", &c, err));
    assert_int_equal(access(path[0], F_OK), -1);
    assert_int_equal(access(path[1], F_OK), 0);
    assert_int_equal(access(path[2], F_OK), 0);
    scratch_remove(path[1]);
    scratch_remove(path[2]);
    assert_fails(c->ops->compile(c, &v, &image, err), ERROR_COMPILE, "");
    c->ops->close(c);
    drop_script(NULL);
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(tmp), 0); /* the folder is empty */
}

struct stopping {
    struct compiler *c;
    const struct variant *v;
};

static void *stop_soon(void *of)
{
    const struct stopping *s = of;
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    s->c->ops->stop(s->c, s->v);
    return NULL;
}

/* An abandoned compile ends with its children, before the compiler's own deadline; other compiles
 * go on. */
static void test_stop(void **state)
{
    (void)state;
    struct stopping s;
    struct variant v = {.kind = "cpu", .entry = "f", .source = "int f;\n"}, other = v;
    struct image image;
    pthread_t thread;
    use_script(VERSION "sleep 100 & wait");
    assert_ok(compiler_open("cpu", &s.c, err));
    s.c->ops->stop(s.c, &other); /* a stop of a variant that is not being compiled has no effect */
    s.v = &v;
    double began = device_clock_ms(NULL);
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, &s), 0);
    assert_fails(s.c->ops->compile(s.c, &v, &image, err), ERROR_HUNG, "the compiler was stopped");
    pthread_join(thread, NULL);
    assert_true(device_clock_ms(NULL) - began < 20000);
    assert_null(image.data);
    s.c->ops->close(s.c);
}

/* When another compiler replaces cc, its modules are not stored under the old version. When the
 * same compiler is installed again, its modules are stored. */
static void test_replaced(void **state)
{
    (void)state;
    static const char body[] =
        "#!/bin/sh\ncase $1 in -dump*) echo %s; exit;; esac; exec cc \"$@\"\n";
    struct compiler *c;
    struct variant v = {.kind = "cpu", .entry = "f", .source = "int f;\n"};
    struct image image;
    char beside[64];
    use_script(VERSION "exec cc \"$@\"");
    const char *path = getenv("GEMMD_CC");
    assert_ok(compiler_open("cpu", &c, err));
    assert_ok(c->ops->compile(c, &v, &image, err));
    image_deinit(&image);
    for (int other = 0; other < 2; other++) {
        snprintf(beside, sizeof(beside), "%s.new", path);
        int fd = open(beside, O_CREAT | O_WRONLY | O_EXCL, 0700);
        assert_true(fd >= 0);
        dprintf(fd, body, other ? "10.0.1" : "9.9.9");
        close(fd);
        assert_int_equal(rename(beside, path), 0);
        if (other) {
            assert_fails(c->ops->compile(c, &v, &image, err), ERROR_BUSY, "10.0.1");
            assert_null(image.data);
        } else {
            assert_ok(c->ops->compile(c, &v, &image, err));
            image_deinit(&image);
        }
    }
    c->ops->close(c);
}

/* The deadline also ends the children of a hanging compiler. */
static void test_spawn_limit(void **state)
{
    (void)state;
    char log[64];
    int status;
    const char *const argv[] = {"/bin/sh", "-c", "echo begun; sleep 100 & wait", NULL};
    double began = device_clock_ms(NULL);
    assert_fails(spawn_run(argv, NULL, 300, log, sizeof(log), &status, NULL, err), ERROR_HUNG,
                 "was killed");
    assert_true(device_clock_ms(NULL) - began < 20000);
    assert_string_equal(log, "begun\n");
    const char *const none[] = {"/no/such/program", NULL};
    assert_fails(spawn_run(none, NULL, 300, log, sizeof(log), &status, NULL, err), ERROR_IO,
                 "/no/such/program");
    const char *const loud[] = {"/bin/sh", "-c", "seq 100000; echo end >&2; exit 3", NULL};
    assert_ok(spawn_run(loud, NULL, 20000, log, sizeof(log), &status, NULL, err));
    assert_int_equal(strlen(log),
                     sizeof(log) -
                         1); /* the log is cut, and the rest of the output is read and dropped */
    assert_int_equal(status, 3 << 8);
}

static int setup(void **state)
{
    (void)state;
    families_register();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_specs),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_memory_share),
        cmocka_unit_test(
            test_rows_that_the_host_has_no_memory_for_are_refused_before_they_are_drawn),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_bad_image),
        cmocka_unit_test(test_missing_compiler),
        cmocka_unit_test(test_a_loose_umask_refuses_no_output_of_the_compiler),
        cmocka_unit_test_teardown(test_compilers_that_fail, drop_script),
        cmocka_unit_test_teardown(test_a_part_of_the_compiler_that_was_killed_refuses_nothing,
                                  drop_script),
        cmocka_unit_test_teardown(test_version, drop_script),
        cmocka_unit_test(test_real_errors),
        cmocka_unit_test(test_temporary_folder),
        cmocka_unit_test_teardown(test_files_that_compilers_leave, drop_script),
        cmocka_unit_test_teardown(test_stop, drop_script),
        cmocka_unit_test_teardown(test_replaced, drop_script),
        cmocka_unit_test(test_spawn_limit),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
