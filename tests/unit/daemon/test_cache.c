/* SPDX-License-Identifier: Apache-2.0 */
/* The hot cache: finds, replaces, removes and ranks answers, finds neighbours, and stays
 * compact. */
#include <malloc.h>
#include <math.h>
#include <time.h>

#include "common.h"
#include "daemon/cache/answer.h"
#include "daemon/cache/cache.h"
#include "daemon/cache/memo.h"
#include "proto/scan.h"

/* Counts the comparisons of keys: the linker's --wrap replaces key_differences(). */
static unsigned comparisons;
int __real_key_differences(const uint8_t *a, size_t n, const uint8_t *b, size_t m);
int __wrap_key_differences(const uint8_t *a, size_t n, const uint8_t *b, size_t m);

int __wrap_key_differences(const uint8_t *a, size_t n, const uint8_t *b, size_t m)
{
    comparisons++;
    return __real_key_differences(a, n, b, m);
}

static const char CLASS[] = "NVIDIA H200/sm_90a/sm132/smem232448/mem140/mig-/pl700";

struct fixture {
    struct cache cache;
    struct problem p, q;
    struct key k;
    struct answer a, b;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err = ERROR_NULL;
    families_register();
    assert_ok(cache_init(&f->cache, CLASS, &err), &err);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    cache_deinit(&f->cache);
    free(f);
    return 0;
}

static void fill(struct answer *a, int64_t generation)
{
    answer_init(a);
    strcpy(a->key, "0123456789abcdef0123456789abcdef");
    strcpy(a->tier, "exact");
    strcpy(a->source, "tuned");
    strcpy(a->family, "grouped_gemm");
    strcpy(a->stamp, "src=0123456789ab abi=1 target=portable compiler=nvrtc 13.0");
    strcpy(a->module, "00112233445566778899aabbccddeeff");
    static const char *const names[] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K",
                                        "GROUP_SIZE_M", "num_warps",    "num_stages",
                                        "NUM_KSPLIT"};
    for (size_t i = 0; i < 7; i++) {
        record_put_int(&a->config, names[i], 16 << (generation + (int64_t)i) % 5);
    }
    record_put_bool(&a->config, "use_tma_store", false);
    record_put_bool(&a->config, "flatten", true);
    a->time_us = 100.5 + (double)generation;
    a->spread = 0.01;
    a->reference_us = 222.25;
    a->tflops = 500.5;
    a->gbps = 1000.25;
    a->floor_us = 80.125;
    a->generation = generation;
    a->measured = 48;
    a->created_s = 1795225315;
    a->saved = true;
}

static void put(struct fixture *f, const char *text, int64_t generation, enum cache_rank rank)
{
    struct error err = ERROR_NULL;
    make_problem(&f->p, text);
    assert_ok(key_make(&f->k, &f->p, CLASS, &err), &err);
    key_id(&f->k);
    fill(&f->a, generation);
    memcpy(f->a.key, f->k.id, sizeof(f->a.key));
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, rank, 1e-2, 1e-2, 0, &err), &err);
}

/* Removes the key that was looked for last. */
static bool remove_found(struct fixture *f)
{
    key_id(&f->k);
    return cache_remove_id(&f->cache, f->k.id);
}

static struct cache_entry *find(struct fixture *f, const char *text)
{
    struct error err = ERROR_NULL;
    make_problem(&f->p, text);
    assert_ok(key_make(&f->k, &f->p, CLASS, &err), &err);
    return cache_find(&f->cache, &f->k);
}

#define GEMM "grouped_gemm mode=forward experts=8 topk=2 N=1024 K=1024 "

static void found_with_the_answer_that_was_put(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    assert_null(find(f, GEMM "M=1024"));
    put(f, GEMM "M=1024", 7, CACHE_SERVES);
    struct cache_entry *e = find(f, GEMM "M=1024");
    assert_non_null(e);
    assert_ok(cache_answer(&f->cache, e, &f->b, &err), &err);
    assert_string_equal(f->b.key, f->a.key);
    assert_string_equal(f->b.stamp, f->a.stamp);
    assert_true(record_equal(&f->b.config, &f->a.config));
    assert_true(f->b.time_us == f->a.time_us && f->b.floor_us == f->a.floor_us);
    assert_int_equal(f->b.generation, 7);
    assert_true(f->b.saved);
    assert_ok(cache_problem(&f->cache, e, &f->q, &err), &err);
    assert_true(record_equal(&f->q.fields, &f->p.fields));
    assert_null(find(f, GEMM "M=1026"));
}

static void a_reply_is_one_message_with_all_fields(void **state)
{
    struct fixture *f = *state;
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    struct error err = ERROR_NULL;
    const struct wire_obj *map;
    put(f, GEMM "M=1024", 7, CACHE_SERVES);
    cache_reply(find(f, GEMM "M=1024"), &b);
    struct wire_doc *doc = wire_doc_new();
    assert_ok(wire_decode(doc, b.data, b.len, &map, &err), &err);
    assert_int_equal(wire_count(map), answer_schema.n);
    for (size_t i = 0; i < answer_schema.n; i++) {
        assert_non_null(wire_find(map, answer_schema.fields[i].name));
    }
    wire_doc_free(doc);
}

static void unknown_times_stay_unknown(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    make_problem(&f->p, GEMM "M=64");
    assert_ok(key_make(&f->k, &f->p, CLASS, &err), &err);
    answer_init(&f->a);
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_HINT, 0, 0, 0, &err), &err);
    assert_ok(cache_answer(&f->cache, cache_find(&f->cache, &f->k), &f->b, &err), &err);
    assert_true(isnan(f->b.time_us) && isnan(f->b.tflops));
}

static void replaced_not_doubled(void **state)
{
    struct fixture *f = *state;
    put(f, GEMM "M=1024", 1, CACHE_HINT);
    put(f, GEMM "M=1024", 2, CACHE_PINNED);
    assert_int_equal(f->cache.keys.n, 1);
    assert_int_equal(find(f, GEMM "M=1024")->generation, 2);
    assert_int_equal(find(f, GEMM "M=1024")->rank, CACHE_PINNED);
}

/* Puts and removes thousands of random keys, and compares the cache with an array. */
static void many_keys_come_and_go(void **state)
{
    enum { KEYS = 700, STEPS = 20000 };
    struct fixture *f = *state;
    static int64_t known[KEYS];
    uint64_t seed = 20261121;
    size_t n = 0;
    memset(known, 0, sizeof(known));
    for (int step = 1; step <= STEPS; step++) {
        uint64_t r = random_next(&seed);
        size_t i = (r >> 8) % KEYS;
        char text[96];
        snprintf(text, sizeof(text), "custom:x i=%zu", i);
        if (r % 3) {
            put(f, text, step, CACHE_SERVES);
            n += known[i] == 0;
            known[i] = step;
        } else {
            find(f, text);
            assert_int_equal(remove_found(f), known[i] != 0);
            n -= known[i] != 0;
            known[i] = 0;
        }
        assert_int_equal(f->cache.keys.n, n);
    }
    for (size_t i = 0; i < KEYS; i++) {
        char text[96];
        bool many;
        snprintf(text, sizeof(text), "custom:x i=%zu", i);
        struct cache_entry *e = find(f, text);
        assert_int_equal(e ? e->generation : 0, known[i]);
        key_id(&f->k);
        assert_ptr_equal(cache_find_id(&f->cache, f->k.id, &many), e);
    }
}

static void by_the_beginning_of_an_id(void **state)
{
    struct fixture *f = *state;
    bool many;
    char id[HASH_HEX], prefix[HASH_HEX];
    for (int i = 0; i < 300; i++) {
        char text[96];
        snprintf(text, sizeof(text), "custom:x i=%d", i);
        put(f, text, i + 1, CACHE_SERVES);
    }
    struct cache_entry *e = find(f, "custom:x i=17");
    key_id(&f->k);
    cache_entry_id(e, id);
    assert_string_equal(id, f->k.id);
    snprintf(prefix, sizeof(prefix), "%.10s", id);
    assert_ptr_equal(cache_find_id(&f->cache, prefix, &many), e);
    assert_null(cache_find_id(&f->cache, "", &many));
    assert_true(many);
    assert_null(cache_find_id(&f->cache, "zz", &many));
    assert_false(many);
    assert_true(cache_remove_id(&f->cache, id));
    assert_false(cache_remove_id(&f->cache, id));
    assert_null(find(f, "custom:x i=17"));
}

/* A prefix of any length finds the same keys as a comparison with every id. */
static void prefixes_of_all_lengths(void **state)
{
    enum { KEYS = 600, ODD = 7 };
    struct fixture *f = *state;
    static char ids[KEYS][HASH_HEX];
    static struct cache_entry *entries[KEYS];
    for (int i = 0; i < KEYS; i++) {
        char text[96];
        snprintf(text, sizeof(text), "custom:x i=%d", i);
        put(f, text, i + 1, CACHE_SERVES);
        memcpy(ids[i], f->k.id, HASH_HEX);
        entries[i] = cache_find(&f->cache, &f->k);
    }
    for (int i = 0; i < KEYS; i += ODD) {
        for (size_t n = 0; n < HASH_HEX; n++) {
            char prefix[HASH_HEX] = "";
            struct cache_entry *expected = NULL;
            bool many;
            int matches = 0;
            memcpy(prefix, ids[i], n);
            for (int j = 0; j < KEYS; j++) {
                if (strncmp(ids[j], prefix, n) == 0) {
                    expected = entries[j];
                    matches++;
                }
            }
            assert_ptr_equal(cache_find_id(&f->cache, prefix, &many),
                             matches == 1 ? expected : NULL);
            assert_int_equal(many, matches > 1);
        }
    }
    bool many;
    assert_null(cache_find_id(&f->cache, "0123456789abcdef0123456789abcdef0", &many));
    assert_null(cache_find_id(&f->cache, "0123456789ABCDEF0123456789abcdef", &many));
}

/* A lookup by id or prefix does not search all 20,000 keys, which would take half a millisecond. */
static void an_id_is_found_without_a_look_at_every_key(void **state)
{
    enum { KEYS = 20000, FINDS = 5000 };
    struct fixture *f = *state;
    char prefix[HASH_HEX];
    bool many;
    for (int i = 0; i < KEYS; i++) {
        char text[96];
        snprintf(text, sizeof(text), "custom:x i=%d", i);
        put(f, text, i + 1, CACHE_SERVES);
    }
    struct cache_entry *e = cache_find(&f->cache, &f->k);
    snprintf(prefix, sizeof(prefix), "%.12s", f->k.id);
    clock_t begun = clock();
    for (int i = 0; i < FINDS; i++) {
        assert_ptr_equal(cache_find_id(&f->cache, f->k.id, &many), e);
        assert_ptr_equal(cache_find_id(&f->cache, prefix, &many), e);
    }
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    print_message("%.2f us to find an id\n", seconds * 1e6 / (2 * FINDS));
    assert_true(seconds < 1);
}

static void near_is_nearest_of_the_same_kind(void **state)
{
    struct fixture *f = *state;
    struct cache_entry *near[4];
    put(f, GEMM "M=256", 1, CACHE_SERVES);
    put(f, GEMM "M=4096", 2, CACHE_SERVES);
    put(f, GEMM "M=2048", 3, CACHE_HINT); /* a hint is no answer: cache_near must leave it out */
    put(f, GEMM "M=1024 permute_x=true", 4, CACHE_SERVES);
    put(f, "grouped_gemm mode=dX experts=8 topk=2 N=1024 K=1024 M=1024", 5, CACHE_SERVES);
    assert_null(find(f, GEMM "M=1024"));
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 2);
    assert_int_equal(near[0]->generation + near[1]->generation, 3); /* at equal distances */
    assert_null(find(f, GEMM "M=8192"));
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 1, near), 1);
    assert_int_equal(near[0]->generation, 2);
    find(f, GEMM "M=256");
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 1); /* never the key itself */
    assert_int_equal(near[0]->generation, 2);
}

/* The distance of keys with different routings is the difference of the routings' evenness. A key
 * of another dtype is no neighbour. */
static void near_of_another_routing(void **state)
{
    struct fixture *f = *state;
    struct cache_entry *near[4];
    put(f, GEMM "M=256", 1, CACHE_SERVES);
    put(f, GEMM "M=256 routing=zipf:2", 2, CACHE_SERVES);
    put(f, GEMM "M=256 routing=zipf:1.2 dtype_in=fp16", 3, CACHE_SERVES);
    assert_null(find(f, GEMM "M=256 routing=zipf:1.9"));
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 2);
    assert_int_equal(near[0]->generation, 2);
    assert_null(find(f, GEMM "M=256 routing=\"rows:32,32,32,32,32,32,31,33\""));
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 2);
    assert_int_equal(near[0]->generation, 1);
}

/* Keys of many groups come and go. The neighbours of a key are the keys of its own group, each
 * found once. */
static void near_is_of_one_group_of_many(void **state)
{
    enum { GROUPS = 40, EACH = 12, STEPS = 8000, MOST = 16 };
    struct fixture *f = *state;
    static bool known[GROUPS][EACH];
    struct cache_entry *near[MOST];
    uint64_t seed = 20261125;
    memset(known, 0, sizeof(known));
    for (int step = 1; step <= STEPS; step++) {
        uint64_t r = random_next(&seed);
        unsigned g = (unsigned)((r >> 8) % GROUPS), i = (unsigned)((r >> 24) % EACH), left = 0;
        char text[96];
        snprintf(text, sizeof(text), "custom:g%u i=%u", g, 1u << i);
        if (r % 2) {
            put(f, text, (int64_t)g * EACH + i + 1, CACHE_SERVES);
            known[g][i] = true;
        } else {
            find(f, text);
            remove_found(f);
            known[g][i] = false;
        }
        for (unsigned j = 0; j < EACH; j++) {
            left |= j != i && known[g][j] ? 1u << j : 0;
        }
        find(f, text);
        size_t n = cache_near(&f->cache, &f->k, &f->p, MOST, near);
        for (size_t j = 0; j < n; j++) {
            int64_t which = near[j]->generation - 1;
            assert_int_equal(which / EACH, g);
            assert_true(left & 1u << which % EACH);
            left &= ~(1u << which % EACH);
            assert_true(j == 0 || labs(which % EACH - (long)i) >=
                                      labs((near[j - 1]->generation - 1) % EACH - (long)i));
        }
        assert_int_equal(left, 0);
    }
}

static void near_is_found_without_a_look_at_every_key(void **state)
{
    enum { KEYS = 20000, FINDS = 5000 };
    struct fixture *f = *state;
    struct cache_entry *near[4];
    for (int i = 0; i < KEYS; i++) {
        char text[96];
        snprintf(text, sizeof(text), "custom:x%d i=1", i);
        put(f, text, i + 1, CACHE_SERVES);
    }
    assert_null(find(f, "custom:x77 i=2"));
    clock_t begun = clock();
    for (int i = 0; i < FINDS; i++) {
        assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 1);
        assert_int_equal(near[0]->generation, 78);
    }
    double seconds = (double)(clock() - begun) / CLOCKS_PER_SEC;
    print_message("%.2f us to find neighbours\n", seconds * 1e6 / FINDS);
    assert_true(seconds < 0.05); /* comparisons with every key took 0.17 s */
}

static void the_closest_of_many_keys_is_found_by_a_few_comparisons(void **state)
{
    enum { KEYS = 20000 };
    struct fixture *f = *state;
    put(f, GEMM "M=256 permute_x=true", 1, CACHE_SERVES);
    put(f, GEMM "M=512", 2, CACHE_SERVES);
    for (int i = 0; i < KEYS; i++) {
        char text[96];
        snprintf(text, sizeof(text), "grouped_gemm mode=dX experts=8 topk=2 N=512 K=512 M=%d",
                 2 * i + 2);
        put(f, text, i + 3, CACHE_SERVES);
    }
    comparisons = 0;
    find(f, GEMM "M=256");
    const struct cache_entry *e = closest_find(&f->cache, &f->k, &f->p);
    /* the keys of generations 1 and 2 differ in a single field: a flag, or the rows */
    assert_true(e && e->generation <= 2);
    find(f, "grouped_gemm mode=dX experts=8 topk=2 N=512 K=640 M=4096");
    e = closest_find(&f->cache, &f->k, &f->p);
    assert_non_null(e);
    assert_true(comparisons > 0 && comparisons <= 2 * (CACHE_LISTS + 1) * CLOSEST_LOOKS);
    assert_true(comparisons < KEYS / 2);
}

/* A group has more neighbours than cache_near looks at. It looks first at keys that differ in
 * the rows only, then at the newest. */
static void near_looks_at_few_of_a_large_group_and_at_no_hints(void **state)
{
    struct fixture *f = *state;
    struct cache_entry *near[4];
    char text[96];
    put(f, GEMM "M=512", 1, CACHE_SERVES);
    put(f, "grouped_gemm mode=forward experts=8 topk=2 N=1024 K=1088 M=256", 2, CACHE_SERVES);
    for (int i = 0; i < 3 * LOOKS_MAX; i++) {
        snprintf(text, sizeof(text), "grouped_gemm mode=forward experts=8 topk=2 N=%d K=8192 M=256",
                 64 * (i + 1));
        put(f, text, i + 3, CACHE_HINT);
    }
    find(f, GEMM "M=256");
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 2);
    assert_int_equal(near[0]->generation, 2);
    assert_int_equal(near[1]->generation, 1);
    for (int i = 0; i < LOOKS_MAX; i++) {
        snprintf(text, sizeof(text), "grouped_gemm mode=forward experts=8 topk=2 N=%d K=8192 M=256",
                 64 * (i + 1));
        put(f, text, i + 3, CACHE_SERVES);
    }
    find(f, GEMM "M=256");
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 4, near), 4);
    assert_int_equal(near[0]->generation, 1);
    assert_true(near[1]->generation > 2);
    cache_rerank(&f->cache, near[1], CACHE_HINT);
    find(f, GEMM "M=256");
    assert_int_equal(cache_near(&f->cache, &f->k, &f->p, 2, near), 2);
    assert_int_equal(near[0]->generation, 2); /* room for another look */
}

static void tolerances(void **state)
{
    struct fixture *f = *state;
    put(f, GEMM "M=256", 1, CACHE_SERVES);
    struct cache_entry *e = find(f, GEMM "M=256");
    assert_true(cache_verified(e, 1e-2, 1e-2));
    assert_true(cache_verified(e, 0.5, 1e-2));
    assert_false(cache_verified(e, 1e-3, 1e-2));
    assert_false(cache_verified(e, 1e-2, 1e-3));
}

static void unsaved_answers_become_saved(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    put(f, GEMM "M=256", 1, CACHE_SERVES);
    f->a.saved = false;
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_SERVES, 0, 0, 0, &err), &err);
    assert_ok(cache_answer(&f->cache, find(f, GEMM "M=256"), &f->b, &err), &err);
    assert_false(f->b.saved);
    f->a.saved = true;
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_SERVES, 0, 0, 0, &err), &err);
    assert_ok(cache_answer(&f->cache, find(f, GEMM "M=256"), &f->b, &err), &err);
    assert_true(f->b.saved);
    assert_string_equal(f->b.stamp, f->a.stamp);
}

/* The cache has 300 keys. The database has lost every third key. One key is not yet in the
 * database, and one is put while the database is read. */
static void what_the_database_has_no_more_is_swept(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char text[96], id[HASH_HEX];
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), GEMM "M=%d", 2 * (i + 1));
        put(f, text, i + 1, CACHE_SERVES);
        f->a.saved = false;
        if (i == 3) {
            assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_SERVES, 0, 0, 0, &err), &err);
        }
    }
    cache_unmeet(&f->cache);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), GEMM "M=%d", 2 * (i + 1));
        cache_entry_id(find(f, text), id);
        if (i == 6) {
            assert_false(cache_meet(&f->cache, id, i + 2)); /* a newer row */
            put(f, text, i + 2, CACHE_SERVES);
        } else if (i % 3) {
            assert_true(cache_meet(&f->cache, id, i % 2 ? i : i + 1));
        }
    }
    int swept = 0;
    for (size_t at = 0; cache_sweep(&f->cache, &at, id); swept++) {
        assert_null(cache_find_id(&f->cache, id, &(bool){false}));
    }
    assert_int_equal(swept, 98);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof(text), GEMM "M=%d", 2 * (i + 1));
        assert_true((find(f, text) != NULL) == (i % 3 || i == 3 || i == 6));
    }
    cache_unmeet(&f->cache);
    put(f, GEMM "M=8", 4, CACHE_SERVES); /* a key put after cache_unmeet stays */
    size_t at = 0;
    for (swept = 0; cache_sweep(&f->cache, &at, id); swept++) {
    }
    assert_int_equal(f->cache.keys.n, 1);
}

#define MANY "grouped_gemm mode=forward experts=8 topk=2 M=256 K=1024 N=%d"

static void ask(struct fixture *f, int i, struct cache_entry *e)
{
    memo_put(&f->cache.memo, (const uint8_t *)&i, sizeof(i), e);
}

static const struct cache_entry *asked(struct fixture *f, int i)
{
    return memo_find(&f->cache.memo, (const uint8_t *)&i, sizeof(i));
}

static void the_memo_knows_the_same_bytes_while_their_entry_lives(void **state)
{
    struct fixture *f = *state;
    const struct memo *memo = &f->cache.memo;
    const uint8_t *one = (const uint8_t *)"\xa3get one", *two = (const uint8_t *)"\xa3get two";
    put(f, GEMM "M=256", 1, CACHE_SERVES);
    struct cache_entry *e = find(f, GEMM "M=256");
    assert_null(memo_find(memo, one, 8));
    memo_put(&f->cache.memo, one, 8, e);
    memo_put(&f->cache.memo, one, 8, e);
    assert_int_equal(memo->n, 1);
    assert_ptr_equal(memo_find(memo, one, 8), e);
    assert_null(memo_find(memo, two, 8));
    assert_null(memo_find(memo, one, 7));
    put(f, GEMM "M=512", 2, CACHE_SERVES); /* the change of another key leaves the memo valid */
    assert_ptr_equal(memo_find(memo, one, 8), e);
    put(f, GEMM "M=256", 3, CACHE_SERVES); /* a new answer of the key: the memo drops the old */
    assert_null(memo_find(memo, one, 8));
    memo_put(&f->cache.memo, one, 8, find(f, GEMM "M=256"));
    assert_non_null(memo_find(memo, one, 8));
    assert_true(remove_found(f));
    assert_null(memo_find(memo, one, 8));
    assert_int_equal(memo->n, 0);
    assert_int_equal(memo->bytes, 0);
}

static void the_memo_keeps_a_few_questions_for_each_entry(void **state)
{
    enum { ENTRIES = 3000 };
    struct fixture *f = *state;
    char text[96];
    for (int i = 0; i < ENTRIES; i++) {
        snprintf(text, sizeof(text), MANY, 64 * (i + 1));
        put(f, text, 1, CACHE_SERVES);
        for (int j = 0; j <= i % (2 * MEMO_PER_ENTRY); j++) {
            ask(f, 16 * i + j, find(f, text));
        }
    }
    for (int i = 0; i < ENTRIES; i++) {
        int last = i % (2 * MEMO_PER_ENTRY);
        snprintf(text, sizeof(text), MANY, 64 * (i + 1));
        for (int j = 0; j <= last; j++) {
            assert_ptr_equal(asked(f, 16 * i + j),
                             last - j < MEMO_PER_ENTRY ? find(f, text) : NULL);
        }
    }
    /* half of the entries are removed: the rest must stay reachable */
    for (int i = 0; i < ENTRIES; i += 2) {
        snprintf(text, sizeof(text), MANY, 64 * (i + 1));
        assert_non_null(find(f, text));
        assert_true(remove_found(f));
    }
    for (int i = 0; i < ENTRIES; i++) {
        assert_true((asked(f, 16 * i + i % (2 * MEMO_PER_ENTRY)) != NULL) == (i % 2 == 1));
    }
}

static void the_memo_has_a_limit(void **state)
{
    struct fixture *f = *state;
    static uint8_t question[MEMO_QUESTION_MAX + 1];
    int n = 2 * MEMO_BYTES_MAX / MEMO_QUESTION_MAX / MEMO_PER_ENTRY;
    char text[96];
    for (int i = 0; i < n; i++) {
        snprintf(text, sizeof(text), MANY, 64 * (i + 1));
        put(f, text, 1, CACHE_SERVES);
        struct cache_entry *e = find(f, text);
        for (int j = 0; j < MEMO_PER_ENTRY; j++) {
            memcpy(question, &i, sizeof(i));
            question[sizeof(i)] = (uint8_t)j;
            memo_put(&f->cache.memo, question, MEMO_QUESTION_MAX, e);
            assert_ptr_equal(memo_find(&f->cache.memo, question, MEMO_QUESTION_MAX), e);
        }
        assert_true(f->cache.memo.bytes <= MEMO_BYTES_MAX + 1024);
    }
    memo_put(&f->cache.memo, question, MEMO_QUESTION_MAX + 1, find(f, text));
    assert_null(memo_find(&f->cache.memo, question, MEMO_QUESTION_MAX + 1));
}

static struct wire_buf text(const char *what, int i, size_t len)
{
    struct wire_buf b = WIRE_BUF_NULL;
    char word[32];
    snprintf(word, sizeof(word), "%s %d", what, i);
    wire_put_raw(&b, word, strlen(word));
    while (b.len < len) {
        wire_put_raw(&b, ".", 1);
    }
    return b;
}

static void put_partial(struct fixture *f, const char *key, int i, const char *answer, size_t len)
{
    WIRE_BUF_AUTO search = text("search", i, 0);
    WIRE_BUF_AUTO packed = text(answer, i, len);
    partials_put(&f->cache.partials, key, &search, &packed);
}

/* NULL: not known. */
static const char *ask_partial(struct fixture *f, int i)
{
    static char answer[64];
    WIRE_BUF_AUTO search = text("search", i, 0);
    WIRE_BUF_AUTO out = WIRE_BUF_NULL;
    if (!partials_reply(&f->cache.partials, &search, &out)) {
        assert_int_equal(out.len, 0);
        return NULL;
    }
    snprintf(answer, sizeof(answer), "%.*s", (int)out.len, (const char *)out.data);
    return answer;
}

static void restricted_searches_are_kept_while_their_key_is_unchanged(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    put(f, GEMM "M=1024", 7, CACHE_SERVES);
    char ours[HASH_HEX], other[HASH_HEX] = "ffffffffffffffffffffffffffffffff";
    memcpy(ours, f->k.id, sizeof(ours));
    assert_null(ask_partial(f, 1));
    put_partial(f, ours, 1, "answer", 0);
    put_partial(f, ours, 2, "answer", 0);
    put_partial(f, other, 3, "answer", 0);
    assert_string_equal(ask_partial(f, 2), "answer 2");
    put_partial(f, ours, 2, "newer", 0); /* replaces "answer 2" */
    assert_string_equal(ask_partial(f, 2), "newer 2");
    put_partial(f, ours, 2, "long", PARTIAL_BYTES_MAX); /* too long: the older answer goes, too */
    assert_null(ask_partial(f, 2));

    strcpy(f->a.source, "partial");
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_HINT, 0, 0, 0, &err), &err);
    assert_string_equal(ask_partial(f, 1), "answer 1");
    put(f, GEMM "M=1024", 8, CACHE_SERVES); /* a tuned answer of the key */
    assert_null(ask_partial(f, 1));
    assert_string_equal(ask_partial(f, 3), "answer 3");
    put_partial(f, ours, 1, "answer", 0);
    /* an unpin, maybe by another daemon, removes the pinned answer */
    strcpy(f->a.source, "manual");
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_PINNED, 0, 0, 0, &err), &err);
    put_partial(f, ours, 1, "answer", 0);
    strcpy(f->a.source, "partial");
    assert_ok(cache_put(&f->cache, &f->k, &f->p, &f->a, CACHE_HINT, 0, 0, 0, &err), &err);
    assert_null(ask_partial(f, 1));
    put_partial(f, ours, 1, "answer", 0);
    assert_true(cache_remove_id(&f->cache, ours));
    assert_null(ask_partial(f, 1));

    for (int i = 0; i < PARTIALS_MAX; i++) {
        put_partial(f, ours, 1000 + i, "answer", 0);
    }
    assert_null(ask_partial(f, 3)); /* the oldest made room */
    assert_string_equal(ask_partial(f, 1000), "answer 1000");
    put_partial(f, ours, 2000, "answer", 0);
    assert_null(ask_partial(f, 1000));
    assert_string_equal(ask_partial(f, 1001), "answer 1001");
}

static void ids_of_all_widths(void **state)
{
    (void)state;
    uint32_t id = 0;
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\x07\xa3getx", 8, &id), 3);
    assert_int_equal(id, 7);
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\xcc\xff\xa3get", 8, &id), 4);
    assert_int_equal(id, 255);
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\xcd\x01\x02\xa3get", 9, &id), 5);
    assert_int_equal(id, 0x102);
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\xce\x01\x02\x03\x04\xa3get", 11, &id),
                     7);
    assert_int_equal(id, 0x1020304);
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\xa1x\xa3get", 8, &id), 0);
    assert_int_equal(memo_split((const uint8_t *)"\x93\x02\x07\xa3getx", 8, &id), 0);
    assert_int_equal(memo_split((const uint8_t *)"\x94\x00\x07", 3, &id), 0);
}

/* Ten thousand keys of a real op must leave room for everything else in 16 MiB. */
static void compact(void **state)
{
    enum { KEYS = 10000 };
    struct fixture *f = *state;
    size_t before = mallinfo2().uordblks;
    for (int i = 1; i <= KEYS; i++) {
        char text[160];
        snprintf(text, sizeof(text),
                 "grouped_gemm mode=forward experts=128 topk=8 N=1536 K=2048 permute_x=true M=%d",
                 8 * i);
        put(f, text, i, CACHE_SERVES);
    }
    size_t bytes = mallinfo2().uordblks - before;
    print_message("%zu bytes per key\n", bytes / KEYS);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(bytes / KEYS < 900);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(found_with_the_answer_that_was_put, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reply_is_one_message_with_all_fields, setup, teardown),
        cmocka_unit_test_setup_teardown(unknown_times_stay_unknown, setup, teardown),
        cmocka_unit_test_setup_teardown(replaced_not_doubled, setup, teardown),
        cmocka_unit_test_setup_teardown(many_keys_come_and_go, setup, teardown),
        cmocka_unit_test_setup_teardown(by_the_beginning_of_an_id, setup, teardown),
        cmocka_unit_test_setup_teardown(prefixes_of_all_lengths, setup, teardown),
        cmocka_unit_test_setup_teardown(an_id_is_found_without_a_look_at_every_key, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(near_is_nearest_of_the_same_kind, setup, teardown),
        cmocka_unit_test_setup_teardown(near_of_another_routing, setup, teardown),
        cmocka_unit_test_setup_teardown(near_is_of_one_group_of_many, setup, teardown),
        cmocka_unit_test_setup_teardown(near_is_found_without_a_look_at_every_key, setup, teardown),
        cmocka_unit_test_setup_teardown(the_closest_of_many_keys_is_found_by_a_few_comparisons,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(near_looks_at_few_of_a_large_group_and_at_no_hints, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(tolerances, setup, teardown),
        cmocka_unit_test_setup_teardown(unsaved_answers_become_saved, setup, teardown),
        cmocka_unit_test_setup_teardown(what_the_database_has_no_more_is_swept, setup, teardown),
        cmocka_unit_test_setup_teardown(the_memo_knows_the_same_bytes_while_their_entry_lives,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_memo_keeps_a_few_questions_for_each_entry, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_memo_has_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(restricted_searches_are_kept_while_their_key_is_unchanged,
                                        setup, teardown),
        cmocka_unit_test(ids_of_all_widths),
        cmocka_unit_test_setup_teardown(compact, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
