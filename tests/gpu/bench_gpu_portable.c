/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable kernel's landscape on a few real layers: every compile-time variant of the space at
 * GROUP_SIZE_M 8, and the best at every GROUP_SIZE_M, timed as the runner times. Prints per problem
 * the best time, the time of the analytic default, and the quality of predict()'s ranking. Writes
 * every measurement as CSV, to fit the model and replay searches.
 *
 *   bench_gpu_portable OUT.csv [--seconds N] [--problem TEXT]
 *
 *   --seconds  begin no further problem after N seconds (default 90)
 *   --problem  only this problem, as "grouped_gemm mode=dX M=4096 ..."
 *
 * Exit 77 without a GPU or NVRTC.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/families/grouped_gemm/grouped_gemm.h"
#include "kernels/space.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/batch.h"

enum { SAMPLES = 5, FINAL_SAMPLES = 15, FINALISTS = 6 };

/* The layers: 4096 tokens of qwen3-30b-a3b (first and second GEMM) and of mixtral-8x7b, a layer
 * with a few tokens, and dense products. */
static const char *const problems[] = {
    "grouped_gemm mode=forward M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true",
    "grouped_gemm mode=dX M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true",
    "grouped_gemm mode=dW M=32768 N=1536 K=2048 experts=128 topk=8 permute_x=true",
    "grouped_gemm mode=forward M=8192 N=28672 K=4096 experts=8 topk=2 permute_x=true",
    "grouped_gemm mode=dX M=8192 N=28672 K=4096 experts=8 topk=2 permute_x=true",
    "grouped_gemm mode=dW M=8192 N=28672 K=4096 experts=8 topk=2 permute_x=true",
    "grouped_gemm mode=forward M=512 N=1536 K=2048 experts=128 topk=8 permute_x=true",
    "grouped_gemm mode=forward M=8192 N=8192 K=8192",
    "grouped_gemm mode=forward M=32768 N=2048 K=768 experts=128 topk=8 permute_y=true",
    "grouped_gemm mode=dX M=32768 N=2048 K=768 experts=128 topk=8 permute_y=true",
    "grouped_gemm mode=dW M=32768 N=2048 K=768 experts=128 topk=8 permute_y=true",
};

enum { N_PROBLEMS = sizeof(problems) / sizeof(problems[0]) };

struct point {
    struct record config;
    int image;
    double us, predicted;
    const char *failed; /* the reason why the point has no time; NULL: it has one */
};

static struct {
    struct device *device;
    struct batch *batch;
    FILE *csv;
    double end; /* seconds() */
} bench;

static double median(double *v, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        for (uint32_t j = i; j > 0 && v[j] < v[j - 1]; j--) {
            double swap = v[j];
            v[j] = v[j - 1];
            v[j - 1] = swap;
        }
    }
    return n ? v[n / 2] : (double)NAN;
}

static void write_row(const char *problem, const struct point *p, const double *samples, uint32_t n)
{
    char config[256];
    record_format(&p->config, config, sizeof(config));
    fprintf(bench.csv, "\"%s\",\"%s\",%.3f,%.3f,%s", problem, config, p->us, p->predicted,
            p->failed ? p->failed : "ok");
    for (uint32_t i = 0; i < n; i++) {
        fprintf(bench.csv, ",%.3f", samples[i]);
    }
    fprintf(bench.csv, "\n");
}

static void measure(const char *text, const struct problem *problem, struct prepared *w,
                    struct point *p, uint32_t samples, double stop_after_us)
{
    const struct device_ops *ops = bench.device->ops;
    const struct tolerance tol = {1e-2, 1e-2, 0};
    const struct timing timing = {
        .warmup = 1, .samples = samples, .stop_after_us = stop_after_us, .gap_ms = 1};
    const struct image *image = batch_image(bench.batch, p->image);
    struct error err = ERROR_NULL;
    struct variant v;
    struct rejection why;
    struct kernel *k = NULL;
    struct verdict verdict = {.right = true};
    double us[SAMPLES_MAX];
    uint32_t n = 0;
    int r = grouped_gemm_cuda.variant(problem, &p->config, bench.device->info.arch, &v, &err);
    r = r || image ? r : ERROR_COMPILE;
    r = r ? r : ops->load(bench.device, image, &v, &k, &why, &err);
    r = r ? r : ops->verify(bench.device, w, k, &p->config, &tol, &verdict, &err);
    r = r ? r : ops->time(bench.device, w, k, &p->config, &timing, us, &n, &err);
    ops->unload(bench.device, k);
    p->failed = r ? error_name(r) : verdict.right ? NULL : "wrong_result";
    if (p->failed) {
        printf("FAIL %s: %s\n", text, r ? err.text : verdict.text);
    }
    p->us = p->failed ? (double)NAN : median(us, n);
    write_row(text, p, us, n);
}

static int by_time(const void *a, const void *b)
{
    double x = ((const struct point *)a)->us, y = ((const struct point *)b)->us;
    return isnan(x) || isnan(y) ? isnan(x) - isnan(y) : x < y ? -1 : x > y;
}

/* `points` are sorted by measured time. Returns the best measured time of the n points that are
 * predicted fastest, divided by the best time of all points. */
static double regret(const struct point *points, uint32_t n_points, uint32_t n)
{
    double limit = INFINITY, below = -INFINITY, best = INFINITY;
    for (uint32_t taken = 0; taken < n; taken++) {
        limit = INFINITY;
        for (uint32_t i = 0; i < n_points; i++) {
            if (points[i].predicted > below && points[i].predicted < limit) {
                limit = points[i].predicted;
            }
        }
        below = limit;
    }
    for (uint32_t i = 0; i < n_points; i++) {
        if (points[i].predicted <= limit && points[i].us < best) {
            best = points[i].us;
        }
    }
    return best / points[0].us;
}

static void report(const char *text, const struct problem *problem, const struct point *points,
                   uint32_t n, double default_us)
{
    double flops, bytes;
    char config[256];
    gemm_work(problem, &flops, &bytes);
    record_format(&points[0].config, config, sizeof(config));
    printf("%s\n  best %.1f us = %.0f TFLOP/s, %.0f GB/s (floor %.1f us); default %.1f us; model's "
           "best of 1/8/24/64: %.3f %.3f %.3f %.3f of %u\n  %s\n",
           text, points[0].us, flops / points[0].us * 1e-6, bytes / points[0].us * 1e-3,
           family_floor_us(&grouped_gemm_family, problem, &bench.device->info), default_us,
           regret(points, n, 1), regret(points, n, 8), regret(points, n, 24), regret(points, n, 64),
           n, config);
    fflush(stdout);
}

static uint32_t list_points(const struct problem *p, struct point **out)
{
    struct space s;
    struct error err = ERROR_NULL;
    if (space_build(&s, &grouped_gemm_cuda, p, &bench.device->info, NULL, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
    struct point *points = calloc(s.n + FINALISTS * 4 + 1, sizeof(*points));
    uint32_t n = 0;
    for (uint32_t i = 0; i < s.n; i++) {
        struct variant v;
        space_config(&s, i, &points[n].config);
        if (record_int(&points[n].config, "GROUP_SIZE_M", 0) == 8 &&
            grouped_gemm_cuda.variant(p, &points[n].config, bench.device->info.arch, &v, &err) ==
                0) {
            points[n++].image = batch_add(bench.batch, &v);
        }
    }
    space_deinit(&s);
    *out = points;
    return n;
}

static void predict(const struct problem *p, struct point *point)
{
    point->predicted = grouped_gemm_cuda.predict(p, &point->config, &bench.device->info, NULL);
}

static double measure_default(const char *text, const struct problem *p, struct prepared *w)
{
    struct point point = {0};
    struct error err = ERROR_NULL;
    struct variant v;
    if (grouped_gemm_cuda.choose(p, &bench.device->info, &point.config, &err) ||
        grouped_gemm_cuda.variant(p, &point.config, bench.device->info.arch, &v, &err)) {
        printf("FAIL %s: %s\n", text, err.text);
        return (double)NAN;
    }
    point.image = batch_add(bench.batch, &v);
    batch_run(bench.batch);
    predict(p, &point);
    measure(text, p, w, &point, FINAL_SAMPLES, 0);
    return point.us;
}

/* Times the finalists again with every GROUP_SIZE_M (no compile: a run-time value). */
static uint32_t refine(const char *text, const struct problem *p, struct prepared *w,
                       struct point *points, uint32_t n)
{
    static const int groups[] = {1, 4, 8, 16};
    uint32_t first = n;
    for (uint32_t i = 0; i < FINALISTS && i < first && points[i].us > 0; i++) {
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++) {
            struct point *q = &points[n++];
            *q = points[i];
            record_put_int(&q->config, "GROUP_SIZE_M", groups[g]);
            predict(p, q);
            measure(text, p, w, q, FINAL_SAMPLES, 0);
        }
    }
    return n;
}

static void run(const char *text)
{
    struct problem p;
    struct error err = ERROR_NULL;
    struct prepared *w;
    struct point *points;
    if (problem_parse(&p, text, &err) ||
        bench.device->ops->prepare(bench.device, &grouped_gemm_family, &p, 1, &w, &err)) {
        printf("FAIL %s: %s\n", text, err.text);
        return;
    }
    uint32_t n = list_points(&p, &points);
    batch_run(bench.batch);
    double best = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        predict(&p, &points[i]);
        measure(text, &p, w, &points[i], SAMPLES, best * 2);
        best = points[i].us < best ? points[i].us : best;
    }
    qsort(points, n, sizeof(*points), by_time);
    uint32_t all = refine(text, &p, w, points, n);
    qsort(points, all, sizeof(*points), by_time);
    report(text, &p, points, all, measure_default(text, &p, w));
    bench.device->ops->release(bench.device, w);
    free(points);
}

int main(int argc, char **argv)
{
    struct error err = ERROR_NULL;
    const char *only = NULL;
    double limit = 90;
    for (int i = 2; i + 1 < argc; i++) {
        limit = strcmp(argv[i], "--seconds") == 0 ? atof(argv[i + 1]) : limit;
        only = strcmp(argv[i], "--problem") == 0 ? argv[i + 1] : only;
    }
    if (argc < 2) {
        fprintf(stderr, "usage: bench_gpu_portable OUT.csv [--seconds N] [--problem TEXT]\n");
        return 2;
    }
    families_register();
    if (device_open("cuda:0", &bench.device, &err)) {
        printf("SKIP: %s\n", err.text);
        return 77;
    }
    gpu_open();
    bench.batch = batch_open("cuda:0");
    bench.csv = fopen(argv[1], "w");
    if (!bench.csv) {
        perror(argv[1]);
        return 1;
    }
    fprintf(bench.csv, "problem,config,time_us,predicted_us,status,samples_us\n");
    bench.end = seconds() + limit;
    for (size_t i = 0; !only && i < N_PROBLEMS && seconds() < bench.end; i++) {
        run(problems[i]);
    }
    if (only) {
        run(only);
    }
    fclose(bench.csv);
    batch_close(bench.batch);
    bench.device->ops->close(bench.device);
    return 0;
}
