/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The launcher with scaled operands, as a job calls it: every mode with strides of the job's own,
 * scales in either order, gaps that no kernel may read, and fewer rows than the problem has.
 * Numbers are small and scales powers of two, so that sums are exact.
 */
#include <math.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/fp8.h"
#include "tests/unit/kernels/common.h"

/* Experts have 5, 0 and 131 rows. In dW they begin at columns 0, 128 and 128. */
enum { E = 3, T = 136, N = 144, K = 272, COLUMNS = 512, GAP = 16, BLOCKS = 3 };
static const int32_t sizes[E] = {5, 0, 131};
static const int64_t starts[E] = {0, 5, 5}, columns[E] = {0, 128, 128};

static uint8_t x[(T + COLUMNS) * 512], w[E * 300 * 300], dy[(T + COLUMNS) * 512];
static float x_scale[4096], w_scale[64], dy_scale[4096];
static float out[E * N * K];

static void fill(void)
{
    uint64_t random = 1;
    for (size_t i = 0; i < sizeof(x); i++) {
        x[i] = fp8_encode((float)(random_next(&random) % 9) - 4);
        dy[i] = fp8_encode((float)(random_next(&random) % 9) - 4);
    }
    for (size_t i = 0; i < sizeof(w); i++) {
        w[i] = fp8_encode((float)(random_next(&random) % 9) - 4);
    }
    for (size_t i = 0; i < 4096; i++) {
        x_scale[i] = (float)(1 << random_next(&random) % 3);
        dy_scale[i] = (float)(1 << random_next(&random) % 3) / 4;
        w_scale[i % 64] = (float)(1 << random_next(&random) % 3) / 2;
    }
    for (size_t i = 0; i < sizeof(out) / sizeof(out[0]); i++) {
        out[i] = NAN;
    }
}

/* Compiles and launches the default kernel of a problem. */
static void launch(const char *text, const struct grouped_gemm_args *args)
{
    const struct device_info info = cpu_like();
    struct problem p;
    struct record config;
    struct variant v;
    struct image image;
    struct compiler *compiler;
    struct launcher *l;
    problem_of(&p, text);
    assert_ok(grouped_gemm_cpu.choose(&p, &info, &config, err));
    assert_ok(grouped_gemm_cpu.variant(&p, &config, "x86_64", &v, err));
    assert_ok(compiler_open("cpu:2", &compiler, err));
    assert_ok(compiler->ops->compile(compiler, &v, &image, err));
    assert_ok(
        launcher_new(&grouped_gemm_family, &p, &config, image.data, image.size, NULL, &l, err));
    assert_ok(launcher_launch(l, args, err));
    launcher_free(l);
    image_deinit(&image);
    compiler->ops->close(compiler);
}

static struct grouped_gemm_args args_of(void)
{
    fill();
    return (struct grouped_gemm_args){.size = sizeof(struct grouped_gemm_args),
                                      .x = x,
                                      .w = w,
                                      .dy = dy,
                                      .out = out,
                                      .m_sizes = sizes,
                                      .m_sizes_dtype = DTYPE_INT32,
                                      .rows = T,
                                      .x_scale = x_scale,
                                      .w_scale = w_scale,
                                      .dy_scale = dy_scale};
}

static double bf16_at(int64_t i)
{
    const uint32_t bits = (uint32_t)((const uint16_t *)(const void *)out)[i] << 16;
    float v;
    memcpy(&v, &bits, sizeof(v));
    return v;
}

static void expect(double got, double want, int64_t row, int64_t col)
{
    if (!(fabs(got - want) <= fabs(want) / 256)) {
        fail_msg("row %d column %d is %g, not %g", (int)row, (int)col, got, want);
    }
}

/* X with the scales of other libraries, [row][block]; W with gaps between rows and experts. */
static void test_forward(void **state)
{
    (void)state;
    enum { W_STRIDE = K + GAP, W_EXPERT = N * W_STRIDE + GAP, W_SCALES = 2 * BLOCKS + 1 };
    struct grouped_gemm_args a = args_of();
    a.x_stride = K + GAP;
    a.x_scale_stride = BLOCKS + 2;
    a.x_scale_stride_block = 1;
    a.w_stride = W_STRIDE;
    a.w_stride_expert = W_EXPERT;
    a.w_scale_stride_expert = W_SCALES;
    /* the problem has other rows than the launch */
    launch("grouped_gemm mode=forward M=512 N=144 K=272 experts=3 quant=fp8_block", &a);
    for (int e = 0; e < E; e++) {
        for (int64_t i = starts[e]; i < starts[e] + sizes[e]; i++) {
            for (int64_t n = 0; n < N; n++) {
                double sum = 0;
                for (int64_t k = 0; k < K; k++) {
                    sum += (double)fp8_decode(x[i * (K + GAP) + k]) *
                           x_scale[i * (BLOCKS + 2) + k / 128] *
                           fp8_decode(w[e * W_EXPERT + n * W_STRIDE + k]) *
                           w_scale[e * W_SCALES + n / 128 * BLOCKS + k / 128];
                }
                expect(bf16_at(i * N + n), sum, i, n);
            }
        }
    }
}

/* The transposed weights, and the same scales as in forward. */
static void test_dx(void **state)
{
    (void)state;
    enum { DY_ROWS = 140 };
    struct grouped_gemm_args a = args_of();
    a.dy_scale_stride_block = DY_ROWS;
    launch("grouped_gemm mode=dX M=136 N=144 K=272 experts=3 quant=fp8_block", &a);
    for (int e = 0; e < E; e++) {
        for (int64_t i = starts[e]; i < starts[e] + sizes[e]; i++) {
            for (int64_t k = 0; k < K; k++) {
                double sum = 0;
                for (int64_t n = 0; n < N; n++) {
                    sum += (double)fp8_decode(dy[i * N + n]) * dy_scale[n / 128 * DY_ROWS + i] *
                           fp8_decode(w[(e * K + k) * N + n]) *
                           w_scale[(e * 2 + n / 128) * BLOCKS + k / 128];
                }
                expect(bf16_at(i * K + k), sum, i, k);
            }
        }
    }
}

static void expect_dw(bool by_block, int64_t stride)
{
    for (int64_t r = 0; r < E * N; r++) {
        const int64_t e = r / N, n = r % N;
        for (int64_t k = 0; k < K; k++) {
            double sum = 0;
            for (int64_t c = columns[e]; c < columns[e] + sizes[e]; c++) {
                const int64_t b = by_block ? c / 128 : e;
                sum += (double)fp8_decode(dy[n * stride + c]) * dy_scale[b * N + n] *
                       fp8_decode(x[k * stride + c]) * x_scale[b * K + k];
            }
            expect(out[r * K + k], sum, r, k);
        }
    }
}

/* The transposed copies; an expert without rows gets zeros. The gaps hold numbers here: the cpu
 * kernel sums over the rows alone. */
static void test_dw(void **state)
{
    (void)state;
    struct grouped_gemm_args a = args_of();
    /* dense: the columns that hold every distribution of 136 rows over 3 experts */
    launch("grouped_gemm mode=dW M=136 N=144 K=272 experts=3 quant=fp8_block dtype_out=fp32", &a);
    expect_dw(true, COLUMNS);
    a = args_of();
    a.x_stride = a.dy_stride = COLUMNS + GAP;
    launch("grouped_gemm mode=dW M=136 N=144 K=272 experts=3 quant=fp8_row dtype_out=fp32", &a);
    expect_dw(false, COLUMNS + GAP);
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
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_dx),
        cmocka_unit_test(test_dw),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
