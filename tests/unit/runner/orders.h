/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to a runner, and checks of its messages, for tests of the runner and tests of searches. */
#ifndef GEMMD_TESTS_UNIT_RUNNER_ORDERS_H
#define GEMMD_TESTS_UNIT_RUNNER_ORDERS_H

#include "harness.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runner/runner.h"

#define SMALL            "grouped_gemm mode=forward M=64 N=64 K=64 experts=4"
#define LARGE            "grouped_gemm mode=forward M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true"
#define SYNTHETIC        "replay:" TEST_DATA "/synthetic.jsonl"
#define HOPPER           "replay:" TEST_DATA "/synthetic-hopper.jsonl"
#define RECORDED         "replay:" TEST_DATA "/cpu-small.jsonl"
#define RECORDED_PROBLEM "grouped_gemm mode=forward M=128 N=128 K=128 experts=4"

static char *cache; /* the cache folder of all tests without their own cache */

static inline int make_cache(void **state)
{
    (void)state;
    cache = folder_make();
    return 0;
}

static inline int remove_cache(void **state)
{
    (void)state;
    folder_remove(cache);
    return 0;
}

static inline int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline void start(struct child *c, const char *device)
{
    child_start(c, device, cache, (const char *const[]){"--compile-threads", "2", NULL});
}

static inline void must_work(const struct child *c)
{
    if (!c->answered || c->error.code) {
        fail_msg("no result: %s", c->error.text);
    }
}

static inline void must_fail(const struct child *c, int code, const char *sentence)
{
    assert_true(c->answered);
    if (c->error.code != code || !strstr(c->error.text, sentence)) {
        fail_msg("%s: %s", error_name(c->error.code), c->error.text);
    }
}

static inline void must_exit(int status, int code)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code) {
        fail_msg("exit %d signal %d", WEXITSTATUS(status), WTERMSIG(status));
    }
}

static inline void faults(const char *folder, const char *lines)
{
    setenv("GEMMD_REPLAY_FAULTS", folder_file(folder, "faults.jsonl", lines), 1);
}

static inline void config_text(const struct record *config, char out[CONFIG_TEXT_MAX])
{
    record_format(config, out, CONFIG_TEXT_MAX);
}

/* Runs an order on a new runner; its messages stay in c until child_ended. */
static inline void run_order(struct child *c, const char *device, struct tune_order *o)
{
    start(c, device);
    child_tune(c, o);
    order_free(o);
}

/* Makes the search take candidates in the plan's order, whatever times it measures. */
static inline void in_order(struct tune_order *o)
{
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "exhaustive");
}

/* Runs a search of LARGE in the plan's order; `out` gets its n configs, the reference first. */
static inline uint32_t ranked_configs(struct record *out, uint32_t n)
{
    struct child c;
    struct tune_order *o = order_new(LARGE);
    o->request.query.budget = n;
    in_order(o);
    run_order(&c, SYNTHETIC, o);
    must_work(&c);
    uint32_t found = 0;
    for (uint32_t i = 0; i < c.n_trials && found < n; i++) {
        if (strcmp(c.trials[i].stage, "measure") == 0) {
            record_copy(&out[found++], &c.trials[i].config);
        }
    }
    child_end(&c);
    assert_int_equal(found, n);
    return found;
}

/* Writes a landscape of LARGE into `folder`, in which a launch of each of the configs takes `us`.
 * Returns the device that plays it. */
static inline const char *record_slow(const char *folder, const struct record configs[], uint32_t n,
                                      double us)
{
    static char spec[600];
    char header[2048], text[CONFIG_TEXT_MAX];
    size_t size = sizeof(header) + (n + 1) * (CONFIG_TEXT_MAX + 100), at;
    char *lines = calloc(1, size);
    FILE *f = fopen(TEST_DATA "/synthetic.jsonl", "r");
    assert_non_null(fgets(header, sizeof(header), f));
    fclose(f);
    at = (size_t)snprintf(lines, size, "%s{\"problem\": \"%s\"}\n", header, LARGE);
    for (uint32_t i = 0; i < n; i++) {
        config_text(&configs[i], text);
        at += (size_t)snprintf(lines + at, size - at,
                               "{\"config\": \"%s\", \"samples_us\": [%.1f, %.1f]}\n", text,
                               us * (1 + 0.02 * i), us * (1.001 + 0.02 * i));
    }
    snprintf(spec, sizeof(spec), "replay:%s", folder_file(folder, "slow.jsonl", lines));
    free(lines);
    return spec;
}

/* ---- rules of every stream ------------------------------------------------------------------- */

static inline void check_best(const struct child *c)
{
    const struct tune_result *r = &c->result;
    const struct trial *best = NULL;
    for (uint32_t i = 0; i < c->n_trials; i++) { /* its last trial counts */
        const struct trial *t = &c->trials[i];
        if (record_equal(&t->config, &r->config) && strcmp(t->status, "ok") == 0) {
            best = t;
        }
    }
    assert_non_null(best);
    assert_true(best->time_us == r->time_us);
    assert_string_equal(best->module, r->module);
    assert_true(r->time_us > 0 && r->spread >= 0 && r->flops > 0 && r->bytes > 0);
    assert_true(r->device_ms > 0 && r->wall_ms >= 0);
}

/* Finds the trial of the reference in the finals; NULL: it had none. */
static inline const struct trial *last_turn(const struct child *c, const struct trial *reference)
{
    const struct trial *turn = find_trial(c, &reference->config, "final");
    return turn ? turn : reference;
}

static inline void check_trials(const struct child *c, const struct tune_order *o)
{
    for (uint32_t i = 0; i < c->n_trials; i++) {
        const struct trial *t = &c->trials[i];
        assert_string_equal(t->key, o->key);
        assert_string_equal(t->stamp, o->stamp);
        assert_true(t->status[0] && t->stage[0] && t->family[0]);
        if (strcmp(t->status, "ok") == 0) {
            assert_true(t->samples_us.n > 0 && t->q25_us <= t->time_us && t->time_us <= t->q75_us);
            assert_int_equal(strlen(t->variant), HASH_HEX - 1);
        } else {
            assert_true(t->reason[0]);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(c->trials[k].stage, t->stage) == 0) {
                assert_false(record_equal(&c->trials[k].config, &t->config));
            }
        }
    }
}

#endif
