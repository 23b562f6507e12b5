/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grouped_gemm with scaled operands on the cpu device, compiled and run: every mode, quantisation,
 * flag and type of the output against the reference. Experts have 0, 1, 15, 130 and 258 rows; N and
 * K are not multiples of 128. Kernels that are broken in the ways that scaled products go wrong
 * must be found.
 */
#include "kernels/devices/prepared.h"
#include "tests/unit/kernels/cpu_run.h"

static const char *const configs[] = {
    "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 unroll_rows=8 unroll_cols=2 transpose_w=true",
    "BLOCK_SIZE_M=16 BLOCK_SIZE_N=32 BLOCK_SIZE_K=32 vector_width=8 unroll_cols=2 GROUP_SIZE_M=1 "
    "transpose_w=false",
    "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 BLOCK_SIZE_K=128 vector_width=16 transpose_w=false",
};
enum { CONFIGS = sizeof(configs) / sizeof(configs[0]) };

#define LAYER "grouped_gemm M=404 N=144 K=272 experts=6 topk=4 routing=\"rows:0,1,15,130,258,0\" "

/* ---- data ------------------------------------------------------------------------------------ */

/* Numbers are the codes of a quantiser, never NaN; the columns behind an expert's last row are
 * zeros; scales spread over four octaves. */
static void test_the_drawn_operands(void **state)
{
    (void)state;
    struct problem p;
    struct prepared *w;
    problem_of(&p, LAYER "quant=fp8_block mode=dW");
    assert_ok(device->ops->prepare(device, &grouped_gemm_family, &p, 42, &w, err));
    const struct gemm_state *s = w->workload.state;
    const uint8_t *x = gemm_buffer(&w->workload, w->buffers[0], GEMM_X);
    const int64_t columns = gemm_columns(&s->view, 404);
    int64_t zeros = 0, codes[256] = {0};
    for (int64_t i = 0; i < 272 * columns; i++) {
        if (s->routed[i % columns]) {
            codes[x[i]]++;
        } else {
            zeros += x[i] == 0;
        }
    }
    assert_int_equal(zeros, 272 * (columns - 404));
    assert_int_equal(codes[0x7f] + codes[0xff], 0);
    assert_in_range(codes[0x7e], 50, 5000); /* the largest number is rare, but there */
    assert_int_equal(s->column[1], 0);
    assert_int_equal(s->column[3], 256); /* behind 1 and 15 rows, each in a block of its own */
    assert_int_equal(s->column[5], 256 + 256 + 384);
    const int scales = s->index[GEMM_X_SCALE];
    const float *scale = w->buffers[0][scales];
    const double middle = w->workload.buffers[scales].scale;
    int low = 0, high = 0;
    for (int64_t i = 0; i < w->workload.buffers[scales].count; i++) {
        assert_true(scale[i] >= middle / 4 && scale[i] < middle * 4);
        low += scale[i] < middle / 2;
        high += scale[i] >= middle * 2;
    }
    assert_true(low > 272 && high > 272);
    device->ops->release(device, w);
}

/* ---- right ----------------------------------------------------------------------------------- */

static void test_every_mode(void **state)
{
    (void)state;
    static const char *const quants[] = {"fp8_block", "fp8_row"};
    static const char *const more[] = {
        "mode=forward",
        "mode=forward permute_x=true",
        "mode=forward permute_y=true fuse_mul_post=true",
        "mode=dX permute_x=true",
        "mode=dX permute_y=true",
        "mode=dW",
        "mode=dW dtype_out=fp32 accumulate=true",
    };
    int at = 0;
    for (size_t q = 0; q < 2; q++) {
        for (size_t i = 0; i < sizeof(more) / sizeof(more[0]); i++) {
            char problem[256];
            struct verdict v;
            snprintf(problem, sizeof(problem), LAYER "quant=%s %s", quants[q], more[i]);
            run(problem, configs[at++ % CONFIGS], NULL, &v);
            if (!v.right || v.unwritten || v.rel_norm > 2.5e-3) {
                fail_msg("%s: %s (%g)", problem, v.text, v.rel_norm);
            }
        }
    }
}

/* ---- wrong ----------------------------------------------------------------------------------- */

static void expect_wrong(const char *problem, const char *from, const char *to)
{
    struct verdict v;
    char *source = edited(from, to), text[320];
    snprintf(text, sizeof(text), LAYER "quant=fp8_block %s", problem);
    run(text, configs[0], source, &v);
    free(source);
    if (v.right || !strstr(v.text, "the reference")) {
        fail_msg("\"%s\" for \"%s\": %s \"%s\"", to, from, v.right ? "right" : "wrong", v.text);
    }
}

static void test_late_promotion_is_found(void **state)
{
    (void)state;
    static const char promotes[] = "(SCALE_SUM && (l0 + n_l) % (SCALE_SUM ? SCALE_SUM : 1) == 0)";
    expect_wrong("mode=forward", promotes, "(l0 + n_l) % 256 == 0"); /* every second time */
    expect_wrong("mode=dW", promotes, "(l0 + n_l) % 256 == 0");
    expect_wrong("mode=dX", promotes, "0"); /* only at the end */
    /* the last block is not added */
    expect_wrong("mode=forward", "l0 + n_l == length || (SCALE_SUM", "(SCALE_SUM");
}

static void test_wrong_scales_are_found(void **state)
{
    (void)state;
    expect_wrong("mode=forward", "int64_t b = SCALE_SUM",
                 "int64_t b = l > SCALE_SUM ? 0 : SCALE_SUM");
    expect_wrong("mode=dW", "p->dy_scale_stride + b", "p->dy_scale_stride + (b ? b - 1 : 0)");
    expect_wrong("mode=dW", "(t->column + l - 1)", "(l - 1)"); /* of the first expert */
    expect_wrong("mode=forward", "float left = a_scale(p, t, r, b);",
                 "float left = a_scale(p, t, r == 0 && t->n_r > 8 ? 8 : r, b);");
    /* the neighbour's scale where a tile's columns cross into another block of w */
    expect_wrong("mode=forward", "(t->c0 + c) / SCALE_W", "(t->c0 + c + 8) / SCALE_W");
    expect_wrong("mode=dX", "p->w_scale[t->expert * p->w_scale_expert",
                 "p->w_scale[(t->expert ? t->expert - 1 : 0) * p->w_scale_expert");
    expect_wrong("mode=forward", "        part[i] = 0;\n    }\n}\n#endif", "    }\n}\n#endif");
}

static void test_other_faults_are_found(void **state)
{
    (void)state;
    /* the gap behind an expert's last row is counted as rows of the expert */
    expect_wrong("mode=dW", "round_up(m, COLUMN_ALIGN)", "m");
    expect_wrong("mode=dW dtype_out=fp32 accumulate=true", "FROM_OUT(out[c]) + from[c]",
                 "FROM_OUT(out[c]) + 2 * from[c]");
    expect_wrong("mode=forward permute_y=true fuse_mul_post=true",
                 "FROM_OUT(TO_OUT(from[c])) * weight",
                 "FROM_OUT(TO_OUT(from[c] * weight * 1.004f))");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_drawn_operands),
        cmocka_unit_test(test_every_mode),
        cmocka_unit_test(test_late_promotion_is_found),
        cmocka_unit_test(test_wrong_scales_are_found),
        cmocka_unit_test(test_other_faults_are_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
