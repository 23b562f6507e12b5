/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tuning that is killed at some moment and goes on with what was finished costs no more than a
 * tenth more than one that is left alone: of device time and core time of compilers together. What
 * a restart costs by itself (operands, the reference again) is counted apart. A module that the
 * first life compiled and the second found in the cache counts once. What a search had compiled and
 * did not wait for is cost, too; but not what the first life's compilers were at work on, or had
 * done unmeasured, when it was killed and the second does not use.
 *
 *   test_interrupted MOMENTS LANDSCAPE...
 */
#include "harness.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "kernels/devices/replay/replay.h"
#include "tests/search/world.h"

static const double MOST = 1.1;

struct cost {
    double ms, restart_ms;
    uint32_t trials;
};

static bool has_module(const struct child *c, const char *id)
{
    for (uint32_t i = 0; i < c->n_modules; i++) {
        if (strcmp(c->modules[i].id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Core time of what a child was told of. */
static double compiled(const struct child *c)
{
    double ms = 0;
    for (uint32_t i = 0; i < c->n_modules; i++) {
        ms += c->modules[i].compile_ms;
    }
    return ms;
}

/* Names of the images in a cache directory, one after the other. */
static char *images(const char *folder)
{
    char *names = NULL, path[600];
    size_t size;
    FILE *out = open_memstream(&names, &size);
    assert_non_null(out);
    snprintf(path, sizeof(path), "%s/modules", folder);
    DIR *d = opendir(path); /* none: nothing has been compiled yet */
    for (struct dirent *e; d && (e = readdir(d));) {
        fprintf(out, "%s ", e->d_name);
    }
    if (d) {
        closedir(d);
    }
    fclose(out);
    return names;
}

/* Core time of what a child used and was compiled before it, which `before` was not told of any more. */
static double found(const struct child *c, const struct child *before, const char *there)
{
    double ms = 0;
    for (uint32_t i = 0; i < c->n_modules; i++) {
        const struct module *m = &c->modules[i];
        ms += !has_module(before, m->id) && strstr(there, m->id) ? m->compile_ms : 0;
    }
    return ms;
}

/* Reads until so many trials have come, or the answer. */
static void read_until(struct child *c, uint32_t trials)
{
    while (!c->answered && c->n_trials < trials && child_read(c)) {
    }
    uint32_t said = c->n_progress;
    while (!c->answered && c->n_progress == said && child_read(c)) {
    }
}

static void whole(const struct world *w, struct cost *out)
{
    struct child c;
    char *folder = folder_make();
    struct tune_order *o = world_order(w);
    child_start(&c, w->spec, folder, NULL);
    child_tune(&c, o);
    assert_int_equal(c.error.code, 0);
    *out = (struct cost){.ms = c.result.device_ms + c.result.compile_ms, .trials = c.n_trials};
    order_free(o);
    child_end(&c);
    folder_remove(folder);
}

/* Killed when `trials` have come, then to the end. */
static void interrupted(const struct world *w, uint32_t trials, struct cost *out)
{
    struct child first, second;
    char *folder = folder_make();
    struct tune_order *o = world_order(w);
    child_start(&first, w->spec, folder, NULL);
    child_send_order(&first, o);
    read_until(&first, trials);
    kill(first.pid, SIGKILL);
    siginfo_t dead;
    assert_int_equal(waitid(P_PID, (id_t)first.pid, &dead, WEXITED | WNOWAIT), 0);
    char *there = images(folder);
    assert_true(there[0] || first.n_modules == 0);
    out->ms = first.progress.device_ms + compiled(&first);
    order_done(o, first.trials, first.n_trials);
    child_start(&second, w->spec, folder, NULL);
    child_send_order(&second, o);
    read_until(&second, 1);
    out->restart_ms = second.progress.device_ms;
    child_wait(&second);
    assert_int_equal(second.error.code, 0);
    out->ms += second.result.device_ms + second.result.compile_ms - out->restart_ms +
               found(&second, &first, there);
    order_free(o);
    free(there);
    child_ended(&first);
    child_end(&second);
    folder_remove(folder);
}

/* True: no moment costs more than it may. */
static bool try_landscape(const char *path, uint32_t moments)
{
    struct world w;
    struct cost all, cut;
    uint64_t state = 20;
    bool good = true;
    world_open(&w, path);
    whole(&w, &all);
    printf("%s\nleft alone: %.0f ms, %u trials\n", path, all.ms, all.trials);
    for (uint32_t i = 0; i < moments; i++) {
        uint32_t at = 1 + (uint32_t)(random_unit(&state) * (all.trials - 1));
        interrupted(&w, at, &cut);
        printf("killed after %2u trials: %.3f of that, and %.0f ms to start again\n", at,
               cut.ms / all.ms, cut.restart_ms);
        good = good && cut.ms <= MOST * all.ms;
    }
    return good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is left for children to print again */
    bool good = true;
    if (argc < 3) {
        fprintf(stderr, "test_interrupted MOMENTS LANDSCAPE...\n");
        return 2;
    }
    /* A child that runs ahead as fast as it can is killed wherever it has come to meanwhile. */
    setenv("GEMMD_REPLAY_SPEED", "10", 0);
    for (int i = 2; i < argc; i++) {
        good = try_landscape(argv[i], (uint32_t)atoi(argv[1])) && good;
    }
    return good ? 0 : 1;
}
