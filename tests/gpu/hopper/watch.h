/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages of the bench and their processes: a child does the steps in order, and this process
 * watches it. If a child hangs or dies, its current step is lost. The watcher notes the step,
 * leaves its variant out from then on, and starts another child. A whole GPU run is worth more than
 * a single bad kernel.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_WATCH_H
#define GEMMD_TESTS_GPU_HOPPER_WATCH_H

#include "tests/gpu/hopper/data.h"

enum { KINDS_MAX = 64, TILES_MAX = 208, STAGES_MAX = 8 };

struct lab { /* state of a child */
    struct gpu_module tools;
    struct device_info info;
};

struct stage {
    const char *name;
    bool limited; /* --seconds limits the stage's time */
    bool resumes; /* a new child repeats the step of a dead child, without the fatal variant */
    /* The number of steps; called once, before any child exists. Negative: the stage cannot run. */
    int (*steps)(void);
    /* Gives the variant that a step needs, so that pool.c compiles ahead; NULL: steps compile
     * themselves. */
    bool (*variant)(int step, struct variant *out, char *name, size_t size);
    void (*step)(struct lab *lab, int step);
    void (*end)(struct lab *lab); /* called after the stage's last step in this child */
};

enum tally { RIGHT, WRONG, REFUSED, ILLEGAL, TALLIES };

struct bench_progress { /* memory shared by the child and its watcher */
    struct {
        volatile int next; /* the step that a new child begins with */
        volatile bool ended;
        volatile double used; /* seconds that the stage has taken */
        volatile int count[TALLIES];
    } stages[STAGES_MAX];
    volatile int stage, at; /* the current stage and its current step */
    volatile long beats;
    volatile int failed;      /* number of wrong, hung or dead steps in all stages */
    volatile bool incomplete; /* true: the time ended before all steps were done */
    volatile char bad[KINDS_MAX]
                     [TILES_MAX]; /* true: leave out this kind and tile of the first set */
    volatile int kind,
        tile; /* kind and tile of the current step; -1: it is outside the first set */
    char hash[HASH_HEX], what[600]; /* hash and name of the current variant; "": there is none */
};
extern struct bench_progress *progress;

/* Notes the child's current work, which the watcher blames if the child hangs or dies. */
void progress_on(int kind, int tile, const char *hash, const char *what);
void progress_beat(void);
void progress_count(enum tally t);
int progress_counted(enum tally t); /* number of progress_count(t) calls in this stage */
double progress_used(void); /* seconds that this stage has used up to the last finished step */

bool watch_knows(const char *stage);
int watch_run(void); /* runs all stages of --stages; returns the exit status */

#endif
