/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/landscape/recorder.h"

enum { WAIT_MS = 200, COMPILE_LIMIT_MS = 120000, LOOKS_LEAST = 3, LOOKS_MOST = 15 };
static const double LOOK_MS = 500, LOOKED_MS = 5;

/* ---- compiling ------------------------------------------------------------------------------- */

int landscape_want(struct landscape_recorder *s, const struct landscape_points *of,
                   struct landscape_item *out, struct error *err)
{
    struct record config = s->reference;
    char hash[HASH_HEX];
    if (of) {
        space_config(&s->space, of->first, &config);
    }
    *out = (struct landscape_item){.of = of};
    int r = s->target->variant(&s->problem, &config, s->device->info.arch, &out->variant, err);
    if (r) {
        return r;
    }
    variant_hash(&out->variant, s->compiler->ops->version(s->compiler), hash);
    const struct compile_pool_want want = {
        .variant = &out->variant, .hash = hash, .rank = RANK_CANDIDATE};
    return compile_pool_want(s->pool, &want, &out->build, err);
}

void landscape_wait(void *recorder)
{
    const struct landscape_recorder *s = recorder;
    compile_pool_wait(s->pool, WAIT_MS, COMPILE_LIMIT_MS);
}

void landscape_reject_error(struct rejection *why, const struct error *e)
{
    *why = (struct rejection){.code = e->code};
    snprintf(why->text, sizeof(why->text), "%.*s", (int)sizeof(why->text) - 1, e->text);
}

int landscape_load_item(struct landscape_recorder *s, const struct landscape_item *it,
                        struct kernel **out, struct rejection *why, struct error *err)
{
    struct build *b = it->build;
    *why = (struct rejection){0};
    *out = NULL;
    while (compile_pool_collect(s->pool), b->state == BUILD_PENDING) {
        landscape_wait(s);
    }
    int r = b->state == BUILD_FAILED
                ? error_set(err, b->error.code, "%s", b->error.text)
                : s->device->ops->load(s->device, &b->image, &it->variant, out, why, err);
    if (r && !why->code) {
        landscape_reject_error(why, err);
    }
    return r;
}

/* ---- timing ---------------------------------------------------------------------------------- */

int landscape_time(struct landscape_recorder *s, struct kernel *k, const struct record *config,
                   uint32_t warmup, uint32_t wanted, double stop_us, double *us, uint32_t *n,
                   struct error *err)
{
    const struct timing t = {.warmup = warmup,
                             .samples = wanted,
                             .stop_after_us = isfinite(stop_us) ? stop_us : 0,
                             .gap_ms = s->gap_ms};
    uint32_t got = 0;
    int r = s->device->ops->time(s->device, s->prepared, k, config, &t, us + *n, &got, err);
    *n += got;
    return r ? r : got ? 0 : error_set(err, ERROR_INTERNAL, "the device gave no samples");
}

void landscape_say(struct landscape_recorder *s)
{
    const double now = landscape_clock(s);
    char best[32] = "";
    if (!mode_is_line_due(&s->line, now)) {
        return;
    }
    if (isfinite(s->best_us)) {
        snprintf(best, sizeof(best), " best %.1f us,", s->best_us);
    }
    mode_put_line(&s->line, "%u of %u variants, %u points,%s reference %.1f us, %.0f s", s->done,
                  s->n_variants, s->points, best, s->reference_us, (now - s->began_ms) / 1e3);
}

/* Launches of the reference in one look: many of a short kernel, of which one launch in five took
 * an eighth longer (H200, 8 us). */
static uint32_t landscape_count_looks(const struct landscape_recorder *s)
{
    const double fit = LOOKED_MS / (s->gap_ms + s->reference_us / 1e3);
    return (uint32_t)fmin(fmax(fit, LOOKS_LEAST), LOOKS_MOST);
}

int landscape_look(struct landscape_recorder *s, struct error *err)
{
    double us[LOOKS_MOST];
    uint32_t n = 0;
    double now = landscape_clock(s);
    if (now - s->looked_ms < LOOK_MS) {
        return 0;
    }
    s->looked_ms = now;
    landscape_say(s);
    int r =
        landscape_time(s, s->yardstick, &s->reference, 0, landscape_count_looks(s), 0, us, &n, err);
    return r ? r : landscape_write_reference(s, us, n, err);
}
