/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a process that precompiles. */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common.h"
#include "daemon/tuning/tuning.h"

enum { HANG_S = 20 };

static char runner[] = "/tmp/gemmd-precompile-XXXXXX";
static struct daemon d;
static struct scheduler scheduler;
static struct config config = {.compile_ahead = 1};

/* A job has the device and another waits, so a precompile starts. */
static void begin(struct precompiler *a)
{
    static struct job job = {.id = 1};
    memset(&d, 0, sizeof(d));
    memset(&scheduler, 0, sizeof(scheduler));
    uv_loop_init(&d.loop);
    d.config = &config;
    strcpy(config.runner, runner);
    d.doc = wire_doc_new();
    strcpy(config.device, "cuda:0");
    job.precompiled = false;
    wire_put_map(&job.search, 0);
    list_init(&scheduler.queue);
    list_append(&scheduler.queue, &job.link);
    scheduler.running = &job;
    precompile_init(a, &d, &scheduler);
    precompile_queued(a);
    while (!a->runs) {
        uv_run(&d.loop, UV_RUN_ONCE);
    }
    wire_doc_free(d.doc);
    wire_buf_deinit(&job.search);
}

/* Stops the precompiler. Returns the ms until the loop is idle. */
static uint64_t stop(struct precompiler *a)
{
    alarm(HANG_S);
    uint64_t began = uv_hrtime();
    precompile_stop(a);
    uv_run(&d.loop, UV_RUN_DEFAULT);
    alarm(0);
    assert_int_equal(uv_loop_close(&d.loop), 0);
    return (uv_hrtime() - began) / 1000000;
}

static void a_stop_kills_the_precompile(void **state)
{
    (void)state;
    static struct precompiler a;
    int status;
    begin(&a);
    /* the stop does not wait for a process that hangs in the kernel */
    assert_in_range(stop(&a), 0, 1000);
    assert_int_equal(waitpid(a.process.pid, &status, 0), a.process.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void a_stop_without_a_precompile_returns_at_once(void **state)
{
    (void)state;
    static struct precompiler a;
    uv_loop_init(&d.loop);
    precompile_init(&a, &d, &scheduler);
    assert_in_range(stop(&a), 0, 1000);
}

/* A recorded GPU needs no precompile: its landscape has compile times, and kernels never run. */
static void a_recorded_gpu_compiles_nothing(void **state)
{
    (void)state;
    static struct precompiler a;
    begin(&a);
    stop(&a);
    uv_loop_init(&d.loop);
    precompile_init(&a, &d, &scheduler);
    strcpy(d.device.kind, "cuda");
    strcpy(config.device, "replay:h200.jsonl");
    precompile_queued(&a);
    assert_false(uv_is_active((uv_handle_t *)&a.soon));
    stop(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_kills_the_precompile),
        cmocka_unit_test(a_stop_without_a_precompile_returns_at_once),
        cmocka_unit_test(a_recorded_gpu_compiles_nothing),
    };
    FILE *f = fdopen(mkstemp(runner), "w");
    bool made = f && fputs("#!/bin/sh\nexec sleep 1000\n", f) >= 0 && fclose(f) == 0 &&
                chmod(runner, 0755) == 0;
    int failed = made ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    unlink(runner);
    return failed;
}
