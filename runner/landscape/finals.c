/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the best points of the walk (walk.c) again. The kernels of a lot of points are loaded
 * together and take turns in short blocks, in rounds of alternating direction. A point that the
 * walk measured twice often looks too good by luck. So after the first lot further lots follow,
 * while a point of the walk seems faster than the best median of the finals. */
#include <stdlib.h>
#include <unistd.h>

#include "runner/base/stats.h"
#include "runner/landscape/recorder.h"

enum { ROUNDS = 5, EACH = 5, LOTS = 4, ROUND_S = 120 };

struct finalist {
    uint32_t point;
    const struct landscape_points *of;
    struct landscape_item item;
    struct kernel *kernel; /* loaded; NULL: the point has failed */
    double us[ROUNDS * EACH];
};

struct lot {
    uint32_t n;
    struct finalist *f; /* owned */
};

static const struct landscape_points *landscape_variant_of_point(const struct landscape_recorder *s,
                                                                 uint32_t point)
{
    const struct landscape_points *v = s->variants;
    /* unsigned subtraction: also true for points below the variant's first */
    while (point - v->first >= v->n) {
        v++;
    }
    return v;
}

/* The point with the least time in the walk that no lot has measured yet; s->space.n: no point. */
static uint32_t landscape_fastest_left(const struct landscape_recorder *s)
{
    uint32_t fastest = s->space.n;
    for (uint32_t i = 0; i < s->space.n; i++) {
        if (isfinite(s->us[i]) && (fastest == s->space.n || s->us[i] < s->us[fastest])) {
            fastest = i;
        }
    }
    return fastest;
}

/* Chooses the fastest points, at most `want`, and sets their times in s->us to NaN, so that no
 * later lot measures them. */
static int landscape_choose_lot(struct landscape_recorder *s, uint32_t want, struct lot *lot,
                                struct error *err)
{
    lot->f = calloc(want, sizeof(*lot->f));
    if (!lot->f) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u finalists", want);
    }
    for (uint32_t i; lot->n < want && (i = landscape_fastest_left(s)) < s->space.n; lot->n++) {
        lot->f[lot->n] = (struct finalist){.point = i, .of = landscape_variant_of_point(s, i)};
        s->us[i] = NAN;
    }
    return 0;
}

static int landscape_load_finalist(struct landscape_recorder *s, struct finalist *f,
                                   struct error *err)
{
    struct rejection why;
    int r = landscape_want(s, f->of, &f->item, err);
    if (r) {
        return r;
    }
    r = landscape_load_item(s, &f->item, &f->kernel, &why, err);
    f->kernel = r ? NULL : f->kernel;
    return r == ERROR_DEVICE_LOST ? r : 0;
}

static int landscape_time_block(struct landscape_recorder *s, struct finalist *f, uint32_t round,
                                struct error *err)
{
    struct record config;
    uint32_t n = 0;
    space_config(&s->space, f->point, &config);
    int r = landscape_time(s, f->kernel, &config, 1, EACH, 0, f->us + round * EACH, &n, err);
    if (r && r != ERROR_DEVICE_LOST) {
        s->device->ops->unload(s->device, f->kernel);
        f->kernel = NULL;
        r = 0;
    }
    return r;
}

static int landscape_run_rounds(struct landscape_recorder *s, struct lot *lot, struct error *err)
{
    int r = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        alarm(ROUND_S);
        s->looked_ms = -INFINITY; /* the reference is measured in each round */
        for (uint32_t i = 0; i < lot->n && r == 0; i++) {
            struct finalist *f = &lot->f[round % 2 ? lot->n - 1 - i : i];
            r = f->kernel ? landscape_time_block(s, f, round, err) : 0;
            r = r ? r : landscape_look(s, err);
        }
    }
    alarm(0);
    return r;
}

/* Writes the finals of a lot, unless `status` is an error, and gives its kernels and builds back.
 * *best: the least median so far. */
static int landscape_end_lot(struct landscape_recorder *s, struct lot *lot, int status,
                             double *best, struct error *err)
{
    const bool lost = status == ERROR_DEVICE_LOST;
    for (uint32_t i = 0; i < lot->n; i++) {
        struct finalist *f = &lot->f[i];
        if (f->kernel && status == 0) {
            *best = fmin(*best, stats_median(f->us, ROUNDS * EACH));
            status = landscape_write_final(s, f->point, f->us, ROUNDS, EACH, err);
        }
        if (f->kernel && !lost) {
            s->device->ops->unload(s->device, f->kernel);
        }
        if (f->item.build) {
            compile_pool_release(s->pool, f->item.build);
        }
    }
    free(lot->f);
    return status;
}

static int run_lot(struct landscape_recorder *s, uint32_t want, double *best, struct error *err)
{
    struct lot lot = {0};
    int r = landscape_choose_lot(s, want, &lot, err);
    for (uint32_t i = 0; i < lot.n && r == 0; i++) {
        r = landscape_load_finalist(s, &lot.f[i], err);
    }
    r = r ? r : landscape_run_rounds(s, &lot, err);
    return landscape_end_lot(s, &lot, r, best, err);
}

int landscape_finals(struct landscape_recorder *s, struct error *err)
{
    double best = INFINITY;
    int r = 0;
    for (uint32_t lot = 0, i; lot < LOTS && r == 0; lot++) {
        i = landscape_fastest_left(s);
        if (i == s->space.n || s->us[i] >= best) {
            break;
        }
        r = run_lot(s, (uint32_t)s->order->finals, &best, err);
    }
    return r;
}
