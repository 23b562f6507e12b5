/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay device: plays the landscape in virtual time. See replay.h for the contract.
 *
 * The clock counts, in milliseconds: prepare 50, load 0.05, verify three launches and 0.2, each
 * timed launch its time, its gap and 0.01.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/replay/replay.h"
#include "proto/hash.h"

static const double PREPARE_MS = 50, LOAD_MS = 0.05, VERIFY_MS = 0.2, LAUNCH_MS = 0.01;

struct replay_device {
    struct device base;  /* first member: its address is the struct's */
    struct landscape *l; /* owned */
    double clock_ms;
    uint64_t calls; /* number of calls of time(): each call draws other samples */
};

struct prepared {
    const struct family *family; /* borrowed, static */
    struct problem problem;
    uint32_t index; /* of the problem in the landscape; n_problems: a synthetic problem */
    uint64_t seed;
};

struct kernel {
    struct variant variant;
};

static void replay_pass_time(struct replay_device *d, double ms)
{
    d->clock_ms += ms;
    landscape_sleep(d->l, ms);
}

/* ---- open ------------------------------------------------------------------------------------ */

static int replay_open(const char *spec, struct device *base, struct error *err)
{
    struct replay_device *d = (struct replay_device *)base;
    int r = landscape_load(spec, &d->l, err);
    if (r == 0) {
        base->info = d->l->info;
    }
    return r;
}

static void replay_close(struct device *base)
{
    landscape_free(((struct replay_device *)base)->l);
    free(base);
}

/* ---- prepare, load --------------------------------------------------------------------------- */

static int replay_prepare(struct device *base, const struct family *f, const struct problem *p,
                          uint64_t seed, struct prepared **out, struct error *err)
{
    struct replay_device *d = (struct replay_device *)base;
    *out = NULL;
    int r = fault_happen(fault_find(d->l, STAGE_PREPARE, NULL, NULL), err);
    if (r) {
        return r;
    }
    struct prepared *w = calloc(1, sizeof(*w));
    if (!w) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a problem");
    }
    r = landscape_problem(d->l, p, &w->index, err);
    if (r) {
        free(w);
        return r;
    }
    w->family = f;
    w->problem = *p;
    w->seed = seed;
    replay_pass_time(d, PREPARE_MS);
    *out = w;
    return 0;
}

static void replay_release(struct device *base, struct prepared *w)
{
    free(w);
}

/* The image only names the variant: nothing to load. */
static int replay_load(struct device *base, const struct image *image, const struct variant *v,
                       struct kernel **out, struct rejection *why, struct error *err)
{
    struct replay_device *d = (struct replay_device *)base;
    *out = NULL;
    int r = fault_happen(fault_find(d->l, STAGE_LOAD, NULL, v), err);
    if (r) {
        return r;
    }
    const struct landscape_entry *failed =
        landscape_failure(d->l, replay_variant_hash(v), ERROR_RESOURCE);
    if (failed) {
        *why = failed->why;
        return error_set(err, ERROR_RESOURCE, "%s", why->text);
    }
    struct kernel *k = calloc(1, sizeof(*k));
    if (!k) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a kernel");
    }
    k->variant = *v;
    replay_pass_time(d, LOAD_MS);
    *out = k;
    return 0;
}

static void replay_unload(struct device *base, struct kernel *k)
{
    free(k);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* The time, without noise, of a config in a synthetic landscape: the target's model times a
 * random factor. */
static double synthetic_us(const struct replay_device *d, const struct prepared *w,
                           const struct kernel *k, const struct record *config)
{
    const struct family_target *t = family_target_of_variant(w->family, &k->variant);
    char text[512];
    problem_format(&w->problem, text, sizeof(text));
    uint64_t state = d->l->seed ^ hash64(text, strlen(text)) ^ replay_config_hash(config);
    random_next(&state);
    double us = t->predict(&w->problem, config, &d->base.info, NULL);
    return us * exp(d->l->spread * noise_gauss(&state));
}

/* Finds the entry whose times stand for the config's; *out is NULL for a synthetic config. Returns
 * 0 or ERROR_*. */
static int find_times(const struct replay_device *d, const struct prepared *w,
                      const struct record *config, const struct landscape_entry **out,
                      struct error *err)
{
    const struct landscape_entry *e = landscape_entry(d->l, w->index, config);
    *out = e;
    if (e && e->status == ERROR_HUNG) {
        return fault_happen(&(struct fault){.kind = FAULT_HANG, .stage = STAGE_TIME}, err);
    }
    if (e && e->status && e->status != ERROR_WRONG_RESULT && e->status != ERROR_CRASHED) {
        return error_set(err, e->status, "%s", e->why.text);
    }
    if (e || d->l->synthetic) {
        return 0;
    }
    char text[256];
    record_format(config, text, sizeof(text));
    return error_set(err, ERROR_NOT_FOUND, "this config is not in the recorded landscape: %s",
                     text);
}

static int replay_time(struct device *base, struct prepared *w, struct kernel *k,
                       const struct record *config, const struct timing *t, double *samples_us,
                       uint32_t *n, struct error *err)
{
    struct replay_device *d = (struct replay_device *)base;
    const struct landscape_entry *e;
    *n = 0;
    int r = fault_happen(fault_find(d->l, STAGE_TIME, config, NULL), err);
    r = r ? r : find_times(d, w, config, &e, err);
    if (r) {
        return r;
    }
    uint64_t state = w->seed ^ replay_config_hash(config) ^ (d->calls++ << 32);
    struct noise noise = {.landscape = d->l};
    if (e) {
        noise_visit(d->l, e, &state, &noise);
    } else {
        noise.scale = synthetic_us(d, w, k, config);
    }
    if (!e && !isfinite(noise.scale)) { /* such a time would stop the virtual clock */
        char text[256];
        record_format(config, text, sizeof(text));
        return error_set(
            err, ERROR_NOT_FOUND,
            "a synthetic landscape takes times from the model, which knows none of: %s", text);
    }
    for (uint32_t i = 0; i < t->warmup + t->samples; i++) {
        double drift = noise_drift(d->l, w->index, w->seed, d->clock_ms);
        double sample = drift * noise_draw(&noise, &state);
        replay_pass_time(d, sample / 1e3 + t->gap_ms + LAUNCH_MS);
        if (i >= t->warmup) {
            samples_us[(*n)++] = sample;
        }
        if (i == t->warmup && t->stop_after_us > 0 && sample > t->stop_after_us) {
            break;
        }
    }
    return 0;
}

/* ---- verify ---------------------------------------------------------------------------------- */

static int replay_verify(struct device *base, struct prepared *w, struct kernel *k,
                         const struct record *config, const struct tolerance *tol,
                         struct verdict *out, struct error *err)
{
    struct replay_device *d = (struct replay_device *)base;
    *out = (struct verdict){.right = true, .max_error = NAN, .rel_norm = NAN};
    const struct fault *f = fault_find(d->l, STAGE_VERIFY, config, NULL);
    int r = fault_happen(f, err);
    if (r) {
        return r;
    }
    const struct landscape_entry *e = landscape_entry(d->l, w->index, config);
    if (e && e->status == ERROR_CRASHED) {
        fault_happen(&(struct fault){.kind = FAULT_CRASH, .stage = STAGE_VERIFY}, err);
    }
    if (f && f->kind == FAULT_WRONG) {
        out->right = false;
        out->max_error = 1;
        out->rel_norm = 1;
        snprintf(out->text, sizeof(out->text),
                 "replay: output row 0, column 0 is 1, the reference 0");
    } else if (e && e->status == ERROR_WRONG_RESULT) {
        out->right = false;
        snprintf(out->text, sizeof(out->text), "%s", e->why.text);
    }
    double us = e ? e->us : d->l->synthetic ? synthetic_us(d, w, k, config) : 0;
    replay_pass_time(d, VERIFY_MS + 3 * us / 1e3);
    return 0;
}

/* False for unrecorded configs, which would fail: a search covers the recorded part of a space. */
static bool replay_knows(const struct device *base, const struct problem *p,
                         const struct record *config)
{
    const struct landscape *l = ((const struct replay_device *)base)->l;
    uint32_t problem;
    struct error none;
    return l->synthetic || landscape_problem(l, p, &problem, &none) != 0 ||
           landscape_entry(l, problem, config);
}

static bool replay_reference(const struct device *base, const struct problem *p,
                             struct record *config)
{
    const struct landscape *l = ((const struct replay_device *)base)->l;
    uint32_t problem;
    struct error none;
    if (l->synthetic || landscape_problem(l, p, &problem, &none) ||
        l->problems[problem].reference.n == 0) {
        return false;
    }
    record_copy(config, &l->problems[problem].reference);
    return true;
}

/* The model must predict times for the recorded rows. Another seed would draw other rows: here the
 * seed that was asked for only changes the noise. */
static uint64_t replay_rows_seed(const struct device *base, uint64_t asked)
{
    const struct landscape *l = ((const struct replay_device *)base)->l;
    return l->rows_seed ? l->rows_seed : asked;
}

static double replay_clock(struct device *base)
{
    return ((struct replay_device *)base)->clock_ms;
}

const struct device_ops replay_device_ops = {
    .kind = "replay",
    .size = sizeof(struct replay_device),
    .open = replay_open,
    .close = replay_close,
    .load = replay_load,
    .unload = replay_unload,
    .prepare = replay_prepare,
    .release = replay_release,
    .verify = replay_verify,
    .time = replay_time,
    .knows = replay_knows,
    .reference = replay_reference,
    .rows_seed = replay_rows_seed,
    .clock_ms = replay_clock,
};
