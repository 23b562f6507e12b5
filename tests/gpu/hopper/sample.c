/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage "sample": --sample variants of the first set (cases.h) for a run under compute-sanitizer
 * (sanitize.sh). The sanitizer makes launches a hundred times slower, so problems are small, with a
 * few thread blocks. A variant's name is printed before its first launch, and the stage waits for
 * the GPU afterwards: messages between two names belong to the first. Buffers have no guards,
 * because the sanitizer reports reads outside.
 *
 * Kinds take turns in an order with each way of loading and storing among the first ten; --seed
 * draws the tile. --kind and --tile restrict the choice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/ready.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/stages.h"

enum { FEW_SMS = 3, TRIES = 1000 };

static const char *const order[] = {
    "fwd px",        "dW f32 add", "fwd py mul", "dW px",      "fwd px copy", "dX py",
    "dX px",         "dW py f32",  "fwd st",     "dW",         "fwd h",       "dX",
    "dW f32 add st", "dW px h",    "fwd py",     "dX py copy",
};
enum { ORDER = sizeof(order) / sizeof(order[0]) };

static int sample_steps(void)
{
    return options.sample;
}

/* True if a step of this stage may run the tile. Of four steps, two run dynamic tiles and one a
 * tile with split sums (with `any`, since no such tile was legal, other tiles); the rest alternates
 * between ping-pong and cooperative. */
static bool may_be(const struct tile *tile, int step, bool any)
{
    if (!any && step % 4 == 3 && options.splits) {
        return tile->ksplit > 1;
    }
    return tile->ksplit <= 1 && tile->pingpong == (step % 2 == 0) &&
           tile->dynamic == (!any && step % 4 < 2);
}

/* Draws a tile, which depends only on the step and the seed. Negative: no tile is legal. */
static int draw_tile(int step, const struct kind *kind, const struct problem *p,
                     const struct device_info *info, struct record *config, struct variant *v)
{
    uint64_t state = options.seed * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)step;
    struct rejection why;
    for (int i = 0; i < 2 * TRIES; i++) {
        const int t = (int)(random_next(&state) % (uint64_t)n_tiles);
        if (may_be(&tiles[t], step, i >= TRIES) && options_tile(tiles[t].name) &&
            case_variant(kind, &tiles[t], p, info, config, v, &why)) {
            return t;
        }
    }
    return -1;
}

static enum tally judge(struct lab *lab, struct data *d, const struct record *config,
                        const struct variant *v, const char *name)
{
    static struct ready ready;
    char finding[256] = "";
    enum tally t = ready_make(&ready, lab, d, config, v, FEW_SMS, name);
    if (t == RIGHT) {
        say("SAMPLE %s\n", name);
        t = ready_right(&ready, lab, d, name, false, finding, sizeof(finding)) ? RIGHT : WRONG;
        gpu_wait();
        say("SAMPLED %s: %s\n", name, finding);
    }
    ready_free(&ready);
    return t;
}

/* Returns the step's kind: those of order[] that --kind selects, in turn; -1: it selects none. */
static int kind_at(int step)
{
    int wanted[ORDER], n = 0;
    for (int i = 0; i < ORDER; i++) {
        if (options_kind(order[i])) {
            wanted[n++] = kind_named(order[i]);
        }
    }
    return n > 0 ? wanted[step % n] : -1;
}

static void sample_step(struct lab *lab, int step)
{
    const int k = kind_at(step);
    struct data d = {0};
    struct problem p;
    struct record config;
    struct variant v;
    char name[128];
    if (k < 0 || case_problem(&kinds[k], &sample_shape, &p) ||
        data_make(&d, &lab->tools, &p, &sample_shape, DATA_TO_SANITIZE)) {
        _exit(5);
    }
    const int t = draw_tile(step, &kinds[k], &p, &lab->info, &config, &v);
    snprintf(name, sizeof(name), "%s, %s", kinds[k].name, t < 0 ? "no tile" : tiles[t].name);
    progress_on(k, t, "", name);
    progress_count(t < 0 ? ILLEGAL : judge(lab, &d, &config, &v, name));
    data_free(&d);
}

static void sample_end(struct lab *lab)
{
    (void)lab;
    say("sample: %d variants, %d right, %d wrong, %d refused by the compiler, %d without a legal "
        "tile\n",
        options.sample, progress_counted(RIGHT), progress_counted(WRONG), progress_counted(REFUSED),
        progress_counted(ILLEGAL));
}

const struct stage stage_sample = {
    .name = "sample",
    .steps = sample_steps,
    .step = sample_step,
    .end = sample_end,
};
