/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tuning that is killed at some moment, and goes on with its finished trials, costs at most a
 * tenth more than an undisturbed tuning. Cost is device time and core time of compilers. The
 * restart's own cost (operands, the reference again) is counted apart. A module counts once if the
 * first life compiled it and the second found it in the cache. Compiled but unused modules count,
 * too, except compiles of the first life that were running or unmeasured at the kill, if the second
 * life does not use them.
 *
 * The progress of these compilers does not depend on recorded times. A process runs ahead of its
 * messages, and is killed at any point, even in the middle of a file. So the second life keeps only
 * the reported images. Three amounts of further images are tried: none, half, and all of an
 * undisturbed search's images.
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
#include <unistd.h>

#include "kernels/modules.h"
#include "tests/search/world.h"

enum { PARTS = 3 };
static const double MOST = 1.1;
/* parts of the unreported images that the second process finds compiled */
static const double PART[PARTS] = {0, 0.5, 1};

struct whole {
    struct child child;
    char *folder; /* owned */
    double ms;
};

struct cost {
    double ms, restart_ms;
};

/* The unreported images that the second process (life) finds in the cache. */
struct images {
    uint32_t n;
    const struct module *modules[SEEN_MAX]; /* borrowed */
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

static double compiled(const struct child *c)
{
    double ms = 0;
    for (uint32_t i = 0; i < c->n_modules; i++) {
        ms += c->modules[i].compile_ms;
    }
    return ms;
}

/* Leaves in a cache only the images that its dead writer has reported. */
static void forget_unsaid(const char *folder, const struct child *said)
{
    char path[600], id[HASH_HEX];
    snprintf(path, sizeof(path), "%s/modules", folder);
    DIR *d = opendir(
        path); /* NULL when there is no such folder, because nothing has been compiled yet */
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(id, sizeof(id), "%.*s", HASH_HEX - 1, e->d_name);
        if (e->d_name[0] != '.' && !has_module(said, id)) {
            assert_int_equal(unlinkat(dirfd(d), e->d_name, 0), 0);
        }
    }
    if (d) {
        closedir(d);
    }
}

/* Adds a part of an undisturbed search's images that this search has not reported, as if it had
 * compiled them. */
static void add_images(const char *folder, const struct whole *w, const struct child *said,
                       double part, struct images *added)
{
    uint64_t state = said->n_trials;
    struct error err;
    added->n = 0;
    for (uint32_t i = 0; i < w->child.n_modules; i++) {
        const struct module *m = &w->child.modules[i];
        struct image image;
        if (has_module(said, m->id) || random_unit(&state) >= part) {
            continue;
        }
        assert_int_equal(modules_find(w->folder, m->variant, &image, &err), 0);
        assert_int_equal(modules_put(folder, &image, "replay", &err), 0);
        image_deinit(&image);
        added->modules[added->n++] = m;
    }
}

/* Returns the compile time of the child's modules that an earlier process compiled. */
static double found(const struct child *c, const struct images *there)
{
    double ms = 0;
    for (uint32_t i = 0; i < there->n; i++) {
        ms += has_module(c, there->modules[i]->id) ? there->modules[i]->compile_ms : 0;
    }
    return ms;
}

static void read_until(struct child *c, uint32_t trials)
{
    while (!c->answered && c->n_trials < trials && child_read(c)) {
    }
    uint32_t said = c->n_progress;
    while (!c->answered && c->n_progress == said && child_read(c)) {
    }
}

static void whole_init(struct whole *a, const struct world *w)
{
    struct tune_order *o = world_order(w);
    a->folder = folder_make();
    child_start(&a->child, w->spec, a->folder, NULL);
    child_tune(&a->child, o);
    assert_int_equal(a->child.error.code, 0);
    a->ms = a->child.result.device_ms + a->child.result.compile_ms;
    order_free(o);
}

static void whole_deinit(struct whole *a)
{
    child_end(&a->child);
    folder_remove(a->folder);
}

/* Runs a search that is killed when it has reported `trials` trials, then a second search to the
 * end. */
static void interrupted(const struct world *w, const struct whole *all, uint32_t trials,
                        double part, struct cost *out)
{
    struct child first, second;
    struct images there;
    char *folder = folder_make();
    struct tune_order *o = world_order(w);
    child_start(&first, w->spec, folder, NULL);
    child_send_order(&first, o);
    read_until(&first, trials);
    kill(first.pid, SIGKILL);
    siginfo_t dead;
    assert_int_equal(waitid(P_PID, (id_t)first.pid, &dead, WEXITED | WNOWAIT), 0);
    forget_unsaid(folder, &first);
    add_images(folder, all, &first, part, &there);
    out->ms = first.progress.device_ms + compiled(&first);
    order_done(o, first.trials, first.n_trials);
    child_start(&second, w->spec, folder, NULL);
    child_send_order(&second, o);
    read_until(&second, 1);
    out->restart_ms = second.progress.device_ms;
    child_wait(&second);
    assert_int_equal(second.error.code, 0);
    out->ms += second.result.device_ms + second.result.compile_ms - out->restart_ms +
               found(&second, &there);
    order_free(o);
    child_ended(&first);
    child_end(&second);
    folder_remove(folder);
}

static bool try_landscape(const char *path, uint32_t moments)
{
    struct world w;
    struct whole all;
    struct cost cut[PARTS];
    uint64_t state = 20;
    bool good = true;
    world_open(&w, path);
    whole_init(&all, &w);
    printf("%s\nleft alone: %.0f ms, %u trials\n", path, all.ms, all.child.n_trials);
    for (uint32_t i = 0; i < moments; i++) {
        uint32_t at = 1 + (uint32_t)(random_unit(&state) * (all.child.n_trials - 1));
        for (int k = 0; k < PARTS; k++) {
            interrupted(&w, &all, at, PART[k], &cut[k]);
            good = good && cut[k].ms <= MOST * all.ms;
        }
        printf("killed after %2u trials: %.3f of that, %.3f with half of the rest compiled, "
               "%.3f with all of it, and %.0f ms to start again\n",
               at, cut[0].ms / all.ms, cut[1].ms / all.ms, cut[2].ms / all.ms, cut[0].restart_ms);
    }
    whole_deinit(&all);
    return good;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF,
            0); /* no output stays in the buffer, which forked children would print again */
    bool good = true;
    if (argc < 3) {
        fprintf(stderr, "test_interrupted MOMENTS LANDSCAPE...\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        good = try_landscape(argv[i], (uint32_t)atoi(argv[1])) && good;
    }
    return good ? 0 : 1;
}
