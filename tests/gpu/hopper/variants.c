/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage "variants": every compile-time variant of the space once, on a small ragged problem with
 * tails, an expert of NaN and experts without rows. --variants, --shard and --seconds take a part;
 * variants with a verdict in --journal are left out.
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

static const char name_of_stage[] = "variants";
enum { FEW_SMS = 16 };
static const double SAY_SECONDS = 10;

static int *todo; /* indices into the catalog */
static int n_todo;

static int variants_steps(void)
{
    const int n = catalog_open();
    int mine = 0;
    todo = calloc((size_t)n, sizeof(*todo));
    for (int i = options.shard; i < n; i += options.shards) {
        struct member m;
        if (member_at(i, &m)) {
            say("FAULT no kind of the bench is as %s\n", m.name);
            return -1;
        }
        mine++;
        if (!journal_has(name_of_stage, m.hash, m.name)) {
            todo[n_todo++] = i;
        }
    }
    say("variants: %d in the space, %d in shard %d of %d, %d of them not in the journal\n", n, mine,
        options.shard, options.shards, n_todo);
    return n_todo;
}

static bool variants_variant(int step, struct variant *out, char *name, size_t size)
{
    snprintf(name, size, "%s, %s", catalog_at(todo[step]).kind, catalog_at(todo[step]).config);
    return catalog_variant(todo[step], out) == 0;
}

/* Makes a problem for a member (a variant of the space). NULL: the member is legal for none of the
 * shapes; `finding` says why. */
static struct data *make_case(struct lab *lab, const struct member *m, struct record *config,
                              struct variant *v, char *finding, size_t size)
{
    const int tries[] = {m->one_expert ? VARIANT_SHAPES : (int)(m->random >> 1 & 1),
                         VARIANT_SHAPES - 1};
    struct rejection why = {0};
    for (int i = 0; i < (m->one_expert ? 1 : 2); i++) {
        struct data *d = shelf_get(lab, m->kind, tries[i], &variant_shapes[tries[i]]);
        progress_on(-1, -1, m->hash, m->name);
        if (member_config(m, &d->problem, &lab->info, config, &why) &&
            hopper_variant(&d->problem, config, "sm_90a", v, NULL) == 0) {
            return d;
        }
    }
    snprintf(finding, size, "%s", why.text);
    return NULL;
}

static enum tally judge(struct lab *lab, const struct member *m, int step, char *finding,
                        size_t size)
{
    static struct ready ready;
    struct record config;
    struct variant v;
    char hash[HASH_HEX], text[512], exact[600];
    struct data *d = make_case(lab, m, &config, &v, finding, size);
    if (!d) {
        return ILLEGAL;
    }
    cubin_hash(&v, hash);
    if (strcmp(hash, m->hash) != 0) {
        say("FAULT %s: another variant with other values at run time\n", m->name);
        return WRONG;
    }
    record_format(&config, text, sizeof(text));
    snprintf(exact, sizeof(exact), "%s, N %d, %s", kinds[m->kind].name, (int)d->v.n, text);
    pool_wait(progress->stage, step, progress_beat);
    enum tally t = ready_make(&ready, lab, d, &config, &v, FEW_SMS, exact);
    if (t == RIGHT && !ready_right(&ready, lab, d, exact, false, finding, size)) {
        t = WRONG;
    }
    ready_free(&ready);
    return t;
}

static void say_progress(int step, bool last)
{
    static double said_at;
    if (last || now() - said_at > SAY_SECONDS) {
        said_at = now();
        say("variants: %d of %d done: %d right, %d wrong, %d refused by the compiler, %d not legal "
            "at these sizes, %.0f s\n",
            step, n_todo, progress_counted(RIGHT), progress_counted(WRONG),
            progress_counted(REFUSED), progress_counted(ILLEGAL), progress_used());
    }
}

static void variants_step(struct lab *lab, int step)
{
    static const char *const verdicts[TALLIES] = {"right", "WRONG", "refused", "not legal"};
    char finding[400] = "";
    struct member m;
    member_at(todo[step], &m);
    const enum tally t = judge(lab, &m, step, finding, sizeof(finding));
    progress_count(t);
    journal_add(name_of_stage, verdicts[t], m.hash, m.name, finding);
    if (t == ILLEGAL) {
        say("not legal at these sizes: %s: %s\n", m.name, finding);
    }
    say_progress(step + 1, false);
}

static void variants_end(struct lab *lab)
{
    (void)lab;
    shelf_clear();
    say_progress(progress_counted(RIGHT) + progress_counted(WRONG) + progress_counted(REFUSED) +
                     progress_counted(ILLEGAL),
                 true);
}

const struct stage stage_variants = {
    .name = name_of_stage,
    .limited = true,
    .steps = variants_steps,
    .variant = variants_variant,
    .step = variants_step,
    .end = variants_end,
};
