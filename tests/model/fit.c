/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pattern search: each constant in turn moves by its own step, in both directions. Steps that
 * lower the loss grow, other steps shrink. When all constants had their turn, the search goes on in
 * the direction in which they moved together. From its end it makes a few random hops and searches
 * again. The model is piecewise smooth, its constants have bounds, and a thousand evaluations take
 * seconds, so no better method is needed.
 */
#include "tests/model/fit.h"

#include <math.h>
#include <string.h>

const struct fit_constant fit_constants[FIT_CONSTANTS] = {
#define X(name, value, fp8, least, start, most, what) {#name, least, start, most, what},
    HOPPER_CONSTANTS(X)
#undef X
};

enum { TIMES_MAX = 4096, TURNS = 16, HOPS = 8 };
static const double FAR =
    0.3; /* the length of a random step of a constant, as a part of its range */
static const double NEAR = 0.35; /* a config that takes 1 + NEAR times the best weighs 1/e */
static const double OUTLIER =
    0.1; /* larger errors count linearly, smaller errors by their square */
static const double SHARE_ALL =
    0.15; /* weight of the error that all times of a problem have in common */
static const double SOFT =
    0.01; /* a config predicted 1 % slower than the fastest is chosen 1/e as often */
static const double SHARE_REGRET = 0.5;

static double huber(double e)
{
    const double a = fabs(e);
    return a <= OUTLIER ? e * e : OUTLIER * (2 * a - OUTLIER);
}

double fit_loss(const struct measured_problem *p, const struct hopper_constants *c)
{
    double us[TIMES_MAX], error[TIMES_MAX], weight[TIMES_MAX];
    double weights = 0, common = 0, least = INFINITY, spread = 0, regret = 0, chances = 0;
    const uint32_t n = p->n < TIMES_MAX ? p->n : TIMES_MAX;
    for (uint32_t i = 0; i < n; i++) {
        us[i] = hopper_time(&p->facts, &p->times[i].tile, c);
        error[i] = log(us[i] / p->times[i].us);
        weight[i] = exp(-(p->times[i].us / p->best - 1) / NEAR);
        weights += weight[i];
        common += weight[i] * error[i];
        least = fmin(least, us[i]);
    }
    common /= weights;
    for (uint32_t i = 0; i < n; i++) {
        const double chance = exp(-(us[i] / least - 1) / SOFT);
        spread += weight[i] / weights * huber(error[i] - common);
        chances += chance;
        regret += chance * (p->times[i].us / p->best - 1);
    }
    return sqrt(spread) + SHARE_ALL * fabs(common) + SHARE_REGRET * regret / chances;
}

static double mean_loss(const struct measured *sets, uint32_t n_sets, const char *without,
                        const struct hopper_constants *c)
{
    double sum = 0, n = 0;
    for (uint32_t s = 0; s < n_sets; s++) {
        for (uint32_t i = 0; i < sets[s].n; i++) {
            const struct measured_problem *p = &sets[s].problems[i];
            if (!without || strcmp(p->model, without) != 0) {
                sum += p->weight * fit_loss(p, c);
                n += p->weight;
            }
        }
    }
    return sum / n;
}

struct search {
    const struct measured *sets;
    uint32_t n_sets;
    const char *without;
    const bool *held; /* [constant]: true for constants that the fit must not move; NULL: none */
};

static bool holds(const struct search *s, int i)
{
    return s->held && s->held[i];
}

static double clamped(int i, double v)
{
    return fmin(fmax(v, fit_constants[i].least), fit_constants[i].most);
}

static double loss_of(const struct search *s, const double value[FIT_CONSTANTS])
{
    struct hopper_constants c;
    memcpy(&c, value, sizeof(c));
    return mean_loss(s->sets, s->n_sets, s->without, &c);
}

/* Tries steps of each constant in turn. Returns the loss reached. */
static double turn(const struct search *s, double value[], double step[], double loss)
{
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        const double was = value[i], before = loss;
        double to = was;
        if (holds(s, i)) {
            continue;
        }
        for (int sign = -1; sign <= 1; sign += 2) {
            value[i] = clamped(i, was + sign * step[i]);
            const double now = value[i] == was ? loss : loss_of(s, value);
            to = now < loss ? value[i] : to;
            loss = fmin(loss, now);
        }
        value[i] = to;
        step[i] *= loss < before ? 1.4 : 0.5;
    }
    return loss;
}

/* Moves all constants on in the direction of turn(), from `was` to now, while the loss falls. */
static double go_on(const struct search *s, double value[], const double was[], double loss)
{
    for (double far = 1; far < 64; far *= 2) {
        double on[FIT_CONSTANTS];
        for (int i = 0; i < FIT_CONSTANTS; i++) {
            on[i] = holds(s, i) ? value[i] : clamped(i, value[i] + far * (value[i] - was[i]));
        }
        const double now = loss_of(s, on);
        if (now >= loss) {
            break;
        }
        loss = now;
        memcpy(value, on, sizeof(on));
    }
    return loss;
}

static double descend(const struct search *s, double value[], double part, int turns)
{
    double step[FIT_CONSTANTS], loss = loss_of(s, value);
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        step[i] = (fit_constants[i].most - fit_constants[i].least) * part;
    }
    for (int t = 0; t < turns; t++) {
        double was[FIT_CONSTANTS];
        memcpy(was, value, sizeof(was));
        loss = turn(s, value, step, loss);
        loss = go_on(s, value, was, loss);
    }
    return loss;
}

void fit_start(struct hopper_constants *c)
{
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        ((double *)c)[i] = fit_constants[i].start;
    }
}

double fit(const struct measured *sets, uint32_t n_sets, const char *without, const bool held[],
           struct hopper_constants *c)
{
    const struct search s = {sets, n_sets, without, held};
    uint64_t random = 1;
    double best[FIT_CONSTANTS];
    memcpy(best, c, sizeof(best));
    double loss = descend(&s, best, 1.0 / 8, TURNS);
    for (int hop = 0; hop < HOPS; hop++) {
        double value[FIT_CONSTANTS];
        for (int i = 0; i < FIT_CONSTANTS; i++) {
            const double range = fit_constants[i].most - fit_constants[i].least;
            const double far = range * FAR * (random_unit(&random) - 0.5);
            value[i] = holds(&s, i) ? best[i] : clamped(i, best[i] + far);
        }
        const double now = descend(&s, value, 1.0 / 16, TURNS);
        if (now < loss) {
            loss = now;
            memcpy(best, value, sizeof(best));
        }
    }
    loss = descend(&s, best, 1.0 / 64, TURNS);
    memcpy(c, best, sizeof(best));
    return loss;
}
