/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantise's cuda template, and the text of its reference that only GPUs run, on the CPU. cc
 * compiles a variant with emulate.h in place of the hardware, and the plan's launch runs over a
 * workload. Every byte of the output is compared with the reference of the cpu target, and the
 * bytes around it must stay as they were.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/families/quantise/quantise.h"
#include "tests/unit/cuda/common.h"
#include "tests/unit/cuda/emulate_launch.h"

enum { GUARD = 256, RUN = 128 };

static void *build(const char *source, const char *options)
{
    char path[] = "/tmp/gemmd-quantise-XXXXXX", command[2048];
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof(command),
             "cc -O1 -w -Wno-psabi -ffp-contract=off -shared -fPIC -I%s %s "
             "%s/tests/unit/cuda/%s -o %s",
             SOURCE_ROOT, options, SOURCE_ROOT, source, path);
    assert_int_equal(system(command), 0);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        fail_msg("%s", dlerror());
    }
    unlink(path);
    return so;
}

static void run(void *so, const struct launch *l, const struct emulate_range *out, const void *x,
                size_t x_bytes)
{
    int (*launch)(const struct emulate_launch *);
    *(void **)&launch = dlsym(so, "emulate_launch"); /* ISO C has no cast for function pointers */
    struct emulate_launch e = {
        .entry = l->entry,
        .grid = {l->grid[0], l->grid[1], l->grid[2]},
        .threads = l->block[0],
        .shared_bytes = l->smem_bytes,
        .params = l->params,
        .seed = 5,
        .n_ranges = 2,
        .ranges = {*out, {x, (const char *)x + x_bytes}},
    };
    if (launch(&e)) {
        fail_msg("%s: %s", l->entry, (const char *)dlsym(so, "emulate_error"));
    }
}

/* ---- a workload in this process's memory ------------------------------------------------------
 */

struct made {
    struct workload w;
    void *buffers[BUFFERS_MAX]; /* owned: x and the output's, with its guards */
    char *out;
    /* of make_case */
    struct problem problem;
    struct record config;
    void *so;
    _Alignas(16) uint8_t args[ARGS_MAX];
};

static void make_workload(const struct problem *p, struct made *m)
{
    struct error err = ERROR_NULL;
    uint64_t random = 3;
    assert_int_equal(quantise_family.workload_init(&m->w, p, 11, &err), 0);
    const struct buffer *x = &m->w.buffers[QUANTISE_X], *out = &m->w.buffers[QUANTISE_OUT];
    uint16_t *values = aligned_alloc(16, (size_t)(x->count * 2 + 15) / 16 * 16);
    for (int64_t i = 0; i < x->count; i++) { /* sizes from 2^-15 to 2 */
        values[i] = (uint16_t)(0x3800 + random_next(&random) % 0x800) |
                    (random_next(&random) & 1 ? 0x8000 : 0);
    }
    memcpy(values, x->host, (size_t)x->host_count * 2);
    m->buffers[QUANTISE_X] = values;
    m->out = aligned_alloc(16, (size_t)(out->count + 2 * GUARD + 15) / 16 * 16);
    memset(m->out, 0xff, (size_t)out->count + 2 * GUARD);
    m->buffers[QUANTISE_OUT] = m->out + GUARD;
    m->buffers[QUANTISE_M_SIZES] = (void *)m->w.buffers[QUANTISE_M_SIZES].host;
    m->buffers[QUANTISE_GATHER] = (void *)m->w.buffers[QUANTISE_GATHER].host;
}

/* Check runs over all of the output, in place of the workload's. */
static void check_everything(struct workload *w)
{
    const int64_t count = w->buffers[QUANTISE_OUT].count;
    w->n_checks = (uint32_t)((count + w->check_length - 1) / w->check_length);
    free(w->check_at);
    w->check_at = calloc(w->n_checks, sizeof(*w->check_at));
    for (uint32_t i = 0; i < w->n_checks; i++) {
        const int64_t at = i * w->check_length, last = count - w->check_length;
        w->check_at[i] = at < last ? at : last;
    }
}

static void free_workload(struct made *m)
{
    free(m->buffers[QUANTISE_X]);
    free(m->out);
    quantise_family.workload_deinit(&m->w);
}

/* The reference of the cpu target. Owned by the caller. */
static double *expect(const struct made *m)
{
    struct error err = ERROR_NULL;
    static struct launch l;
    double *out = calloc((size_t)m->w.n_checks * (size_t)m->w.check_length, sizeof(*out));
    assert_int_equal(quantise_cpu.reference(&m->w, m->buffers, m->w.check_at, out, &l, &err), 0);
    for (uint32_t i = 0; i < l.grid[0]; i++) {
        l.cpu_entry(l.params, i);
    }
    return out;
}

/* ---- the tests --------------------------------------------------------------------------------
 */

static void compare(const struct made *m, const char *name)
{
    const int64_t count = m->w.buffers[QUANTISE_OUT].count;
    double *expected = expect(m);
    for (uint32_t i = 0; i < m->w.n_checks; i++) {
        for (int64_t j = 0; j < m->w.check_length; j++) {
            const unsigned got = (uint8_t)m->out[GUARD + m->w.check_at[i] + j];
            const double want = expected[i * m->w.check_length + j];
            if (got != want) {
                char place[96];
                quantise_family.place(&m->w, i, place, sizeof(place));
                fail_msg("%s: %s, byte %d is %u, expected %g", name, place, (int)j, got, want);
            }
        }
    }
    for (int64_t i = 0; i < GUARD; i++) {
        assert_int_equal((uint8_t)m->out[i], 0xff);
        assert_int_equal((uint8_t)m->out[GUARD + count + i], 0xff);
    }
    free(expected);
}

/* On one SM, so that persistent blocks have several tiles. */
static struct device_info describe_h200(void)
{
    struct device_info h200 = {H200_FIELDS};
    h200.sm_count = 1;
    return h200;
}

static void make_case(const char *problem, const char *config, struct made *m)
{
    char text[200];
    struct error err = ERROR_NULL;
    struct rejection why;
    struct variant v;
    const struct device_info h200 = describe_h200();
    *m = (struct made){.config = config_of(config)};
    snprintf(text, sizeof(text), "quantise %s", problem);
    if (problem_parse(&m->problem, text, &err)) {
        fail_msg("%s", err.text);
    }
    if (quantise_cuda.check(&m->problem, &m->config, &h200, &why)) {
        fail_msg("%s: %s", config, why.text);
    }
    assert_int_equal(quantise_cuda.variant(&m->problem, &m->config, "sm_90a", &v, &err), 0);
    m->so = build("emulate_quantise.c", v.options);
    make_workload(&m->problem, m);
    check_everything(&m->w);
    quantise_family.bind(&m->w, m->buffers, NULL, 0, NULL, m->args);
}

static void free_case(struct made *m)
{
    free_workload(m);
    dlclose(m->so);
}

static void launch_case(struct made *m)
{
    struct error err = ERROR_NULL;
    static struct launch_plan plan;
    const struct device_info h200 = describe_h200();
    if (quantise_cuda.plan(&m->problem, &m->config, &h200, m->args, &plan, &err)) {
        fail_msg("%s", err.text);
    }
    const struct emulate_range out = {m->out + GUARD,
                                      m->out + GUARD + m->w.buffers[QUANTISE_OUT].count};
    run(m->so, &plan.steps[0], &out, m->buffers[QUANTISE_X],
        (size_t)m->w.buffers[QUANTISE_X].count * 2);
}

static void run_case(const char *problem, const char *config)
{
    struct made m;
    make_case(problem, config, &m);
    launch_case(&m);
    compare(&m, problem);
    free_case(&m);
}

static void test_modes(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"mode=rows M=300 K=1040",
         "TILE_ROWS=32 ROWS_PER_THREAD=4 MIN_BLOCKS=1 stream=false prefetch=false GROUP_SIZE_M=3"},
        {"mode=rows M=300 K=400 scale_type=pow2 topk=3 permute_x=true",
         "TILE_ROWS=16 ROWS_PER_THREAD=1 MIN_BLOCKS=1 stream=true prefetch=true GROUP_SIZE_M=1"},
        {"mode=columns M=700 K=400 experts=40 scale_type=pow2",
         "TILE_ROWS=128 ROWS_PER_THREAD=8 MIN_BLOCKS=1 stream=true prefetch=false GROUP_SIZE_M=4"},
        {"mode=columns M=256 K=1040",
         "TILE_ROWS=128 ROWS_PER_THREAD=4 MIN_BLOCKS=1 stream=false prefetch=true GROUP_SIZE_M=1"},
        {"mode=both M=600 K=272 experts=5 topk=2 permute_x=true",
         "TILE_ROWS=128 ROWS_PER_THREAD=4 MIN_BLOCKS=2 stream=false prefetch=false GROUP_SIZE_M=1"},
        {"mode=both M=300 K=1040 scale_type=pow2",
         "TILE_ROWS=128 ROWS_PER_THREAD=8 MIN_BLOCKS=1 stream=false prefetch=true GROUP_SIZE_M=16"},
        {"mode=weights M=432 K=400 experts=3",
         "TILE_ROWS=128 ROWS_PER_THREAD=8 MIN_BLOCKS=1 stream=false prefetch=true GROUP_SIZE_M=2"},
        {"mode=weights M=272 K=1040 scale_type=pow2",
         "TILE_ROWS=128 ROWS_PER_THREAD=4 MIN_BLOCKS=1 stream=true prefetch=false GROUP_SIZE_M=1"},
        {"mode=whole_rows M=37 K=1040", "TILE_ROWS=4 LANES=64 PIECES=1 stream=false"},
        {"mode=whole_rows M=50 K=400 scale_type=pow2 topk=2 permute_x=true",
         "TILE_ROWS=2 LANES=32 PIECES=4 stream=true"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run_case(cases[i][0], cases[i][1]);
    }
}

/* Wrong sizes of experts are cut to the rows of x. */
static void test_wrong_sizes_are_cut(void **state)
{
    (void)state;
    enum { EXPERTS = 40 };
    static const struct {
        uint32_t flags;
        int32_t given[EXPERTS], cut[EXPERTS];
    } cases[] = {
        {0, {[3] = 400, [38] = 300}, {[3] = 400, [38] = 200}},
        {0, {[1] = 700, [35] = 300}, {[1] = 600}},
        {0, {100, INT32_MAX, INT32_MAX, INT32_MAX}, {100, 500}},
        {0, {-512, 768}, {[1] = 600}},
        {0, {[2] = 300, [3] = INT32_MIN, [36] = 300}, {[2] = 300, [36] = 300}},
        {QUANTISE_ENDS, {200, 100, 500}, {200, 0, 400}},
        {QUANTISE_ENDS, {50, INT32_MIN, INT32_MAX}, {50, 550}}, /* the differences overflow */
    };
    struct made m;
    make_case("mode=both M=600 K=272 experts=40",
              "TILE_ROWS=128 ROWS_PER_THREAD=4 MIN_BLOCKS=2 stream=false prefetch=false "
              "GROUP_SIZE_M=1",
              &m);
    struct quantise_args *a = (struct quantise_args *)m.args;
    const size_t bytes = (size_t)m.w.buffers[QUANTISE_OUT].count + 2 * GUARD;
    char *expected = malloc(bytes);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        a->flags = 0;
        a->m_sizes = cases[i].cut;
        memset(m.out, 0xff, bytes);
        launch_case(&m);
        memcpy(expected, m.out, bytes);
        a->flags = cases[i].flags;
        a->m_sizes = cases[i].given;
        memset(m.out, 0xff, bytes);
        launch_case(&m);
        assert_memory_equal(m.out, expected, bytes);
    }
    free(expected);
    free_case(&m);
}

/* The GPU's reference equals the CPU's. */
static void test_reference(void **state)
{
    (void)state;
    static const char *const problems[] = {"quantise mode=both M=300 K=272 experts=3",
                                           "quantise mode=weights M=144 K=272 scale_type=pow2",
                                           "quantise mode=whole_rows M=40 K=272"};
    void *so = build("emulate_quantise_reference.c", "");
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        struct problem p;
        struct error err = ERROR_NULL;
        struct made m = {0};
        static struct launch l;
        assert_int_equal(problem_parse(&p, problems[i], &err), 0);
        make_workload(&p, &m);
        check_everything(&m.w);
        double *expected = expect(&m);
        const size_t n = (size_t)m.w.n_checks * (size_t)m.w.check_length;
        double *got = calloc(n, sizeof(*got));
        assert_int_equal(quantise_cuda.reference(&m.w, m.buffers, m.w.check_at, got, &l, &err), 0);
        run(so, &l, &(struct emulate_range){0}, NULL, 0);
        assert_memory_equal(got, expected, n * sizeof(*got));
        free(got);
        free(expected);
        free_workload(&m);
    }
    dlclose(so);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_wrong_sizes_are_cut),
        cmocka_unit_test(test_reference),
    };
    families_register();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
