/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/journal.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/pool.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/stages.h"
#include "tests/gpu/hopper/tools.h"

enum { CHILDREN_MAX = 40, INCOMPLETE = 3, SKIP = 77 };

static const struct stage *const stages[] = {
    &stage_check, &stage_soak, &stage_variants, &stage_sample, &stage_time,
};
enum { N_STAGES = sizeof(stages) / sizeof(stages[0]) };
_Static_assert((int)N_STAGES <= (int)STAGES_MAX && (int)N_STAGES <= (int)POOL_LISTS_MAX, "room");

static int steps[N_STAGES];
struct bench_progress *progress;

/* ---- progress */

void progress_on(int kind, int tile, const char *hash, const char *what)
{
    progress->kind = kind;
    progress->tile = tile;
    snprintf(progress->hash, sizeof(progress->hash), "%s", hash);
    snprintf(progress->what, sizeof(progress->what), "%s", what);
    progress->beats++;
}

void progress_beat(void)
{
    progress->beats++;
}

void progress_count(enum tally t)
{
    progress->stages[progress->stage].count[t]++;
    progress->failed += t == WRONG;
}

int progress_counted(enum tally t)
{
    return progress->stages[progress->stage].count[t];
}

double progress_used(void)
{
    return progress->stages[progress->stage].used;
}

/* ---- the child */

static void lab_open(struct lab *lab)
{
    struct variant v;
    void *cubin;
    char why[512];
    gpu_open(&lab->info);
    if (!hopper_supports(&lab->info)) {
        say("SKIP %s is no Hopper GPU (compute capability 9.0)\n", lab->info.name);
        exit(SKIP);
    }
    tools_variant(&v);
    if (cubin_get(&v, &cubin, why, sizeof(why)) != CUBIN_HERE) {
        say("FAULT the bench's own kernels: %s\n", why);
        _exit(5);
    }
    gpu_load(&lab->tools, cubin);
    gpu_learn_order(&lab->tools, &lab->info);
    free(cubin);
}

static bool out_of_time(int s, int at)
{
    if (!stages[s]->limited || progress->stages[s].used < options.seconds) {
        return false;
    }
    say("%s: THE %.0f SECONDS ARE OVER, %d of %d steps WERE NOT DONE (--seconds; --journal goes on "
        "with them)\n",
        stages[s]->name, options.seconds, steps[s] - at, steps[s]);
    progress->incomplete |= !stages[s]->resumes; /* a time stage that ends early is no failure */
    return true;
}

static void run_stage(struct lab *lab, int s)
{
    progress->stage = s;
    for (int at; (at = progress->stages[s].next) < steps[s];) {
        const double began = now();
        if (out_of_time(s, at)) {
            progress->stages[s].next = steps[s];
            break;
        }
        progress->at = at;
        progress->beats++;
        stages[s]->step(lab, at);
        progress->stages[s].used += now() - began;
        progress->stages[s].next = at + 1;
    }
    pool_leave(s);
    if (!progress->stages[s].ended) {
        progress->stages[s].ended = true;
        stages[s]->end(lab);
    }
}

static void work(bool first)
{
    struct lab lab = {0};
    lab_open(&lab);
    if (first) {
        say("%s, %d SMs, compute capability %d.%d\n", lab.info.name, (int)lab.info.sm_count,
            (int)lab.info.cc_major, (int)lab.info.cc_minor);
    }
    for (int s = 0; s < N_STAGES; s++) {
        if (options_stage(stages[s]->name)) {
            run_stage(&lab, s);
        }
    }
    fflush(NULL);
}

/* ---- its watcher */

static double began_at;

static void reap(pid_t child)
{
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
}

enum outcome { DONE /* no step is left, or no time */, DEAD /* a new child may go on */, NO_GPU };

static enum outcome watch(pid_t child)
{
    long beats = -1;
    double beat_at = now();
    for (;;) {
        int status;
        usleep(20000);
        if (waitpid(child, &status, WNOHANG) == child) {
            if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == SKIP)) {
                return WEXITSTATUS(status) == 0 ? DONE : NO_GPU;
            }
            say("DIED in %s (status 0x%x)\n", progress->what, status);
            return DEAD;
        }
        if (now() - began_at > options.limit) {
            reap(child);
            say("THE LIMIT OF %.0f s IS OVER (--limit), in %s: not all was done\n", options.limit,
                progress->what);
            progress->incomplete = true;
            return DONE;
        }
        if (progress->beats != beats) {
            beats = progress->beats;
            beat_at = now();
        } else if (now() - beat_at > options.silence) {
            reap(child);
            say("HUNG in %s\n", progress->what);
            return DEAD;
        }
    }
}

static void note_death(void)
{
    const int s = progress->stage;
    progress->stages[s].count[WRONG]++;
    progress->failed++;
    progress->beats++;
    if (progress->kind >= 0) {
        progress->bad[progress->kind][progress->tile] = 1;
    }
    if (progress->hash[0]) {
        journal_add(stages[s]->name, "DIED", progress->hash, progress->what, "");
    }
    if (!stages[s]->resumes && progress->stages[s].next == progress->at) {
        progress->stages[s].next = progress->at + 1;
    }
}

static int verdict(void)
{
    say("failed: %d%s\n", progress->failed, progress->incomplete ? ", NOT ALL WAS DONE" : "");
    return progress->failed > 0 ? 1 : progress->incomplete ? INCOMPLETE : 0;
}

static int supervise(void)
{
    for (int children = 0; children < CHILDREN_MAX; children++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG,
                  SIGKILL); /* when the watcher ends, no child may still use the GPU */
            work(children == 0);
            _exit(0);
        }
        switch (watch(child)) {
        case DONE:
            return verdict();
        case NO_GPU:
            return SKIP;
        case DEAD:
            note_death();
        }
    }
    say("too many children died\n");
    return 1;
}

/* ---- all */

bool watch_knows(const char *stage)
{
    for (int s = 0; s < N_STAGES; s++) {
        if (strcmp(stages[s]->name, stage) == 0) {
            return true;
        }
    }
    return false;
}

static int count_steps(struct pool_list lists[N_STAGES])
{
    for (int s = 0; s < N_STAGES; s++) {
        steps[s] = options_stage(stages[s]->name) ? stages[s]->steps() : 0;
        if (steps[s] < 0) {
            return -1;
        }
        lists[s] = (struct pool_list){stages[s]->variant ? steps[s] : 0, stages[s]->variant};
    }
    return 0;
}

int watch_run(void)
{
    struct pool_list lists[N_STAGES];
    began_at = now();
    progress =
        mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (progress == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    if (count_steps(lists)) {
        return 1;
    }
    if (!options.fork) {
        work(true);
        return verdict();
    }
    pool_start(lists, N_STAGES);
    const int r = supervise();
    pool_stop();
    return r;
}
