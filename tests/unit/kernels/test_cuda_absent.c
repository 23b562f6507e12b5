/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for the cuda device, which this test links alone, whatever the rest was built with:
 * each way in answers with what is missing and what to do.
 */
#include "tests/unit/kernels/common.h"

static void test_sentences(void **state)
{
    (void)state;
    struct device *d;
    struct compiler *c;
    struct device_info info;
    void *handle;
    assert_fails(cuda_device_ops.open("cuda:0", &d, err), ERROR_NO_DEVICE,
                 "built without CUDA headers; build it again");
    assert_null(d);
    assert_fails(cuda_probe("cuda:0", &info, err), ERROR_NO_DEVICE, "or use --device cpu");
    assert_fails(cuda_compiler_ops.open("cuda:0", &c, err), ERROR_NO_COMPILER,
                 "built without CUDA headers");
    assert_null(c);
    assert_fails(cuda_launch_backend.info(&info, err), ERROR_NO_DEVICE, "CUDA headers");
    assert_fails(cuda_launch_backend.load("", 0, &handle, err), ERROR_NO_DEVICE, "CUDA headers");
    assert_string_equal(cuda_device_ops.kind, "cuda");
    assert_string_equal(cuda_compiler_ops.kind, "cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sentences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
