/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/pool.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/report.h"

enum { WORKERS_MAX = 64, PATIENCE_SECONDS = 60, SAID_MAX = 20 };

/* Memory shared by the workers, the child that waits for their variants, and the process that
 * started both. */
static struct {
    volatile int ahead[POOL_LISTS_MAX][WORKERS_MAX]; /* the worker has compiled its variants with
                                                        numbers below this */
    volatile int left[POOL_LISTS_MAX];
    volatile int compiled, refused, broken;
} * shared;

static pid_t workers[WORKERS_MAX];
static int n_workers;

static void add(volatile int *count)
{
    __atomic_add_fetch(count, 1, __ATOMIC_RELAXED);
}

static void compile(const struct variant *v, const char *name)
{
    void *data;
    char why[512];
    const enum cubin r = cubin_get(v, &data, why, sizeof(why));
    free(data);
    add(&shared->compiled);
    if (r == CUBIN_REFUSED) {
        add(&shared->refused);
    } else if (r == CUBIN_BROKEN) {
        add(&shared->broken);
        if (shared->broken <= SAID_MAX) {
            say("BROKEN %s: %s\n", name, why);
        }
    }
    if (shared->compiled % 1000 == 0) {
        say("compiled %d, refused %d, broken %d\n", shared->compiled, shared->refused,
            shared->broken);
    }
}

static void work_on(int list, const struct pool_list *l, int worker)
{
    for (int i = worker; i < l->n && !shared->left[list]; i += options.jobs) {
        struct variant v;
        char name[512];
        if (l->variant(i, &v, name, sizeof(name)) && !cubin_known(&v)) {
            compile(&v, name);
        }
        __atomic_store_n(&shared->ahead[list][worker], i + 1, __ATOMIC_RELEASE);
    }
    shared->ahead[list][worker] = INT_MAX;
}

void pool_start(const struct pool_list lists[], int n)
{
    options.jobs = options.jobs < WORKERS_MAX ? options.jobs : WORKERS_MAX;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    fflush(NULL);
    const pid_t parent = getpid();
    for (int j = 0; j < options.jobs; j++) {
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int l = 0; l < n && getppid() == parent; l++) {
                work_on(l, &lists[l], j);
            }
            fflush(NULL);
            _exit(0);
        }
        if (pid > 0) {
            workers[n_workers++] = pid;
        }
    }
}

void pool_wait(int list, int i, void (*wait)(void))
{
    const double began = now();
    if (!shared || options.jobs == 0) {
        return;
    }
    volatile int *ahead = &shared->ahead[list][i % options.jobs];
    while (__atomic_load_n(ahead, __ATOMIC_ACQUIRE) <= i) {
        if (now() - began > PATIENCE_SECONDS) {
            *ahead = INT_MAX; /* the worker has probably died: the launching process compiles its
                                 variants */
        }
        wait();
        usleep(300);
    }
}

void pool_leave(int list)
{
    if (shared) {
        shared->left[list] = 1;
    }
}

int pool_finish(void)
{
    int died = 0;
    for (int j = 0; j < n_workers; j++) {
        int status;
        if (waitpid(workers[j], &status, 0) != workers[j] || status != 0) {
            died++;
        }
    }
    n_workers = 0;
    say("compiled %d, refused %d, broken %d%s\n", shared->compiled, shared->refused, shared->broken,
        died ? "; A COMPILING PROCESS DIED" : "");
    return shared->broken + died;
}

void pool_stop(void)
{
    for (int j = 0; j < n_workers; j++) {
        kill(workers[j], SIGKILL);
    }
    for (int j = 0; j < n_workers; j++) {
        waitpid(workers[j], NULL, 0);
    }
    n_workers = 0;
}
