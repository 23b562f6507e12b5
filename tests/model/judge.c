/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/model/judge.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "tests/model/alike.h"
#include "tests/model/described.h"

const char *const judge_names[JUDGES] = {
    [JUDGE_FIRST] = "its first choice",
    [JUDGE_4] = "the best of its first 4",
    [JUDGE_8] = "the best of its first 8",
    [JUDGE_16] = "the best of its first 16",
    [JUDGE_TYPICAL] = "its first choice, not knowing the rows",
    [JUDGE_CHOICE] = "choose()",
};

struct ranked {
    double predicted;
    uint32_t time;
};

static int by_prediction(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->predicted != y->predicted) {
        return x->predicted < y->predicted ? -1 : 1;
    }
    return (x->time > y->time) - (x->time < y->time);
}

static struct ranked *rank(const struct measured_problem *p, const struct hopper_facts *f,
                           const struct hopper_constants *c)
{
    struct ranked *all = calloc(p->n, sizeof(*all));
    if (!all) {
        abort();
    }
    for (uint32_t i = 0; i < p->n; i++) {
        all[i] = (struct ranked){
            c ? hopper_time(f, &p->times[i].tile, c) : hopper_expected(f, &p->times[i].tile), i};
    }
    qsort(all, p->n, sizeof(*all), by_prediction);
    return all;
}

static double best_of(const struct measured_problem *p, const struct ranked *all, uint32_t n)
{
    double us = INFINITY;
    for (uint32_t i = 0; i < n && i < p->n; i++) {
        us = fmin(us, p->times[all[i].time].us);
    }
    return us / p->best - 1;
}

/* The regret of the analytic default. choose() may take run-time settings that were not measured:
 * then the nearest measured settings of the same kernel stand for them. */
static void judge_choice(const struct measured_problem *p, struct verdict *out)
{
    struct record config;
    struct hopper_tile t;
    struct error err = ERROR_NULL;
    out->exact = false;
    out->regret[JUDGE_CHOICE] = NAN;
    if (described_target(&p->problem)->choose(&p->problem, &measured_h200, &config, &err) == 0) {
        described_tile(&p->problem, &config, &t);
        struct alike a = alike_to(&t);
        for (uint32_t i = 0; i < p->n; i++) {
            alike_look(&a, &p->times[i].tile, p->times[i].us);
        }
        out->exact = a.apart == 0;
        out->regret[JUDGE_CHOICE] = a.us / p->best - 1;
    }
}

void judge(const struct measured_problem *p, const struct hopper_constants *c, struct verdict *out)
{
    struct ranked *all = rank(p, &p->facts, c), *typical = rank(p, &p->typical, c);
    *out = (struct verdict){.first = all[0].time};
    while (p->times[out->best].us > p->best) {
        out->best++;
    }
    while (all[out->rank].time != out->best) {
        out->rank++;
    }
    out->regret[JUDGE_FIRST] = best_of(p, all, 1);
    out->regret[JUDGE_4] = best_of(p, all, 4);
    out->regret[JUDGE_8] = best_of(p, all, 8);
    out->regret[JUDGE_16] = best_of(p, all, 16);
    out->regret[JUDGE_TYPICAL] = best_of(p, typical, 1);
    judge_choice(p, out);
    free(all);
    free(typical);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void judge_sum(const struct verdict *all, uint32_t n, struct summary *out)
{
    double *regret = calloc(n + 1, sizeof(*regret));
    *out = (struct summary){0};
    for (int k = 0; regret && k < JUDGES; k++) {
        uint32_t known = 0;
        for (uint32_t i = 0; i < n; i++) {
            regret[known] = all[i].regret[k];
            known += !isnan(all[i].regret[k]);
        }
        qsort(regret, known, sizeof(*regret), by_size);
        out->n[k] = known;
        out->median[k] = known ? regret[known / 2] : 0;
        out->p95[k] = known ? regret[(uint32_t)(0.95 * (known - 1) + 0.5)] : 0;
        out->most[k] = known ? regret[known - 1] : 0;
    }
    free(regret);
}
