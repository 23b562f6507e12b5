/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage "soak": every launch must give the same bits as the first, which was compared with the
 * reference. A kernel that passes its own barriers too early is right most of the time: the worst
 * bug of an early template showed in a twentieth of the launches.
 *
 *   the first set    every tile in every kind --soak times (500); twenty times as often where
 *                    threads gather or consumers take turns;
 *   a seeded tenth   of the rest of the space, in the same way.
 *
 * The problem has more tiles than the GPU has SMs, all short, and experts without rows; every other
 * launch has half the thread blocks. The kernel that compares also poisons the output between
 * launches, on the GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/hopper/catalog.h"
#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/journal.h"
#include "tests/gpu/hopper/member.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/pool.h"
#include "tests/gpu/hopper/ready.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/shelf.h"
#include "tests/gpu/hopper/stages.h"

enum { LONGER = 20, TENTH = 10 };
static const char name_of_stage[] = "soak";
static const double SAY_SECONDS = 10,
                    LAUNCH_US = 25 /* for the printed estimate of the stage's duration */;

struct item {
    int kind, tile; /* tile -1: the config is number `member` of the space's other configs */
    int member;
    int which; /* row of the table soak_shapes; SOAK_SHAPES: its last row, with one expert */
    int launches;
    char hash[HASH_HEX];
};
static struct item *items;
static int n_items;
static double launches_in_all;

static void name_of(const struct item *it, char *out, size_t size)
{
    struct member m;
    if (it->tile >= 0) {
        snprintf(out, size, "%s, %s", kinds[it->kind].name, tiles[it->tile].name);
    } else {
        member_at(it->member, &m);
        snprintf(out, size, "%s", m.name);
    }
}

static const struct shape *shape_of(const struct item *it)
{
    return &soak_shapes[it->which][kinds[it->kind].mode];
}

static bool make_case(const struct item *it, const struct problem *p,
                      const struct device_info *info, struct record *config, struct variant *v)
{
    struct member m;
    struct rejection why;
    if (it->tile >= 0) {
        return case_variant(&kinds[it->kind], &tiles[it->tile], p, info, config, v, &why);
    }
    member_at(it->member, &m);
    return member_config(&m, p, info, config, &why) &&
           hopper_variant(p, config, "sm_90a", v, NULL) == 0;
}

/* True if the item is legal for problem `which` of soak_shapes; sets the item's hash. */
static bool fits(struct item *it, int which)
{
    struct problem p;
    struct record config;
    struct variant v;
    it->which = which;
    if (shape_of(it)->experts == 0 || case_problem(&kinds[it->kind], shape_of(it), &p) != 0 ||
        !make_case(it, &p, &h200, &config, &v)) {
        return false;
    }
    cubin_hash(&v, it->hash);
    return case_of_one_expert(&v) == (which == SOAK_SHAPES);
}

/* Chooses the first problem for which the item is legal; `one`: only that with one expert. */
static bool fit(struct item *it, bool one)
{
    bool done = one && fits(it, SOAK_SHAPES);
    for (int which = 0; which < SOAK_SHAPES && !one && !done; which++) {
        done = fits(it, which);
    }
    return done;
}

/* ---- what there is to do */

static void add_item(const struct item *it)
{
    char name[600];
    static int number;
    name_of(it, name, sizeof(name));
    if (number++ % options.shards != options.shard || journal_has(name_of_stage, it->hash, name)) {
        return;
    }
    if (n_items % 1024 == 0) {
        items = realloc(items, (size_t)(n_items + 1024) * sizeof(*items));
    }
    items[n_items++] = *it;
    launches_in_all += it->launches;
}

/* Adds the first set's items that --kind and --tile select. Returns the hashes of the whole set,
 * which the rest of the space excludes. */
static char (*add_first_set(int *n))[HASH_HEX]
{
    char(*hashes)[HASH_HEX] = calloc((size_t)(2 * n_kinds * n_tiles), sizeof(*hashes));
    *n = 0;
    for (int i = 0; i < 2 * n_kinds * n_tiles; i++) {
        const int k = i / 2 / n_tiles, t = i / 2 % n_tiles;
        struct item it = {.kind = k, .tile = t, .launches = options.soak};
        if (!fit(&it, i % 2)) {
            continue;
        }
        memcpy(hashes[(*n)++], it.hash, sizeof(it.hash));
        it.launches *= case_is_delicate(&kinds[k], &tiles[t]) ? LONGER : 1;
        if (options_kind(kinds[k].name) && options_tile(tiles[t].name)) {
            add_item(&it);
        }
    }
    return hashes;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int add_rest(const char (*first)[HASH_HEX], int n_first)
{
    const int n = catalog_open();
    for (int i = 0; i < n; i++) {
        struct member m;
        if (member_at(i, &m)) {
            say("FAULT no kind of the bench is as %s\n", m.name);
            return -1;
        }
        if ((m.random >> 8) % TENTH == 0 &&
            !bsearch(m.hash, first, (size_t)n_first, sizeof(*first), by_text)) {
            struct item it = {.kind = m.kind, .tile = -1, .member = i, .launches = options.soak};
            it.launches *= m.delicate ? LONGER : 1;
            if (fit(&it, m.one_expert)) {
                add_item(&it);
            } else {
                say("NOT SOAKED, not legal at these sizes: %s\n", m.name);
                progress->incomplete = true;
            }
        }
    }
    return 0;
}

static int soak_steps(void)
{
    int n_first, r = 0;
    char(*first)[HASH_HEX] = add_first_set(&n_first);
    qsort(first, (size_t)n_first, sizeof(*first), by_text);
    const int of_first = n_items;
    if (!options.kind && !options.tile) {
        r = add_rest((const char(*)[HASH_HEX])first, n_first);
    }
    free(first);
    say("soak: %d variants of the first set, %d of a tenth of the rest (seed %llu), %.0f launches: "
        "about %.0f s\n",
        of_first, n_items - of_first, (unsigned long long)options.seed, launches_in_all,
        launches_in_all * LAUNCH_US * 1e-6 + n_items * 2e-3);
    return r ? r : n_items;
}

/* ---- doing it */

static bool soak_variant(int step, struct variant *out, char *name, size_t size)
{
    const struct item *it = &items[step];
    struct problem p;
    struct record config;
    name_of(it, name, size);
    return case_problem(&kinds[it->kind], shape_of(it), &p) == 0 &&
           make_case(it, &p, &h200, &config, out);
}

static enum tally judge(struct lab *lab, const struct item *it, int step, const char *name,
                        char *finding, size_t size)
{
    static struct ready ready;
    struct record config;
    struct variant v;
    struct data *d = shelf_get(lab, it->kind, it->which, shape_of(it));
    progress_on(it->tile < 0 ? -1 : it->kind, it->tile, it->hash, name);
    if (!make_case(it, &d->problem, &lab->info, &config, &v)) {
        return ILLEGAL;
    }
    pool_wait(progress->stage, step, progress_beat);
    enum tally t = ready_make(&ready, lab, d, &config, &v, (int)(lab->info.sm_count + 1) / 2, name);
    if (t == RIGHT && (!ready_right(&ready, lab, d, name, true, finding, size) ||
                       !ready_steady(&ready, lab, d, it->launches, name))) {
        t = WRONG;
    }
    ready_free(&ready);
    return t;
}

static void say_progress(bool last)
{
    static double said_at;
    static long launched;
    if (!last) {
        launched += items[progress->at].launches;
    }
    if (last || now() - said_at > SAY_SECONDS) {
        said_at = now();
        say("soak: %d steady, %d wrong, %d refused by the compiler, %d not legal at this size, of "
            "%d; %ld launches by this child, %.0f s\n",
            progress_counted(RIGHT), progress_counted(WRONG), progress_counted(REFUSED),
            progress_counted(ILLEGAL), n_items, launched, progress_used());
    }
}

static void soak_step(struct lab *lab, int step)
{
    static const char *const verdicts[TALLIES] = {"steady", "WRONG", "refused", "not legal"};
    const struct item *it = &items[step];
    char name[600], finding[400] = "";
    if (it->tile >= 0 && progress->bad[it->kind][it->tile]) {
        return;
    }
    name_of(it, name, sizeof(name));
    const enum tally t = judge(lab, it, step, name, finding, sizeof(finding));
    progress_count(t);
    if (t == RIGHT) {
        snprintf(finding, sizeof(finding), "%d launches", it->launches);
    }
    journal_add(name_of_stage, verdicts[t], it->hash, name, finding);
    say_progress(false);
}

static void soak_end(struct lab *lab)
{
    (void)lab;
    shelf_clear();
    say_progress(true);
}

const struct stage stage_soak = {
    .name = name_of_stage,
    .limited = true,
    .steps = soak_steps,
    .variant = soak_variant,
    .step = soak_step,
    .end = soak_end,
};
