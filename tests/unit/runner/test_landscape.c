/* SPDX-License-Identifier: Apache-2.0 */
/* Records a landscape on the cpu device, and plays it. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/devices/replay/replay.h"
#include "runner/runner.h"

#define PROBLEM "grouped_gemm mode=forward M=32 N=32 K=64 experts=2"
enum { VARIANTS = 4 };

static int record(const char *path, const char *cache, const char *problem, const char *variants)
{
    pid_t pid = fork();
    if (pid == 0) {
        const char *args[] = {"gemmd-runner",
                              "--landscape",
                              path,
                              "--device",
                              "cpu",
                              "--cache-dir",
                              cache,
                              "--variants",
                              variants,
                              "--seconds",
                              "0",
                              "--finals",
                              "3",
                              "--quiet",
                              problem};
        char *argv[sizeof(args) / sizeof(args[0]) + 1] = {NULL};
        memcpy(argv, args, sizeof(args));
        for (int s = 1; s < NSIG; s++) {
            signal(s, SIG_DFL);
        }
        _exit(runner_main((int)(sizeof(argv) / sizeof(argv[0])) - 1, argv));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static const char *path_of(const char *folder, const char *name)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

struct world {
    char *folder;
    char spec[600];
    struct landscape *l;
};

static int open_world(void **state)
{
    static struct world w;
    struct error err = ERROR_NULL;
    families_register();
    w.folder = folder_make();
    const char *path = path_of(w.folder, "key.jsonl");
    assert_int_equal(record(path, w.folder, PROBLEM, "4"), 0);
    snprintf(w.spec, sizeof(w.spec), "replay:%s", path);
    if (landscape_load(w.spec, &w.l, &err)) {
        fail_msg("%s", err.text);
    }
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    landscape_free(w->l);
    folder_remove(w->folder);
    return 0;
}

static void test_what_is_recorded(void **state)
{
    const struct landscape *l = ((struct world *)*state)->l;
    uint32_t measured = 0, often = 0;
    assert_int_equal(l->n_problems, 1);
    assert_int_equal(l->n_variants, VARIANTS);
    assert_true(l->n_turns > 0);
    for (uint32_t i = 0; i < l->n_variants; i++) {
        assert_true(l->variants[i].hash != 0);
        assert_true(landscape_compile_ms(l, l->variants[i].hash) > 0);
    }
    for (uint32_t i = 0; i < l->n_entries; i++) {
        const struct landscape_entry *e = &l->entries[i];
        assert_int_equal(e->status, 0);
        assert_true(e->us > 0);
        measured++;
        often += e->n > 0;
        assert_true(e->n == 0 || e->n > e->each);
    }
    assert_true(measured >= 2 * VARIANTS); /* two settings each */
    assert_true(often >= 3 && often == l->n_often);
}

/* The space of the replayed device is the recorded space: no config fails because it is missing. */
static void test_played(void **state)
{
    struct world *w = *state;
    struct child c;
    struct tune_order *o = order_new(PROBLEM);
    child_start(&c, w->spec, w->folder, NULL);
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "exhaustive");
    child_tune(&c, o);
    assert_int_equal(c.error.code, 0);
    assert_int_equal(count_trials(&c, "measure", "not_found"), 0);
    assert_true(c.result.space >= 2 * VARIANTS && c.result.space <= w->l->n_entries);
    assert_int_equal(c.result.measured, c.result.space);
    double compiled = 0;
    for (uint32_t i = 0; i < w->l->n_variants; i++) {
        compiled += w->l->variants[i].compile_ms;
    }
    assert_true(c.result.compile_ms > 0.99 * compiled && c.result.compile_ms < 1.01 * compiled);
    order_free(o);
    child_end(&c);
}

/* A second recording, limited to two variants, takes variants that the first recording has: the
 * choice does not depend on the device's state. */
static void test_same_choice(void **state)
{
    struct world *w = *state;
    struct error err = ERROR_NULL;
    struct landscape *again;
    char spec[600];
    const char *path = path_of(w->folder, "again.jsonl");
    assert_int_equal(record(path, w->folder, PROBLEM, "2"), 0);
    snprintf(spec, sizeof(spec), "replay:%s", path);
    assert_int_equal(landscape_load(spec, &again, &err), 0);
    assert_int_equal(again->n_variants, 2);
    for (uint32_t i = 0; i < again->n_entries; i++) {
        bool found = false;
        for (uint32_t k = 0; k < w->l->n_entries; k++) {
            found |= w->l->entries[k].config == again->entries[i].config;
        }
        assert_true(found);
    }
    landscape_free(again);
}

static void test_refused(void **state)
{
    struct world *w = *state;
    const char *path = path_of(w->folder, "none.jsonl");
    assert_int_equal(WEXITSTATUS(record(path, w->folder, "grouped_gemm mode=sideways", "4")), 1);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(WEXITSTATUS(record("/no/such/folder/x", w->folder, PROBLEM, "4")), 1);
    assert_int_equal(WEXITSTATUS(record(path, w->folder, PROBLEM, "many")), RUNNER_EXIT_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_recorded),
        cmocka_unit_test(test_played),
        cmocka_unit_test(test_same_choice),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, open_world, close_world);
}
