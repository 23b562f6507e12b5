/* SPDX-License-Identifier: Apache-2.0 */
/* Scaled operands (quant=fp8_block, fp8_row) of grouped_gemm: how the operands and their scales
 * lie, and the checks of a launch's args. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/kernels/common.h"

static void view_of(struct gemm *v, const char *text)
{
    static struct problem p; /* holds the view's texts */
    problem_of(&p, text);
    gemm_view(&p, v);
}

#define BLOCK "grouped_gemm M=1002 N=320 K=576 experts=4 topk=2 quant=fp8_block mode="
#define ROW   "grouped_gemm M=1002 N=320 K=576 experts=4 topk=2 quant=fp8_row mode="

/* ---- how operands lie ------------------------------------------------------------------------ */

static void test_operands(void **state)
{
    (void)state;
    static const struct {
        const char *problem;
        enum gemm_buffer which;
        /* as in struct gemm_operand, then the number of scales */
        struct gemm_operand lies;
        int64_t scales;
    } cases[] = {
        {BLOCK "forward", GEMM_X, {1, 1002, 576, 1, 1002, 5, 1, 1004, 0}, 5 * 1004},
        {BLOCK "forward permute_x=true", GEMM_X, {1, 501, 576, 1, 501, 5, 8, 1, 0}, 501 * 8},
        {BLOCK "forward", GEMM_W, {4, 320, 576, 128, 3, 5, 5, 1, 15}, 60},
        {BLOCK "dX", GEMM_DY, {1, 1002, 320, 1, 1002, 3, 1, 1004, 0}, 3 * 1004},
        {BLOCK "dX permute_y=true", GEMM_DY, {1, 1002, 320, 1, 1002, 3, 4, 1, 0}, 1002 * 4},
        /* the transposed weights, and the scales of forward */
        {BLOCK "dX", GEMM_W, {4, 576, 320, 128, 5, 3, 1, 5, 15}, 60},
        /* up to 1002 + 4 * 127 columns, whole blocks of 128 */
        {BLOCK "dW", GEMM_X, {1, 576, 1408, 1, 576, 11, 1, 576, 0}, 11 * 576},
        {BLOCK "dW", GEMM_DY, {1, 320, 1408, 1, 320, 11, 1, 320, 0}, 11 * 320},
        {ROW "forward", GEMM_X, {1, 1002, 576, 1, 1002, 1, 1, 1004, 0}, 1004},
        {ROW "forward permute_x=true", GEMM_X, {1, 501, 576, 1, 501, 1, 1, 1, 0}, 501},
        {ROW "forward", GEMM_W, {4, 320, 576, 1, 320, 1, 1, 1, 320}, 4 * 320},
        {ROW "dX", GEMM_W, {4, 576, 320, 1, 576, 1, 1, 576, 576}, 4 * 576},
        /* a scale for each row of each expert's sum */
        {ROW "dW", GEMM_DY, {1, 320, 1408, 1, 320, 4, 1, 320, 0}, 4 * 320},
        {"gemm mode=forward M=3 N=8 K=16", GEMM_X, {1, 3, 16}, 0},
        {"gemm mode=dX M=3 N=8 K=16", GEMM_W, {1, 8, 16}, 0},
        {"gemm mode=dW M=3 N=8 K=16", GEMM_DY, {1, 3, 8}, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gemm v;
        struct gemm_operand o;
        view_of(&v, cases[i].problem);
        gemm_operand_describe(&v, cases[i].which, v.m, &o);
        if (memcmp(&o, &cases[i].lies, sizeof(o)) != 0) {
            fail_msg("%s operand %d: %lld x %lld, scales %lld x %lld, strides %lld %lld %lld",
                     cases[i].problem, cases[i].which, (long long)o.rows, (long long)o.cols,
                     (long long)o.scale_rows, (long long)o.scale_blocks, (long long)o.scale_stride,
                     (long long)o.scale_stride_block, (long long)o.scale_stride_expert);
        }
        assert_int_equal(gemm_operand_count_scales(&o), cases[i].scales);
    }
}

/* The columns of dW hold every distribution of the rows, and some distribution fills them. */
static void test_columns(void **state)
{
    (void)state;
    struct gemm v = {.experts = 3};
    for (int64_t rows = 0; rows < 300; rows++) {
        int64_t most = 0;
        for (int64_t a = 0; a <= rows; a++) {
            for (int64_t b = 0; a + b <= rows; b++) {
                const int64_t columns =
                    gemm_columns_of(a) + gemm_columns_of(b) + gemm_columns_of(rows - a - b);
                most = columns > most ? columns : most;
            }
        }
        assert_int_equal(gemm_columns(&v, rows), most);
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

static double bytes_of(const char *problem)
{
    struct problem p;
    double flops, bytes;
    problem_of(&p, problem);
    gemm_work(&p, &flops, &bytes);
    assert_true(flops == 2.0 * 1002 * 320 * 576);
    return bytes;
}

/* A byte for each number, four for each scale, and the output. */
static void test_work(void **state)
{
    (void)state;
    const double x = 1002 * 576.0, dy = 1002 * 320.0, w = 4 * 320 * 576.0;
    assert_true(bytes_of(BLOCK "forward") == x * (1 + 4 / 128.0) + w * (1 + 4 / 16384.0) + 2 * dy);
    assert_true(bytes_of(BLOCK "forward permute_x=true") ==
                x / 2 * (1 + 4 / 128.0) + w * (1 + 4 / 16384.0) + 2 * dy);
    assert_true(bytes_of(BLOCK "dX") == dy * (1 + 4 / 128.0) + w * (1 + 4 / 16384.0) + 2 * x);
    assert_true(bytes_of(BLOCK "dW dtype_out=fp32 accumulate=true") ==
                (x + dy) * (1 + 4 / 128.0) + 8 * w);
    assert_true(bytes_of(ROW "forward") == x + 4 * 1002 + w + 4 * 4 * 320 + 2 * dy);
    assert_true(bytes_of(ROW "dW") == x + dy + 4 * 4 * (320 + 576) + 2 * w);
}

/* Where arithmetic is the bound, fp8 has half of bf16's floor on GPUs that multiply fp8. */
static void test_floors(void **state)
{
    (void)state;
    static const char *const archs[] = {"sm_80", "sm_89", "sm_90a"};
    struct problem bf16, fp8;
    problem_of(&bf16, "gemm mode=forward M=8192 N=8192 K=8192");
    problem_of(&fp8, "gemm mode=forward M=8192 N=8192 K=8192 quant=fp8_block");
    for (size_t i = 0; i < 3; i++) {
        struct device_info info;
        assert_ok(arch_describe(archs[i], &info, err));
        info.peak_tflops = 100;
        info.peak_gbps = 1e6;
        assert_true(family_floor_us(&grouped_gemm_family, &bf16, &info) ==
                    family_floor_us(&grouped_gemm_family, &fp8, &info) * (i == 0 ? 1 : 2));
    }
}

/* The family's limit of a row's error holds where rounding to bf16 leaves room: in long rows. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        const char *problem;
        double limit;
    } cases[] = {
        {"gemm mode=forward M=8 N=512 K=1024 quant=fp8_block", 2.5e-3},
        {"gemm mode=forward M=8 N=504 K=1024 quant=fp8_block", 0},
        {"gemm mode=forward M=8 N=512 K=1008 quant=fp8_block", 0},
        {"gemm mode=dW M=8 N=64 K=512 quant=fp8_row", 2.5e-3},
        {"gemm mode=dW M=8 N=64 K=64 quant=fp8_row dtype_out=fp32", 8e-4},
        {"gemm mode=forward M=8 N=512 K=1024", 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct problem p;
        struct workload w;
        problem_of(&p, cases[i].problem);
        assert_ok(gemm_workload_init(&w, &p, 1, err));
        assert_true(w.rel_norm == cases[i].limit);
        gemm_workload_deinit(&w);
    }
}

/* ---- args ------------------------------------------------------------------------------------ */

static float numbers[64];

static struct grouped_gemm_args args_of(void)
{
    return (struct grouped_gemm_args){.size = sizeof(struct grouped_gemm_args),
                                      .x = numbers,
                                      .w = numbers,
                                      .dy = numbers,
                                      .out = numbers,
                                      .m_sizes = numbers,
                                      .m_sizes_dtype = DTYPE_INT32,
                                      .gather_indices = numbers,
                                      .gather_dtype = DTYPE_INT32,
                                      .rows = 1002,
                                      .x_scale = numbers,
                                      .w_scale = numbers,
                                      .dy_scale = numbers};
}

static void test_dense_strides(void **state)
{
    (void)state;
    struct gemm v;
    struct grouped_gemm_args given = args_of(), a;
    view_of(&v, BLOCK "dX");
    assert_ok(gemm_args_read(&v, &given, 16, &a, err));
    assert_int_equal(a.w_stride, 320);
    assert_int_equal(a.w_stride_expert, 576 * 320);
    assert_int_equal(a.w_scale_stride, 1);
    assert_int_equal(a.w_scale_stride_block, 5);
    assert_int_equal(a.w_scale_stride_expert, 15);
    assert_int_equal(a.dy_scale_stride_block, 1004);
    given.rows = 500; /* the launch's rows decide, not the problem's */
    view_of(&v, BLOCK "dW");
    assert_ok(gemm_args_read(&v, &given, 16, &a, err));
    assert_int_equal(a.x_stride, 1008 / 128 * 128);
    assert_int_equal(a.dy_stride, 1008 / 128 * 128);
    assert_int_equal(a.x_scale_stride_block, 576);
    given.rows = 0; /* dW writes zeros, and reads no operand */
    given.x = given.dy = given.x_scale = given.dy_scale = NULL;
    assert_ok(gemm_args_read(&v, &given, 16, &a, err));
}

static void refuse(const char *problem, const struct grouped_gemm_args *a, const char *part)
{
    struct gemm v;
    struct grouped_gemm_args out;
    view_of(&v, problem);
    assert_fails(gemm_args_read(&v, a, 16, &out, err), ERROR_INVALID, part);
}

static void test_bad_scales(void **state)
{
    (void)state;
    struct grouped_gemm_args a = args_of();
    a.w_scale = NULL;
    refuse(BLOCK "forward", &a, "args.w_scale is NULL, but quant=fp8_block needs it");
    a = args_of();
    refuse("grouped_gemm mode=forward M=1002 N=320 K=576 experts=4 topk=2", &a,
           "args.x_scale is given, but the problem has quant=none");
    a.dy_scale = (const char *)numbers + 2;
    refuse(BLOCK "dX", &a, "align it to 4 bytes");
    a = args_of();
    a.x_scale_stride_block = -4;
    refuse(ROW "forward", &a, "args.x_scale_stride_block is -4: use 1 to 2^40, or 0 for dense");
    a.x_scale_stride_block = 1000;
    refuse(BLOCK "forward", &a,
           "args.x_scale_stride is 1 and args.x_scale_stride_block 1000: 1002 x 5 scales would "
           "overlap");
    a.x_scale_stride = 4;
    a.x_scale_stride_block = 1;
    refuse(BLOCK "forward", &a, "would overlap");
    a.x_scale_stride = 5;
    struct gemm v;
    struct grouped_gemm_args out;
    view_of(&v, BLOCK "forward"); /* [row][b], as other libraries have them */
    assert_ok(gemm_args_read(&v, &a, 16, &out, err));
    a = args_of();
    a.x_stride = 1280;
    refuse(BLOCK "dW", &a, "args.x_stride is 1280: rows would overlap, use 1408 or more");
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
        cmocka_unit_test(test_operands),   cmocka_unit_test(test_columns),
        cmocka_unit_test(test_work),       cmocka_unit_test(test_floors),
        cmocka_unit_test(test_limits),     cmocka_unit_test(test_dense_strides),
        cmocka_unit_test(test_bad_scales),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
