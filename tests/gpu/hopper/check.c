/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage "check": every tile of the first set (cases.h) x kind x shape, against the reference. If
 * the stage "soak" is not selected, this stage also repeats --soak launches on the first shape,
 * four times as many where threads copy or consumers take turns.
 *
 * Steps go shape by shape, kind by kind, the tile fastest: tiles share a problem's buffers. --shard
 * deals out the shapes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/pool.h"
#include "tests/gpu/hopper/ready.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/stages.h"

enum { FEW_SMS = 16 };

struct place {
    int shape, kind, tile;
};

static struct place place_of(int step)
{
    const int shape = step / n_tiles / n_kinds * options.shards + options.shard;
    return (struct place){shape, step / n_tiles % n_kinds, step % n_tiles};
}

static bool wanted(const struct place *at)
{
    return options_kind(kinds[at->kind].name) && options_tile(tiles[at->tile].name);
}

static int check_steps(void)
{
    const int mine = (n_shapes - options.shard + options.shards - 1) / options.shards;
    return mine * n_kinds * n_tiles;
}

bool check_variant(int step, struct variant *out, char *name, size_t size)
{
    const struct place at = place_of(step);
    struct problem p;
    struct record config;
    struct rejection why;
    snprintf(name, size, "%s, %s", kinds[at.kind].name, tiles[at.tile].name);
    return wanted(&at) && case_problem(&kinds[at.kind], &shapes[at.shape], &p) == 0 &&
           case_variant(&kinds[at.kind], &tiles[at.tile], &p, &h200, &config, out, &why);
}

static struct data data;
static int have = -1;

static void make_data(struct lab *lab, int step)
{
    const struct place at = place_of(step);
    struct problem p;
    char what[128];
    if (have == step / n_tiles) {
        return;
    }
    data_free(&data);
    snprintf(what, sizeof(what), "%s, inputs of shape %d", kinds[at.kind].name, at.shape);
    progress_on(-1, -1, "", what);
    if (case_problem(&kinds[at.kind], &shapes[at.shape], &p) ||
        data_make(&data, &lab->tools, &p, &shapes[at.shape], DATA_TO_CHECK)) {
        _exit(5);
    }
    have = step / n_tiles;
}

static int soak_launches(const struct place *at)
{
    const struct kind *kind = &kinds[at->kind];
    if (!shapes[at->shape].soak || !kind->soak || options_stage("soak")) {
        return 0;
    }
    return options.soak * (case_is_delicate(kind, &tiles[at->tile]) ? 4 : 1);
}

static enum tally judge(struct ready *r, struct lab *lab, const struct place *at, const char *name)
{
    char finding[256];
    const int launches = soak_launches(at);
    if (!ready_right(r, lab, &data, name, launches > 0, finding, sizeof(finding)) ||
        (launches > 0 && !ready_steady(r, lab, &data, launches, name))) {
        return WRONG;
    }
    return RIGHT;
}

static enum tally check(struct lab *lab, const struct place *at, int step)
{
    static struct ready ready;
    struct record config;
    struct variant v;
    struct rejection why;
    char name[128];
    if (!case_variant(&kinds[at->kind], &tiles[at->tile], &data.problem, &lab->info, &config, &v,
                      &why)) {
        return ILLEGAL;
    }
    snprintf(name, sizeof(name), "%s, %s, shape %d", kinds[at->kind].name, tiles[at->tile].name,
             at->shape);
    progress_on(at->kind, at->tile, "", name);
    pool_wait(progress->stage, step, progress_beat);
    enum tally t = ready_make(&ready, lab, &data, &config, &v, FEW_SMS, name);
    if (t == RIGHT) {
        t = judge(&ready, lab, at, name);
    }
    ready_free(&ready);
    return t;
}

static void check_step(struct lab *lab, int step)
{
    const struct place at = place_of(step);
    if (!wanted(&at) || progress->bad[at.kind][at.tile]) {
        return;
    }
    make_data(lab, step);
    const enum tally t = check(lab, &at, step);
    progress_count(t);
    if (t == REFUSED && at.shape == options.shard) {
        say("refused %s, %s\n", kinds[at.kind].name, tiles[at.tile].name);
    }
    if (t == WRONG || t == REFUSED) {
        progress->bad[at.kind][at.tile] = 1;
    }
}

static void check_end(struct lab *lab)
{
    (void)lab;
    data_free(&data);
    have = -1;
    say("checked %d cases in %.1f s, %d failed; %d variants refused by the compiler, %d cases not "
        "legal\n",
        progress_counted(RIGHT) + progress_counted(WRONG), progress_used(), progress_counted(WRONG),
        progress_counted(REFUSED), progress_counted(ILLEGAL));
}

const struct stage stage_check = {
    .name = "check",
    .steps = check_steps,
    .variant = check_variant,
    .step = check_step,
    .end = check_end,
};
