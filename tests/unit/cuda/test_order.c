/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a device deals clusters, from the stub of libcuda: found once. When any call
 * fails the order stays unknown, without leftovers. */
#include "kernels/devices/cuda/module.h"
#include "tests/unit/cuda/stubbed.h"

enum { SMS = 4 /* of the stub */ };

static void begin(void)
{
    struct error err = ERROR_NULL;
    expect(cuda_driver_open(true, &err), 0, &err, NULL);
}

static void find_out(const void *arg)
{
    (void)arg;
    setenv("GEMMD_STUB_ORDER", "1", 1);
    begin();
    const struct launch_order *order = cuda_order(0);
    CHECK(order->n == SMS / 2 && order->place[0] == 1 && order->place[1] == 0);
    setenv("GEMMD_STUB_FAIL", "cuLaunchKernelEx:3:719", 1);
    CHECK(cuda_order(0) == order && order->n == SMS / 2); /* the device is asked only once */
    CHECK(cuda_order(1) != order && cuda_order(1)->n == 0);
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CHECK(cuda.capture_mode(&mode) == CUDA_SUCCESS &&
          mode == CU_STREAM_CAPTURE_MODE_GLOBAL); /* the thread's mode is as before */
    CHECK(live() == 0);
}

static void fail_once(const void *arg)
{
    setenv("GEMMD_STUB_ORDER", "1", 1);
    begin();
    setenv("GEMMD_STUB_FAIL", arg, 1);
    CHECK(cuda_order(0)->n == 0 && live() == 0);
    unsetenv("GEMMD_STUB_FAIL");
    CHECK(cuda_order(0)->n == 0);
    CHECK(cuda_order(1)->n == SMS / 2 && live() == 0);
}

static void cannot_ask(const void *arg)
{
    (void)arg;
    begin();
    CHECK(cuda_order(0)->n == 0);
}

static void test_order(void **state)
{
    (void)state;
    static const char *const faults[] = {"cuThreadExchangeStreamCaptureMode:1:1",
                                         "cuModuleLoadData:1:222",
                                         "cuModuleGetFunction:1:500",
                                         "cuFuncSetAttribute:1:1",
                                         "cuStreamCreate:1:2",
                                         "cuMemAlloc_v2:1:2",
                                         "cuLaunchKernelEx:1:719",
                                         "cuLaunchKernelEx:2:912",
                                         "cuMemcpyDtoHAsync_v2:1:719",
                                         "cuStreamSynchronize:1:700",
                                         "cuStreamSynchronize:2:700"};
    in_child(find_out, NULL);
    in_child(cannot_ask, NULL);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        in_child(fail_once, faults[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
