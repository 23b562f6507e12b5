/* SPDX-License-Identifier: Apache-2.0 */
/* A second family, linked by another list of families, goes the whole way: problem, space, choice,
 * compile, cache, load, verify, time, launch. No code on the way may know grouped_gemm. */
#include <limits.h>

#include "kernels/space.h"
#include "tests/family/transpose.h"
#include "kernels/modules.h"
#include "tests/unit/kernels/family_cpu.h"

static void test_found(void **state)
{
    (void)state;
    struct problem p;
    problem_of(&p, "transpose rows=100 cols=37 dtype=bf16");
    assert_ptr_equal(family_of_problem(&p), &transpose_family);
    assert_ptr_equal(family_find("transpose"), &transpose_family);
    assert_string_equal(family_find("grouped_gemm")->name, "grouped_gemm");
    assert_null(family_find("attention"));
    assert_fails(problem_parse(&p, "transpose rows=100", err), ERROR_INVALID, "cols");
    assert_fails(problem_parse(&p, "transpose rows=1048576 cols=1048576", err), ERROR_INVALID,
                 "2^34");
}

/* Compiles, loads, verifies and times every config of the space, as the runner does, with a cache
 * of modules. */
static void test_whole_way(void **state)
{
    (void)state;
    char cache[] = "/tmp/gemmd-second-XXXXXX";
    assert_non_null(mkdtemp(cache));
    struct problem p;
    struct space s;
    struct prepared *w;
    problem_of(&p, "transpose rows=1000 cols=333");
    const struct family *f = family_of_problem(&p);
    const struct family_target *t = family_target_find(f, &device->info, NULL);
    assert_ok(space_build(&s, t, &p, &device->info, NULL, err));
    assert_int_equal(s.n, 36);
    assert_ok(device->ops->prepare(device, f, &p, 9, &w, err));
    int compiled = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        struct record config;
        struct variant v;
        struct image image;
        struct kernel *k;
        struct rejection why;
        struct verdict verdict;
        struct tolerance exact = {0};
        struct timing once = {.warmup = 1, .samples = 3};
        char hash[HASH_HEX];
        double samples[3];
        uint32_t n = 0;
        space_config(&s, i, &config);
        assert_ok(t->variant(&p, &config, device->info.arch, &v, err));
        variant_hash(&v, compiler->ops->version(compiler), hash);
        if (modules_find(cache, hash, &image, NULL) == MODULES_MISS) {
            assert_ok(compiler->ops->compile(compiler, &v, &image, err));
            assert_string_equal(image.meta.variant, hash);
            assert_ok(modules_put(cache, &image, compiler->ops->suffix, err));
            compiled++;
        }
        assert_ok(device->ops->load(device, &image, &v, &k, &why, err));
        assert_ok(device->ops->verify(device, w, k, &config, &exact, &verdict, err));
        if (!verdict.right || verdict.max_error != 0) {
            fail_msg("%s", verdict.text);
        }
        assert_ok(device->ops->time(device, w, k, &config, &once, samples, &n, err));
        assert_int_equal(n, 3);
        device->ops->unload(device, k);
        image_deinit(&image);
    }
    assert_int_equal(compiled, 18); /* `strip` is a run-time tunable: two configs share a module */
    device->ops->release(device, w);
    space_deinit(&s);
    char command[64];
    snprintf(command, sizeof(command), "rm -rf '%s'", cache);
    assert_int_equal(system(command), 0);
}

/* launcher_workspace() returns the workspace that the kernel needs; a launch without is refused. */
static void test_launch(void **state)
{
    (void)state;
    struct launcher *l;
    static uint16_t in[5][7], out[7][5];
    cpu_open_launcher("transpose rows=5 cols=7 dtype=bf16", &l);
    for (int i = 0; i < 35; i++) {
        in[i / 7][i % 7] = (uint16_t)i;
    }
    int64_t bytes = 0;
    char workspace[8];
    struct transpose_args a = {.size = sizeof(a), .in = in, .out = out};
    assert_ok(launcher_workspace(l, &a, &bytes, err));
    assert_int_equal(bytes, 8);
    assert_fails(launcher_launch(l, &a, err), ERROR_INVALID, "the launch needs 8");
    a.workspace = workspace;
    a.workspace_bytes = bytes;
    assert_ok(launcher_launch(l, &a, err));
    for (int i = 0; i < 35; i++) {
        assert_int_equal(out[i % 7][i / 7], i);
    }
    a.in = NULL;
    assert_fails(launcher_workspace(l, &a, &bytes, err), ERROR_INVALID, "NULL");
    launcher_free(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_whole_way),
        cmocka_unit_test(test_launch),
    };
    return cmocka_run_group_tests(tests, cpu_setup, cpu_teardown);
}
