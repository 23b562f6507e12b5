/* SPDX-License-Identifier: Apache-2.0 */
/* Batch-invariant problems: on a device every legal config, and every default, for every number of
 * rows adds up a row in the same order. What kernels do is tested where they run: test_emulated.c,
 * tests/python/test_batch_invariant.py, tests/gpu/batch_invariant.py. */
#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/space.h"
#include "tests/unit/kernels/common.h"

#define INVARIANT " batch_invariant=true"

static struct device_info hopper, ampere, cpu;

static const struct {
    const char *device, *sizes, *order;
} places[] = {
    {"hopper", "N=1024 K=8192", "wgmma, 16 by 16"},
    {"hopper", "N=2048 K=768 experts=128 topk=8 permute_x=true", "wgmma, 16 by 16"},
    {"ampere", "N=1024 K=1024 experts=8 topk=2 permute_y=true", "mma, 16 by 16"},
    {"cpu", "N=256 K=512 experts=4", "one by one"},
};
enum { PLACES = sizeof(places) / sizeof(places[0]) };
static const int rows[] = {8, 64, 1024, 65536};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct device_info *device_of(size_t place)
{
    const char *name = places[place].device;
    return strcmp(name, "hopper") == 0 ? &hopper : strcmp(name, "ampere") == 0 ? &ampere : &cpu;
}

/* Returns the target of places[place] with `m` rows. */
static const struct family_target *begin(struct problem *p, size_t place, const char *mode, int m,
                                         const char *more)
{
    char text[256];
    const struct family_target *t;
    snprintf(text, sizeof(text), "grouped_gemm mode=%s M=%d %s%s", mode, m, places[place].sizes,
             more);
    problem_of(p, text);
    assert_ok(family_target_choose(&grouped_gemm_family, p, device_of(place), NULL, &t, err));
    return t;
}

static void check_order(const struct family_target *t, const struct problem *p,
                        const struct record *config, const char *order)
{
    struct exactness exact = {0};
    t->exactness(p, config, &exact);
    if (!exact.runs || !exact.batches || strcmp(exact.order, order) != 0) {
        char text[1024];
        record_format(config, text, sizeof(text));
        fail_msg("%s: \"%s\", not \"%s\"", text, exact.order, order);
    }
}

static void test_every_legal_config_adds_in_one_order(void **state)
{
    (void)state;
    static const char *const modes[] = {"forward", "dX"};
    for (size_t i = 0; i < (size_t)PLACES * 2; i++) {
        struct problem p;
        struct space s;
        struct record config;
        const struct family_target *t = begin(&p, i / 2, modes[i % 2], 64, INVARIANT);
        assert_ok(space_build(&s, t, &p, device_of(i / 2), NULL, err));
        assert_true(s.n > 0);
        for (uint32_t n = 0; n < s.n; n++) {
            space_config(&s, n, &config);
            check_order(t, &p, &config, places[i / 2].order);
        }
        space_deinit(&s);
    }
}

static void test_every_default_adds_in_one_order(void **state)
{
    (void)state;
    for (size_t i = 0; i < (size_t)PLACES * ROWS; i++) {
        struct problem p;
        struct record config;
        const struct family_target *t =
            begin(&p, i / ROWS, "forward", rows[i % ROWS] * 8, INVARIANT);
        assert_ok(t->choose(&p, device_of(i / ROWS), &config, err));
        check_order(t, &p, &config, places[i / ROWS].order);
    }
}

/* Without the restriction some configs have another order; the restriction refuses these. */
static void test_other_orders_are_refused(void **state)
{
    (void)state;
    static const struct {
        size_t place;
        const char *order, *fix;
    } others[] = {{0, "wgmma, 16 by 16, 4 parts", "set NUM_KSPLIT=1"},
                  {3, "8 lanes, blocks of 64", "set transpose_w=true"}};
    for (size_t i = 0; i < 2; i++) {
        struct problem p, invariant;
        struct space s;
        struct record config;
        struct rejection why;
        uint32_t seen = 0;
        const struct family_target *t = begin(&p, others[i].place, "forward", 16, "");
        begin(&invariant, others[i].place, "forward", 16, INVARIANT);
        assert_ok(space_build(&s, t, &p, device_of(others[i].place), NULL, err));
        for (uint32_t n = 0; n < s.n; n++) {
            struct exactness exact;
            space_config(&s, n, &config);
            t->exactness(&p, &config, &exact);
            const bool same = strcmp(exact.order, places[others[i].place].order) == 0;
            seen += strcmp(exact.order, others[i].order) == 0;
            assert_int_equal(t->check(&invariant, &config, device_of(others[i].place), &why),
                             !same);
            assert_true(same || (strcmp(why.rule, "batch_invariant") == 0 &&
                                 strstr(why.text, others[i].fix)));
        }
        assert_true(seen > 0);
        space_deinit(&s);
    }
}

/* wgmma and mma.sync need not agree: a device has one kernel for a batch-invariant problem, also
 * where the plain problem would change the kernel with M. */
static void test_one_target_on_a_device(void **state)
{
    (void)state;
    struct problem p;
    struct record config;
    struct rejection why;
    config_of(&config, "BLOCK_SIZE_M=64 BLOCK_SIZE_N=64 BLOCK_SIZE_K=64 num_warps=4 num_stages=3 "
                       "GROUP_SIZE_M=1");
    begin(&p, 0, "forward", 64, "");
    assert_int_equal(grouped_gemm_cuda.check(&p, &config, &hopper, &why), 0);
    begin(&p, 0, "forward", 64, INVARIANT);
    assert_int_equal(grouped_gemm_cuda.check(&p, &config, &ampere, &why), 0);
    assert_int_equal(grouped_gemm_cuda.check(&p, &config, &hopper, &why), 1);
    assert_non_null(strstr(why.text, "take a config of the hopper kernel"));

    const char *const gathered = " permute_y=true"; /* dy, of more than 64 GiB */
    assert_ptr_equal(begin(&p, 0, "dX", 1 << 26, gathered), &grouped_gemm_cuda);
    char both[64];
    snprintf(both, sizeof(both), "%s%s", gathered, INVARIANT);
    const struct family_target *t = begin(&p, 0, "dX", 1 << 26, both);
    assert_ptr_equal(t, &grouped_gemm_hopper);
    assert_ok(t->choose(&p, &hopper, &config, err));
    check_order(t, &p, &config, "wgmma, 16 by 16");
}

static void test_dw_promises_nothing_over_batches(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLACES; i++) {
        struct problem p;
        struct record config;
        struct exactness exact;
        const struct family_target *t = begin(&p, i, "dW", 64, "");
        assert_ok(t->choose(&p, device_of(i), &config, err));
        t->exactness(&p, &config, &exact);
        assert_true(exact.runs && !exact.batches);
        assert_string_equal(exact.order, "");
    }
}

/* Scales come in after the same terms in all configs of the cpu kernel. A kernel that names no
 * order for its operands promises nothing. */
static void test_scaled_operands(void **state)
{
    (void)state;
    struct problem p;
    struct gemm v;
    struct record config;
    struct exactness exact;
    struct rejection why;
    problem_of(&p, "grouped_gemm mode=dX M=16 N=256 K=256 quant=fp8_block batch_invariant=true");
    gemm_view(&p, &v);
    assert_ok(grouped_gemm_cpu.choose(&p, &cpu, &config, err));
    check_order(&grouped_gemm_cpu, &p, &config, "one by one");
    record_put_bool(&config, "transpose_w", false);
    assert_int_equal(grouped_gemm_cpu.check(&p, &config, &cpu, &why), 1);
    assert_non_null(strstr(why.text, "set transpose_w=true"));
    gemm_rules_exactness(&v, "", &exact);
    assert_true(!exact.runs && !exact.batches && !*exact.order);
    assert_int_equal(gemm_rules_order(&v, "", "an order", "new", "quant=none", &why), 1);
    assert_non_null(strstr(why.text, "sums in no known order"));
}

static int setup(void **state)
{
    (void)state;
    families_register();
    cpu = cpu_like();
    assert_ok(arch_describe("sm_90a", &hopper, err));
    assert_ok(arch_describe("sm_80", &ampere, err));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_legal_config_adds_in_one_order),
        cmocka_unit_test(test_every_default_adds_in_one_order),
        cmocka_unit_test(test_other_orders_are_refused),
        cmocka_unit_test(test_one_target_on_a_device),
        cmocka_unit_test(test_dw_promises_nothing_over_batches),
        cmocka_unit_test(test_scaled_operands),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
