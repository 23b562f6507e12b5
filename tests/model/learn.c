/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/learn.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/replay.h"
#include "kernels/space.h"
#include "tests/model/described.h"

static const double FAR =
                        1.25, /* ignores points measured and predicted above 1.25 times the best */
    NEAR = 0.06,              /* a point that takes 1 + NEAR times the best weighs 1/e */
    RIDGE = 0.01, /* the ridge (weight of the squared correction) of a trait; a landscape's weights
                     sum to 1 */
    RIDGE_ASPECT =
        0.03; /* the ridge of the terms by which a trait's correction varies with the problem */

/* ---- landscapes ------------------------------------------------------------------------------ */

/* Takes the tiles and times of the landscape's points that are in today's space. */
static bool take_points(struct lecture *to, const struct landscape *l, const struct space *s)
{
    to->tiles = calloc(s->n + 1, sizeof(*to->tiles));
    to->us = calloc(s->n + 1, sizeof(*to->us));
    if (!to->tiles || !to->us) {
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        space_config(s, i, &config);
        const struct landscape_entry *e = landscape_entry(l, 0, &config);
        if (e && e->status == 0) {
            described_tile(&to->problem, &config, &to->tiles[to->n]);
            to->us[to->n++] = e->us;
        }
    }
    return to->n > 0;
}

static bool take_landscape(struct lecture *to, const struct landscape *l)
{
    struct error err = ERROR_NULL;
    struct workload w;
    struct space s;
    const struct problem *p = &l->problems[0].problem;
    if (l->n_problems == 0 || gemm_workload_init(&w, p, l->rows_seed ? l->rows_seed : 1, &err)) {
        return false;
    }
    to->problem = *p;
    to->info = l->info;
    described_facts(&to->facts, p, &l->info, &w);
    bool good = space_build(&s, described_target(p), p, &l->info, NULL, &err) == 0;
    if (good) {
        good = take_points(to, l, &s);
        space_deinit(&s);
    }
    gemm_workload_deinit(&w);
    return good;
}

static struct lecture *new_lecture(struct lectures *l)
{
    struct lecture *all = realloc(l->all, (l->n + 1) * sizeof(*all));
    if (!all) {
        return NULL;
    }
    l->all = all;
    all[l->n] = (struct lecture){.n = 0};
    return &all[l->n++];
}

static bool add_landscape(struct lectures *l, const char *folder, const char *file)
{
    struct error err = ERROR_NULL;
    struct landscape *land;
    char spec[1024];
    struct lecture *to = new_lecture(l);
    if (!to) {
        return false;
    }
    snprintf(to->name, sizeof(to->name), "%.*s", (int)strcspn(file, "."), file);
    snprintf(spec, sizeof(spec), "replay:%s/%s", folder, file);
    if (landscape_load(spec, &land, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return false;
    }
    bool good = take_landscape(to, land);
    if (!good) {
        fprintf(stderr, "%s/%s: nothing recorded is in today's space\n", folder, file);
    }
    landscape_free(land);
    return good;
}

static int is_landscape(const struct dirent *e)
{
    const char *end = strrchr(e->d_name, '.');
    return end && strcmp(end, ".jsonl") == 0;
}

bool lectures_add(struct lectures *l, const char *folder)
{
    struct dirent **files;
    int n = scandir(folder, &files, is_landscape, alphasort);
    bool good = n >= 0;
    if (!good) {
        perror(folder);
    }
    for (int i = 0; i < n; i++) {
        good = good && add_landscape(l, folder, files[i]->d_name);
        free(files[i]);
    }
    if (n >= 0) {
        free(files);
    }
    return good;
}

void lectures_close(struct lectures *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        free(l->all[i].tiles);
        free(l->all[i].us);
    }
    free(l->all);
    *l = (struct lectures){.n = 0};
}

/* ---- one mode's normal equations -------------------------------------------------------------
 */

struct equations {
    enum gemm_mode mode;
    uint32_t n;                    /* traits that were seen */
    uint16_t place[HOPPER_TRAITS]; /* [trait]: number of the trait among those seen, from 1; 0: not
                                      seen */
    double *a, *b;       /* owned: matrix and right side for n * HOPPER_ASPECTS unknowns */
    double *xx, *x, *xr; /* owned: weighted sums over a landscape's configs */
};

static uint32_t unknowns(const struct equations *q)
{
    return q->n * HOPPER_ASPECTS;
}

/* Computes the weight and the model's error of each config. A config of weight 0 does not count.
 * Weights sum to 1. */
static void weigh(const struct lecture *l, double weight[], double error[])
{
    double best = INFINITY, first = INFINITY, sum = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const double us = hopper_time(&l->facts, &l->tiles[i], hopper_fitted);
        error[i] = us;
        best = fmin(best, l->us[i]);
        first = fmin(first, us);
    }
    for (uint32_t i = 0; i < l->n; i++) {
        const double near = fmin(l->us[i] / best, error[i] / first);
        weight[i] = near < FAR ? exp(-(near - 1) / NEAR) : 0;
        error[i] = log(l->us[i] / error[i]);
        sum += weight[i];
    }
    for (uint32_t i = 0; i < l->n; i++) {
        weight[i] /= sum;
    }
}

static void add_config(struct equations *q, const struct lecture *l, uint32_t i, double weight,
                       double error)
{
    uint16_t traits[HOPPER_TRAITS_MOST];
    const uint32_t n = hopper_traits(&l->facts, &l->tiles[i], traits);
    for (uint32_t t = 0; t < n; t++) {
        const uint32_t at = q->place[traits[t]] - 1u;
        q->x[at] += weight;
        q->xr[at] += weight * error;
        for (uint32_t u = 0; u < n; u++) {
            q->xx[at * q->n + q->place[traits[u]] - 1u] += weight;
        }
    }
}

static bool add_lecture(struct equations *q, const struct lecture *l)
{
    double *weight = calloc(l->n, sizeof(*weight)), *error = calloc(l->n, sizeof(*error));
    double aspects[HOPPER_ASPECTS], mean = 0;
    if (!weight || !error) {
        free(weight);
        free(error);
        return false;
    }
    memset(q->xx, 0, (size_t)q->n * q->n * sizeof(*q->xx));
    memset(q->x, 0, q->n * sizeof(*q->x));
    memset(q->xr, 0, q->n * sizeof(*q->xr));
    weigh(l, weight, error);
    for (uint32_t i = 0; i < l->n; i++) {
        mean += weight[i] * error[i];
        if (weight[i] > 0) {
            add_config(q, l, i, weight[i], error[i]);
        }
    }
    hopper_aspects(&l->facts, aspects);
    const uint32_t width = unknowns(q);
    for (uint32_t i = 0; i < width; i++) {
        const uint32_t at = i / HOPPER_ASPECTS;
        const double by = aspects[i % HOPPER_ASPECTS];
        q->b[i] += by * (q->xr[at] - q->x[at] * mean);
        for (uint32_t k = 0; k < width; k++) {
            const uint32_t to = k / HOPPER_ASPECTS;
            q->a[(size_t)i * width + k] +=
                by * aspects[k % HOPPER_ASPECTS] * (q->xx[at * q->n + to] - q->x[at] * q->x[to]);
        }
    }
    free(weight);
    free(error);
    return true;
}

/* Solves a x = b by Cholesky's method, in place. `a` is symmetric, and positive because of the
 * ridge. b becomes the solution. */
static void solve(double a[], double b[], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        double *row = a + (size_t)i * n;
        for (uint32_t k = 0; k <= i; k++) {
            const double *other = a + (size_t)k * n;
            double sum = row[k];
            for (uint32_t j = 0; j < k; j++) {
                sum -= row[j] * other[j];
            }
            row[k] = k == i ? sqrt(sum) : sum / other[k];
        }
        for (uint32_t j = 0; j < i; j++) {
            b[i] -= row[j] * b[j];
        }
        b[i] /= row[i];
    }
    for (uint32_t i = n; i-- > 0;) {
        for (uint32_t j = i + 1; j < n; j++) {
            b[i] -= a[(size_t)j * n + i] * b[j];
        }
        b[i] /= a[(size_t)i * n + i];
    }
}

static bool is_of(const struct lecture *l, const char *weights)
{
    const size_t n = weights ? strlen(weights) : 0;
    return weights && strncmp(l->name, weights, n) == 0 && l->name[n] == '-';
}

static bool attends(const struct equations *q, const struct lecture *l, const char *without)
{
    return l->facts.v.mode == q->mode && !is_of(l, without);
}

static void find_traits(struct equations *q, const struct lectures *l, const char *without)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const struct lecture *x = &l->all[i];
        for (uint32_t k = 0; attends(q, x, without) && k < x->n; k++) {
            uint16_t traits[HOPPER_TRAITS_MOST];
            const uint32_t n = hopper_traits(&x->facts, &x->tiles[k], traits);
            for (uint32_t t = 0; t < n; t++) {
                if (q->place[traits[t]] == 0) {
                    q->place[traits[t]] = (uint16_t)++q->n;
                }
            }
        }
    }
}

static bool learn_mode(const struct lectures *l, const char *without, enum gemm_mode mode,
                       struct hopper_corrections *out)
{
    struct equations q = {.mode = mode};
    find_traits(&q, l, without);
    const uint32_t width = unknowns(&q);
    q.a = calloc((size_t)width * width + 1, sizeof(*q.a));
    q.b = calloc(width + 1, sizeof(*q.b));
    q.xx = calloc((size_t)q.n * q.n + 1, sizeof(*q.xx));
    q.x = calloc(q.n + 1, sizeof(*q.x));
    q.xr = calloc(q.n + 1, sizeof(*q.xr));
    bool good = q.a && q.b && q.xx && q.x && q.xr;
    for (uint32_t i = 0; good && i < l->n; i++) {
        good = !attends(&q, &l->all[i], without) || add_lecture(&q, &l->all[i]);
    }
    for (uint32_t i = 0; good && i < width; i++) {
        q.a[(size_t)i * width + i] += i % HOPPER_ASPECTS == 0 ? RIDGE : RIDGE_ASPECT;
    }
    if (good) {
        solve(q.a, q.b, width);
    }
    for (uint32_t t = 0; good && t < HOPPER_TRAITS; t++) {
        for (uint32_t i = 0; q.place[t] && i < HOPPER_ASPECTS; i++) {
            out->by[mode][t][i] = (float)q.b[(q.place[t] - 1u) * HOPPER_ASPECTS + i];
        }
    }
    free(q.a);
    free(q.b);
    free(q.xx);
    free(q.x);
    free(q.xr);
    return good;
}

bool learn(const struct lectures *l, const char *without, struct hopper_corrections *out)
{
    bool good = true;
    memset(out, 0, sizeof(*out));
    for (int mode = 0; good && mode < HOPPER_MODES; mode++) {
        good = learn_mode(l, without, (enum gemm_mode)mode, out);
    }
    return good;
}
