/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles by child processes (runner/compile/apart.h), over the stub of NVRTC: this program is its
 * own child, as gemmd-runner is. The stub records the process of each compile. */
#include "tests/unit/cuda/stubbed.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "runner/compile/apart.h"

/* Sanitizers end a faulting process in their own way, and start processes themselves. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

enum { THREADS = 8, EACH = 25, PIDS_MAX = THREADS * EACH, PATIENCE_MS = 30000 };

static const struct variant variant = {.family = "grouped_gemm",
                                       .kind = "cuda",
                                       .arch = "sm_90a",
                                       .entry = "grouped_gemm_second",
                                       .options = "-DBLOCK_SIZE_M=64 -DBLOCK_SIZE_N=128",
                                       .source = "/* \xc2\xb5s, \"quoted\" */",
                                       .source_hash = "0123456789abcdef0123456789abcdef"};

static char pids_path[64];

static struct compiler *open_one(bool children)
{
    struct compiler *c;
    struct error err = ERROR_NULL;
    snprintf(pids_path, sizeof(pids_path), "/tmp/gemmd-apart-%ld", (long)getpid());
    unlink(pids_path);
    setenv("GEMMD_STUB_PIDS", pids_path, 1);
    if (children) {
        apart_enable();
    }
    expect(apart_open("cuda:sm_90a", &c, &err), 0, &err, NULL);
    CHECK(c->ops->apart && strcmp(c->ops->suffix, "cubin") == 0);
    CHECK(strcmp(c->ops->version(c), "nvrtc 13.0") == 0);
    return c;
}

static void close_one(struct compiler *c)
{
    c->ops->close(c);
    unlink(pids_path);
    CHECK(waitpid(-1, NULL, WNOHANG) < 0); /* no child process is left */
}

/* Reads the ids of the processes that have compiled, in order. */
static int read_pids(pid_t pids[PIDS_MAX])
{
    FILE *f = fopen(pids_path, "r");
    int n = 0;
    long pid;
    while (f && n < PIDS_MAX && fscanf(f, "%ld", &pid) == 1) {
        pids[n++] = (pid_t)pid;
    }
    if (f) {
        fclose(f);
    }
    return n;
}

static int compile(struct compiler *c, struct image *out, struct error *err)
{
    return c->ops->compile(c, &variant, out, err);
}

static void compile_well(struct compiler *c)
{
    struct image image;
    struct error err = ERROR_NULL;
    expect(compile(c, &image, &err), 0, &err, NULL);
    CHECK(image.size > 0 && image.meta.registers == 64 &&
          strcmp(image.meta.compiler, "nvrtc 13.0") == 0);
    image_deinit(&image);
}

/* ---- results --------------------------------------------------------------------------------- */

static void same_image(const void *arg)
{
    (void)arg;
    pid_t pids[PIDS_MAX];
    struct image here, apart;
    struct error err = ERROR_NULL;
    struct compiler *c = open_one(false);
    expect(compile(c, &here, &err), 0, &err, NULL);
    CHECK(read_pids(pids) == 1 && pids[0] == getpid());
    close_one(c);
    c = open_one(true);
    expect(compile(c, &apart, &err), 0, &err, NULL);
    CHECK(read_pids(pids) == 1 && pids[0] != getpid());
    CHECK(apart.size == here.size && memcmp(apart.data, here.data, here.size) == 0);
    CHECK(strcmp(apart.log, here.log) == 0 && strstr(apart.log, "64 registers"));
    CHECK(!apart.refused && apart.meta.registers == 64 && apart.meta.compile_ms >= 0);
    apart.meta.compile_ms = here.meta.compile_ms; /* all other fields must be equal to the byte */
    apart.meta.created_s = here.meta.created_s;
    apart.meta.used_s = here.meta.used_s;
    CHECK(memcmp(&apart.meta, &here.meta, sizeof(here.meta)) == 0);
    image_deinit(&here);
    image_deinit(&apart);
    compile_well(c);
    CHECK(read_pids(pids) == 2 && pids[1] == pids[0]); /* the child is kept for the next compile */
    apart_quit();
    close_one(c);
}

static void test_same_image(void **state)
{
    (void)state;
    in_child(same_image, NULL);
}

struct outcome {
    const char *name, *value; /* environment variable */
    int code;
    bool refused;
    const char *words;
    int processes; /* number of processes that have tried */
};

/* Error messages are the same as from a compile in this process, and the next compile works. */
static void fails_once(const void *arg)
{
    const struct outcome *o = arg;
    pid_t pids[PIDS_MAX];
    struct image image;
    struct error err = ERROR_NULL;
    struct compiler *c = open_one(true);
    setenv(o->name, o->value, 1);
    expect(compile(c, &image, &err), o->code, &err, o->words);
    CHECK(image.refused == o->refused && !image.data && image.size == 0);
    CHECK(read_pids(pids) == o->processes &&
          (o->processes == 0 || pids[o->processes - 1] != getpid()));
    CHECK(o->processes < 2 || pids[0] != pids[1]);
    unsetenv(o->name);
    /* A running child still has the variables that this process has removed from its environment.
     */
    if (o->refused || o->processes == 0 || getenv("GEMMD_STUB_LOG")) {
        unsetenv("GEMMD_STUB_LOG");
        close_one(c);
        c = open_one(true);
    }
    compile_well(c);
    close_one(c);
}

static void test_failures(void **state)
{
    (void)state;
    static const struct outcome cases[] = {
        {"GEMMD_STUB_FAIL", "nvrtcCompileProgram:1:6", ERROR_COMPILE, true,
         "NVRTC_ERROR_COMPILATION", 1},
        {"GEMMD_STUB_FAIL", "nvrtcCreateProgram:1:1", ERROR_NO_MEMORY, false,
         "starting the compiler", 0},
        {"GEMMD_STUB_LOG", "ptxas info : 64 bytes spill stores, 64 bytes spill loads\n",
         ERROR_RESOURCE, true, "spill", 1},
#if !SANITIZED
        {"GEMMD_STUB_SIGNAL", "11", ERROR_CRASHED, false, "crashed: signal 11", 1},
#endif
        {"GEMMD_STUB_SIGNAL", "6", ERROR_CRASHED, false, "crashed: signal 6", 1},
        {"GEMMD_STUB_SIGNAL", "9", ERROR_NO_MEMORY, false, "killed twice (signal 9)", 2},
        {"GEMMD_STUB_SIGNAL", "2", ERROR_NO_MEMORY, false, "killed twice (signal 2)",
         2}, /* a signal from outside is not the compiler's fault */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        in_child(fails_once, &cases[i]);
    }
}

/* Messages of NVRTC 13.0 with less and less memory. NVRTC's code is that of a wrong program: only
 * the message tells. */
static void test_a_compiler_without_memory_refuses_nothing(void **state)
{
    (void)state;
    static const char failing[] = "GEMMD_STUB_FAIL", call[] = "nvrtcCompileProgram:1:6";
    static const struct outcome short_of = {failing,         call, ERROR_NO_MEMORY, false,
                                            "had no memory", 1};
    static const struct outcome refused = {
        failing, call, ERROR_COMPILE, true, "refused the variant", 1};
    static const struct outcome broken = {failing, "nvrtcCompileProgram:1:7", ERROR_NO_COMPILER,
                                          false,   "could not compile",       1};
    static const struct {
        const char *log;
        const struct outcome *outcome;
    } cases[] = {
        {"k.cu(1): catastrophic error: out of memory\n  float f(float x);\n", &short_of},
        {"ptxas fatal   : Ptx assembly aborted due to errors\n", &short_of},
        {"ptxas k.ptx, line 9; error   : Unknown symbol\n"
         "ptxas fatal   : Ptx assembly aborted due to errors\n",
         &refused},
        {"k.cu(1): error: identifier \"x\" is undefined\n", &refused},
        {"nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n", &broken},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        setenv("GEMMD_STUB_LOG", cases[i].log, 1);
        in_child(fails_once, cases[i].outcome);
    }
    unsetenv("GEMMD_STUB_LOG");
}

/* ---- children that end ----------------------------------------------------------------------- */

/* An idle child that ends, by any signal, does not affect the next variant. */
static void ends_idle(const void *arg)
{
    pid_t pids[PIDS_MAX];
    struct compiler *c = open_one(true);
    compile_well(c);
    CHECK(read_pids(pids) == 1 && kill(pids[0], *(const int *)arg) == 0);
    CHECK(waitid(P_PID, (id_t)pids[0], &(siginfo_t){.si_pid = 0}, WEXITED | WNOWAIT) == 0);
    compile_well(c);
    CHECK(read_pids(pids) == 2 && pids[1] != pids[0] && pids[1] != getpid());
    close_one(c);
}

static void test_idle(void **state)
{
    (void)state;
    static const int signals[] = {SIGKILL, SIGSEGV};
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        in_child(ends_idle, &signals[i]);
    }
}

static void *compile_hung(void *arg)
{
    struct image image;
    struct error err = ERROR_NULL;
    expect(compile(arg, &image, &err), ERROR_HUNG, &err, "stopped");
    CHECK(!image.data);
    return NULL;
}

/* An abandoned compile returns, and its process is gone. */
static void stops(const void *arg)
{
    (void)arg;
    pid_t pids[PIDS_MAX];
    pthread_t thread;
    struct compiler *c = open_one(true);
    struct variant other = variant;
    setenv("GEMMD_STUB_MS", "20000", 1);
    CHECK(pthread_create(&thread, NULL, compile_hung, c) == 0);
    for (int ms = 0; read_pids(pids) == 0 && ms < PATIENCE_MS; ms++) {
        usleep(1000);
    }
    CHECK(read_pids(pids) == 1);
    c->ops->stop(c, &other); /* stop() for a variant that is not being compiled */
    CHECK(waitpid(pids[0], NULL, WNOHANG) == 0);
    c->ops->stop(c, &variant);
    pthread_join(thread, NULL);
    unsetenv("GEMMD_STUB_MS");
    compile_well(c);
    close_one(c);
}

static void test_stop(void **state)
{
    (void)state;
    in_child(stops, NULL);
}

/* ---- when no child can start ----------------------------------------------------------------- */

/* Returns the number of lines on stderr while `c` compiles twice, both times in this process. */
static int lines_of_compiling_here(struct compiler *c)
{
    pid_t pids[PIDS_MAX];
    char path[] = "/tmp/gemmd-apart-said-XXXXXX";
    int lines = 0, was = dup(STDERR_FILENO), fd = mkstemp(path);
    CHECK(fd >= 0 && was >= 0 && dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    compile_well(c);
    compile_well(c);
    fflush(stderr);
    dup2(was, STDERR_FILENO);
    FILE *f = fdopen(fd, "r");
    rewind(f);
    for (int ch; (ch = fgetc(f)) != EOF;) {
        lines += ch == '\n';
    }
    fclose(f);
    unlink(path);
    int n = read_pids(pids);
    CHECK(n >= 2 && pids[n - 1] == getpid() && pids[n - 2] == getpid());
    return lines;
}

static void no_process(const void *arg)
{
    (void)arg;
    struct compiler *c = open_one(true);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) { /* root may always start a process */
        exit(1);
    }
    unlink(pids_path);
    snprintf(pids_path, sizeof(pids_path), "/tmp/gemmd-apart-nobody-%ld", (long)getpid());
    setenv("GEMMD_STUB_PIDS", pids_path, 1);
    CHECK(setrlimit(RLIMIT_NPROC, &none) == 0);
    CHECK(lines_of_compiling_here(c) == 1);
    close_one(c);
}

static void cannot_begin(const void *arg)
{
    (void)arg;
    struct compiler *c = open_one(true);
    setenv("GEMMD_NVRTC", "/no/such/libnvrtc.so", 1);
    CHECK(lines_of_compiling_here(c) == 2); /* the child's, and ours */
    close_one(c);
}

/* NVRTC was replaced after `c` was opened: a child would load another version than the stamp of the
 * modules names, so this process compiles. */
static void replaced(const void *arg)
{
    (void)arg;
    struct compiler *c = open_one(true);
    setenv("GEMMD_STUB_NVRTC", "12090", 1);
    CHECK(lines_of_compiling_here(c) == 1);
    close_one(c);
}

static void test_compiles_here(void **state)
{
    (void)state;
    if (!SANITIZED) {
        in_child(no_process, NULL);
    }
    in_child(cannot_begin, NULL);
    in_child(replaced, NULL);
}

/* ---- many at a time -------------------------------------------------------------------------- */

static void *compile_some(void *arg)
{
    for (int i = 0; i < EACH; i++) {
        compile_well(arg);
    }
    return NULL;
}

static void many(const void *arg)
{
    (void)arg;
    pid_t pids[PIDS_MAX], different[PIDS_MAX];
    pthread_t threads[THREADS];
    int n, found = 0;
    setenv("GEMMD_STUB_MS", "10", 1);
    struct compiler *c = open_one(true);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, compile_some, c) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    n = read_pids(pids);
    CHECK(n == THREADS * EACH);
    for (int i = 0; i < n; i++) {
        int known = 0;
        while (known < found && different[known] != pids[i]) {
            known++;
        }
        CHECK(pids[i] != getpid());
        different[known] = pids[i];
        found += known == found;
    }
    /* compiles run in parallel, with no more children than calls */
    CHECK(found > 1 && found <= THREADS);
    close_one(c);
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
        cmocka_unit_test(test_same_image),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_a_compiler_without_memory_refuses_nothing),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_compiles_here),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
