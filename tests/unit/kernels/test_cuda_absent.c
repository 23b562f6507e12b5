/* SPDX-License-Identifier: Apache-2.0 */
/* The stand-in for the cuda device, which this test always links. Each function's error says that
 * CUDA is missing, and the way to get it. */
#include "tests/unit/kernels/common.h"

static void test_sentences(void **state)
{
    (void)state;
    struct device_info info;
    void *handle;
    assert_fails(cuda_device_ops.open("cuda:0", NULL, err), ERROR_NO_DEVICE,
                 "built without CUDA headers; build it again");
    assert_fails(cuda_device_ops.open("cuda:0", NULL, err), ERROR_NO_DEVICE,
                 "or ask for cpu instead");
    assert_fails(cuda_compiler_ops.open("cuda:0", NULL, err), ERROR_NO_COMPILER,
                 "built without CUDA headers");
    assert_fails(cuda_launch_backend.info(&info, err), ERROR_NO_DEVICE, "CUDA headers");
    assert_fails(cuda_launch_backend.load("", 0, &handle, err), ERROR_NO_DEVICE, "CUDA headers");
    assert_string_equal(cuda_device_ops.kind, "cuda");
}

/* The limits of an architecture are known without a GPU, and without CUDA. */
static void test_architectures(void **state)
{
    (void)state;
    struct device_info info;
    assert_ok(arch_describe("sm_90a", &info, err));
    assert_string_equal(info.kind, "cuda");
    assert_string_equal(info.arch, "sm_90a");
    assert_int_equal(info.cc_major, 9);
    assert_int_equal(info.smem_optin, 232448);
    assert_string_equal(info.compiler, "");
    assert_fails(arch_describe("sm_12", &info, err), ERROR_INVALID, "sm_90a, sm_100 and sm_120");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_architectures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
