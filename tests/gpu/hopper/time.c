/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stage "time": each step times a layer. First every tile in the mode's kind without permutes. Then
 * other run-time values for the best tile. Then the kinds that perform the layer's own permutes,
 * with the tiles near the best. A sample is a single launch:
 * - after an idle gap, so that power is no limit;
 * - behind a kernel that spins, so that the launch itself does not show;
 * - with L2 full of other data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/hopper/layers.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/ready.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/stages.h"

enum { FLUSH_BYTES = 256 << 20, SAMPLES_KEPT = 64 };

static struct layer layers[LAYERS_MAX];
static int n_layers;
static void *dirty, *clean; /* FLUSH_BYTES of each */

enum { NOT_AHEAD = -1 };

static const struct {
    const char *name;
    int group;
    const char *raster, *order;
    int tile_rows;    /* 0: all */
    int ahead;        /* value of l2_ahead, or NOT_AHEAD; 0: the tile's value */
    bool store_later; /* turns off store_evict_first, which is on by default */
} run_times[] = {
    {"gm1", 1, "rows", "index"},
    {"gm4", 4, "rows", "index"},
    {"gm16", 16, "rows", "index"},
    {"gm8", 8, "rows", "index"},
    {"cols gm1", 1, "columns", "index"},
    {"cols gm8", 8, "columns", "index"},
    {"gm1 by size", 1, "rows", "size"},
    {"gm8 by size", 8, "rows", "size"},
    {"h128", 8, "rows", "index", 128},
    {"h144", 8, "rows", "index", 144},
    {"h176", 8, "rows", "index", 176},
    {"cols h176", 8, "columns", "index", 176},
    {"gm1 a0", 1, "rows", "index", 0, NOT_AHEAD},
    {"gm1 a1", 1, "rows", "index", 0, 1},
    {"gm1 a2", 1, "rows", "index", 0, 2},
    {"gm1 a4", 1, "rows", "index", 0, 4},
    {"gm8 a8", 8, "rows", "index", 0, 8},
    {"gm8 a16", 8, "rows", "index", 0, 16},
    {"gm1 a64", 1, "rows", "index", 0, 64},
    {"gm1 ef off", 1, "rows", "index", .store_later = true},
    {"gm1 a1 ef off", 1, "rows", "index", .ahead = 1, .store_later = true},
};
enum { RUN_TIMES = sizeof(run_times) / sizeof(run_times[0]) };

struct timed {
    int tile, kind;
    char run_time[48];
    double us, least;
    int samples;
};

/* ---- one config */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Pushes the operands out of L2: writes other memory, then reads more. Without the reads the timed
 * launch would have to store the written lines, some 50 MB, and a launch that leaves such lines in
 * L2 would seem faster. */
static void empty_l2(struct lab *lab)
{
    const struct {
        const void *data;
        uint64_t count;
        void *out;
    } p = {clean, FLUSH_BYTES / 16, dirty};
    gpu_fill(dirty, 1, FLUSH_BYTES);
    gpu_run(&lab->tools, "tool_read", 1056, 1, 256, &p, sizeof(p));
}

static double sample(struct lab *lab, struct ready *r)
{
    const uint64_t spin_ns = 40000;
    empty_l2(lab);
    gpu_wait();
    usleep((useconds_t)(options.gap_ms * 1e3));
    gpu_run(&lab->tools, "tool_spin", 1, 1, 1, &spin_ns, sizeof(spin_ns));
    gpu_mark(0);
    ready_launch(r, PLAN_ALL);
    gpu_mark(1);
    return gpu_elapsed_us();
}

/* Measures the median of all samples. If the first sample takes longer than `hopeless`
 * microseconds, it is the only sample. `hopeless` 0: never. */
static void measure(struct lab *lab, struct ready *r, double hopeless, struct timed *out)
{
    double us[SAMPLES_KEPT];
    int n = options.samples < SAMPLES_KEPT ? options.samples : SAMPLES_KEPT;
    ready_launch(r, PLAN_ALL);
    gpu_wait();
    n = n > 0 ? n : 1;
    for (int i = 0; i < n; i++) {
        us[i] = sample(lab, r);
        progress_beat();
        if (hopeless > 0 && us[0] > hopeless) {
            n = i + 1;
        }
    }
    qsort(us, (size_t)n, sizeof(us[0]), by_size);
    out->least = us[0];
    out->us = us[n / 2];
    out->samples = n;
}

static void put_real(struct record *r, const char *name, double v)
{
    record_set(r, name, VALUE_OF_REAL(v), NULL);
}

static void record_time(const struct layer *l, const struct timed *t, const struct record *config)
{
    struct record r;
    char text[1024];
    record_format(config, text, sizeof(text));
    record_init(&r);
    record_put_text(&r, "model", l->model);
    record_put_text(&r, "layer", l->name);
    record_put_int(&r, "tokens", l->tokens);
    record_put_text(&r, "mode", l->mode);
    record_put_text(&r, "kind", kinds[t->kind].name);
    record_put_int(&r, "M", l->m);
    record_put_int(&r, "N", l->n);
    record_put_int(&r, "K", l->k);
    record_put_int(&r, "experts", l->experts);
    record_put_int(&r, "topk", l->topk);
    record_put_text(&r, "tile", tiles[t->tile].name);
    record_put_text(&r, "config", text);
    put_real(&r, "us", t->us);
    put_real(&r, "least", t->least);
    record_put_int(&r, "samples", t->samples);
    report_record(&r);
}

static void say_time(const struct layer *l, const struct timed *t)
{
    say("time %s %s %d %-8s %-12s %-22s %-12s %9.1f us (least %8.1f) %6.1f TFLOP/s\n", l->model,
        l->name, l->tokens, l->mode, kinds[t->kind].name, tiles[t->tile].name, t->run_time, t->us,
        t->least, layer_flops(l) / t->us * 1e-6);
}

/* Turns store_evict_first off in the config. False: it is off by default (in other modes, and for
 * stores by threads), so the config was already measured without. */
static bool store_first_off(const struct problem *p, struct record *config)
{
    struct gemm v;
    struct hopper_tile t;
    gemm_view(p, &v);
    hopper_tile_make(&v, config, &t);
    record_put_bool(config, "store_evict_first", false);
    return t.store_first;
}

static bool add_fields(struct record *config)
{
    struct record with;
    struct error err;
    bool fits = true;
    record_init(&with);
    if (options.with && record_parse(&with, options.with, &err)) {
        return false;
    }
    for (uint32_t i = 0; i < with.n && fits; i++) {
        fits = record_set(config, with.fields[i].name, record_at(&with, i), &err) == 0;
    }
    return fits;
}

/* Makes the config with entry `run_time` of run_times[]; negative: with the values of case_config.
 */
static bool config_of(struct lab *lab, const struct data *d, const struct timed *t, int run_time,
                      struct record *config, struct variant *v)
{
    struct rejection why;
    struct error err;
    if (!case_variant(&kinds[t->kind], &tiles[t->tile], &d->problem, &lab->info, config, v, &why)) {
        return false;
    }
    if (run_time >= 0) {
        record_put_int(config, "GROUP_SIZE_M", run_times[run_time].group);
        record_put_text(config, "raster", run_times[run_time].raster);
        record_put_text(config, "expert_order", run_times[run_time].order);
        if (run_times[run_time].tile_rows) {
            record_put_int(config, "tile_rows", run_times[run_time].tile_rows);
        }
        if (run_times[run_time].ahead) {
            const int ahead = run_times[run_time].ahead;
            record_put_int(config, "l2_ahead", ahead == NOT_AHEAD ? 0 : ahead);
        }
        if (run_times[run_time].store_later && !store_first_off(&d->problem, config)) {
            return false;
        }
    }
    return add_fields(config) && hopper_check(&d->problem, config, &lab->info, &why) == 0 &&
           hopper_variant(&d->problem, config, "sm_90a", v, &err) == 0;
}

/* Times the config of out->kind and out->tile, which the caller has set. */
static bool time_one(struct lab *lab, struct data *d, const struct layer *l, int run_time,
                     double hopeless, struct timed *out)
{
    static struct ready ready;
    struct record config;
    struct variant v;
    char what[200];
    if (!config_of(lab, d, out, run_time, &config, &v)) {
        return false;
    }
    if (run_time >= 0) {
        snprintf(out->run_time, sizeof(out->run_time), "%s", run_times[run_time].name);
    }
    snprintf(what, sizeof(what), "%s %s %s, %s %s", l->model, l->name, kinds[out->kind].name,
             tiles[out->tile].name, out->run_time);
    progress_on(out->kind, out->tile, "", what);
    const bool done = ready_make(&ready, lab, d, &config, &v, 0, what) == RIGHT;
    if (done) {
        measure(lab, &ready, hopeless, out);
        say_time(l, out);
        record_time(l, out, &config);
    }
    ready_free(&ready);
    return done;
}

/* ---- one kind */

static void time_run_times(struct lab *lab, struct data *d, const struct layer *l,
                           struct timed *best)
{
    for (int i = 0; i < RUN_TIMES && best->us > 0; i++) {
        struct timed one = {.kind = best->kind, .tile = best->tile};
        if (time_one(lab, d, l, i, 1.2 * best->us, &one) && one.us < best->us) {
            *best = one;
        }
    }
}

/* Times the tiles of a kind. `plain` (no permutes): all tiles, with times into us[]; otherwise the
 * tiles whose time in us[] is near the best. *best gets the fastest. */
static void time_kind(struct lab *lab, const struct layer *l, int k, bool plain,
                      double us[TILES_MAX], struct timed *best)
{
    struct data d;
    struct problem p;
    double plain_best = 0;
    *best = (struct timed){0};
    progress_on(-1, -1, "", l->name);
    if (!options_kind(kinds[k].name) || layer_problem(l, &kinds[k], &p) ||
        data_make(&d, &lab->tools, &p, NULL, DATA_TO_TIME)) {
        return;
    }
    for (int t = 0; !plain && t < n_tiles; t++) {
        plain_best = us[t] > 0 && (plain_best == 0 || us[t] < plain_best) ? us[t] : plain_best;
    }
    for (int t = 0; t < n_tiles; t++) {
        struct timed one = {.kind = k, .tile = t};
        if (!options_tile(tiles[t].name) || progress->bad[k][t] ||
            (!plain && us[t] > 1.12 * plain_best) ||
            !time_one(lab, &d, l, -1, 1.4 * best->us, &one)) {
            continue;
        }
        us[t] = plain ? one.us : us[t];
        *best = best->us == 0 || one.us < best->us ? one : *best;
    }
    if (plain) {
        time_run_times(lab, &d, l, best);
    }
    data_free(&d);
}

/* ---- one layer */

static const char *const plain_kinds[] = {"fwd", "dX", "dW"};
/* The permutes of a layer's first and second GEMM, and the kinds that perform them. */
static const char *const first[][3] = {
    {"fwd px", "fwd px copy", NULL}, {"dX px", NULL}, {"dW px", "dW px copy", NULL}};
static const char *const second[][3] = {
    {"fwd py", NULL}, {"dX py", "dX py copy", NULL}, {"dW py", "dW py copy", NULL}};

static void time_layer(struct lab *lab, const struct layer *l)
{
    const enum gemm_mode mode = layer_mode(l);
    const char *const *own = strcmp(l->name, "gate_up") == 0 ? first[mode] : second[mode];
    struct timed best, best_own = {0};
    double us[TILES_MAX] = {0};
    time_kind(lab, l, kind_named(plain_kinds[mode]), true, us, &best);
    for (int i = 0; i < 3 && own[i]; i++) {
        struct timed one;
        time_kind(lab, l, kind_named(own[i]), false, us, &one);
        if (one.us > 0 && (best_own.us == 0 || one.us < best_own.us)) {
            best_own = one;
        }
    }
    say("best %s %s %d %s: %.1f us %.0f TFLOP/s (%s %s) | permuted %.1f us (%s: %s) | recorded: "
        "floor %.1f dense %.1f torch %.1f torch+permute %.1f deepgemm %.1f unsloth %.1f | "
        "torch/ours %.3f\n",
        l->model, l->name, l->tokens, l->mode, best.us,
        best.us > 0 ? layer_flops(l) / best.us * 1e-6 : 0, tiles[best.tile].name, best.run_time,
        best_own.us, kinds[best_own.kind].name, tiles[best_own.tile].name, l->floor_us, l->dense_us,
        l->torch_us, l->torch_permute_us, l->deepgemm_us, l->unsloth_us,
        best.us > 0 ? l->torch_us / best.us : 0);
}

/* Times a shape of the command line in the kinds of --kind, or in the mode's plain kind. */
static void time_free(struct lab *lab, const struct layer *l)
{
    for (int k = 0; k < n_kinds; k++) {
        const bool plain = k == kind_named(plain_kinds[layer_mode(l)]);
        struct timed best;
        double us[TILES_MAX] = {0};
        if (kinds[k].mode != layer_mode(l) || (!options.kind && !plain)) {
            continue;
        }
        time_kind(lab, l, k, true, us, &best);
        if (best.us > 0) {
            say("best %s %s %d %s %s: %.1f us %.0f TFLOP/s (%s %s)\n", l->model, l->name, l->tokens,
                l->mode, kinds[k].name, best.us, layer_flops(l) / best.us * 1e-6,
                tiles[best.tile].name, best.run_time);
        }
    }
}

static int time_steps(void)
{
    n_layers = layers_read(layers);
    return n_layers;
}

static void time_step(struct lab *lab, int step)
{
    if (!dirty) {
        dirty = gpu_alloc(FLUSH_BYTES);
        clean = gpu_alloc(FLUSH_BYTES);
        gpu_fill(clean, 1, FLUSH_BYTES);
    }
    if (layers[step].free) {
        time_free(lab, &layers[step]);
    } else {
        time_layer(lab, &layers[step]);
    }
}

static void time_end(struct lab *lab)
{
    (void)lab;
    gpu_free(dirty);
    gpu_free(clean);
    dirty = clean = NULL;
}

const struct stage stage_time = {
    .name = "time",
    .limited = true,
    .resumes = true,
    .steps = time_steps,
    .step = time_step,
    .end = time_end,
};
