/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures every point once: a variant is loaded, verified with its first setting, and timed with
 * each setting. A point gets two samples; only one when the first is above 1.3 x the best time so
 * far, since slow points need no exact times; four when it is below 1.05 x.
 *
 * Variants compile ahead, on all cores but a few, and are measured as they become ready. On the cpu
 * device a compiler would slow the measured kernel. There variants go in lots: each lot is
 * compiled, then measured.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/base/stats.h"
#include "runner/landscape/recorder.h"

enum { STUCK_S = 60 };
static const double FAR = 1.3, NEAR = 1.05; /* multiples of the best time so far */

struct walk {
    struct landscape_recorder *s;
    uint32_t next, n; /* index of the next variant; number of variants in the queue */
    struct landscape_item queue[LANDSCAPE_LOOK_AHEAD];
};

/* ---- one variant ----------------------------------------------------------------------------- */

/* A point's time: the smaller of one or two samples, since a disturbed sample must not hide a good
 * config; the median of more. */
static double landscape_shot_time(const struct landscape_shot *shot)
{
    return shot->n < 3 ? fmin(shot->us[0], shot->us[shot->n - 1]) : stats_median(shot->us, shot->n);
}

static int landscape_shoot_point(struct landscape_recorder *s, struct kernel *k, uint32_t point,
                                 bool first, struct landscape_shot *shot, struct error *err)
{
    struct record config;
    space_config(&s->space, point, &config);
    int r = landscape_time(s, k, &config, first, 2, FAR * s->best_us, shot->us, &shot->n, err);
    if (r == 0 && shot->n == 2 && landscape_shot_time(shot) <= NEAR * s->best_us) {
        r = landscape_time(s, k, &config, 0, 2, 0, shot->us, &shot->n, err);
    }
    if (r == ERROR_DEVICE_LOST) {
        return r;
    }
    if (r) {
        landscape_reject_error(&shot->why, err);
        s->failed++;
        return 0;
    }
    double us = s->us[point] = landscape_shot_time(shot);
    s->best_us = us < s->best_us ? us : s->best_us;
    s->points++;
    return 0;
}

static int landscape_verify_point(struct landscape_recorder *s, struct kernel *k, uint32_t point,
                                  struct rejection *why, struct error *err)
{
    const struct tolerance tol = {.atol = 1e-2, .rtol = 1e-2};
    struct verdict v = {0};
    struct record config;
    space_config(&s->space, point, &config);
    int r = s->device->ops->verify(s->device, s->prepared, k, &config, &tol, &v, err);
    if (r == 0 && !v.right) {
        r = error_set(err, ERROR_WRONG_RESULT, "%s", v.text);
    }
    if (r) {
        landscape_reject_error(why, err);
    }
    return r;
}

/* Measures all points of a variant. Returns 0, and the shots or, when the whole variant failed,
 * *why; or ERROR_DEVICE_LOST. */
static int measure_variant(struct landscape_recorder *s, const struct landscape_item *it,
                           struct landscape_shot *shots, struct rejection *why, struct error *err)
{
    struct kernel *k;
    bool first = true;
    int r = landscape_load_item(s, it, &k, why, err);
    const bool loaded = r == 0;
    r = r ? r : landscape_verify_point(s, k, it->of->first, why, err);
    for (uint32_t i = 0; i < it->of->n && r == 0; i++) {
        uint32_t point = it->of->first + i;
        if (!s->skipped[landscape_setting(s, point)]) {
            r = landscape_shoot_point(s, k, point, first, &shots[i], err);
            first = false;
        }
    }
    if (loaded && r != ERROR_DEVICE_LOST) {
        s->device->ops->unload(s->device, k);
    }
    return r == ERROR_DEVICE_LOST ? r : 0;
}

static double compile_ms(const struct build *b)
{
    return b->state == BUILD_READY ? b->image.meta.compile_ms : b->compile_ms;
}

static int landscape_visit_variant(struct landscape_recorder *s, const struct landscape_item *it,
                                   struct error *err)
{
    struct landscape_shot *shots = calloc(it->of->n, sizeof(*shots));
    struct rejection why = {0};
    if (!shots) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a variant");
    }
    alarm(STUCK_S); /* SIGALRM ends the process when a kernel never ends */
    int r = measure_variant(s, it, shots, &why, err);
    alarm(0);
    if (r) {
        char text[CONFIG_TEXT_MAX];
        struct record config;
        space_config(&s->space, it->of->first, &config);
        record_format(&config, text, sizeof(text));
        error_prefix(err, "%s", text);
    } else {
        s->done++;
        s->failed += why.code != 0;
        s->compile_ms += compile_ms(it->build);
        r = landscape_write_variant(s, it->of, compile_ms(it->build), why.code ? NULL : shots, &why,
                                    err);
    }
    free(shots);
    return r;
}

/* ---- the queue ------------------------------------------------------------------------------- */

static int64_t landscape_least_variants(const struct landscape_recorder *s)
{
    return s->order->variants > 0 ? s->order->variants : LANDSCAPE_VARIANTS;
}

static bool time_is_up(const struct landscape_recorder *s)
{
    const int64_t seconds = s->mode->seconds;
    return seconds >= 0 && s->done >= landscape_least_variants(s) &&
           landscape_clock(s) - s->began_ms >= (double)seconds * 1e3;
}

/* How many variants to visit. When the time is up at once (--seconds 0), no more than the order
 * requires; else all. */
static uint32_t landscape_count_wanted(const struct landscape_recorder *s)
{
    bool known = s->mode->seconds == 0 && landscape_least_variants(s) < s->n_variants;
    return known ? (uint32_t)landscape_least_variants(s) : s->n_variants;
}

static bool measures_alone(const struct landscape_recorder *s)
{
    return strcmp(s->device->info.kind, "cpu") == 0;
}

static int landscape_fill_queue(struct walk *w, struct error *err)
{
    int r = 0;
    if (w->n > 0 && measures_alone(w->s)) {
        return 0; /* the remaining variants belong to the next lot */
    }
    /* on the cpu device: the first lot holds all variants that must be recorded, later lots one
     * for each thread, since the time limit is checked only between lots */
    const int64_t must = landscape_least_variants(w->s) - w->s->done,
                  lot = must > 0 ? must : w->s->threads;
    const uint32_t most =
        measures_alone(w->s) && lot < LANDSCAPE_LOOK_AHEAD ? (uint32_t)lot : LANDSCAPE_LOOK_AHEAD;
    while (r == 0 && w->n < most && w->next < landscape_count_wanted(w->s)) {
        r = landscape_want(w->s, &w->s->variants[w->next++], &w->queue[w->n], err);
        w->n += r == 0;
    }
    return r;
}

/* The first ready variant; w->n: no variant is ready. */
static uint32_t landscape_pick_ready(const struct walk *w)
{
    uint32_t ready = w->n;
    for (uint32_t i = w->n; i-- > 0;) {
        bool pending = w->queue[i].build->state == BUILD_PENDING;
        if (pending && measures_alone(w->s)) {
            return w->n;
        }
        ready = pending ? ready : i;
    }
    return ready;
}

static int landscape_step(struct walk *w, struct error *err)
{
    struct landscape_recorder *s = w->s;
    compile_pool_collect(s->pool);
    uint32_t at = landscape_pick_ready(w);
    if (at == w->n) {
        landscape_wait(s);
        landscape_say(s);
        return 0;
    }
    int r = landscape_look(s, err);
    r = r ? r : landscape_visit_variant(s, &w->queue[at], err);
    compile_pool_release(s->pool, w->queue[at].build);
    w->queue[at] = w->queue[--w->n];
    return r;
}

/* On the cpu device, waits until running compiles end, which would disturb the finals. */
static void landscape_await_compiles(struct landscape_recorder *s)
{
    struct build *any;
    while (measures_alone(s) && compile_pool_longest(s->pool, &any) >= 0) {
        landscape_wait(s);
        compile_pool_collect(s->pool);
    }
}

int landscape_walk(struct landscape_recorder *s, struct error *err)
{
    struct walk *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a queue");
    }
    w->s = s;
    int r = landscape_fill_queue(w, err);
    while (r == 0 && w->n > 0 && !time_is_up(s)) {
        r = landscape_step(w, err);
        r = r || time_is_up(s) ? r : landscape_fill_queue(w, err);
    }
    while (w->n > 0) {
        compile_pool_release(s->pool, w->queue[--w->n].build);
    }
    if (r == 0) {
        landscape_await_compiles(s);
    }
    free(w);
    return r;
}
