/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Hopper template on a GPU, before anything else uses it: is it right, does it stay right, how
 * fast is it. Needs only the driver; a folder of cubins compiled elsewhere, or NVRTC.
 *
 *   hopper_bench --compile DIR [--jobs N]       all variants, without a GPU
 *   hopper_bench --cubins DIR [--out FILE] [--stages check,time] [--soak N] [--seconds S]
 *                [--shapes moe.csv] [--tokens 4096] [--kind NAME] [--tile NAME] [--samples N]
 *                [--limit S]
 *
 *   check   every tile x kind x shape against a naive reference; guards; then, on one shape, N
 *           launches (times the kind's factor) that must be bit-identical
 *   time    the rows of moe.csv: single launches after an idle gap, behind a spin kernel, L2 cold
 *
 * The work is done by a child; this process watches it. A child that hangs or dies costs the step
 * it was in: it is noted, its variant is left out from then on, and another child goes on.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/gpu/hopper/data.h"

extern const char hopper_tools_source[];

enum { TILES_MAX = 32, KINDS_MAX = 32, STEP_SECONDS = 10, RUN_TIME_MAX = 8 };

static struct {
    const char *cubins, *out, *stages, *shapes_file, *kind, *tile;
    int soak, samples, jobs, tokens;
    double seconds, gap_ms, limit;
    bool compile;
} options = {
    .stages = "check,time",
    .shapes_file = "tests/data/shapes/moe.csv",
    .soak = 500,
    .samples = 7,
    .jobs = 2,
    .tokens = 4096,
    .seconds = 120,
    .gap_ms = 8,
    .limit = 240,
};

/* Between the child and its watcher. */
static struct shared {
    volatile int next; /* step to begin with */
    volatile int at;   /* step being done */
    volatile long beats;
    volatile double time_used; /* seconds of the stage "time" */
    volatile int checked, failed;
    volatile char bad[KINDS_MAX][TILES_MAX];
    volatile int kind, tile; /* being done */
    char what[160];
} * shared;

static FILE *results;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    vprintf(format, args);
    fflush(stdout);
    if (results) {
        vfprintf(results, format, again);
        fflush(results);
    }
    va_end(again);
    va_end(args);
}

/* ---- cubins
 * --------------------------------------------------------------------------------------------- */

static void cubin_path(const struct variant *v, char *out, size_t size)
{
    char hash[HASH_HEX];
    variant_hash(v, "bench", hash);
    snprintf(out, size, "%s/%s.cubin", options.cubins ? options.cubins : "/tmp", hash);
}

static void *read_whole(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (!f || fstat(fileno(f), &st)) {
        return NULL;
    }
    void *data = malloc((size_t)st.st_size + 1);
    size_t n = fread(data, 1, (size_t)st.st_size, f);
    fclose(f);
    if (n != (size_t)st.st_size) {
        free(data);
        return NULL;
    }
    return data;
}

/* From the folder, else compiled and put there. NULL: the compiler refused it. */
static void *cubin_of(const struct variant *v, const char *name)
{
    char path[512], log[2048];
    size_t size = 0;
    int spills = 0, registers = 0;
    void *data = NULL;
    cubin_path(v, path, sizeof(path));
    if ((data = read_whole(path))) {
        return data;
    }
    int r =
        nvrtc_compile(v->source, v->options, &data, &size, &spills, &registers, log, sizeof(log));
    if (r) {
        say("REFUSED %s: spills %d: %s\n", name, spills, log);
        free(data);
        return NULL;
    }
    if (spills) {
        say("spills %s: %d bytes\n", name, spills);
    }
    char aside[600];
    snprintf(aside, sizeof(aside), "%s.%d", path, (int)getpid());
    FILE *f = fopen(aside, "wb");
    if (f && fwrite(data, 1, size, f) == size && fclose(f) == 0) {
        rename(aside, path);
    }
    return data;
}

static void tools_variant(struct variant *v)
{
    *v = (struct variant){.family = "tools",
                          .kind = "cuda",
                          .arch = "sm_90a",
                          .entry = "tools",
                          .source = hopper_tools_source};
    hash128_hex(v->source, strlen(v->source), v->source_hash);
}

static const struct device_info h200 = {.kind = "cuda",
                                        .arch = "sm_90a",
                                        .sm_count = 132,
                                        .cc_major = 9,
                                        .smem_optin = 232448,
                                        .regs_per_block = 65536,
                                        .l2_bytes = 60 << 20};

/* False: not legal. */
static bool variant_of(const struct kind *k, const struct tile *t, const struct problem *p,
                       struct record *config, struct variant *out, struct rejection *why)
{
    struct grouped_gemm_problem v;
    struct error err = ERROR_NULL;
    grouped_gemm_view(p, &v);
    case_config(&v, k, t, config);
    return hopper_check(p, config, &h200, why) == 0 &&
           hopper_variant(p, config, "sm_90a", out, &err) == 0;
}

static int compile_share(int job)
{
    int i = 0, refused = 0;
    for (int k = 0; k < n_kinds; k++) {
        struct problem p;
        if (case_problem(&kinds[k], &shapes[0], &p)) {
            return 1;
        }
        for (int t = 0; t < n_tiles; t++) {
            struct record config;
            struct variant v;
            struct rejection why;
            char name[128];
            snprintf(name, sizeof(name), "%s, %s", kinds[k].name, tiles[t].name);
            if (i++ % options.jobs != job) {
                continue;
            }
            if (!variant_of(&kinds[k], &tiles[t], &p, &config, &v, &why)) {
                say("not legal %s: %s\n", name, why.text);
                continue;
            }
            void *data = cubin_of(&v, name);
            refused += !data;
            free(data);
        }
    }
    return refused > 0;
}

static int compile_all(void)
{
    int bad = 0;
    struct variant tools;
    mkdir(options.cubins, 0777);
    tools_variant(&tools);
    void *data = cubin_of(&tools, "tools");
    if (!data) {
        return 1;
    }
    free(data);
    for (int j = 0; j < options.jobs; j++) {
        if (fork() == 0) {
            _exit(compile_share(j));
        }
    }
    for (int j = 0; j < options.jobs; j++) {
        int status;
        wait(&status);
        bad |= status != 0;
    }
    return bad;
}

/* ---- one kernel on one problem
 * ----------------------------------------------------------------------------- */

struct ready {
    struct gpu_module module;
    struct launch_plan plan;
};

static void launch_all(struct ready *r)
{
    for (uint32_t i = 0; i < r->plan.n; i++) {
        gpu_launch(&r->module, &r->plan.steps[i]);
    }
}

static bool make_ready(struct ready *r, struct data *d, const struct record *config,
                       const struct variant *v, const struct device_info *info, const char *name)
{
    struct error err = ERROR_NULL;
    int bad = hopper_plan(&d->problem, config, info, &d->args, &r->plan, &err);
    if (bad && r->plan.workspace_bytes > 0 && !d->workspace) {
        d->workspace = gpu_alloc((size_t)r->plan.workspace_bytes);
        d->args.workspace = d->workspace;
        d->args.workspace_bytes = r->plan.workspace_bytes;
        bad = hopper_plan(&d->problem, config, info, &d->args, &r->plan, &err);
    }
    if (bad) {
        say("FAILED %s: plan: %s\n", name, err.text);
        return false;
    }
    void *cubin = cubin_of(v, name);
    if (!cubin) {
        return false;
    }
    gpu_load(&r->module, cubin);
    free(cubin);
    return true;
}

/* ---- check
 * ---------------------------------------------------------------------------------------------------
 */

static bool check_once(struct data *d, struct ready *r, struct gpu_module *tools, const char *name)
{
    struct finding f = {0};
    for (int i = 0; i < 2; i++) { /* the second finds everything warm */
        data_poison(d);
        launch_all(r);
        gpu_wait();
        data_compare(d, tools, &f);
        if (f.norm > 5e-3f || f.wrong || f.nan || f.guard) {
            say("WRONG %s: launch %d norm %.3g, %u beyond tolerance, %u NaN, first row %d, %u "
                "units "
                "outside\n",
                name, i, (double)f.norm, f.wrong, f.nan, (int)f.row - 1, f.guard);
            return false;
        }
    }
    return true;
}

static bool soak(struct data *d, struct ready *r, struct gpu_module *tools, int launches,
                 const char *name)
{
    uint32_t result[4];
    void *saved = gpu_alloc(d->out_bytes);
    gpu_copy(saved, d->out_all, d->out_bytes);
    gpu_fill(d->result, 0, 16);
    for (int i = 0; i < launches; i++) {
        data_poison(d);
        launch_all(r);
        data_diff(d, tools, saved);
        if (i % 100 == 99) {
            gpu_wait();
            shared->beats++;
        }
    }
    gpu_wait();
    gpu_download(result, d->result, sizeof(result));
    gpu_free(saved);
    if (result[0]) {
        say("UNSTEADY %s: %u units of 16 bytes differed in %d launches\n", name, result[0],
            launches);
        return false;
    }
    return true;
}

static bool check_tile(struct data *d, struct gpu_module *tools, const struct device_info *info,
                       int k, int s, int t)
{
    struct record config;
    struct variant v;
    struct rejection why;
    struct ready *r = calloc(1, sizeof(*r));
    snprintf(shared->what, sizeof(shared->what), "%s, %s, shape %d", kinds[k].name, tiles[t].name,
             s);
    bool right = true;
    if (variant_of(&kinds[k], &tiles[t], &d->problem, &config, &v, &why)) {
        right = make_ready(r, d, &config, &v, info, shared->what) &&
                check_once(d, r, tools, shared->what);
        if (right && shapes[s].soak && kinds[k].soak) {
            int factor = tiles[t].pingpong || kinds[k].soak > 1 ? 4 : 1;
            right = soak(d, r, tools, options.soak * factor, shared->what);
        }
        gpu_unload(&r->module);
        shared->checked++;
    }
    free(r);
    return right;
}

static bool wanted(int k, int t)
{
    return (!options.kind || strcmp(options.kind, kinds[k].name) == 0) &&
           (!options.tile || strcmp(options.tile, tiles[t].name) == 0);
}

/* Steps: (shape, kind, tile), the tile fastest. */
static void check_steps(struct gpu_module *tools, const struct device_info *info)
{
    struct data d = {0};
    int have = -1, steps = n_shapes * n_kinds * n_tiles;
    while (shared->next < steps) {
        const int at = shared->next, t = at % n_tiles, k = at / n_tiles % n_kinds;
        const int s = at / n_tiles / n_kinds, group = at / n_tiles;
        shared->at = at;
        shared->kind = k;
        shared->tile = t;
        shared->beats++;
        if (wanted(k, t) && !shared->bad[k][t]) {
            if (have != group) {
                struct problem p;
                data_free(&d);
                snprintf(shared->what, sizeof(shared->what), "%s, inputs of shape %d",
                         kinds[k].name, s);
                if (case_problem(&kinds[k], &shapes[s], &p) ||
                    data_make(&d, tools, &p, shapes[s].strided, shapes[s].wide, true)) {
                    _exit(5);
                }
                have = group;
            }
            if (!check_tile(&d, tools, info, k, s, t)) {
                shared->bad[k][t] = 1;
                shared->failed++;
            }
        }
        shared->next = at + 1;
    }
    data_free(&d);
}

/* ---- time
 * ------------------------------------------------------------------------------------------------------
 */

struct layer {
    char model[32], name[16], mode[12];
    int tokens, experts, topk;
    long m, n, k;
    double floor_us, dense_us, torch_us, torch_permute_us, deepgemm_us, unsloth_us;
};

static double number(const char *text)
{
    return text && *text ? atof(text) : 0;
}

/* strtok skips empty cells. */
static char *cell(char **rest)
{
    return strsep(rest, ",\n");
}

static int read_layers(struct layer *out, int most)
{
    FILE *f = fopen(options.shapes_file, "r");
    char line[512];
    int n = 0;
    if (!f) {
        say("FAULT cannot read %s\n", options.shapes_file);
        return 0;
    }
    while (n < most && fgets(line, sizeof(line), f)) {
        char *rest = line;
        struct layer l = {0};
        snprintf(l.model, sizeof(l.model), "%s", cell(&rest));
        snprintf(l.name, sizeof(l.name), "%s", cell(&rest));
        l.tokens = atoi(cell(&rest));
        snprintf(l.mode, sizeof(l.mode), "%s", cell(&rest));
        l.experts = atoi(cell(&rest));
        l.topk = atoi(cell(&rest));
        l.m = atol(cell(&rest));
        l.n = atol(cell(&rest));
        l.k = atol(cell(&rest));
        l.floor_us = number(cell(&rest));
        l.dense_us = number(cell(&rest));
        l.torch_us = number(cell(&rest));
        l.torch_permute_us = number(cell(&rest));
        l.deepgemm_us = number(cell(&rest));
        l.unsloth_us = number(cell(&rest));
        if (l.tokens == options.tokens || (l.tokens && options.tokens == 0)) {
            out[n++] = l;
        }
    }
    fclose(f);
    return n;
}

static int layer_problem(const struct layer *l, const struct kind *k, struct problem *p)
{
    struct record f;
    struct error err = ERROR_NULL;
    record_init(&f);
    record_put_text(&f, "mode", l->mode);
    record_put_int(&f, "M", l->m);
    record_put_int(&f, "N", l->n);
    record_put_int(&f, "K", l->k);
    record_put_int(&f, "experts", l->experts);
    record_put_int(&f, "topk", l->topk);
    record_put_text(&f, "dtype_in", k->fp16 ? "fp16" : "bf16");
    record_put_bool(&f, "permute_x", k->permute_x);
    record_put_bool(&f, "permute_y", k->permute_y);
    if (problem_make(p, "grouped_gemm", &f, &err)) {
        say("FAULT %s\n", err.text);
        return -1;
    }
    return 0;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double sample(struct ready *r, struct gpu_module *tools, void *flush, size_t flush_bytes)
{
    const uint64_t spin_ns = 40000;
    gpu_fill(flush, 1, flush_bytes);
    gpu_wait();
    usleep((useconds_t)(options.gap_ms * 1e3));
    gpu_run(tools, "tool_spin", 1, 1, 1, &spin_ns, sizeof(spin_ns));
    gpu_mark(0);
    launch_all(r);
    gpu_mark(1);
    return gpu_elapsed_us();
}

struct bench {
    struct gpu_module *tools;
    const struct device_info *info;
    void *flush;
    size_t flush_bytes;
};

struct timed {
    int tile, k;
    char run_time[48];
    double us, least;
};

/* The median; of fewer samples when the first is beyond `hopeless` (0: never). */
static double measure(struct ready *r, const struct bench *b, double hopeless, double *least)
{
    double us[64];
    int n = options.samples < 64 ? options.samples : 64;
    launch_all(r);
    gpu_wait();
    for (int i = 0; i < n; i++) {
        us[i] = sample(r, b->tools, b->flush, b->flush_bytes);
        shared->beats++;
        if (hopeless > 0 && us[0] > hopeless) {
            n = i + 1;
        }
    }
    qsort(us, (size_t)n, sizeof(us[0]), by_size);
    *least = us[0];
    return us[n / 2];
}

/* Other values of the run-time parameters, tried on the best tile. */
static const struct {
    const char *name;
    int group;
    const char *raster, *order;
} run_times[] = {
    {"gm1", 1, "rows", "index"},         {"gm4", 4, "rows", "index"},
    {"gm16", 16, "rows", "index"},       {"gm8", 8, "rows", "index"},
    {"cols gm1", 1, "columns", "index"}, {"cols gm8", 8, "columns", "index"},
    {"gm1 by size", 1, "rows", "size"},  {"gm8 by size", 8, "rows", "size"},
};

static void report(const struct layer *l, const struct kind *k, const struct timed *t)
{
    const double flops = 2.0 * (double)l->m * (double)l->n * (double)l->k;
    say("time %s %s %d %-8s %-12s %-22s %-12s %9.1f us (least %8.1f) %6.1f TFLOP/s\n", l->model,
        l->name, l->tokens, l->mode, k->name, tiles[t->tile].name, t->run_time, t->us, t->least,
        flops / t->us * 1e-6);
}

static bool time_one(struct bench *b, struct data *d, const struct layer *l, int k, int tile,
                     int run_time, double hopeless, struct timed *out)
{
    struct record config;
    struct variant v;
    struct rejection why;
    if (!variant_of(&kinds[k], &tiles[tile], &d->problem, &config, &v, &why)) {
        return false;
    }
    *out = (struct timed){.tile = tile, .k = k};
    if (run_time >= 0) {
        snprintf(out->run_time, sizeof(out->run_time), "%s", run_times[run_time].name);
        record_put_int(&config, "GROUP_SIZE_M", run_times[run_time].group);
        record_put_text(&config, "raster", run_times[run_time].raster);
        record_put_text(&config, "expert_order", run_times[run_time].order);
        if (hopper_check(&d->problem, &config, b->info, &why)) {
            return false;
        }
    }
    snprintf(shared->what, sizeof(shared->what), "%s %s %s, %s %s", l->model, l->name,
             kinds[k].name, tiles[tile].name, out->run_time);
    struct ready *r = calloc(1, sizeof(*r));
    bool done = make_ready(r, d, &config, &v, b->info, shared->what);
    if (done) {
        out->us = measure(r, b, hopeless, &out->least);
        report(l, &kinds[k], out);
    }
    gpu_unload(&r->module);
    free(r);
    return done;
}

/* Tiles of one kind: all, and their times in us[] (plain), or those that were not far from the best
 * when plain. The best of them in *best. */
static void time_kind(struct bench *b, const struct layer *l, int k, bool plain,
                      double us[TILES_MAX], struct timed *best)
{
    struct data d;
    struct problem p;
    double plain_best = 0;
    *best = (struct timed){0};
    if (layer_problem(l, &kinds[k], &p) || data_make(&d, b->tools, &p, false, false, false)) {
        return;
    }
    for (int t = 0; !plain && t < n_tiles; t++) {
        plain_best = us[t] > 0 && (plain_best == 0 || us[t] < plain_best) ? us[t] : plain_best;
    }
    for (int t = 0; t < n_tiles; t++) {
        struct timed one;
        shared->kind = k;
        shared->tile = t;
        if (!wanted(k, t) || shared->bad[k][t] || (!plain && us[t] > 1.12 * plain_best) ||
            !time_one(b, &d, l, k, t, -1, 1.4 * best->us, &one)) {
            continue;
        }
        us[t] = plain ? one.us : us[t];
        *best = best->us == 0 || one.us < best->us ? one : *best;
    }
    for (size_t i = 0; plain && best->us > 0 && i < sizeof(run_times) / sizeof(run_times[0]); i++) {
        struct timed one;
        if (time_one(b, &d, l, k, best->tile, (int)i, 1.2 * best->us, &one) && one.us < best->us) {
            *best = one;
        }
    }
    data_free(&d);
}

static int kind_named(const char *name)
{
    for (int k = 0; k < n_kinds; k++) {
        if (strcmp(kinds[k].name, name) == 0) {
            return k;
        }
    }
    return 0;
}

static void time_layer(struct bench *b, const struct layer *l)
{
    static const char *const plain[] = {"fwd", "dX", "dW"};
    static const char *const first[][3] = {
        {"fwd px", "fwd px copy", NULL}, {"dX px", NULL}, {"dW px", "dW px copy", NULL}};
    static const char *const second[][3] = {
        {"fwd py", NULL}, {"dX py", "dX py copy", NULL}, {"dW py", NULL}};
    const int mode = strcmp(l->mode, "forward") == 0 ? 0 : strcmp(l->mode, "dX") == 0 ? 1 : 2;
    const char *const *own = strcmp(l->name, "gate_up") == 0 ? first[mode] : second[mode];
    struct timed best, best_own = {0};
    double us[TILES_MAX] = {0};
    time_kind(b, l, kind_named(plain[mode]), true, us, &best);
    for (int i = 0; i < 3 && own[i]; i++) {
        struct timed one;
        time_kind(b, l, kind_named(own[i]), false, us, &one);
        if (one.us > 0 && (best_own.us == 0 || one.us < best_own.us)) {
            best_own = one;
        }
    }
    const double flops = 2.0 * (double)l->m * (double)l->n * (double)l->k;
    say("best %s %s %d %s: %.1f us %.0f TFLOP/s (%s %s) | permuted %.1f us (%s: %s) | recorded: "
        "floor "
        "%.1f dense %.1f torch %.1f torch+permute %.1f deepgemm %.1f unsloth %.1f | torch/ours "
        "%.3f\n",
        l->model, l->name, l->tokens, l->mode, best.us, best.us > 0 ? flops / best.us * 1e-6 : 0,
        tiles[best.tile].name, best.run_time, best_own.us, kinds[best_own.k].name,
        tiles[best_own.tile].name, l->floor_us, l->dense_us, l->torch_us, l->torch_permute_us,
        l->deepgemm_us, l->unsloth_us, best.us > 0 ? l->torch_us / best.us : 0);
}

static void time_steps(struct gpu_module *tools, const struct device_info *info, int first_step)
{
    static struct layer layers[128];
    const int n = read_layers(layers, 128);
    struct bench b = {tools, info, NULL, 256 << 20};
    b.flush = gpu_alloc(b.flush_bytes);
    while (shared->next - first_step < n) {
        const int at = shared->next;
        const double began = now();
        shared->at = at;
        shared->beats++;
        if (shared->time_used > options.seconds) {
            say("time is over: %d of %d rows\n", at - first_step, n);
            shared->next = first_step + n;
            break;
        }
        time_layer(&b, &layers[at - first_step]);
        shared->time_used += now() - began;
        shared->next = at + 1;
    }
    gpu_free(b.flush);
}

/* ---- the child and its watcher
 * ------------------------------------------------------------------------------------ */

static void work(void)
{
    struct device_info info;
    struct variant v;
    struct gpu_module tools;
    const int check_steps_n = strstr(options.stages, "check") ? n_shapes * n_kinds * n_tiles : 0;
    gpu_open(&info);
    tools_variant(&v);
    void *cubin = cubin_of(&v, "tools");
    if (!cubin) {
        _exit(5);
    }
    gpu_load(&tools, cubin);
    if (shared->next == 0) {
        say("%s, %d SMs, compute capability %d.%d\n", info.name, (int)info.sm_count,
            (int)info.cc_major, (int)info.cc_minor);
    }
    if (shared->next < check_steps_n) {
        const double began = now();
        check_steps(&tools, &info);
        say("checked %d cases in %.1f s, %d failed\n", shared->checked, now() - began,
            shared->failed);
    }
    if (strstr(options.stages, "time")) {
        time_steps(&tools, &info, check_steps_n);
    }
    fflush(NULL);
    _exit(0);
}

static double began_at;

/* 0: the child is done, or time is over. 1: it hung or died; another may go on. */
static int watch(pid_t child)
{
    long beats = -1;
    double beat_at = now();
    for (;;) {
        int status;
        usleep(20000);
        if (waitpid(child, &status, WNOHANG) == child) {
            if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77)) {
                return 0;
            }
            say("DIED in %s (status 0x%x)\n", shared->what, status);
            return 1;
        }
        if (now() - began_at > options.limit) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            say("the limit of %.0f s is over, in %s\n", options.limit, shared->what);
            return 0;
        }
        if (shared->beats != beats) {
            beats = shared->beats;
            beat_at = now();
        } else if (now() - beat_at > STEP_SECONDS) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            say("HUNG in %s\n", shared->what);
            return 1;
        }
    }
}

static int supervise(void)
{
    began_at = now();
    for (int children = 0; children < 40; children++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            work();
        }
        if (watch(child) == 0) {
            say("failed: %d\n", shared->failed);
            return shared->failed > 0;
        }
        shared->bad[shared->kind][shared->tile] = 1;
        shared->failed++;
        shared->beats++;
        if (shared->next == shared->at && shared->at < n_shapes * n_kinds * n_tiles) {
            shared->next = shared->at + 1; /* a timed row is begun again, without the variant */
        }
    }
    say("too many children died\n");
    return 1;
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--compile") == 0) {
            options.compile = true;
            options.cubins = value;
        } else if (strcmp(name, "--cubins") == 0) {
            options.cubins = value;
        } else if (strcmp(name, "--out") == 0) {
            options.out = value;
        } else if (strcmp(name, "--stages") == 0) {
            options.stages = value;
        } else if (strcmp(name, "--shapes") == 0) {
            options.shapes_file = value;
        } else if (strcmp(name, "--kind") == 0) {
            options.kind = value;
        } else if (strcmp(name, "--tile") == 0) {
            options.tile = value;
        } else if (strcmp(name, "--soak") == 0) {
            options.soak = atoi(value);
        } else if (strcmp(name, "--samples") == 0) {
            options.samples = atoi(value);
        } else if (strcmp(name, "--jobs") == 0) {
            options.jobs = atoi(value);
        } else if (strcmp(name, "--tokens") == 0) {
            options.tokens = atoi(value);
        } else if (strcmp(name, "--gap-ms") == 0) {
            options.gap_ms = atof(value);
        } else if (strcmp(name, "--limit") == 0) {
            options.limit = atof(value);
        } else if (strcmp(name, "--seconds") == 0) {
            options.seconds = atof(value);
        } else {
            fprintf(stderr, "unknown option %s\n", name);
            exit(2);
        }
    }
    if (!options.cubins) {
        fprintf(stderr, "usage: hopper_bench --compile DIR | --cubins DIR [options]\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    families_register();
    read_options(argc, argv);
    if (options.compile) {
        return compile_all();
    }
    results = options.out ? fopen(options.out, "w") : NULL;
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    return supervise();
}
