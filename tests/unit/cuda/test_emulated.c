/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The templates portable (TARGET grouped_gemm_cuda) or hopper (grouped_gemm_hopper), and
 * reference.cu, run on the CPU: a seeded sample of problems and legal configs goes
 * through check, variant and plan as on a GPU; the variant's source is compiled by cc with
 * emulate.h in the place of the hardware, and every element of the output is compared with sums in
 * double made here. Rows per expert include 0, 1, 15, 16, 17 and tails of every tile; N and K are
 * not multiples of tiles; strides, int64 indices and accumulation take their turns.
 *
 * GEMMD_TEST_CASES says how many cases (default 32), GEMMD_TEST_SEED where they begin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "tests/unit/cuda/emulate_launch.h"

enum { EXPERTS_MAX = 70, GUARD = 64 };

#ifdef TARGET_HOPPER
#define TARGET   grouped_gemm_hopper
#define EMULATED "emulate_hopper.c"
#define OPTIMISE "-O2" /* it multiplies much larger tiles */
#else
#define TARGET   grouped_gemm_cuda
#define EMULATED "emulate_portable.c"
#define OPTIMISE "-O1"
#endif

static const struct device_info info = {
    .kind = "cuda",
    .name = "emulated",
    .arch = "sm_90a",
    .sm_count = 2,
    .cc_major = 9,
    .smem_optin = 232448,
    .smem_per_sm = 233472,
    .regs_per_block = 65536,
    .warp_size = 32,
    .l2_bytes = 1 << 20,
    .clock_khz = 1000000,
    .peak_tflops = 1,
    .peak_gbps = 10,
};

static char description[4096];
static char folder[] = "/tmp/gemmd-emulated-XXXXXX";

/* ---- compiling ------------------------------------------------------------------------------ */

static void *compile(const char *source, const char *options)
{
    static int count;
    char path[256], command[4096];
    snprintf(path, sizeof(path), "%s/%d.so", folder, count++);
    snprintf(command, sizeof(command),
             "cc " OPTIMISE " -w -Wno-psabi -shared -fPIC -I%s %s %s/tests/unit/cuda/%s -o %s",
             SOURCE_ROOT, options, SOURCE_ROOT, source, path);
    assert_int_equal(system(command), 0);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fail_msg("%s", dlerror());
    }
    unlink(path);
    return so;
}

/* In the place of an encoded map the params get its description. */
static void encode_maps(struct launch *l)
{
    for (uint32_t i = 0; i < l->n_maps; i++) {
        const struct tensor_map *m = &l->maps[i];
        assert_true(m->base && (uintptr_t)m->base % 16 == 0 && m->offset % TENSOR_MAP_ALIGN == 0 &&
                    m->offset + TENSOR_MAP_BYTES <= l->params_bytes && m->swizzle == 128);
        struct emulate_map map = {
            .base = m->base, .rank = m->rank, .element = (uint32_t)dtype_size(m->dtype)};
        memcpy(map.size, m->size, sizeof(m->size));
        memcpy(map.stride, m->stride, sizeof(m->stride));
        memcpy(map.box, m->box, sizeof(m->box));
        for (uint32_t d = 0; d < m->rank; d++) {
            assert_true(m->size[d] > 0 && m->size[d] <= UINT64_C(1) << 32 && m->box[d] > 0 &&
                        m->box[d] <= 256);
            assert_true(d == 0 || (m->stride[d - 1] % 16 == 0 && m->stride[d - 1] >> 40 == 0));
        }
        assert_true(m->box[0] * map.element <= 128);
        memcpy(l->params + m->offset, &map, sizeof(map));
    }
}

static void run(void *so, struct launch *l, struct emulate_launch *e)
{
    int (*launch)(const struct emulate_launch *);
    *(void **)&launch = dlsym(so, "emulate_launch"); /* ISO C has no cast for it */
    encode_maps(l);
    e->entry = l->entry;
    e->grid[0] = l->grid[0];
    e->grid[1] = l->grid[1];
    e->grid[2] = l->grid[2];
    e->threads = l->block[0];
    e->shared_bytes = l->smem_bytes;
    e->params = l->params;
    if (launch(e)) {
        fail_msg("%s: %s", description, (const char *)dlsym(so, "emulate_error"));
    }
}

/* ---- numbers -------------------------------------------------------------------------------- */

static double decode(enum dtype t, const void *data, int64_t at)
{
    if (t == DTYPE_FP32) {
        return ((const float *)data)[at];
    }
    uint16_t v = ((const uint16_t *)data)[at];
    if (t == DTYPE_BF16) {
        uint32_t bits = (uint32_t)v << 16;
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    int exponent = v >> 10 & 31, mantissa = v & 1023;
    double size = exponent == 31  ? (double)NAN
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return v & 0x8000 ? -size : size;
}

/* Small multiples of 1/8: exact in both types. */
static uint16_t encode_small(enum dtype t, int eighths)
{
    float f = (float)eighths / 8;
    uint32_t bits;
    memcpy(&bits, &f, sizeof(bits));
    if (t == DTYPE_BF16) {
        return (uint16_t)(bits >> 16);
    }
    return eighths
               ? (uint16_t)((bits >> 16 & 0x8000) | (((bits & 0x7fffffff) - (112u << 23)) >> 13))
               : 0;
}

static double round_to(enum dtype t, double v)
{
    int exponent;
    if (v == 0 || !isfinite(v)) {
        return v;
    }
    frexp(v, &exponent);
    int digits = t == DTYPE_BF16 ? 8 : 11;
    return ldexp(nearbyint(ldexp(v, digits - exponent)), exponent - digits);
}

/* ---- a case --------------------------------------------------------------------------------- */

struct matrix {
    void *block; /* owned: guard, data, guard */
    char *data;  /* 16-byte aligned */
    int64_t rows, cols, stride;
    enum dtype dtype;
};

struct test_case {
    uint64_t random;
    struct problem problem;
    struct grouped_gemm_problem v;
    struct record config;
    int64_t rows[EXPERTS_MAX];
    struct matrix x, w, dy, out;
    int64_t gather[4096];
    int32_t gather32[4096], rows32[EXPERTS_MAX];
    float weights[4096];
    uint16_t weights16[4096];
    bool wide_gather, wide_rows, half_weights, strided;
};

static int64_t pick(struct test_case *c, const int64_t *list, size_t n)
{
    return list[random_next(&c->random) % n];
}
#define PICK(c, ...)                                                                               \
    pick(c, (const int64_t[]){__VA_ARGS__},                                                        \
         sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static size_t matrix_bytes(const struct matrix *m)
{
    return (size_t)(m->rows * m->stride) * dtype_size(m->dtype);
}

static void make_matrix(struct test_case *c, struct matrix *m, int64_t rows, int64_t cols,
                        enum dtype t, bool fill)
{
    *m = (struct matrix){.rows = rows,
                         .cols = cols,
                         .dtype = t,
                         .stride = cols + (c->strided ? PICK(c, 8, 24, 40) : 0)};
    size_t bytes = matrix_bytes(m);
    m->block = aligned_alloc(16, (bytes + 2 * GUARD + 15) / 16 * 16);
    m->data = (char *)m->block + GUARD;
    memset(m->block, 0xff, bytes + 2 * GUARD); /* NaN, also between the rows */
    for (int64_t i = 0; fill && i < rows * cols; i++) {
        uint16_t v = encode_small(t, (int)(random_next(&c->random) % 33) - 16);
        ((uint16_t *)m->data)[i / cols * m->stride + i % cols] = v;
    }
}

static double at(const struct matrix *m, int64_t row, int64_t col)
{
    return decode(m->dtype, m->data, row * m->stride + col);
}

static void make_problem(struct test_case *c)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    struct record fields;
    struct error err = ERROR_NULL;
    char routing[1024] = "rows:";
    size_t mode = random_next(&c->random) % 3, permute = random_next(&c->random) % 3;
    int64_t experts = PICK(c, 1, 2, 3, 5, 33, 66), topk = PICK(c, 1, 2, 3, 6), total = 0;
    topk = topk > experts ? 1 : topk;
    for (int64_t e = 0; e < experts; e++) {
        c->rows[e] = experts > 8 ? PICK(c, 0, 0, 1, 2, 7, 17)
                                 : PICK(c, 0, 1, 15, 16, 17, 63, 64, 65, 130, 257);
        total += c->rows[e];
    }
    c->rows[experts - 1] += total == 0 ? topk : (topk - total % topk) % topk;
    total = 0;
    for (int64_t e = 0; e < experts; e++) {
        total += c->rows[e];
        size_t n = strlen(routing);
        snprintf(routing + n, sizeof(routing) - n, "%s%d", e ? "," : "", (int)c->rows[e]);
    }
    record_init(&fields);
    record_put_text(&fields, "mode", modes[mode]);
    record_put_int(&fields, "M", total);
    record_put_int(&fields, "N", PICK(c, 8, 24, 40, 64, 104, 136, 264, 328));
    record_put_int(&fields, "K", PICK(c, 8, 24, 40, 64, 104, 136, 264, 328));
    record_put_int(&fields, "experts", experts);
    record_put_int(&fields, "topk", topk);
    record_put_text(&fields, "dtype_in", random_next(&c->random) % 2 ? "bf16" : "fp16");
    record_put_bool(&fields, "permute_x", permute == 1);
    record_put_bool(&fields, "permute_y", permute == 2);
    record_put_bool(&fields, "fuse_mul_post",
                    mode == 0 && permute == 2 && random_next(&c->random) % 2);
    record_put_bool(&fields, "accumulate", mode == 2 && random_next(&c->random) % 3 == 0);
    if (mode == 2 && random_next(&c->random) % 2) {
        record_put_text(&fields, "dtype_out", "fp32");
    }
    record_put_text(&fields, "routing", routing);
    if (problem_make(&c->problem, "grouped_gemm", &fields, &err)) {
        fail_msg("%s", err.text);
    }
    grouped_gemm_view(&c->problem, &c->v);
}

/* Also what is legal but not in the space. */
static void stray(struct test_case *c)
{
#ifdef TARGET_HOPPER
    if (random_next(&c->random) % 4 == 0) {
        record_put_int(&c->config, "num_stages", PICK(c, 2, 3));
    }
    if (random_next(&c->random) % 8 == 0) {
        record_put_int(&c->config, "staging_buffers", 3);
    }
    if (random_next(&c->random) % 4 == 0) {
        record_put_int(&c->config, "GROUP_SIZE_M", PICK(c, 2, 3));
    }
    if (c->v.mode != GEMM_DW && random_next(&c->random) % 2) {
        record_put_bool(&c->config, "swap_ab", true);
        record_put_int(&c->config, "BLOCK_SIZE_M", PICK(c, 32, 64, 96, 128, 160, 192, 224, 256));
    }
#else
    const char *depth = c->v.mode == GEMM_FORWARD ? "BLOCK_SIZE_K"
                        : c->v.mode == GEMM_DX    ? "BLOCK_SIZE_N"
                                                  : "BLOCK_SIZE_M";
    if (random_next(&c->random) % 8 == 0) {
        record_put_int(&c->config, depth, 128);
    }
#endif
}

/* False: nothing is legal for this problem. */
static bool choose_config(struct test_case *c)
{
    struct param params[PARAMS_MAX];
    struct rejection why;
    struct error err = ERROR_NULL;
    uint32_t n = TARGET.params(&c->problem, &info, params);
    for (int i = 0; i < 100000; i++) {
        record_init(&c->config);
        for (uint32_t j = 0; j < n; j++) {
            record_set(&c->config, params[j].name,
                       params[j].values[random_next(&c->random) % params[j].n], &err);
        }
        stray(c);
        /* Blocks of threads run one after the other here, so there are no clusters of them. */
        record_put_int(&c->config, "NUM_KSPLIT", 1);
        if (TARGET.check(&c->problem, &c->config, &info, &why) == 0) {
            return true;
        }
    }
    return false;
}

static void fill_case(struct test_case *c)
{
    const struct grouped_gemm_problem *v = &c->v;
    c->strided = random_next(&c->random) % 3 == 0;
    c->wide_gather = random_next(&c->random) % 2;
    c->wide_rows = random_next(&c->random) % 2;
    c->half_weights = random_next(&c->random) % 2;
    make_matrix(c, &c->x, v->x_rows, v->k, v->in, true);
    make_matrix(c, &c->w, v->experts * v->n, v->k, v->in, true);
    make_matrix(c, &c->dy, v->m, v->n, v->in, true);
    make_matrix(c, &c->out, v->out_rows, v->out_cols, v->out, false);
    for (int64_t i = 0; v->accumulate && i < c->out.rows * c->out.cols; i++) {
        int64_t j = i / c->out.cols * c->out.stride + i % c->out.cols;
        int eighths = (int)(random_next(&c->random) % 33) - 16;
        if (v->out == DTYPE_FP32) {
            ((float *)c->out.data)[j] = (float)eighths / 8;
        } else {
            ((uint16_t *)c->out.data)[j] = encode_small(v->out, eighths);
        }
    }
    assert_true(v->m <= 4096);
    for (int64_t i = 0; i < v->m; i++) {
        int64_t j = (int64_t)(random_next(&c->random) % (uint64_t)(i + 1));
        c->gather[i] = c->gather[j];
        c->gather[j] = i;
        c->weights16[i] = encode_small(v->in, (int)(random_next(&c->random) % 17));
        c->weights[i] = (float)decode(v->in, &c->weights16[i], 0);
        if (!c->half_weights) {
            c->weights[i] *= 1.0015f; /* so that its rounding shows */
        }
    }
    for (int64_t i = 0; i < v->m; i++) {
        c->gather32[i] = (int32_t)c->gather[i];
    }
    for (int64_t e = 0; e < v->experts; e++) {
        c->rows32[e] = (int32_t)c->rows[e];
    }
}

/* ---- what must come out --------------------------------------------------------------------- */

/* Row i of expert e in expert order; `row` of the output. */
static double expected(const struct test_case *c, int64_t e, int64_t first, int64_t i, int64_t row,
                       int64_t col, double before)
{
    const struct grouped_gemm_problem *v = &c->v;
    double sum = 0;
    if (v->mode == GEMM_FORWARD) {
        int64_t x = v->gather_x ? c->gather[i] / v->topk : i;
        for (int64_t k = 0; k < v->k; k++) {
            sum += at(&c->x, x, k) * at(&c->w, e * v->n + col, k);
        }
        if (v->fuse_mul_post) {
            double weight = round_to(v->in, c->weights[row]);
            sum = round_to(v->in, round_to(v->in, sum) * weight);
        }
        return sum;
    }
    if (v->mode == GEMM_DX) {
        int64_t dy = v->gather_dy ? c->gather[i] : i;
        for (int64_t n = 0; n < v->n; n++) {
            sum += at(&c->dy, dy, n) * at(&c->w, e * v->n + n, col);
        }
        return sum;
    }
    for (i = first; i < first + c->rows[e]; i++) {
        int64_t dy = v->gather_dy ? c->gather[i] : i, x = v->gather_x ? c->gather[i] / v->topk : i;
        sum += at(&c->dy, dy, row % v->n) * at(&c->x, x, col);
    }
    return sum + before;
}

/* Inputs are small multiples of 1/8: sums are exact in fp32, so only the last rounding is left. */
static void compare(const struct test_case *c, const struct matrix *before, const double *reference)
{
    const struct grouped_gemm_problem *v = &c->v;
    int64_t first = 0;
    for (int64_t e = 0; e < v->experts; e++) {
        int64_t n = v->mode == GEMM_DW ? v->n : c->rows[e];
        for (int64_t r = 0; r < n; r++) {
            int64_t i = v->mode == GEMM_DW ? e * v->n + r : first + r;
            int64_t row = v->scatter ? c->gather[i] : i;
            for (int64_t col = 0; col < v->out_cols; col++) {
                double old = v->accumulate ? at(before, row, col) : 0;
                double exact = expected(c, e, first, i, row, col, old);
                double want = v->out == DTYPE_FP32 ? exact : round_to(v->out, exact);
                double got = at(&c->out, row, col), ref = reference[row * v->out_cols + col];
                if (got != want) {
                    fail_msg("%s: expert %d row %d column %d: %g, not %g", description, (int)e,
                             (int)row, (int)col, got, want);
                }
                if (ref != exact - old) {
                    fail_msg("%s: the reference, expert %d row %d column %d: %g, not %g",
                             description, (int)e, (int)row, (int)col, ref, exact - old);
                }
            }
        }
        first += c->rows[e];
    }
}

/* Nothing but the output's rows may have changed: guards, and the gaps between the rows. */
static void check_guards(const struct matrix *m)
{
    const uint8_t *bytes = m->block;
    size_t size = matrix_bytes(m), element = dtype_size(m->dtype);
    for (size_t i = 0; i < size + 2 * GUARD; i++) {
        size_t at_column = (i - GUARD) / element % (size_t)m->stride;
        bool inside = i >= GUARD && i < GUARD + size && at_column < (size_t)m->cols;
        if (!inside && bytes[i] != 0xff) {
            fail_msg("%s: byte %d of a guard was written", description, (int)i - GUARD);
        }
    }
}

/* ---- running it ----------------------------------------------------------------------------- */

static void allow(struct emulate_launch *e, const struct matrix *m)
{
    e->ranges[e->n_ranges++] = (struct emulate_range){m->data, m->data + matrix_bytes(m)};
}

static struct grouped_gemm_args args_of(struct test_case *c)
{
    const struct grouped_gemm_problem *v = &c->v;
    return (struct grouped_gemm_args){
        .size = sizeof(struct grouped_gemm_args),
        .flags = v->accumulate ? GROUPED_GEMM_ACCUMULATE : 0,
        .x = c->x.data,
        .w = c->w.data,
        .dy = c->dy.data,
        .out = c->out.data,
        .x_stride = c->x.stride,
        .w_stride = c->w.stride,
        .dy_stride = c->dy.stride,
        .out_stride = c->out.stride,
        .m_sizes = v->experts == 1 ? NULL
                   : c->wide_rows  ? (void *)c->rows
                                   : c->rows32,
        .m_sizes_dtype = c->wide_rows ? DTYPE_INT64 : DTYPE_INT32,
        .gather_indices = c->wide_gather ? (void *)c->gather : c->gather32,
        .gather_dtype = c->wide_gather ? DTYPE_INT64 : DTYPE_INT32,
        .topk_weights = c->half_weights ? (void *)c->weights16 : c->weights,
        .weights_dtype = c->half_weights ? (uint32_t)v->in : DTYPE_FP32,
        .rows = v->m,
    };
}

static struct grouped_gemm_args reference_args;

static void bind_reference(const struct workload *w, void *const buffers[], void *workspace,
                           int64_t workspace_bytes, void *stream, void *args)
{
    (void)w, (void)buffers, (void)workspace, (void)workspace_bytes, (void)stream;
    memcpy(args, &reference_args, sizeof(reference_args));
}

/* The reference over all rows. */
static void run_reference(struct test_case *c, void *so, double *out)
{
    struct grouped_gemm_state state = {.view = c->v};
    struct family family = {.bind = bind_reference};
    struct workload w = {.family = &family,
                         .problem = c->problem,
                         .state = &state,
                         .n_checks = (uint32_t)c->v.out_rows,
                         .check_length = c->v.out_cols};
    int64_t *check_at = calloc(w.n_checks, sizeof(*check_at));
    for (uint32_t i = 0; i < w.n_checks; i++) {
        check_at[i] = i * w.check_length;
    }
    struct launch *l = calloc(1, sizeof(*l));
    struct error err = ERROR_NULL;
    reference_args = args_of(c);
    if (grouped_gemm_cuda.reference(&w, NULL, check_at, out, l, &err)) {
        fail_msg("%s", err.text);
    }
    struct emulate_launch e = {.seed = c->random};
    run(so, l, &e);
    free(l);
    free(check_at);
}

static void run_target(struct test_case *c)
{
    struct variant variant;
    struct error err = ERROR_NULL;
    assert_int_equal(TARGET.variant(&c->problem, &c->config, "sm_90a", &variant, &err), 0);
    struct launch_plan *plan = calloc(1, sizeof(*plan));
    struct grouped_gemm_args args = args_of(c);
    int r = TARGET.plan(&c->problem, &c->config, &info, &args, plan, &err);
    char *workspace = NULL;
    int64_t bytes = plan->workspace_bytes;
    if (bytes) {
        assert_int_equal(r, ERROR_INVALID);
        args.workspace = workspace = aligned_alloc(256, (size_t)(bytes + 255) / 256 * 256);
        args.workspace_bytes = bytes;
        memset(workspace, 0xff, (size_t)bytes);
        r = TARGET.plan(&c->problem, &c->config, &info, &args, plan, &err);
    }
    if (r) {
        fail_msg("%s: %s", description, err.text);
    }
    void *so = compile(EMULATED, variant.options);
    for (uint32_t i = 0; i < plan->n; i++) {
        struct emulate_launch e = {.seed = c->random};
        if (plan->steps[i].zero_bytes) {
            assert_true(plan->steps[i].zero == workspace && plan->steps[i].zero_bytes <= bytes);
            memset(workspace, 0, (size_t)plan->steps[i].zero_bytes);
            continue;
        }
        allow(&e, &c->x);
        allow(&e, &c->w);
        allow(&e, &c->dy);
        allow(&e, &c->out);
        e.ranges[e.n_ranges++] = (struct emulate_range){workspace, workspace + bytes};
        run(so, &plan->steps[i], &e);
    }
    dlclose(so);
    free(workspace);
    free(plan);
}

static void free_case(struct test_case *c)
{
    free(c->x.block);
    free(c->w.block);
    free(c->dy.block);
    free(c->out.block);
    free(c);
}

/* For the sentence of a failure. */
static void describe(const struct test_case *c, uint64_t seed)
{
    size_t n = (size_t)snprintf(description, sizeof(description),
                                "GEMMD_TEST_SEED=%llu: ", (unsigned long long)seed);
    n += problem_format(&c->problem, description + n, sizeof(description) - n);
    n += (size_t)snprintf(description + n, sizeof(description) - n, " | ");
    record_format(&c->config, description + n, sizeof(description) - n);
}

static void one_case(uint64_t seed, void *reference)
{
    struct test_case *c = calloc(1, sizeof(*c));
    c->random = seed;
    do {
        make_problem(c);
    } while (!choose_config(c));
    fill_case(c);
    describe(c, seed);
    struct matrix before = c->out;
    before.block = malloc(matrix_bytes(&c->out) + 2 * GUARD);
    memcpy(before.block, c->out.block, matrix_bytes(&c->out) + 2 * GUARD);
    before.data = (char *)before.block + GUARD;
    run_target(c);
    double *out = calloc((size_t)(c->v.out_rows * c->v.out_cols), sizeof(double));
    run_reference(c, reference, out);
    compare(c, &before, out);
    check_guards(&c->out);
    free(out);
    free(before.block);
    free_case(c);
}

static void test_sample(void **state)
{
    (void)state;
    const char *cases = getenv("GEMMD_TEST_CASES"), *from = getenv("GEMMD_TEST_SEED");
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1, n = cases ? strtoull(cases, NULL, 10) : 32;
    void *reference = compile("emulate_reference.c", "");
    for (uint64_t i = 0; i < n; i++) {
        one_case(seed + i, reference);
    }
    dlclose(reference);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sample)};
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("SKIP: no C compiler (cc) to build the emulated kernels with");
        return 77;
    }
    if (!mkdtemp(folder)) {
        perror(folder);
        return 1;
    }
    families_register();
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(folder);
    return r;
}
