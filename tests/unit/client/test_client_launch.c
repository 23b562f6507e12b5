/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel of the CPU, compiled here, served by the fake daemon, loaded and launched by gemmd.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/gemmd.h"
#include "kernels/device.h"
#include "kernels/launcher.h"
#include "tests/unit/client/fake.h"

/* gemmd.h repeats error codes and the launch ABI of inner headers, since it includes none of
 * them. */
#define SAME(name) _Static_assert((int)GEMMD_##name == (int)ERROR_##name, "gemmd.h: " #name)
SAME(INTERNAL);
SAME(INVALID);
SAME(UNKNOWN_METHOD);
SAME(UNKNOWN_OP);
SAME(UNKNOWN_FIELD);
SAME(CONFLICT);
SAME(MALFORMED);
SAME(TOO_LARGE);
_Static_assert((int)GEMMD_VERSION_MISMATCH == (int)ERROR_VERSION, "gemmd.h: VERSION_MISMATCH");
SAME(NOT_FOUND);
SAME(DENIED);
SAME(BUSY);
SAME(DEADLINE);
SAME(CANCELLED);
SAME(NO_CONFIG);
SAME(NO_DEVICE);
SAME(DEVICE_LOST);
SAME(NO_COMPILER);
SAME(COMPILE);
SAME(RESOURCE);
SAME(WRONG_RESULT);
SAME(HUNG);
SAME(CRASHED);
SAME(NO_MEMORY);
SAME(DISK_FULL);
SAME(STORE);
SAME(IO);
SAME(UNREACHABLE);
SAME(DISCONNECTED);
SAME(SHUTTING_DOWN);
SAME(QUARANTINED);

/* A code added to proto/error.h must be added to the list above and to gemmd.h. */
#define COUNT(name, code, text, survives) +1
_Static_assert((0 ERROR_LIST(COUNT)) == 31, "gemmd.h lacks a code of proto/error.h");

_Static_assert(sizeof(((struct gemmd_error *)0)->text) == ERROR_TEXT_MAX, "gemmd.h: error text");

#define SAME_FIELD(s, f)                                                                           \
    _Static_assert(offsetof(struct gemmd_##s, f) == offsetof(struct s, f) &&                       \
                       sizeof(((struct gemmd_##s *)0)->f) == sizeof(((struct s *)0)->f),           \
                   "gemmd.h: struct gemmd_" #s "." #f)
SAME_FIELD(grouped_gemm_args, size);
SAME_FIELD(grouped_gemm_args, flags);
SAME_FIELD(grouped_gemm_args, x);
SAME_FIELD(grouped_gemm_args, w);
SAME_FIELD(grouped_gemm_args, dy);
SAME_FIELD(grouped_gemm_args, out);
SAME_FIELD(grouped_gemm_args, x_stride);
SAME_FIELD(grouped_gemm_args, w_stride);
SAME_FIELD(grouped_gemm_args, w_stride_expert);
SAME_FIELD(grouped_gemm_args, dy_stride);
SAME_FIELD(grouped_gemm_args, out_stride);
SAME_FIELD(grouped_gemm_args, out_stride_expert);
SAME_FIELD(grouped_gemm_args, m_sizes);
SAME_FIELD(grouped_gemm_args, gather_indices);
SAME_FIELD(grouped_gemm_args, topk_weights);
SAME_FIELD(grouped_gemm_args, m_sizes_dtype);
SAME_FIELD(grouped_gemm_args, gather_dtype);
SAME_FIELD(grouped_gemm_args, weights_dtype);
SAME_FIELD(grouped_gemm_args, sms);
SAME_FIELD(grouped_gemm_args, rows);
SAME_FIELD(grouped_gemm_args, workspace);
SAME_FIELD(grouped_gemm_args, workspace_bytes);
SAME_FIELD(grouped_gemm_args, stream);
SAME_FIELD(grouped_gemm_args, x_scale);
SAME_FIELD(grouped_gemm_args, w_scale);
SAME_FIELD(grouped_gemm_args, dy_scale);
SAME_FIELD(grouped_gemm_args, x_scale_stride);
SAME_FIELD(grouped_gemm_args, x_scale_stride_block);
SAME_FIELD(grouped_gemm_args, w_scale_stride);
SAME_FIELD(grouped_gemm_args, w_scale_stride_block);
SAME_FIELD(grouped_gemm_args, w_scale_stride_expert);
SAME_FIELD(grouped_gemm_args, dy_scale_stride);
SAME_FIELD(grouped_gemm_args, dy_scale_stride_block);
_Static_assert(sizeof(struct gemmd_grouped_gemm_args) == sizeof(struct grouped_gemm_args),
               "gemmd.h: struct gemmd_grouped_gemm_args");
SAME_FIELD(quantise_args, size);
SAME_FIELD(quantise_args, flags);
SAME_FIELD(quantise_args, x);
SAME_FIELD(quantise_args, q);
SAME_FIELD(quantise_args, scales);
SAME_FIELD(quantise_args, q_t);
SAME_FIELD(quantise_args, scales_t);
SAME_FIELD(quantise_args, x_stride);
SAME_FIELD(quantise_args, q_stride);
SAME_FIELD(quantise_args, scales_row_stride);
SAME_FIELD(quantise_args, scales_block_stride);
SAME_FIELD(quantise_args, q_t_stride);
SAME_FIELD(quantise_args, scales_t_stride);
SAME_FIELD(quantise_args, padded);
SAME_FIELD(quantise_args, m_sizes);
SAME_FIELD(quantise_args, gather_indices);
SAME_FIELD(quantise_args, m_sizes_dtype);
SAME_FIELD(quantise_args, gather_dtype);
SAME_FIELD(quantise_args, eps);
SAME_FIELD(quantise_args, reserved);
SAME_FIELD(quantise_args, rows);
SAME_FIELD(quantise_args, workspace);
SAME_FIELD(quantise_args, workspace_bytes);
SAME_FIELD(quantise_args, stream);
_Static_assert(sizeof(struct gemmd_quantise_args) == sizeof(struct quantise_args),
               "gemmd.h: struct gemmd_quantise_args");
_Static_assert((int)GEMMD_BF16 == (int)DTYPE_BF16 && (int)GEMMD_FP16 == (int)DTYPE_FP16 &&
                   (int)GEMMD_FP32 == (int)DTYPE_FP32 && (int)GEMMD_INT32 == (int)DTYPE_INT32 &&
                   (int)GEMMD_INT64 == (int)DTYPE_INT64,
               "gemmd.h: enum gemmd_dtype");
_Static_assert((int)GEMMD_ACCUMULATE == (int)GROUPED_GEMM_ACCUMULATE, "gemmd.h: GEMMD_ACCUMULATE");
_Static_assert((int)GEMMD_ENDS == (int)GROUPED_GEMM_ENDS && (int)GEMMD_ENDS == (int)QUANTISE_ENDS,
               "gemmd.h: GEMMD_ENDS");

enum { M = 32, N = 16, K = 64 };

static struct image image;
/* the fake answers a request for the image with this error; 0: it sends the image */
static atomic_int gone;
static struct gemmd_answer answer = GEMMD_ANSWER_INIT;

static void serve_module(struct fake *f, int fd, const struct rpc_message *m)
{
    (void)f;
    int64_t offset = 0;
    if (gone) {
        fake_error(fd, m->id, gone, "the cache was emptied");
        return;
    }
    wire_get_int(wire_find(m->params, "offset"), &offset);
    size_t n = image.size - (size_t)offset;
    n = n > MODULE_CHUNK_BYTES ? MODULE_CHUNK_BYTES : n;
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, m->id);
    wire_put_map(&b, 2);
    wire_put_kv_int(&b, "size", (int64_t)image.size);
    wire_put_str(&b, "data");
    wire_put_bin(&b, (char *)image.data + offset, n);
    fake_send(fd, &b);
}

static struct gemmd_problem problem(void)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    p.dtype_in = "fp32";
    p.m = M;
    p.n = N;
    p.k = K;
    return p;
}

static void compile_default(void)
{
    struct error e;
    struct problem p;
    struct device_info info;
    struct record config;
    struct variant v;
    struct compiler *c;
    families_register();
    assert_int_equal(problem_parse(&p, "gemm mode=forward M=32 N=16 K=64 dtype_in=fp32", &e), 0);
    const struct family *family = family_of_problem(&p);
    assert_int_equal(cpu_launch_backend.info(&info, &e), 0);
    const struct family_target *t = family_target_find(family, &info, NULL);
    assert_non_null(t);
    assert_int_equal(t->choose(&p, &info, &config, &e), 0);
    assert_int_equal(t->variant(&p, &config, info.arch, &v, &e), 0);
    if (compiler_open("cpu", &c, &e) || c->ops->compile(c, &v, &image, &e)) {
        fail_msg("%s", e.text);
    }
    c->ops->close(c);
    snprintf(answer.tier, sizeof(answer.tier), "exact");
    snprintf(answer.module, sizeof(answer.module), "%s", image.meta.id);
    record_format(&config, answer.config, sizeof(answer.config));
}

static struct fake fake;
static struct gemmd *g;

static int setup(void **state)
{
    (void)state;
    compile_default();
    fake_path(fake.path);
    fake.handler = serve_module;
    fake_start(&fake);
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.socket = fake.path;
    return gemmd_connect(&g, &o, NULL);
}

static int teardown(void **state)
{
    (void)state;
    g = gemmd_close(g);
    fake_stop(&fake);
    fake_path_remove(fake.path);
    image_deinit(&image);
    return 0;
}

static float x[M * K], w[N * K], out[M * N];

static struct gemmd_kernel *load(void)
{
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = NULL;
    struct gemmd_error e;
    if (gemmd_kernel_load(g, &p, &answer, &k, &e)) {
        fail_msg("%s", e.text);
    }
    return k;
}

static void fill(void)
{
    for (int i = 0; i < M * K; i++) {
        x[i] = (float)(i % 7) - 3;
    }
    for (int i = 0; i < N * K; i++) {
        w[i] = (float)(i % 5) - 2;
    }
    memset(out, 0, sizeof(out));
}

static struct gemmd_grouped_gemm_args arguments(void)
{
    struct gemmd_grouped_gemm_args args = GEMMD_GROUPED_GEMM_ARGS_INIT;
    args.x = x;
    args.w = w;
    args.out = out;
    args.rows = M;
    return args;
}

static void check_result(void)
{
    for (int m = 0; m < M; m++) {
        for (int n = 0; n < N; n++) {
            float sum = 0; /* exact in any order of addition: x and w are small whole numbers */
            for (int i = 0; i < K; i++) {
                sum += x[m * K + i] * w[n * K + i];
            }
            assert_true(out[m * N + n] == sum);
        }
    }
}

static void launch_and_check(struct gemmd_kernel *k)
{
    struct gemmd_grouped_gemm_args args = arguments();
    struct gemmd_error e;
    int64_t bytes = -1;
    fill();
    assert_int_equal(gemmd_kernel_workspace(k, &args, &bytes, &e), 0);
    assert_true(bytes >= 0);
    void *workspace = bytes > 0 ? aligned_alloc(256, (size_t)(bytes + 255) / 256 * 256) : NULL;
    args.workspace = workspace;
    args.workspace_bytes = bytes;
    if (gemmd_kernel_launch(k, &args, &e)) {
        fail_msg("%s", e.text);
    }
    check_result();
    free(workspace);
}

static void test_launch(void **state)
{
    (void)state;
    struct gemmd_kernel *k = load();
    struct gemmd_error e;
    launch_and_check(k);
    struct gemmd_grouped_gemm_args args = arguments();
    args.out = NULL;
    assert_int_equal(gemmd_kernel_launch(k, &args, &e), GEMMD_INVALID);
    args.out = out;
    args.size = 4;
    assert_int_equal(gemmd_kernel_launch(k, &args, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_kernel_launch(k, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_kernel_launch(NULL, &args, &e), GEMMD_INVALID);
    assert_null(gemmd_kernel_free(k));
    assert_null(gemmd_kernel_free(NULL));
}

static atomic_int caught;

static void catch (int signal)
{
    (void)signal;
    atomic_fetch_add(&caught, 1);
}

/* All threads of the job block a signal, to handle it later. A thread of libgemmd must not
 * handle it either. */
static void test_no_thread_takes_a_signal(void **state)
{
    (void)state;
    struct sigaction act = {.sa_handler = catch}, before;
    sigset_t one, waiting;
    struct gemmd_kernel *k = load();
    launch_and_check(k); /* now the kernel's threads exist */
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, NULL), 0);
    assert_int_equal(kill(getpid(), SIGUSR1), 0);
    fake_sleep_ms(20);
    assert_int_equal(atomic_load(&caught), 0);
    sigpending(&waiting);
    assert_true(sigismember(&waiting, SIGUSR1));
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
    assert_int_equal(atomic_load(&caught), 1);
    sigaction(SIGUSR1, &before, NULL);
    gemmd_kernel_free(k);
}

/* A forked child has no threads that run CPU kernels. */
static void test_launch_in_a_forked_child(void **state)
{
    (void)state;
    struct gemmd_kernel *k = load();
    launch_and_check(k);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        launch_and_check(k);
        launch_and_check(k);
        gemmd_kernel_free(k);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    child = fork();
    if (child == 0) { /* unloads without a launch */
        alarm(20);
        gemmd_kernel_free(k);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    launch_and_check(k);
    gemmd_kernel_free(k);
}

static atomic_bool slowly, joining;

/* Replaces pthread_join of the C library: ending a thread becomes slow. */
int pthread_join(pthread_t thread, void **result)
{
    void *symbol = dlsym(RTLD_NEXT, "pthread_join");
    int (*next)(pthread_t, void **) = (int (*)(pthread_t, void **))(uintptr_t)symbol;
    if (slowly) {
        joining = true;
        fake_sleep_ms(50);
    }
    return next(thread, result);
}

static void *free_kernel(void *k)
{
    gemmd_kernel_free(k);
    return NULL;
}

/* Freeing the last CPU kernel ends the kernels' threads; the process forks meanwhile. The fork may
 * happen while the other thread is in free(). ASan of GCC 12 does not prepare its allocator for
 * forks as the C library does: the child then waits for the allocator for ever, once in some
 * hundred runs. */
static void test_a_fork_while_the_last_kernel_is_freed(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    struct gemmd_kernel *k = load();
    launch_and_check(k);
    slowly = true;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_kernel, k), 0);
    while (!joining) {
        fake_sleep_ms(1);
    }
    pid_t child = fork();
    if (child == 0) {
        slowly = false;
        alarm(20);
        k = load();
        launch_and_check(k);
        gemmd_kernel_free(k);
        _exit(0);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    pthread_join(thread, NULL);
    slowly = joining = false;
    k = load();
    launch_and_check(k);
    gemmd_kernel_free(k);
}

/* ---- compiled here --------------------------------------------------------------------------- */

#define CACHE_TEMPLATE "/tmp/gemmd-test-XXXXXX"

/* Makes a cache directory for this test alone. */
static void use_cache(char *cache)
{
    assert_non_null(mkdtemp(cache));
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_CACHE_HOME", cache, 1);
}

static void check_kept(const char *cache)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/gemmd/modules/%.32s.so", cache, answer.module);
    assert_int_equal(access(path, R_OK), 0);
}

static void drop_cache(const char *cache)
{
    char command[64];
    snprintf(command, sizeof(command), "rm -r %s", cache);
    assert_int_equal(system(command), 0);
}

static void test_compiled_without_a_daemon(void **state)
{
    (void)state;
    char cache[] = CACHE_TEMPLATE;
    use_cache(cache);
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = NULL;
    struct gemmd_error e;
    const char *configs[] = {NULL, "", answer.config};
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        if (gemmd_kernel_compile("cpu", &p, configs[i], &k, &e)) {
            fail_msg("%s", e.text);
        }
        launch_and_check(k);
        gemmd_kernel_free(k);
    }
    check_kept(cache); /* the image is in the cache that the daemon and other ranks use */
    drop_cache(cache);
}

static void compile_and_launch(void)
{
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = NULL;
    struct gemmd_error e;
    if (gemmd_kernel_compile("cpu", &p, NULL, &k, &e)) {
        fail_msg("%s", e.text);
    }
    launch_and_check(k);
    gemmd_kernel_free(k);
}

/* No cache directory can be made, as for a user without a home: each process compiles. */
static void test_compiled_without_a_cache(void **state)
{
    (void)state;
    char longer[2000];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[0] = '/';
    longer[sizeof(longer) - 1] = '\0';
    setenv("GEMMD_SYSTEM", "0", 1);
    setenv("XDG_CACHE_HOME", longer, 1);
    compile_and_launch();
    gone = ERROR_NOT_FOUND; /* the daemon lacks the image: libgemmd compiles the answer's kernel */
    struct gemmd_kernel *k = load();
    launch_and_check(k);
    gemmd_kernel_free(k);
    gone = 0;
}

/* An image that other users may write to is not loaded: they could replace the kernel. */
static void test_a_cache_of_others_is_not_used(void **state)
{
    (void)state;
    char cache[] = CACHE_TEMPLATE, path[64];
    use_cache(cache);
    snprintf(path, sizeof(path), "%s/gemmd", cache);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chmod(path, 0770), 0);
    compile_and_launch();
    assert_int_equal(rmdir(path), 0); /* nothing was written into the unsafe folder */
    compile_and_launch();
    check_kept(cache);
    drop_cache(cache);
}

static void test_a_kernel_that_cannot_be_compiled(void **state)
{
    (void)state;
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = (struct gemmd_kernel *)&p;
    struct gemmd_error e;
    assert_true(gemmd_kernel_compile("cpu", &p, "BLOCK_SIZE_M=3", &k, &e) < 0);
    assert_null(k);
    assert_non_null(strstr(e.text, "not one of this library's kernels"));
    assert_int_equal(gemmd_kernel_compile("cuda:0", &p, NULL, &k, &e), GEMMD_NO_DEVICE);
    assert_int_equal(gemmd_kernel_compile("cpu", &p, NULL, NULL, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_kernel_compile("cpu", NULL, NULL, &k, &e), GEMMD_INVALID);
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_kernel_compile("cpu", &p, NULL, &k, &e), GEMMD_UNKNOWN_OP);
}

/* ---- loaded ---------------------------------------------------------------------------------- */

/* Another build's kernel may read its arguments differently. */
static void test_a_kernel_of_other_sources_is_refused(void **state)
{
    (void)state;
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k;
    struct gemmd_error e;
    struct gemmd_answer other = answer;
    snprintf(other.stamp, sizeof(other.stamp), "src=0123456789ab abi=1 target=cpu compiler=cc");
    assert_int_equal(gemmd_kernel_load(g, &p, &other, &k, &e), GEMMD_VERSION_MISMATCH);
    assert_non_null(strstr(e.text, "other sources"));
    /* a caller compiled before struct gemmd_answer had a stamp */
    other.size = offsetof(struct gemmd_answer, stamp);
    assert_int_equal(gemmd_kernel_load(g, &p, &other, &k, &e), 0);
    gemmd_kernel_free(k);
    struct device_info info;
    assert_int_equal(cpu_launch_backend.info(&info, NULL), 0);
    snprintf(info.compiler, sizeof(info.compiler), "another cc");
    other = answer;
    family_stamp(families[0], family_target_find(families[0], &info, NULL), &info, other.stamp);
    assert_int_equal(gemmd_kernel_load(g, &p, &other, &k, &e), 0);
    gemmd_kernel_free(k);
}

static void test_kernel_outlives_the_handle(void **state)
{
    (void)state;
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *other = NULL;
    struct gemmd_kernel *k = NULL;
    struct gemmd_problem p = problem();
    o.socket = fake.path;
    assert_int_equal(gemmd_connect(&other, &o, NULL), 0);
    assert_int_equal(gemmd_kernel_load(other, &p, &answer, &k, NULL), 0);
    gemmd_close(other);
    launch_and_check(k);
    gemmd_kernel_free(k);
}

/* libgemmd compiles the kernel again: the cache directory was emptied, or was not writable when the
 * answer was found. */
static void test_a_kernel_that_is_gone_is_made_again(void **state)
{
    (void)state;
    char cache[] = CACHE_TEMPLATE;
    use_cache(cache);
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = NULL;
    struct gemmd_error e;
    struct gemmd_answer never = answer;
    never.module[0] = '\0';
    static const int reasons[] = {ERROR_IO, ERROR_NOT_FOUND};
    for (int i = 0; i < 2; i++) {
        gone = reasons[i];
        launch_and_check(k = load());
        gemmd_kernel_free(k);
    }
    check_kept(cache);
    assert_int_equal(gemmd_kernel_load(g, &p, &never, &k, &e), 0);
    launch_and_check(k);
    gemmd_kernel_free(k);
    struct gemmd_answer bad = answer;
    snprintf(bad.config, sizeof(bad.config), "BLOCK_SIZE_M=3");
    assert_int_equal(gemmd_kernel_load(g, &p, &bad, &k, &e), GEMMD_NOT_FOUND);
    assert_non_null(strstr(e.text, "emptied"));
    assert_non_null(strstr(e.text, "nor can it be compiled here"));
    /* an answer of tier "default" has no module, and libgemmd compiles none for it */
    snprintf(bad.tier, sizeof(bad.tier), "default");
    bad.module[0] = '\0';
    assert_int_equal(gemmd_kernel_load(g, &p, &bad, &k, &e), GEMMD_NOT_FOUND);
    gone = 0;
    drop_cache(cache);
}

static void test_a_kernel_that_cannot_be_loaded(void **state)
{
    (void)state;
    struct gemmd_problem p = problem();
    struct gemmd_kernel *k = (struct gemmd_kernel *)&p;
    struct gemmd_answer bad = answer;
    struct gemmd_error e;
    bad.module[0] = '\0'; /* the analytic default names no module */
    snprintf(bad.tier, sizeof(bad.tier), "default");
    assert_int_equal(gemmd_kernel_load(g, &p, &bad, &k, &e), GEMMD_NOT_FOUND);
    assert_null(k);
    bad = answer;
    bad.module[0] = bad.module[0] == '0' ? '1' : '0';
    assert_int_equal(gemmd_kernel_load(g, &p, &bad, &k, &e), GEMMD_STORE);
    bad = answer;
    snprintf(bad.config, sizeof(bad.config), "BLOCK_SIZE_M=3");
    assert_true(gemmd_kernel_load(g, &p, &bad, &k, &e) < 0);
    assert_null(k);
    p.text = "custom:sort n=1";
    assert_int_equal(gemmd_kernel_load(g, &p, &answer, &k, &e), GEMMD_UNKNOWN_OP);
    assert_int_equal(gemmd_kernel_load(g, NULL, &answer, &k, &e), GEMMD_INVALID);
    assert_int_equal(gemmd_kernel_load(NULL, &p, &answer, &k, &e), GEMMD_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_no_thread_takes_a_signal),
        cmocka_unit_test(test_launch_in_a_forked_child),
        cmocka_unit_test(test_a_fork_while_the_last_kernel_is_freed),
        cmocka_unit_test(test_compiled_without_a_daemon),
        cmocka_unit_test(test_compiled_without_a_cache),
        cmocka_unit_test(test_a_cache_of_others_is_not_used),
        cmocka_unit_test(test_a_kernel_that_cannot_be_compiled),
        cmocka_unit_test(test_a_kernel_of_other_sources_is_refused),
        cmocka_unit_test(test_kernel_outlives_the_handle),
        cmocka_unit_test(test_a_kernel_that_is_gone_is_made_again),
        cmocka_unit_test(test_a_kernel_that_cannot_be_loaded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
