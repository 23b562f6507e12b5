/* SPDX-License-Identifier: Apache-2.0 */
/* The replay device alone: accepted and refused landscapes, times, faults. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/devices/replay/reader.h"
#include "kernels/devices/replay/replay.h"

#define HEADER                                                                                     \
    "{\"gemmd_landscape\": 1, \"note\": \"by hand\", \"device\": {\"kind\": \"cpu\", \"name\": "   \
    "\"Test CPU\", \"uuid\": \"cpu\", \"arch\": \"x86_64\", \"sm_count\": 2, \"smem_optin\": "     \
    "1048576, \"memory_bytes\": 1073741824, \"peak_tflops\": 0.2, \"peak_gbps\": 20, "             \
    "\"compiler\": \"cc 12\"}}\n"
#define PROBLEM "{\"problem\": \"grouped_gemm mode=forward M=64 N=64 K=64 experts=4\"}\n"
#define CONFIG_A                                                                                   \
    "BLOCK_SIZE_K=64 BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 GROUP_SIZE_M=1 transpose_w=true "             \
    "unroll_cols=1 unroll_rows=4 vector_width=16"
#define CONFIG_B                                                                                   \
    "BLOCK_SIZE_K=64 BLOCK_SIZE_M=16 BLOCK_SIZE_N=64 GROUP_SIZE_M=1 transpose_w=true "             \
    "unroll_cols=1 unroll_rows=4 vector_width=16"
#define HOPPER_HEADER                                                                              \
    "{\"gemmd_landscape\": 1, \"device\": {\"kind\": \"cuda\", \"name\": \"h\", \"arch\": "        \
    "\"sm_90a\", "                                                                                 \
    "\"sm_count\": 132, \"cc_major\": 9, \"cc_minor\": 0, \"smem_optin\": 232448}}\n"
#define HOPPER_CONFIG                                                                              \
    "BLOCK_SIZE_K=64 BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8 num_stages=4 "                    \
    "schedule=cooperative"
#define ENTRY_A "{\"config\": \"" CONFIG_A "\", \"samples_us\": [10, 11, 12, 13]}\n"

struct world {
    char *folder;
    char spec[600];
    struct device *device;
    struct compiler *compiler;
    const struct family_target *target;
    struct problem problem;
    struct prepared *prepared;
};

static const char *spec_of(struct world *w, const char *content)
{
    snprintf(w->spec, sizeof(w->spec), "replay:%s",
             folder_file(w->folder, "small test.jsonl", content));
    return w->spec;
}

static void open_world(struct world *w, const char *content)
{
    struct error err = ERROR_NULL;
    families_register();
    memset(w, 0, sizeof(*w));
    w->folder = folder_make();
    if (device_open(spec_of(w, content), &w->device, &err) ||
        compiler_open(w->spec, &w->compiler, &err) ||
        problem_parse(&w->problem, "grouped_gemm mode=forward M=64 N=64 K=64 experts=4", &err)) {
        fail_msg("%s", err.text);
    }
    w->target = family_target_find(family_of_problem(&w->problem), &w->device->info, NULL);
    assert_non_null(w->target);
}

static int prepare(struct world *w, uint64_t seed, struct error *err)
{
    return w->device->ops->prepare(w->device, family_of_problem(&w->problem), &w->problem, seed,
                                   &w->prepared, err);
}

static void close_world(struct world *w)
{
    if (w->prepared) {
        w->device->ops->release(w->device, w->prepared);
    }
    w->device->ops->close(w->device);
    w->compiler->ops->close(w->compiler);
    folder_remove(w->folder);
}

static void config_of(const char *text, struct record *out)
{
    struct error err;
    assert_int_equal(record_parse(out, text, &err), 0);
}

static int compile_and_load(struct world *w, const char *text, struct kernel **k,
                            struct rejection *why, struct error *err)
{
    struct record config;
    struct variant v;
    struct image image;
    config_of(text, &config);
    assert_int_equal(w->target->variant(&w->problem, &config, "x86_64", &v, err), 0);
    int r = w->compiler->ops->compile(w->compiler, &v, &image, err);
    if (r == 0) {
        r = w->device->ops->load(w->device, &image, &v, k, why, err);
        image_deinit(&image);
    }
    return r;
}

static int times(struct world *w, struct kernel *k, const char *text, double stop,
                 double out[SAMPLES_MAX], uint32_t *n, struct error *err)
{
    struct record config;
    struct timing t = {.warmup = 2, .samples = 30, .stop_after_us = stop, .gap_ms = 2};
    config_of(text, &config);
    return w->device->ops->time(w->device, w->prepared, k, &config, &t, out, n, err);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void test_what_the_device_says_it_is(void **state)
{
    (void)state;
    struct world w;
    struct device_info info;
    struct error err;
    open_world(&w, HEADER "# a comment\n\n" PROBLEM ENTRY_A);
    assert_string_equal(w.device->info.kind, "cpu");
    assert_string_equal(w.device->info.uuid, "replay-small_test");
    assert_memory_equal(w.device->info.class, "replay:Test CPU/", 16);
    assert_string_equal(w.device->info.compiler, "replay cc 12");
    assert_string_equal(w.compiler->ops->version(w.compiler), "replay cc 12");
    assert_int_equal(device_probe(w.spec, &info, &err), 0);
    assert_string_equal(info.class, w.device->info.class);
    close_world(&w);
}

static void test_bad_files(void **state)
{
    (void)state;
    const struct {
        const char *content, *sentence;
    } cases[] = {
        {"", "is empty"},
        {"{}\n", "\"gemmd_landscape\": 1"},
        {"{\"gemmd_landscape\": 3}\n", "line 1: the first line"},
        {"{\"gemmd_landscape\": 1, \"device\": {\"kind\": \"abacus\"}}\n", "\"abacus\""},
        {"{\"gemmd_landscape\": 1, \"device\": {\"kindd\": \"cpu\"}}\n", "kindd"},
        {HEADER ENTRY_A, "line 2: a config must stand below its problem"},
        {HEADER "{\"problem\": \"grouped_gemm mode=sideways M=8 N=8 K=8\"}\n", "sideways"},
        {HEADER PROBLEM "{\"config\": \"A=1\"}\n", "at least one time"},
        {HEADER PROBLEM "{\"config\": \"A=1\", \"samples_us\": [1, -1]}\n", "element 1"},
        {HEADER PROBLEM "{\"config\": \"A=1\", \"status\": \"sad\"}\n", "unknown status \"sad\""},
        {HEADER PROBLEM "{\"fault\": \"explode\"}\n", "unknown fault \"explode\""},
        {HEADER PROBLEM "{\"fault\": \"wrong\", \"stage\": \"load\"}\n", "cannot happen"},
        {HEADER "{\"synthetic\": {\"noise\": -1}}\n", "noise from 0"},
        {HEADER "{\"hello\": 1}\n", "a line must hold"},
        {HEADER "{\"problem\"\n", "line 2"},
    };
    families_register();
    struct world w = {.folder = folder_make()};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct device *d;
        struct error err = ERROR_NULL;
        assert_true(device_open(spec_of(&w, cases[i].content), &d, &err) < 0);
        if (!strstr(err.text, cases[i].sentence)) {
            fail_msg("case %zu: %s", i, err.text);
        }
    }
    struct device *d;
    struct error err = ERROR_NULL;
    assert_int_equal(device_open("replay:/nonexistent/x.jsonl", &d, &err), ERROR_NO_DEVICE);
    assert_non_null(strstr(err.text, "/nonexistent/x.jsonl"));
    snprintf(w.spec, sizeof(w.spec), "replay:%s", w.folder);
    assert_int_equal(device_open(w.spec, &d, &err), ERROR_NO_DEVICE);
    assert_non_null(strstr(err.text, ": it is a directory, not a file"));
    assert_int_equal(device_open("replay:", &d, &err), ERROR_INVALID);
    folder_remove(w.folder);
}

/* ---- times ----------------------------------------------------------------------------------- */

static void test_recorded_times(void **state)
{
    (void)state;
    struct world w;
    struct error err = ERROR_NULL;
    struct kernel *k;
    struct rejection why;
    double us[SAMPLES_MAX], again[SAMPLES_MAX];
    uint32_t n;
    open_world(&w, HEADER PROBLEM ENTRY_A);
    assert_int_equal(prepare(&w, 1, &err), 0);
    assert_int_equal(compile_and_load(&w, CONFIG_A, &k, &why, &err), 0);
    double before = w.device->ops->clock_ms(w.device);
    assert_int_equal(times(&w, k, CONFIG_A, 0, us, &n, &err), 0);
    double took = w.device->ops->clock_ms(w.device) - before;
    assert_int_equal(n, 30);
    bool varied = false;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(us[i] >= 10 && us[i] <= 13 && us[i] == floor(us[i]));
        varied |= us[i] != us[0];
    }
    assert_true(varied);
    /* the clock advances mostly by the gaps between launches; the test does not sleep */
    assert_true(took > 32 * 2.0 && took < 32 * 2.1);
    assert_int_equal(times(&w, k, CONFIG_A, 0, again, &n, &err), 0);
    assert_memory_not_equal(us, again, sizeof(us[0]) * n); /* a second timing draws other samples */
    assert_int_equal(times(&w, k, CONFIG_A, 9, us, &n, &err), 0);
    assert_int_equal(n, 1); /* the first sample is so slow that it is the last */
    assert_int_equal(times(&w, k, CONFIG_B, 0, us, &n, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "not in the recorded landscape: BLOCK_SIZE_K=64"));
    w.device->ops->unload(w.device, k);
    close_world(&w);
}

static void test_midmean(void **state)
{
    (void)state;
    double one[] = {3}, two[] = {5, 4}, three[] = {9, 1, 2}, four[] = {8, 2, 4, 1},
           five[] = {9, 1, 4, 2, 3};
    assert_true(reader_midmean(one, 1) == 3 && reader_midmean(two, 2) == 4.5);
    assert_true(reader_midmean(three, 3) == 2 && reader_midmean(four, 4) == 3);
    assert_true(reader_midmean(five, 5) == 3);
}

static void test_same_seed_same_times(void **state)
{
    (void)state;
    double us[2][SAMPLES_MAX];
    uint32_t n;
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct error err = ERROR_NULL;
        struct kernel *k;
        struct rejection why;
        open_world(&w, HEADER "{\"synthetic\": {\"seed\": 5}}\n");
        assert_int_equal(prepare(&w, 1, &err), 0);
        assert_int_equal(compile_and_load(&w, CONFIG_B, &k, &why, &err), 0);
        assert_int_equal(times(&w, k, CONFIG_B, 0, us[i], &n, &err), 0);
        w.device->ops->unload(w.device, k);
        close_world(&w);
    }
    assert_memory_equal(us[0], us[1], n * sizeof(us[0][0]));
}

/* Adding this time to the clock would stop the clock for ever. */
static void test_no_time_is_an_error(void **state)
{
    (void)state;
    struct world w;
    struct error err = ERROR_NULL;
    struct kernel *k;
    struct rejection why;
    double us[SAMPLES_MAX];
    uint32_t n;
    open_world(&w, HOPPER_HEADER "{\"synthetic\": {\"seed\": 5}}\n");
    assert_int_equal(prepare(&w, 1, &err), 0);
    assert_int_equal(compile_and_load(&w, HOPPER_CONFIG, &k, &why, &err), 0);
    assert_int_equal(times(&w, k, HOPPER_CONFIG, 0, us, &n, &err), 0);
    const double before = w.device->ops->clock_ms(w.device);
    assert_int_equal(times(&w, k, "GROUP_SIZE_M=1", 0, us, &n, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "which knows none of: GROUP_SIZE_M=1"));
    assert_true(w.device->ops->clock_ms(w.device) >= before);
    w.device->ops->unload(w.device, k);
    close_world(&w);
}

/* The sentence has only the differences from the nearest problem: a whole problem is too long. */
static void test_problem_not_recorded(void **state)
{
    (void)state;
    const struct {
        const char *problem, *sentence;
    } cases[] = {
        {"grouped_gemm mode=forward M=64 N=64 K=64 experts=4 topk=2",
         "the landscape has no problem with topk=2: the nearest that it has is the same but for "
         "topk=1"},
        {"grouped_gemm mode=dX M=64 N=64 K=500 experts=4", "with K=500 mode=dX: the nearest"},
        {"grouped_gemm mode=dX M=64 N=64 K=500 experts=4", "but for K=512 mode=forward"},
        {"custom:mine a=1", "no problem of op custom:mine; it has grouped_gemm"},
    };
    struct world w;
    open_world(&w, HEADER PROBLEM ENTRY_A
               "{\"problem\": \"grouped_gemm mode=forward M=64 N=64 K=512 experts=4\"}\n" ENTRY_A);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct error err = ERROR_NULL;
        uint32_t at;
        struct landscape *l;
        assert_int_equal(problem_parse(&w.problem, cases[i].problem, &err), 0);
        assert_int_equal(landscape_load(w.spec, &l, &err), 0);
        assert_int_equal(landscape_problem(l, &w.problem, &at, &err), ERROR_NOT_FOUND);
        landscape_free(l);
        if (!strstr(err.text, cases[i].sentence)) {
            fail_msg("case %zu: %s", i, err.text);
        }
    }
    close_world(&w);
}

/* A restriction only leaves fewer configs, so the recording of the whole space serves. */
static void test_a_restricted_problem_is_recorded_with_the_whole(void **state)
{
    (void)state;
    static const char *const problems[] = {
        "grouped_gemm mode=forward M=64 N=64 K=64 experts=4",
        "grouped_gemm mode=forward M=64 N=64 K=64 experts=4 batch_invariant=true"};
    struct world w;
    struct landscape *l;
    struct error err = ERROR_NULL;
    open_world(&w, HEADER PROBLEM ENTRY_A);
    assert_int_equal(landscape_load(w.spec, &l, &err), 0);
    for (size_t i = 0; i < 2; i++) {
        uint32_t at = 1;
        assert_int_equal(problem_parse(&w.problem, problems[i], &err), 0);
        if (landscape_problem(l, &w.problem, &at, &err)) {
            fail_msg("%s", err.text);
        }
        assert_int_equal(at, 0);
    }
    landscape_free(l);
    close_world(&w);
}

static void test_recorded_failures(void **state)
{
    (void)state;
    struct world w;
    struct error err = ERROR_NULL;
    struct kernel *k;
    struct rejection why = {0};
    open_world(&w, HEADER PROBLEM
               "{\"config\": \"" CONFIG_A "\", \"status\": \"resource\", \"reason\": \"too much\","
               " \"resource\": \"shared_memory\", \"required\": 9, \"limit\": 8}\n"
               "{\"config\": \"" CONFIG_B "\", \"status\": \"compile\", \"reason\": \"C1\"}\n");
    assert_int_equal(compile_and_load(&w, CONFIG_A, &k, &why, &err), ERROR_RESOURCE);
    assert_string_equal(why.text, "too much");
    assert_string_equal(why.resource, "shared_memory");
    assert_int_equal(why.required, 9);
    assert_int_equal(why.limit, 8);
    assert_int_equal(compile_and_load(&w, CONFIG_B, &k, &why, &err), ERROR_COMPILE);
    assert_string_equal(err.text, "C1");
    close_world(&w);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void test_fault_patterns(void **state)
{
    (void)state;
    struct world w;
    struct error err = ERROR_NULL;
    struct kernel *k;
    struct rejection why = {0};
    struct record a, b;
    open_world(&w, HEADER
               "{\"synthetic\": {}}\n"
               "{\"fault\": \"compile\", \"config\": \"BLOCK_SIZE_M=16 GROUP_SIZE_M=99\"}\n"
               "{\"fault\": \"no_memory\", \"stage\": \"time\", \"config\": {\"GROUP_SIZE_M\": 1, "
               "\"BLOCK_SIZE_M\": 64}}\n"
               "{\"fault\": \"wrong\", \"config\": \"vector_width=16\"}\n");
    double us[SAMPLES_MAX];
    uint32_t n;
    assert_int_equal(prepare(&w, 1, &err), 0);
    /* a fault of the compile is one of the variant: its run-time GROUP_SIZE_M is ignored */
    assert_int_equal(compile_and_load(&w, CONFIG_B, &k, &why, &err), ERROR_COMPILE);
    assert_int_equal(compile_and_load(&w, CONFIG_A, &k, &why, &err), 0);
    assert_int_equal(times(&w, k, CONFIG_A, 0, us, &n, &err), ERROR_NO_MEMORY);
    config_of(CONFIG_A, &a);
    config_of(CONFIG_A, &b);
    record_put_int(&b, "vector_width", 8);
    struct tolerance tol = {0};
    struct verdict verdict;
    assert_int_equal(w.device->ops->verify(w.device, w.prepared, k, &a, &tol, &verdict, &err), 0);
    assert_false(verdict.right);
    assert_true(verdict.text[0]);
    assert_int_equal(w.device->ops->verify(w.device, w.prepared, k, &b, &tol, &verdict, &err), 0);
    assert_true(verdict.right);
    w.device->ops->unload(w.device, k);
    close_world(&w);
}

static void test_overlay_and_once(void **state)
{
    (void)state;
    struct world w;
    struct error err = ERROR_NULL;
    char marker[512], overlay[1200];
    char *folder = folder_make();
    snprintf(marker, sizeof(marker), "%s/marker", folder);
    snprintf(overlay, sizeof(overlay), "{\"fault\": \"no_memory\", \"once\": \"%s\"}\n", marker);
    setenv("GEMMD_REPLAY_FAULTS", folder_file(folder, "faults.jsonl", overlay), 1);
    open_world(&w, HEADER PROBLEM ENTRY_A);
    assert_int_equal(access(marker, F_OK), -1);
    assert_int_equal(prepare(&w, 1, &err), ERROR_NO_MEMORY);
    assert_int_equal(access(marker, F_OK), 0);
    assert_int_equal(prepare(&w, 1, &err), 0); /* once */
    close_world(&w);
    setenv("GEMMD_REPLAY_FAULTS", folder_file(folder, "faults.jsonl", PROBLEM), 1);
    struct device_info info;
    w.folder = folder_make();
    assert_int_equal(device_probe(spec_of(&w, HEADER), &info, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "only faults"));
    unsetenv("GEMMD_REPLAY_FAULTS");
    folder_remove(w.folder);
    folder_remove(folder);
}

/* A variant on which a compiler fails must not be found in the cache of a working compiler. */
static void test_compile_faults_are_another_compiler(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, HEADER "{\"fault\": \"compile\", \"config\": \"BLOCK_SIZE_M=16\"}\n");
    assert_string_equal(w.device->info.compiler, "replay cc 12");
    assert_memory_equal(w.compiler->ops->version(w.compiler), "replay cc 12 faults=", 20);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_device_says_it_is),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_recorded_times),
        cmocka_unit_test(test_midmean),
        cmocka_unit_test(test_same_seed_same_times),
        cmocka_unit_test(test_no_time_is_an_error),
        cmocka_unit_test(test_problem_not_recorded),
        cmocka_unit_test(test_a_restricted_problem_is_recorded_with_the_whole),
        cmocka_unit_test(test_recorded_failures),
        cmocka_unit_test(test_fault_patterns),
        cmocka_unit_test(test_overlay_and_once),
        cmocka_unit_test(test_compile_faults_are_another_compiler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
