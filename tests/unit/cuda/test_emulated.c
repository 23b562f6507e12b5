/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The templates portable (TARGET grouped_gemm_cuda) or hopper (grouped_gemm_hopper), and
 * reference.cu, run on the CPU. A seeded sample of problems and legal configs goes through check,
 * variant and plan as on a GPU. cc compiles the variant's source with emulate.h in place of the
 * hardware, and every element of the output is compared with sums in double made here.
 *
 * Rows per expert include 0, 1, 15, 16, 17 and tails of every tile; N and K are not multiples of
 * tiles. Strides, int64 indices, accumulation and repeated rows of dy take their turns.
 * GEMMD_TEST_CASES: number of cases (default 22; a single case of each special kind),
 * GEMMD_TEST_SEED: the first seed, GEMMD_TEST_ONLY: a pattern of test names.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef TARGET_HOPPER
#include "kernels/families/grouped_gemm/hopper/host/params.h"
#endif
#include "tests/unit/cuda/emulate_launch.h"
#include "tests/unit/cuda/emulated.h"
#include "tests/unit/cuda/emulated_run.h"

#ifdef TARGET_HOPPER
#define EMULATED "emulate_hopper.c"
enum { WAYS_TO_GATHER = 2 /* also permute_copy */ };
#else
#define EMULATED "emulate_portable.c"
enum { WAYS_TO_GATHER = 1 };
#endif
enum { KINDS_MAX = 8 };

/* ---- runs ----------------------------------------------------------------------------------- */

static void allow(struct emulate_launch *e, const struct matrix *m)
{
    e->ranges[e->n_ranges++] = (struct emulate_range){m->data, m->data + matrix_bytes(m)};
}

static struct grouped_gemm_args args_of(struct test_case *c)
{
    const struct gemm *v = &c->v;
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
        .weights_dtype = c->half_weights ? (uint32_t)v->out : DTYPE_FP32,
        .rows = v->m,
        .x_scale = c->scales[GEMM_X].data,
        .w_scale = c->scales[GEMM_W].data,
        .dy_scale = c->scales[GEMM_DY].data,
        .x_scale_stride = c->scales[GEMM_X].stride,
        .x_scale_stride_block = c->scales[GEMM_X].block,
        .dy_scale_stride = c->scales[GEMM_DY].stride,
        .dy_scale_stride_block = c->scales[GEMM_DY].block,
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
    struct gemm_state state = {.view = c->v};
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
    emulated_run(case_text(c), so, l, &e);
    free(l);
    free(check_at);
}

static uint32_t launches =
    1; /* number of launches of a case, in turn, each with another random schedule */
static int64_t sms = 0; /* number of SMs of the device; 0: as in emulated_info */

/* Makes the bucket for which the case's variant is compiled. As with a real job, its rows differ
 * from the launched problem's, and decide settings that the config leaves out. */
static void bucket_of(const struct test_case *c, struct problem *out)
{
    struct record fields;
    struct error err = ERROR_NULL;
    bool many = c->seed % 2;
    record_copy(&fields, &c->problem.fields);
    record_put_int(&fields, "M", c->v.topk * (many ? c->v.experts * 1024 : 1));
    record_put_text(&fields, "routing", "uniform");
    if (problem_make(out, c->problem.op_name, &fields, &err)) {
        fail_msg("%s", err.text);
    }
}

/* Owned by the caller. */
static char *copy_of(const struct matrix *m)
{
    char *copy = malloc(matrix_bytes(m) + 1);
    memcpy(copy, m->data, matrix_bytes(m));
    return copy;
}

static void run_plan(struct test_case *c, void *so, struct launch_plan *plan, char *workspace,
                     int64_t bytes, uint64_t seed)
{
    for (uint32_t i = 0; i < plan->n; i++) {
        struct emulate_launch e = {.seed = seed};
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
        char *const gather = c->wide_gather ? (char *)c->gather : (char *)c->gather32;
        e.ranges[e.n_ranges++] =
            (struct emulate_range){gather, gather + c->v.m * (c->wide_gather ? 8 : 4)};
        emulated_run(case_text(c), so, &plan->steps[i], &e);
    }
}

static void run_target(struct test_case *c)
{
    struct variant variant;
    struct error err = ERROR_NULL;
    struct problem *bucket = calloc(1, sizeof(*bucket));
    bucket_of(c, bucket);
    /* the portable kernel multiplies fp8 as fp16 on sm_80 */
    const char *arch = c->v.quant->is_scaled && c->seed / 2 % 2 ? "sm_80" : "sm_90a";
    assert_int_equal(TARGET.variant(bucket, &c->config, arch, &variant, &err), 0);
    free(bucket);
    struct launch_plan *plan = calloc(1, sizeof(*plan));
    struct grouped_gemm_args args = args_of(c);
    if (args.m_sizes && c->seed % 3 == 0) {
        args.flags |= GROUPED_GEMM_ENDS;
        args.m_sizes = c->wide_rows ? (void *)c->ends : c->ends32;
    }
    struct device_info info = emulated_info;
    info.sm_count = sms ? sms : info.sm_count;
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
        fail_msg("%s: %s", case_text(c), err.text);
    }
    void *so = emulated_compile(NULL, EMULATED, variant.options);
    char *const before = copy_of(&c->out);
    run_plan(c, so, plan, workspace, bytes, c->random);
    char *const first = copy_of(&c->out);
    for (uint32_t n = 1; n < launches; n++) {
        memcpy(c->out.data, before, matrix_bytes(&c->out));
        run_plan(c, so, plan, workspace, bytes, c->random + n);
        if (memcmp(c->out.data, first, matrix_bytes(&c->out)) != 0) {
            fail_msg("%s: launch %u of the same comes to another result than the first",
                     case_text(c), n);
        }
    }
    free(before);
    free(first);
    free(workspace);
    free(plan);
}

/* Operands for which the order of summation shows in the bits; the number of elements in which it
 * does so. */
static bool is_rough = false;
static int64_t other_bits;

static void one_case(struct test_case *c, void *reference)
{
    case_fill(c);
    if (is_rough && c->v.mode != GEMM_DW) {
        case_roughen(c);
        run_target(c);
        other_bits += case_compare_order(c);
    }
    if (is_rough) {
        case_free(c);
        return;
    }
    struct matrix before = c->out;
    before.block = malloc(matrix_bytes(&c->out) + 2 * GUARD);
    memcpy(before.block, c->out.block, matrix_bytes(&c->out) + 2 * GUARD);
    before.data = (char *)before.block + GUARD;
    run_target(c);
    double *out = calloc((size_t)(c->v.out_rows * c->v.out_cols), sizeof(double));
    run_reference(c, reference, out);
    case_compare(c, &before, out);
    free(out);
    free(before.block);
    case_free(c);
}

static void test_sample(void **state)
{
    (void)state;
    const char *cases = getenv("GEMMD_TEST_CASES"), *from = getenv("GEMMD_TEST_SEED");
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1;
    uint64_t n = cases ? strtoull(cases, NULL, 10) : is_rough ? 4 : 22;
    void *reference = emulated_compile(NULL, "emulate_reference.c", "-O2");
    for (uint64_t i = 0; i < n; i++) {
        one_case(case_draw(seed + i), reference);
    }
}

#ifndef TARGET_HOPPER
/* Scaled operands. Scales are powers of two and numbers small, so that sums are exact: a scale of
 * another row, block or expert shows, and so does a column that no row has. */
static void test_scaled(void **state)
{
    (void)state;
    const char *cases = getenv("GEMMD_TEST_CASES"), *from = getenv("GEMMD_TEST_SEED");
    uint64_t seed = from ? strtoull(from, NULL, 10) : 1, n = cases ? strtoull(cases, NULL, 10) : 8;
    void *reference = emulated_compile(NULL, "emulate_reference.c", "-O2");
    for (uint64_t i = 0; i < n; i++) {
        one_case(case_draw_scaled(seed + i), reference);
    }
}

/* Each row of x has one number, a code of fp8; w is ones. The output is the code's value: NaN for
 * the codes of NaN, whose neighbours' rows are not touched. */
static void every_code(uint64_t seed)
{
    enum { CODES = 256, COLS = 16 };
    const uint8_t one = fp8_encode(1);
    struct test_case *c = calloc(1, sizeof(*c));
    struct error err = ERROR_NULL;
    assert_int_equal(
        problem_parse(&c->problem, "gemm mode=forward M=256 N=16 K=16 quant=fp8_block", &err), 0);
    gemm_view(&c->problem, &c->v);
    assert_int_equal(TARGET.choose(&c->problem, &emulated_info, &c->config, &err), 0);
    c->seed = seed;
    c->rows[0] = CODES;
    case_fill(c);
    for (int64_t i = 0; i < CODES * COLS; i++) {
        c->x.data[i] = i % COLS ? 0 : (char)(i / COLS);
        c->w.data[i % (COLS * COLS)] = (char)one;
    }
    for (int i = 0; i < CODES; i++) {
        c->scales[GEMM_X].data[i] = 1;
    }
    c->scales[GEMM_W].data[0] = 1;
    run_target(c);
    for (int64_t i = 0; i < CODES * COLS; i++) {
        const double got = decode(DTYPE_BF16, c->out.data, i),
                     want = fp8_decode((uint8_t)(i / COLS));
        if (got != want && !(isnan(got) && isnan(want))) {
            fail_msg("code 0x%02x is %g, not %g", (int)(i / COLS), got, want);
        }
    }
    case_free(c);
}
static void test_every_code(void **state)
{
    (void)state;
    every_code(0); /* sm_90a */
    every_code(2); /* sm_80 */
}
#endif

/* Runs as many cases of each kind as GEMMD_TEST_CASES says. `kind_of`: the kind of a drawn case
 * (-1: no kind). `make`: changes a drawn case into a case of its kind (NULL: not needed). `soon`:
 * seeds that give a case of each kind, ended by 0; drawn first, because drawing until each kind has
 * come may take longer than the runs. NULL: no seeds. */
static void each_kind(int kinds, int (*kind_of)(const struct test_case *c),
                      bool (*make)(struct test_case *c), const uint64_t *soon)
{
    const char *cases = getenv("GEMMD_TEST_CASES"), *from = getenv("GEMMD_TEST_SEED");
    const uint64_t each = cases ? strtoull(cases, NULL, 10) : 1;
    uint64_t seen[KINDS_MAX] = {0}, n = 0, next = from ? strtoull(from, NULL, 10) : 1;
    void *reference = emulated_compile(NULL, "emulate_reference.c", "-O2");
    assert_true(kinds <= KINDS_MAX);
    soon = cases || from ? NULL : soon;
    while (n < (uint64_t)kinds * each) {
        struct test_case *c = case_draw(soon && *soon ? *soon++ : next++);
        const int kind = kind_of(c);
        if (kind < 0 || seen[kind] == each || (make && !make(c))) {
            case_free(c);
            continue;
        }
        one_case(c, reference);
        seen[kind]++;
        n++;
    }
}

static int kind_shared_dy(const struct test_case *c)
{
    return c->shared_dy ? (c->v.mode == GEMM_DW) * WAYS_TO_GATHER +
                              record_bool(&c->config, "permute_copy", false)
                        : -1;
}

/* dX and dW of a layer whose second GEMM's rows are summed for each token: dy has a row for each
 * token, and all the token's topk routed rows name this row. Kinds: the kernel gathers the rows, or
 * a launch before the kernel copies them (permute_copy). */
static void test_shared_dy(void **state)
{
    (void)state;
    static const uint64_t soon[] = {28, 34, 112, 250, 0};
    each_kind(2 * WAYS_TO_GATHER, kind_shared_dy, NULL, soon);
}

#ifndef TARGET_HOPPER
static void test_order(void **state)
{
    is_rough = true;
    test_sample(state);
    is_rough = false;
}
#endif

#ifdef TARGET_HOPPER
static int kind_store_slabs(const struct test_case *c)
{
    return record_int(&c->config, "store_slabs", 1) == 2 && c->v.k == 192 && c->v.m > 0
               ? c->v.out == DTYPE_FP32
               : -1;
}

/* dW that stores slabs (128 bytes of each row) in pairs. Kinds: a 16-bit output, whose 192 columns
 * are three slabs, so that the last pair has a single slab, and an fp32 output. */
static void test_store_slabs(void **state)
{
    (void)state;
    static const uint64_t soon[] = {39, 299, 0};
    each_kind(2, kind_store_slabs, NULL, soon);
}

static int64_t ceil_by(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Counts tiles of `rows` by `cols` that fill both 64-row halves of a consumer warpgroup; in dW only
 * tiles whose sums run over at least `sum` rows. */
static int64_t whole_tiles(const struct test_case *c, int64_t rows, int64_t cols, int64_t sum)
{
    int64_t n = 0;
    for (int64_t e = 0; e < c->v.experts; e++) {
        const bool dw = c->v.mode == GEMM_DW;
        const int64_t r = dw ? c->v.n : c->rows[e];
        n += dw && c->rows[e] < sum ? 0 : r / rows + (r % rows > 64);
    }
    return n * ceil_by(c->v.out_cols, cols);
}

/* Gives the drawn case the schedule "staggered". Returns false if the config is not legal, or if no
 * thread block has two whole tiles. */
static bool stagger(struct test_case *c)
{
    static const char *const side[][2] = {[GEMM_FORWARD] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N"},
                                          [GEMM_DX] = {"BLOCK_SIZE_M", "BLOCK_SIZE_K"},
                                          [GEMM_DW] = {"BLOCK_SIZE_N", "BLOCK_SIZE_K"}};
    struct rejection why;
    const int consumers = c->seed % 3 ? 2 : 1;
    record_put_text(&c->config, "schedule", "staggered");
    record_put_int(&c->config, "in_flight",
                   record_bool(&c->config, "skip_rows", false) !=
                       record_bool(&c->config, "use_tma_store", true));
    record_put_int(&c->config, side[c->v.mode][0], 128 * consumers);
    record_put_int(&c->config, "num_warps", 4 + 4 * consumers);
    return whole_tiles(c, 128 * consumers, record_int(&c->config, side[c->v.mode][1], 0), 2 * 64) >
               2 * emulated_info.sm_count &&
           TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_staggered(const struct test_case *c)
{
    return (c->v.mode == GEMM_DW) * 4 + record_bool(&c->config, "skip_rows", false) * 2 +
           record_bool(&c->config, "use_tma_store", true);
}

/* The kernel writes half of a tile's rows while it multiplies the other half: forward, dX and dW;
 * with and without skip_rows; stores by TMA and by threads. */
static void test_staggered(void **state)
{
    (void)state;
    static const uint64_t soon[] = {200, 222, 273, 497, 573, 588, 762, 2481, 0};
    each_kind(8, kind_staggered, stagger, soon);
}

/* Returns a lower bound of the number of tiles in forward and dX; with `together` 2, of pairs of
 * tiles that are adjacent in the output's rows. */
static int64_t swapped_tiles(const struct test_case *c, int64_t together)
{
    const char *cols = c->v.mode == GEMM_FORWARD ? "BLOCK_SIZE_N" : "BLOCK_SIZE_K";
    int64_t n = 0;
    for (int64_t e = 0; e < c->v.experts; e++) {
        n += ceil_by(c->rows[e], together * record_int(&c->config, "BLOCK_SIZE_M", 0));
    }
    return n * ceil_by(c->v.out_cols, record_int(&c->config, cols, 0));
}

/* Gives the drawn case the schedule "deferred". Returns false if the config is not legal, or if no
 * thread block has three tiles. */
static bool defer(struct test_case *c)
{
    struct rejection why;
    record_put_text(&c->config, "schedule", "deferred");
    record_put_bool(&c->config, "skip_rows", false);
    return swapped_tiles(c, 1) > 2 * emulated_info.sm_count &&
           TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_deferred(const struct test_case *c)
{
    return record_bool(&c->config, "swap_ab", false)
               ? (c->v.mode == GEMM_DX) * 2 + record_bool(&c->config, "use_tma_store", true)
               : -1;
}

/* The kernel writes a tile while it multiplies the next tile; stores by TMA and by threads. */
static void test_deferred(void **state)
{
    (void)state;
    static const uint64_t soon[] = {3, 4, 12, 34, 0};
    each_kind(4, kind_deferred, defer, soon);
}

/* Makes two thread blocks share weights in the drawn case. Returns false if the config is not
 * legal, or if no pair of thread blocks has three pairs of tiles. */
static bool make_paired(struct test_case *c)
{
    struct rejection why;
    record_put_text(&c->config, "cluster_shape_mn", "2x1");
    record_put_bool(&c->config, "skip_rows", false);
    return swapped_tiles(c, 2) > 2 &&
           TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_paired(const struct test_case *c)
{
    return record_bool(&c->config, "swap_ab", false)
               ? (c->v.mode == GEMM_DX) * 4 +
                     (strcmp(record_text(&c->config, "tile_scheduler", ""), "dynamic") == 0) * 2 +
                     record_bool(&c->config, "use_tma_store", true)
               : -1;
}

/* The two thread blocks of a cluster take tiles that are adjacent in the rows. Kinds: forward and
 * dX; clusters that take tiles in turn, and dynamically; stores by threads and by TMA. On a device
 * whose grid is a single cluster, and on one with three. */
static void test_paired(void **state)
{
    (void)state;
    static const uint64_t soon[] = {3, 4, 10, 19, 21, 28, 33, 71, 0};
    each_kind(8, kind_paired, make_paired, soon);
    sms = 6;
    each_kind(8, kind_paired, make_paired, soon);
    sms = 0;
}

/* Makes two thread blocks share x in a drawn case of dW. Returns false if the config is not legal.
 * The kind has K = 192: x has a multiple of 64 columns. */
static bool make_paired_sums(struct test_case *c)
{
    struct rejection why;
    record_put_text(&c->config, "cluster_shape_mn", "2x1");
    record_put_text(&c->config, "schedule", "cooperative");
    record_put_int(&c->config, "BLOCK_SIZE_K", 128);
    return TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_paired_sums(const struct test_case *c)
{
    return c->v.mode == GEMM_DW && c->v.k == 192 ? 0 : -1;
}

static void test_paired_sums(void **state)
{
    (void)state;
    each_kind(1, kind_paired_sums, make_paired_sums, NULL);
}

/* dW with stages of half a block (stage_rows=32), and tiles of 128 x 128. At the edge of the
 * problem a tile has fewer slabs (64 columns of shared memory) of both operands. */
static bool make_halves(struct test_case *c)
{
    struct rejection why;
    record_put_int(&c->config, "stage_rows", 32);
    record_put_int(&c->config, "BLOCK_SIZE_N", 128);
    record_put_int(&c->config, "BLOCK_SIZE_K", 128);
    return TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

/* Kinds: a single consumer warpgroup, two that share each tile, two that take tiles in turn
 * (ping-pong); each with operands loaded by TMA, and with gathered operands. */
static int kind_halves(const struct test_case *c)
{
    const bool in_turn = strcmp(record_text(&c->config, "schedule", ""), "pingpong") == 0;
    const bool gathered =
        (c->v.gather_x || c->v.gather_dy) && !record_bool(&c->config, "permute_copy", false);
    const bool few = c->v.n == 64 && c->v.k == 192 && c->v.m > 64;
    return c->v.mode == GEMM_DW && few
               ? (record_int(&c->config, "num_warps", 0) > 8) + in_turn + 3 * gathered
               : -1;
}

static void test_halves(void **state)
{
    (void)state;
    static const uint64_t soon[] = {39, 752, 1441, 1442, 3132, 11417, 0};
    each_kind(6, kind_halves, make_halves, soon);
}

/* Gives a drawn case of dW two consumer warpgroups in ping-pong, which release stages in any order,
 * a loading warp for each of two stages, and clusters of two thread blocks. A cluster's second
 * has no output here, and ends as early as possible. */
static bool make_paired_turns(struct test_case *c)
{
    struct rejection why;
    record_put_text(&c->config, "cluster_shape_mn", "1x2");
    record_put_text(&c->config, "schedule", "pingpong");
    record_put_int(&c->config, "num_warps", 12);
    record_put_int(&c->config, "num_stages", 2);
    record_put_int(&c->config, "load_warps", 2);
    return TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_paired_turns(const struct test_case *c)
{
    const bool in_order = !c->v.gather_x && !c->v.gather_dy;
    return c->v.mode == GEMM_DW && c->v.k < 64 && c->v.m > 64 && in_order && !c->v.accumulate ? 0
                                                                                              : -1;
}

static void test_paired_turns(void **state)
{
    (void)state;
    static const uint64_t soon[] = {
        4464, 0}; /* a kernel in which one warp waited for all stages failed in 1 of 60 launches */
    launches = 60;
    each_kind(1, kind_paired_turns, make_paired_turns, soon);
    launches = 1;
}

/* Gives a drawn case of dW a single consumer warpgroup, for 128 rows. Returns false if the config
 * is not legal, or if no thread block has two tiles whose sum is longer than a block of 64 rows and
 * no multiple of 64 rows. */
static bool make_single(struct test_case *c)
{
    struct rejection why;
    int64_t n = 0;
    record_put_text(&c->config, "schedule", "cooperative");
    record_put_int(&c->config, "num_warps", 8);
    record_put_int(&c->config, "BLOCK_SIZE_N", 128);
    record_put_int(&c->config, "in_flight", 1);
    for (int64_t e = 0; e < c->v.experts; e++) {
        n += c->rows[e] > 64 && c->rows[e] % 64 > 0 && c->rows[e] % 64 <= 48;
    }
    n *= ceil_by(c->v.n, 128) * ceil_by(c->v.out_cols, record_int(&c->config, "BLOCK_SIZE_K", 0));
    return n > 2 * emulated_info.sm_count &&
           TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_single(const struct test_case *c)
{
    return c->v.mode == GEMM_DW ? c->v.gather_x || c->v.gather_dy : -1;
}

/* At the end of the tiles that make_single asks for, the consumer releases two stages; at the end
 * of other tiles, one. */
static void test_single_consumer(void **state)
{
    (void)state;
    static const uint64_t soon[] = {14, 174, 0};
    each_kind(2, kind_single, make_single, soon);
}

/* Gives a drawn case of one expert a small tile that its rows do not fill. Returns false if the
 * config is not legal, or does not compile to the kernel for one expert. */
static bool make_small(struct test_case *c)
{
    static struct variant v;
    struct rejection why;
    struct error err = ERROR_NULL;
    record_put_text(&c->config, "schedule", "cooperative");
    record_put_int(&c->config, "num_warps", 8);
    record_put_int(&c->config, "BLOCK_SIZE_M", 64);
    record_put_int(&c->config, "BLOCK_SIZE_N", 64);
    record_put_int(&c->config, "BLOCK_SIZE_K", 64);
    return c->v.m % 64 > 0 && TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0 &&
           TARGET.variant(&c->problem, &c->config, "sm_90a", &v, &err) == 0 &&
           strstr(v.options, "-DONE_EXPERT=1 ");
}

static int kind_small(const struct test_case *c)
{
    return c->v.mode == GEMM_DW || c->v.experts > 1
               ? -1
               : (c->v.mode == GEMM_DX) * 2 + record_bool(&c->config, "swap_ab", false);
}

/* A tile with few rows: consumers load the rows of the first tile themselves. */
static void test_small_product(void **state)
{
    (void)state;
    static const uint64_t soon[] = {9, 13, 77, 81, 0};
    each_kind(4, kind_small, make_small, soon);
}

/* Sets the length of the problem's sums: K of forward, N of dX. */
static void sum_over(struct test_case *c, int64_t depth)
{
    struct record fields;
    struct error err = ERROR_NULL;
    record_copy(&fields, &c->problem.fields);
    record_put_int(&fields, c->v.mode == GEMM_DX ? "N" : "K", depth);
    if (problem_make(&c->problem, "grouped_gemm", &fields, &err)) {
        fail_msg("%s", err.text);
    }
    gemm_view(&c->problem, &c->v);
}

/* Numbers of parts of a split sum. Sums are so short that a part has one or two blocks of 64
 * elements along the sum, and thread blocks exchange partial sums as often as possible. */
static const int64_t parts[] = {2, 4, 8};

/* Splits each sum of a drawn case of forward or dX into several parts. Returns false if the config
 * is not legal, or the case has fewer than three tiles, or too many for a short test. */
static bool make_split(struct test_case *c)
{
    static const char *const cols[] = {[GEMM_FORWARD] = "BLOCK_SIZE_N", [GEMM_DX] = "BLOCK_SIZE_K"};
    struct rejection why;
    if (c->v.mode == GEMM_DW) {
        return false;
    }
    const int64_t n = parts[c->seed % 3], rows = (const int64_t[]){64, 128, 256}[c->seed / 3 % 3];
    sum_over(c, n * 64 + 8); /* so that parts have different lengths */
    record_put_int(&c->config, "NUM_KSPLIT", n);
    record_put_text(&c->config, "schedule", "cooperative");
    record_put_text(&c->config, "tile_scheduler", "static");
    record_put_text(&c->config, "cluster_shape_mn", "1x1");
    record_put_bool(&c->config, "swap_ab", false);
    record_put_bool(&c->config, "use_tma_store", false);
    record_put_int(&c->config, "BLOCK_SIZE_M", rows);
    record_put_int(&c->config, cols[c->v.mode], 64);
    record_put_int(&c->config, "num_warps", rows > 64 ? 12 : 8);
    int64_t tiles = 0;
    for (int64_t e = 0; e < c->v.experts; e++) {
        tiles += ceil_by(c->rows[e], rows) * ceil_by(c->v.out_cols, 64);
    }
    return tiles > 2 && tiles < 9 &&
           TARGET.check(&c->problem, &c->config, &emulated_info, &why) == 0;
}

static int kind_split(const struct test_case *c)
{
    return c->v.mode == GEMM_DW ? -1 : (int)(c->seed % 3) + 3 * (c->v.experts > 1);
}

/* The thread blocks of a cluster of two, four and eight share each tile, and send each other their
 * sums; for a single expert and for several. */
static void test_split(void **state)
{
    (void)state;
    /* In the case of seed 3460 the second consumer warpgroup has no rows. In a wrong kernel a lane
     * of this warpgroup waited for ever, while other lanes had released its stages. */
    static const uint64_t soon[] = {9, 25, 132, 215, 728, 3460, 0};
    launches = is_rough ? 1 : 5;
    each_kind(6, kind_split, make_split, soon);
    launches = 1;
}

/* Tiles of every kind add up a row in the order that the config's exactness names. In split sums
 * that order shows: some elements have other bits than without the split. */
static void test_order(void **state)
{
    is_rough = true;
    other_bits = 0;
    test_sample(state);
    test_small_product(state);
    test_staggered(state);
    test_deferred(state);
    assert_int_equal(other_bits, 0);
    test_split(state);
    assert_true(other_bits > 0);
    is_rough = false;
}

/* Each sum of a split tile arrives once, at the thread block that adds the sum's row. It waits
 * for exactly these bytes. */
static void test_split_sums(void **state)
{
    (void)state;
    static const char *const tiles[] = {"BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 num_warps=8",
                                        "BLOCK_SIZE_M=64 BLOCK_SIZE_N=128 num_warps=8",
                                        "BLOCK_SIZE_M=128 BLOCK_SIZE_N=64 num_warps=12",
                                        "BLOCK_SIZE_M=128 BLOCK_SIZE_N=128 num_warps=12"};
    struct problem p;
    struct error err = ERROR_NULL;
    assert_int_equal(problem_parse(&p, "grouped_gemm mode=forward M=64 N=1024 K=1024", &err), 0);
    for (size_t i = 0; i < sizeof(tiles) / sizeof(tiles[0]); i++) {
        static struct variant v;
        struct record config;
        char text[256];
        const char *(*check)(void);
        snprintf(
            text, sizeof(text),
            "%s BLOCK_SIZE_K=64 schedule=cooperative num_stages=3 use_tma_store=false NUM_KSPLIT=2",
            tiles[i]);
        assert_int_equal(record_parse(&config, text, &err), 0);
        assert_int_equal(TARGET.variant(&p, &config, "sm_90a", &v, &err), 0);
        void *so = emulated_compile(NULL, "emulate_split.c", v.options);
        *(void **)&check = dlsym(so, "check_split");
        const char *fault = check();
        if (fault) {
            fail_msg("%s: %s", tiles[i], fault);
        }
    }
}

/* Forbidden accesses of a cluster's thread blocks are detected in at least one of several
 * schedules; allowed accesses are right in all schedules. */
static void test_cluster_faults(void **state)
{
    (void)state;
    static const char *const faults[][2] = {
        {"none", NULL},
        {"past_the_end", "sends 4 bytes to"},
        {"not_aligned", "sends 4 bytes to"},
        {"no_such_block", "in block 2 of 2"},
        {"other_mbarrier", "counted by"},
        {"their_mbarrier", "the mbarrier of another block"},
        {"their_memory", "load at"},
        {"no_fence", "that no fence has shown"},
        {"not_begun", "no mbarrier here"},
        {"ended", "ended"},
        {"twice", "before what the cluster sends there has come"},
        {"read_early", "load at"},
        {"not_acquired", "only as its own are seen"},
    };
    static struct variant v;
    struct problem p;
    struct record config;
    struct error err = ERROR_NULL;
    assert_int_equal(problem_parse(&p, "grouped_gemm mode=forward M=64 N=64 K=128", &err), 0);
    assert_int_equal(
        record_parse(&config,
                     "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 schedule=cooperative "
                     "num_warps=8 num_stages=2 use_tma_store=false NUM_KSPLIT=2",
                     &err),
        0);
    assert_int_equal(TARGET.variant(&p, &config, "sm_90a", &v, &err), 0);
    void *so = emulated_compile(NULL, "emulate_faults.c", v.options);
    int (*launch)(const struct emulate_launch *);
    *(void **)&launch = dlsym(so, "emulate_launch");
    const char *said = dlsym(so, "emulate_error");
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        int seen = 0;
        for (uint64_t seed = 1; seed <= 32; seed++) {
            struct emulate_launch e = {.entry = faults[i][0],
                                       .grid = {2, 1, 1},
                                       .cluster = 2,
                                       .threads = 32,
                                       .shared_bytes = 1024,
                                       .seed = seed * 1000};
            if (launch(&e)) {
                seen += 1;
                if (!faults[i][1] || !strstr(said, faults[i][1])) {
                    fail_msg("%s: %s", faults[i][0], said);
                }
            }
        }
        if (!seen != !faults[i][1]) {
            fail_msg("%s: seen %d times", faults[i][0], seen);
        }
    }
}

/* permute_copy gathers rows: row i of the output is the row of the token that index i names. A row
 * has COPIED_CHUNKS chunks of 16 bytes. */
enum { COPIED_CHUNKS = 300, COPIED_ROWS = 128, COPIED_TOKENS = 64 };

static void run_copying(void *so, const char *entry, const struct permute_params *p, char *from,
                        char *to)
{
    struct launch *l = calloc(1, sizeof(*l));
    struct emulate_launch e = {.seed = (uint64_t)p->topk};
    snprintf(l->entry, sizeof(l->entry), "%s", entry);
    l->grid[0] = 2;
    l->grid[1] = l->grid[2] = 1;
    l->block[0] = 256;
    memcpy(l->params, p, sizeof(*p));
    e.ranges[e.n_ranges++] = (struct emulate_range){from, from + COPIED_TOKENS * p->from_stride};
    e.ranges[e.n_ranges++] = (struct emulate_range){to, to + p->rows * p->chunks * 16};
    e.ranges[e.n_ranges++] =
        (struct emulate_range){(char *)p->places, (char *)(p->places + p->rows)};
    emulated_run(l->entry, so, l, &e);
    free(l);
}

/* Allocates `n` entries of `places`, right before unreadable memory. The caller unmaps *pages. */
static int32_t *places_before_a_wall(int n, char **pages)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(*pages != MAP_FAILED && mprotect(*pages + page, page, PROT_NONE) == 0);
    return (int32_t *)(*pages + page) - n;
}

/* Kinds of gather indices. A row's index names a slot; slot i belongs to token i / topk. ALL: each
 * slot has a row, so the kernel may read a token once and write all its rows (permute.cu). SOME: a
 * slot has no row, another has two rows, an index exceeds the number of rows. PART: most indices
 * exceed the number of rows, as in a job that has a part of the experts. */
enum named { NAMED_ALL, NAMED_SOME, NAMED_PART };

static void name_slots(enum named named, int topk, int rows, int32_t *gather)
{
    for (int i = 0; i < rows; i++) {
        gather[i] = (i * 37 + 5) % rows;
        gather[i] = named == NAMED_PART ? gather[i] * 3 + 2 : gather[i];
    }
    for (int i = 0; named == NAMED_SOME && i < rows;
         i++) { /* no row names the last slots, whose token is written last */
        gather[i] = gather[i] >= rows - 2 ? i % 2 : gather[i];
        gather[i] = i == rows / 3 && rows < COPIED_TOKENS * topk ? rows : gather[i];
    }
}

/* Each copied row must equal its token's row. Indices have 32 or 64 bits. `places` first hold
 * other rows, which the kernel must replace. */
static void copy_by_token(void *so, int topk, int rows, bool wide, enum named named)
{
    int32_t gather32[COPIED_ROWS];
    int64_t gather64[COPIED_ROWS];
    const int64_t stride = COPIED_CHUNKS * 16 + 32;
    char *from = malloc((size_t)(COPIED_TOKENS * stride)),
         *to = malloc((size_t)rows * COPIED_CHUNKS * 16), *pages;
    int32_t *places = places_before_a_wall(rows, &pages);
    for (int i = 0; i < COPIED_TOKENS * stride; i++) {
        from[i] = (char)(i * 7 + i / 251);
    }
    memset(to, 0x55, (size_t)rows * COPIED_CHUNKS * 16);
    name_slots(named, topk, rows, gather32);
    for (int i = 0; i < rows; i++) {
        gather64[i] = gather32[i];
        places[i] = i % 3 ? rows - 1 - i : -i;
    }
    struct permute_params p = {.from = from,
                               .to = to,
                               .gather = wide ? (void *)gather64 : gather32,
                               .places = places,
                               .from_stride = stride,
                               .rows = rows,
                               .chunks = COPIED_CHUNKS,
                               .flags = wide ? CUDA_GATHER_64 : 0,
                               .topk = topk};
    launch_divide_by(topk, &p.row_mul, &p.row_shift);
    if (named == NAMED_ALL) {
        p.row_mul = 0; /* divides wrongly: a copy row by row would read token 0 for every row */
    }
    run_copying(so, "grouped_gemm_places", &p, from, to);
    run_copying(so, "grouped_gemm_permute", &p, from, to);
    for (int i = 0; i < rows; i++) {
        if (memcmp(to + (size_t)i * COPIED_CHUNKS * 16, from + gather32[i] / topk * stride,
                   COPIED_CHUNKS * 16) != 0) {
            fail_msg("topk %d, %d rows, index %d, named %d: row %d is wrong", topk, rows,
                     wide ? 64 : 32, named, i);
        }
    }
    munmap(pages, 2 * (size_t)sysconf(_SC_PAGESIZE));
    free(from);
    free(to);
}

static void test_copy_by_token(void **state)
{
    (void)state;
    static struct variant v;
    struct problem p;
    struct record config;
    struct error err = ERROR_NULL;
    assert_int_equal(
        problem_parse(&p, "grouped_gemm mode=dW M=64 N=64 K=64 experts=4 topk=2 permute_x=true",
                      &err),
        0);
    assert_int_equal(
        record_parse(&config,
                     "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 schedule=cooperative "
                     "num_warps=8 num_stages=3 permute_copy=true",
                     &err),
        0);
    assert_int_equal(TARGET.variant(&p, &config, "sm_90a", &v, &err), 0);
    void *so = emulated_compile(NULL, EMULATED, v.options);
    for (int wide = 0; wide < 2; wide++) {
        for (enum named named = NAMED_ALL; named <= NAMED_PART; named++) {
            copy_by_token(so, 2, named == NAMED_PART ? COPIED_TOKENS * 2 / 3 : COPIED_ROWS, wide,
                          named);
            copy_by_token(so, 8, COPIED_ROWS, wide, named);
            copy_by_token(so, 40, COPIED_ROWS - 1, wide, named);
        }
    }
}

static const char *slabs_of(const struct problem *p, const struct test_case *c, struct variant *v)
{
    struct error err = ERROR_NULL;
    assert_int_equal(TARGET.variant(p, &c->config, "sm_90a", v, &err), 0);
    return strstr(v->options, "-DSTORE_SLABS=");
}

static int kind_other_slabs(const struct test_case *c)
{
    static struct variant own, tuned;
    static struct problem bucket;
    if (c->v.m == 0) {
        return -1;
    }
    bucket_of(c, &bucket);
    const char *mine = slabs_of(&c->problem, c, &own), *its = slabs_of(&bucket, c, &tuned);
    return strncmp(mine, its, 15) == 0 ? -1 : strncmp(its, "-DSTORE_SLABS=2", 15) == 0;
}

/* By the bucket's rows the host chooses another STORE_SLABS than by the job's rows: two slabs (128
 * bytes of each row) in a store instead of one, and the reverse. */
static void test_slabs_of_other_rows(void **state)
{
    (void)state;
    static const uint64_t soon[] = {681, 1788, 0};
    each_kind(2, kind_other_slabs, NULL, soon);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sample),
#ifdef TARGET_HOPPER
        cmocka_unit_test(test_store_slabs),     cmocka_unit_test(test_staggered),
        cmocka_unit_test(test_deferred),        cmocka_unit_test(test_paired),
        cmocka_unit_test(test_paired_sums),     cmocka_unit_test(test_paired_turns),
        cmocka_unit_test(test_single_consumer), cmocka_unit_test(test_small_product),
        cmocka_unit_test(test_split),           cmocka_unit_test(test_split_sums),
        cmocka_unit_test(test_cluster_faults),  cmocka_unit_test(test_slabs_of_other_rows),
        cmocka_unit_test(test_copy_by_token),   cmocka_unit_test(test_halves),
        cmocka_unit_test(test_order),
#else
        cmocka_unit_test(test_order), cmocka_unit_test(test_scaled),
        cmocka_unit_test(test_every_code),
#endif
        cmocka_unit_test(test_shared_dy)};
    if (system("cc --version >/dev/null 2>&1") != 0) {
        puts("SKIP: no C compiler (cc) to build the emulated kernels with");
        return 77;
    }
    if (!emulated_begin()) {
        return 1;
    }
    families_register();
    cmocka_set_test_filter(getenv("GEMMD_TEST_ONLY"));
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    emulated_end();
    return r;
}
