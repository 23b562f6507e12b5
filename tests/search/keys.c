/* SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "kernels/space.h"
#include "tests/search/keys.h"

const char *const strategies[STRATEGIES] = {"ranked", "random", "genetic", "exhaustive"};

/* ---- what is true ---------------------------------------------------------------------------- */

double key_truth(const struct landscape *l, const struct record *config)
{
    const struct landscape_entry *e = landscape_entry(l, 0, config);
    return e && e->status == 0 ? e->us : NAN;
}

static void look_at_space(struct mapped_key *k, const struct landscape *l, const struct space *s)
{
    uint32_t last = UINT32_MAX;
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        space_config(s, i, &config);
        if (!landscape_entry(l, 0, &config)) {
            continue;
        }
        k->points++;
        bool same = last != UINT32_MAX;
        for (uint32_t p = 0; same && p < s->n_params && !s->params[p].run_time; p++) {
            same = s->points[i].at[p] == s->points[last].at[p];
        }
        k->variants += !same;
        last = i;
    }
}

/* Returns the best recorded time. The reference kernel counts even outside the space, because every
 * search measures it. */
static double best_of(const struct landscape *l)
{
    double sure = INFINITY, any = INFINITY;
    for (uint32_t i = 0; i < l->n_entries; i++) {
        const struct landscape_entry *e = &l->entries[i];
        sure = e->status == 0 && e->sure ? fmin(sure, e->us) : sure;
        any = e->status == 0 ? fmin(any, e->us) : any;
    }
    return isfinite(sure) ? sure : any;
}

static bool find_best(struct mapped_key *k, const struct landscape *l, struct error *err)
{
    const struct problem *p = &l->problems[0].problem;
    const struct family *f = family_of_problem(p);
    const struct family_target *t = NULL;
    struct space s;
    if (!f || family_target_choose(f, p, &l->info, NULL, &t, err) ||
        space_build(&s, t, p, &l->info, NULL, err)) {
        return false;
    }
    look_at_space(k, l, &s);
    k->best_us = best_of(l);
    space_deinit(&s);
    return k->points > 0 ||
           (error_set(err, ERROR_NOT_FOUND, "nothing recorded is in today's space"), false);
}

bool key_open(struct mapped_key *k, const char *path)
{
    struct error err = ERROR_NULL;
    struct landscape *l;
    char spec[600];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *k = (struct mapped_key){.points = 0};
    size_t n = strnlen(path, sizeof(k->path) - 1);
    memcpy(k->path, path, n);
    snprintf(k->name, sizeof(k->name), "%.*s", (int)strcspn(name, "."), name);
    snprintf(spec, sizeof(spec), "replay:%s", path);
    if (landscape_load(spec, &l, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    bool found = l->n_problems > 0 && find_best(k, l, &err);
    if (found) {
        problem_format(&l->problems[0].problem, k->problem, sizeof(k->problem));
    } else {
        fprintf(stderr, "%s: %s\n", path, err.text);
    }
    landscape_free(l);
    return found;
}

/* ---- the model ------------------------------------------------------------------------------- */

static const char *const names[] = {
#define X(name, value, fp8, least, start, most, what) #name,
    HOPPER_CONSTANTS(X)
#undef X
};

/* Constants that the line lacks, for example those of fp8, keep their committed values. */
static void read_constants(const char *line, struct hopper_constants *out)
{
    *out = hopper_h200;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char word[64];
        snprintf(word, sizeof(word), " %s=", names[i]);
        const char *at = strstr(line, word);
        ((double *)out)[i] = at ? strtod(at + strlen(word), NULL) : ((double *)out)[i];
    }
}

/* Finds the first line of the file `path` that begins with the language model of the key's name.
 */
static bool find_constants(const struct mapped_key *k, const char *path, char weights[96],
                           struct hopper_constants *out)
{
    char line[8192];
    bool found = false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof(line), f)) {
        size_t n = strcspn(line, " ");
        snprintf(weights, 96, "%.*s", (int)n, line);
        found = strncmp(line, k->name, n) == 0;
    }
    if (found) {
        read_constants(line, out);
    }
    if (f) {
        fclose(f);
    }
    return found;
}

bool key_use_constants(const struct mapped_key *k, const char *path, const struct lectures *l)
{
    static struct hopper_constants c;
    static struct hopper_corrections lessons;
    static char learnt[96]; /* the language model without which `lessons` were learnt */
    char weights[96];
    bool found = find_constants(k, path, weights, &c);
    hopper_fitted = found ? &c : &hopper_h200;
    if (found && l->n > 0) {
        found = strcmp(weights, learnt) == 0 || learn(l, weights, &lessons);
        snprintf(learnt, sizeof(learnt), "%s", weights);
        hopper_corrections_used = &lessons;
    }
    return found;
}

static const double SHORT_US = 20;
double key_tick_us = 0;

/* ---- searching ------------------------------------------------------------------------------- */

static void take_result(struct search_run *r, const struct mapped_key *k, const struct landscape *l,
                        const struct child *c)
{
    if (c->error.code) {
        fail_msg("%s: %s", k->name, c->error.text);
    }
    *r = (struct search_run){.done = true,
                             .us = key_truth(l, &c->result.config),
                             .config = replay_config_hash(&c->result.config),
                             .device_ms = c->result.device_ms,
                             .wall_ms = c->result.wall_ms,
                             .measured = (uint32_t)c->result.measured,
                             .compile_ms = c->result.compile_ms,
                             .variants = c->n_modules};
    /* a config with few samples may have a time below the best by luck */
    const bool best = r->us <= k->best_us + (k->best_us < SHORT_US ? key_tick_us : 0);
    r->us = best ? k->best_us : r->us;
    r->regret = r->us / k->best_us - 1;
}

static void search_once(struct mapped_key *k, const struct landscape *l, const char *folder,
                        int strategy, uint32_t seed, struct search_run *run)
{
    struct child c;
    struct tune_order *o = order_new(k->problem);
    char spec[600];
    snprintf(spec, sizeof(spec), "replay:%s", k->path);
    snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "%s",
             strategies[strategy]);
    o->request.query.seed = seed;
    child_start(&c, spec, folder, NULL);
    c.last_trial_only = true;
    child_tune(&c, o);
    take_result(run, k, l, &c);
    child_end(&c);
    order_free(o);
}

/* Searches once for each seed, each time with an empty cache, so that nothing is compiled yet. */
static void search_cold(struct mapped_key *k, const struct landscape *l, int strategy,
                        uint32_t seeds, bool again)
{
    for (uint32_t seed = 1; seed <= seeds; seed++) {
        char *folder = folder_make();
        search_once(k, l, folder, strategy, seed, &k->runs[strategy][seed - 1]);
        if (again) {
            search_once(k, l, folder, strategy, seed + SEEDS_MAX, &k->again[seed - 1]);
        }
        folder_remove(folder);
    }
}

/* Runs the exhaustive search, which compiles everything, and then the searches with everything
 * compiled. */
static void search_whole(struct mapped_key *k, const struct landscape *l, uint32_t warm_seeds)
{
    char *folder = folder_make();
    search_once(k, l, folder, EXHAUSTIVE, 1, &k->runs[EXHAUSTIVE][0]);
    for (uint32_t seed = 1; seed <= warm_seeds; seed++) {
        search_once(k, l, folder, RANKED, seed, &k->warm[seed - 1]);
    }
    folder_remove(folder);
}

void key_search(struct mapped_key *k, int strategy, uint32_t seeds, bool warm)
{
    struct error err = ERROR_NULL;
    struct landscape *l;
    char spec[600];
    snprintf(spec, sizeof(spec), "replay:%s", k->path);
    if (landscape_load(spec, &l, &err)) {
        fail_msg("%s", err.text);
    }
    if (strategy == EXHAUSTIVE) {
        search_whole(k, l, warm ? seeds : 0);
    } else {
        search_cold(k, l, strategy, seeds, warm && strategy == RANKED);
    }
    landscape_free(l);
}
