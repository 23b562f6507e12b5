/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portable kernel on a GPU, all elements against the reference kernel:
 * - every mode, permute, fuse and type, fp8 with scales too; strides, int64 indices, accumulation;
 * - rows per expert 0, 1, 15, 16, 63, 64, 65, 1000; N and K from 8, also not multiples of tiles;
 * - rows of dy given several times; the same bits at every launch; stream capture; two streams;
 * - problems whose offsets do not fit into 32 bits.
 *
 *   test_gpu_grouped_gemm [--small] [--all] [--seed N] [--dump DIR]
 *
 *   --small  a few small cases once: for compute-sanitizer
 *   --all    each compile-time variant of the space at least once (also GEMMD_TEST_ALL=1)
 *   --dump   small cases with operands and results into DIR, for check_reference.py; nothing else
 *
 * Exit: 0 right, 1 wrong, 77 no GPU or no NVRTC (with the reason).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/devices/cuda/gpu.h"
#include "kernels/space.h"
#include "tests/gpu/case.h"

enum { CONFIGS = 6, EXPERTS_MAX = 300, SOAK_LAUNCHES = 500 };

static const struct form {
    const char *fields;
    bool shared_dy; /* case_shape */
    bool is_scaled; /* fp8 operands, of fp8_block and fp8_row in place of bf16 and fp16 */
} forms[] = {
    {"mode=forward"},
    {"mode=forward permute_x=true"},
    {"mode=forward permute_y=true"},
    {"mode=forward permute_y=true fuse_mul_post=true"},
    {"mode=dX"},
    {"mode=dX permute_x=true"},
    {"mode=dX permute_y=true"},
    {"mode=dX permute_y=true", .shared_dy = true},
    {"mode=dW"},
    {"mode=dW permute_x=true"},
    {"mode=dW permute_y=true"},
    {"mode=dW permute_y=true", .shared_dy = true},
    {"mode=dW dtype_out=fp32"},
    {"mode=dW permute_x=true dtype_out=fp32"},
    {"mode=dW permute_y=true dtype_out=fp32"},
    {"mode=dW permute_y=true dtype_out=fp32", .shared_dy = true},
    {"mode=forward permute_x=true", .is_scaled = true},
    {"mode=forward permute_y=true fuse_mul_post=true", .is_scaled = true},
    {"mode=dX", .is_scaled = true},
    {"mode=dX permute_y=true", .is_scaled = true},
    {"mode=dW", .is_scaled = true},
    {"mode=dW dtype_out=fp32", .is_scaled = true},
};
enum { N_FORMS = sizeof(forms) / sizeof(forms[0]), N_SCALED = 6, N_PLAIN = N_FORMS - N_SCALED };

static struct {
    struct device *device;
    struct batch *batch;
    int reference, compare; /* places of these kernels in `batch` */
    void *compare_module;
    uint64_t *counter; /* on the GPU */
    uint64_t random;
    int launches, failed, cases;
} test;

static const struct family_target *target(void)
{
    return &grouped_gemm_cuda;
}

static void say(const char *name, int failed_before, double began)
{
    printf("%s %s: %d cases, %d launches, %d failures, %.1f s\n",
           test.failed == failed_before ? "PASS" : "FAIL", name, test.cases, test.launches,
           test.failed - failed_before, seconds() - began);
    fflush(stdout);
    test.cases = test.launches = 0;
}

/* ---- comparing on the GPU ------------------------------------------------------------------- */

static const char compare_source[] =
    "struct params { const unsigned char *a, *b; unsigned long long n; unsigned long long *out; "
    "};\n"
    "extern \"C\" __global__ void compare(const struct params p) {\n"
    "    unsigned long long different = 0;\n"
    "    for (unsigned long long i = blockIdx.x * 256ull + threadIdx.x; i < p.n;\n"
    "         i += gridDim.x * 256ull)\n"
    "        different += p.a[i] != p.b[i];\n"
    "    if (different) atomicAdd(p.out, different);\n"
    "}\n";

/* Adds the number of bytes that differ to test.counter; asynchronous. */
static void compare(const void *a, const void *b, size_t bytes, gpu_stream stream)
{
    const struct {
        const void *a, *b;
        uint64_t n, *out;
    } p = {a, b, bytes, test.counter};
    struct error err = ERROR_NULL;
    struct launch l = {
        .entry = "compare", .grid = {264, 1, 1}, .block = {256, 1, 1}, .params_bytes = sizeof(p)};
    memcpy(l.params, &p, sizeof(p));
    if (cuda_launch_backend.launch(test.compare_module, &l, stream, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
}

static uint64_t count_different(void)
{
    uint64_t n;
    gpu_wait();
    gpu_download(&n, test.counter, sizeof(n));
    gpu_set(test.counter, 0, sizeof(n), NULL);
    gpu_wait();
    return n;
}

/* ---- one config of a case ------------------------------------------------------------------- */

struct candidate {
    struct record config;
    int image;
    char text[256];
};

static struct candidate add_candidate(const struct problem *p, const struct record *config)
{
    struct candidate k = {.config = *config};
    struct error err = ERROR_NULL;
    struct variant v;
    if (target()->variant(p, config, test.device->info.arch, &v, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
    k.image = batch_add(test.batch, &v);
    record_format(config, k.text, sizeof(k.text));
    return k;
}

static struct launcher *load(const struct gpu_case *c, const struct candidate *k)
{
    const struct image *image = batch_image(test.batch, k->image);
    struct launcher *l = NULL;
    struct error err = ERROR_NULL;
    if (!image) {
        test.failed++; /* the batch has said why */
        return NULL;
    }
    if (launcher_new(&grouped_gemm_family, &c->problem, &k->config, image->data, image->size,
                     &test.device->info, &l, &err)) {
        printf("FAIL load %s: %s: %s\n", k->text, err.text, c->text);
        test.failed++;
    }
    return l;
}

static void launch(struct launcher *l, const struct grouped_gemm_args *args)
{
    struct error err = ERROR_NULL;
    test.launches++;
    if (launcher_launch(l, args, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
}

static bool same_bits(const struct gpu_case *c, const void *a, const void *b, const char *what,
                      const struct candidate *k)
{
    if (b && memcmp(a, b, c->out_bytes) == 0) {
        return true;
    }
    printf("FAIL %s: %s, %s: %s\n", what, b ? "not the same bits" : "wrote outside the output",
           k->text, c->text);
    return false;
}

/* A launch adds dW to the same dW. */
static bool check_accumulate(struct gpu_case *c, struct launcher *l)
{
    struct grouped_gemm_args args = case_args(c, false);
    args.flags |= GROUPED_GEMM_ACCUMULATE;
    launch(l, &args); /* the output holds the result of the launch before */
    return case_check(c, case_fetch(c, false), 2, "accumulate");
}

static void run_candidate(struct gpu_case *c, const struct candidate *k)
{
    struct launcher *l = load(c, k);
    if (!l) {
        return;
    }
    struct grouped_gemm_args dense = case_args(c, false), wide = case_args(c, true);
    case_poison(c, false, NULL);
    launch(l, &dense);
    const void *out = case_fetch(c, false);
    bool right = case_check(c, out, 1, k->text);
    char *first = malloc(c->out_bytes);
    if (right) {
        memcpy(first, out, c->out_bytes);
        case_poison(c, true, NULL);
        launch(l, &wide);
        right = same_bits(c, first, case_fetch(c, true), "strides and int64", k);
        case_poison(c, false, NULL);
        launch(l, &dense);
        right = same_bits(c, first, case_fetch(c, false), "second launch", k) && right;
        right = (c->v.mode != GEMM_DW || check_accumulate(c, l)) && right;
    }
    test.failed += !right;
    free(first);
    launcher_free(l);
}

/* ---- cases ----------------------------------------------------------------------------------- */

static int64_t pick(const int64_t *list, size_t n)
{
    return list[random_next(&test.random) % n];
}
#define PICK(...)                                                                                  \
    pick((const int64_t[]){__VA_ARGS__}, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

enum size { SMALL, MANY, LARGE, MEDIUM };

static int64_t draw_rows(enum size size)
{
    switch (size) {
    case SMALL:
        return PICK(0, 1, 15, 16, 17, 40);
    case MANY:
        return PICK(0, 0, 1, 1, 15, 16, 33);
    case MEDIUM:
        return PICK(0, 1, 15, 16, 63, 64, 65, 130);
    case LARGE:
        break;
    }
    return PICK(0, 1, 15, 16, 63, 64, 65, 130, 257, 1000);
}

static int64_t draw_length(enum size size, bool is_scaled)
{
    if (is_scaled) {
        return size == SMALL || size == MANY ? PICK(16, 48, 144) : PICK(16, 48, 144, 272, 528);
    }
    return size == SMALL || size == MANY ? PICK(8, 24, 72, 136) : PICK(8, 40, 72, 136, 264, 520);
}

/* `second`: the second of the form's two types. */
static void make_case(struct gpu_case *c, const struct form *form, bool second, int64_t experts,
                      enum size size)
{
    static const char *const types[2][2] = {{"dtype_in=bf16", "dtype_in=fp16"},
                                            {"quant=fp8_block", "quant=fp8_row"}};
    int64_t rows[EXPERTS_MAX];
    char fields[128];
    int64_t topk = experts == 1 ? 1 : form->shared_dy ? PICK(2, 6, 8) : PICK(1, 2, 6, 8);
    size = experts > 16 ? MANY : size;
    for (int64_t e = 0; e < experts; e++) {
        rows[e] = draw_rows(size);
    }
    struct case_shape shape = {.experts = experts,
                               .topk = topk < experts ? topk : experts,
                               .rows = rows,
                               .n = draw_length(size, form->is_scaled),
                               .k = draw_length(size, form->is_scaled),
                               .shared_dy = form->shared_dy};
    snprintf(fields, sizeof(fields), "%s %s", form->fields, types[form->is_scaled][second]);
    case_make(c, fields, &shape, random_next(&test.random));
    case_reference_run(c, batch_image(test.batch, test.reference));
    test.cases++;
}

static void space_of(const struct problem *p, struct space *s)
{
    struct error err = ERROR_NULL;
    if (space_build(s, target(), p, &test.device->info, NULL, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
}

static struct candidate draw_candidate(const struct problem *p, const struct space *s)
{
    struct record config;
    space_config(s, (uint32_t)(random_next(&test.random) % s->n), &config);
    return add_candidate(p, &config);
}

/* All cases are made and all variants compiled before the first launch: the cores stay busy. */
static void run_cases(const int64_t *experts, size_t n_experts, int configs, bool small)
{
    size_t n = N_FORMS * 2 * n_experts, at = 0;
    struct gpu_case *cases = calloc(n, sizeof(*cases));
    struct candidate *candidates = calloc(n * (size_t)configs, sizeof(*candidates));
    for (size_t e = 0; e < n_experts; e++) {
        for (size_t i = 0; i < N_FORMS * 2; i++, at++) {
            struct space s;
            make_case(&cases[at], &forms[i / 2], i % 2, experts[e], small ? SMALL : LARGE);
            space_of(&cases[at].problem, &s);
            for (int j = 0; j < configs; j++) {
                candidates[at * (size_t)configs + (size_t)j] =
                    draw_candidate(&cases[at].problem, &s);
            }
            space_deinit(&s);
        }
    }
    test.failed += batch_run(test.batch);
    for (size_t i = 0; i < n; i++) {
        for (int j = 0; j < configs; j++) {
            run_candidate(&cases[i], &candidates[i * (size_t)configs + (size_t)j]);
        }
        case_free(&cases[i]);
    }
    free(candidates);
    free(cases);
}

static void test_sample(bool small)
{
    static const int64_t experts[] = {1, 7, 8, 128, 257};
    double began = seconds();
    int before = test.failed;
    run_cases(experts, small ? 2 : 5, small ? 1 : CONFIGS, small);
    say("sample", before, began);
}

/* ---- every variant --------------------------------------------------------------------------- */

static void test_all(void)
{
    double began = seconds();
    int before = test.failed;
    for (size_t i = 0; i < N_FORMS * 2; i++) {
        struct gpu_case c;
        struct space s;
        make_case(&c, &forms[i / 2], i % 2, 8, MEDIUM);
        space_of(&c.problem, &s);
        struct candidate *all = calloc(s.n, sizeof(*all));
        int known = batch_count(test.batch);
        uint32_t n = 0;
        for (uint32_t j = 0; j < s.n; j++) {
            struct record config;
            space_config(&s, j, &config);
            all[n] = add_candidate(&c.problem, &config);
            if (batch_count(test.batch) >
                known) { /* the config needs a new variant, not only a new run-time value */
                known = batch_count(test.batch);
                n++;
            }
        }
        test.failed += batch_run(test.batch);
        for (uint32_t j = 0; j < n; j++) {
            run_candidate(&c, &all[j]);
        }
        free(all);
        space_deinit(&s);
        case_free(&c);
    }
    say("all variants", before, began);
}

/* ---- the same bits at every launch ---------------------------------------------------------- */

/* A case, a candidate, a copy of the candidate's first (checked) output on the GPU, with which
 * later outputs are compared, and a second candidate. */
struct golden {
    struct gpu_case c;
    struct candidate candidate, other;
    struct launcher *launcher;
    void *copy;
};

static void plan_golden(struct golden *g, const struct form *form, bool second, int64_t experts)
{
    struct space s;
    make_case(&g->c, form, second, experts, LARGE);
    space_of(&g->c.problem, &s);
    g->candidate = draw_candidate(&g->c.problem, &s);
    g->other = draw_candidate(&g->c.problem, &s);
    space_deinit(&s);
}

/* Launches the candidate once, checks and keeps its output. False: a failure ends this test. */
static bool finish_golden(struct golden *g)
{
    g->launcher = load(&g->c, &g->candidate);
    if (!g->launcher) {
        return false;
    }
    struct grouped_gemm_args args = case_args(&g->c, false);
    case_poison(&g->c, false, NULL);
    launch(g->launcher, &args);
    const void *out = case_fetch(&g->c, false);
    if (!case_check(&g->c, out, 1, g->candidate.text)) {
        test.failed++;
        return false;
    }
    g->copy = gpu_alloc(g->c.out_bytes);
    gpu_upload(g->copy, out, g->c.out_bytes);
    return true;
}

static void free_golden(struct golden *g)
{
    gpu_free(g->copy);
    launcher_free(g->launcher);
    case_free(&g->c);
}

static void queue_round(const struct golden *g, struct launcher *l, gpu_stream stream)
{
    struct grouped_gemm_args args = case_args(&g->c, false);
    args.stream = stream;
    case_poison(&g->c, false, stream);
    launch(l, &args);
    compare(g->c.out, g->copy, g->c.out_bytes, stream);
}

static void soak(struct golden *g)
{
    for (int j = 0; j < SOAK_LAUNCHES; j++) {
        queue_round(g, g->launcher, NULL);
    }
    uint64_t different = count_different();
    if (different) {
        printf("FAIL soak: %llu bytes differ in %d launches of %s: %s\n",
               (unsigned long long)different, SOAK_LAUNCHES, g->candidate.text, g->c.text);
        test.failed++;
    }
}

static void two_streams(struct golden *a, struct golden *b)
{
    gpu_stream first = gpu_stream_new(), second = gpu_stream_new();
    for (int j = 0; j < 100; j++) {
        queue_round(a, a->launcher, first);
        queue_round(b, b->launcher, second);
    }
    if (count_different()) {
        printf("FAIL two streams: %s and %s\n", a->c.text, b->c.text);
        test.failed++;
    }
    gpu_stream_free(first);
    gpu_stream_free(second);
}

/* Captures the first launch of a module, which must neither allocate nor wait. */
static void capture(struct golden *g)
{
    struct launcher *fresh = load(&g->c, &g->other);
    if (!fresh) {
        return;
    }
    gpu_stream stream = gpu_stream_new();
    struct grouped_gemm_args args = case_args(&g->c, false);
    args.stream = stream;
    gpu_capture_begin(stream);
    queue_round(g, g->launcher, stream);
    case_poison(&g->c, false, stream);
    launch(fresh, &args);
    gpu_graph graph = gpu_capture_end(stream);
    for (int j = 0; j < 20; j++) {
        gpu_graph_launch(graph, stream);
    }
    if (count_different()) {
        printf("FAIL capture: %s\n", g->c.text);
        test.failed++;
    }
    test.failed += !case_check(&g->c, case_fetch(&g->c, false), 1, "captured");
    gpu_graph_free(graph);
    gpu_stream_free(stream);
    launcher_free(fresh);
}

static void test_launches(void)
{
    static const int64_t experts[] = {1, 8, 128};
    enum { N = N_FORMS * 3 };
    struct golden *all = calloc(N, sizeof(*all));
    double began = seconds();
    int before = test.failed;
    for (size_t i = 0; i < N; i++) {
        const size_t form = i % N_FORMS, round = i / N_FORMS;
        plan_golden(&all[i], &forms[form], (form + round) % 2, experts[round]);
    }
    test.failed += batch_run(test.batch);
    bool right = true;
    for (size_t i = 0; i < N; i++) {
        right = finish_golden(&all[i]) && right;
    }
    for (size_t i = 0; i < N && right; i++) {
        soak(&all[i]);
        two_streams(&all[i], &all[(i + 17) % N]);
        capture(&all[i]);
    }
    for (size_t i = 0; i < N; i++) {
        free_golden(&all[i]);
    }
    free(all);
    say("same bits, two streams, capture", before, began);
}

/* ---- offsets beyond 32 bits ----------------------------------------------------------------- */

static void big(const char *text)
{
    static const struct tolerance tol = {1e-2, 1e-2, 0};
    const struct device_ops *ops = test.device->ops;
    struct problem p;
    struct record config;
    struct error err = ERROR_NULL;
    struct prepared *w = NULL;
    struct kernel *k = NULL;
    struct rejection why;
    struct verdict verdict = {0};
    struct variant v;
    int r = problem_parse(&p, text, &err);
    r = r ? r : target()->choose(&p, &test.device->info, &config, &err);
    if (r) {
        fprintf(stderr, "FATAL: %s: %s\n", text, err.text);
        exit(1);
    }
    struct candidate c = add_candidate(&p, &config);
    test.failed += batch_run(test.batch);
    test.cases++;
    const struct image *image = batch_image(test.batch, c.image);
    target()->variant(&p, &config, test.device->info.arch, &v, &err);
    r = ops->prepare(test.device, &grouped_gemm_family, &p, 1, &w, &err);
    if (r == ERROR_NO_MEMORY) {
        printf("skipped, too large for this GPU: %s (%s)\n", text, err.text);
        return;
    }
    r = r ? r : ops->load(test.device, image, &v, &k, &why, &err);
    r = r ? r : ops->verify(test.device, w, k, &config, &tol, &verdict, &err);
    test.launches++;
    if (r || !verdict.right) {
        printf("FAIL big %s | %s: %s\n", text, c.text, r ? err.text : verdict.text);
        test.failed++;
    } else {
        printf("  %s | %s: largest error %.3g, row norm %.3g\n", text, c.text, verdict.max_error,
               verdict.rel_norm);
    }
    ops->unload(test.device, k);
    ops->release(test.device, w);
}

static void test_big(void)
{
    double began = seconds();
    int before = test.failed;
    big("grouped_gemm mode=forward M=262144 N=16384 K=256 experts=8");
    big("grouped_gemm mode=forward M=262144 N=256 K=16384 experts=8 permute_x=true topk=2");
    big("grouped_gemm mode=forward M=4096 N=4096 K=4096 experts=160 topk=8 permute_y=true");
    big("grouped_gemm mode=dX M=262144 N=256 K=16384 experts=8 permute_x=true topk=4");
    big("grouped_gemm mode=dX M=4096 N=4096 K=4096 experts=160 topk=8 permute_y=true");
    big("grouped_gemm mode=dW M=4096 N=4096 K=4096 experts=160 topk=8 permute_x=true");
    big("grouped_gemm mode=dW M=262144 N=16384 K=256 experts=8 permute_y=true dtype_out=fp32");
    big("grouped_gemm mode=dW M=262144 N=512 K=512 experts=1 dtype_out=fp32");
    say("offsets beyond 32 bits", before, began);
}

/* ---- dumping -------------------------------------------------------------------------------- */

static void write_file(const char *folder, size_t i, const char *name, const void *data,
                       size_t bytes)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%02zu.%s", folder, i, name);
    FILE *f = fopen(path, "w");
    if (!f || (bytes && fwrite(data, bytes, 1, f) != 1) || fclose(f)) {
        perror(path);
        exit(1);
    }
}

static void dump_case(const char *folder, size_t i, struct golden *g)
{
    for (uint32_t j = 0; j < g->c.w.n_buffers; j++) {
        const struct buffer *b = &g->c.w.buffers[j];
        if (b->init != BUFFER_OUTPUT) {
            write_file(folder, i, b->name, g->c.host[j], (size_t)b->count * dtype_size(b->dtype));
        }
    }
    const void *out = case_fetch(&g->c, false);
    size_t n = (size_t)(g->c.v.out_rows * g->c.v.out_cols);
    write_file(folder, i, "out", out, out ? g->c.out_bytes : 0);
    write_file(folder, i, "expected", g->c.expected, n * sizeof(double));
    char json[8192];
    size_t length = record_to_json(&g->c.problem.fields, json, sizeof(json));
    write_file(folder, i, "json", json, length);
}

static void dump(const char *folder)
{
    enum { N = N_PLAIN * 2 }; /* check_reference.py reads 16-bit operands */
    struct golden *all = calloc(N, sizeof(*all));
    double began = seconds();
    for (size_t i = 0; i < N; i++) {
        plan_golden(&all[i], &forms[i / 2], i % 2, i % 4 ? 7 : 33);
    }
    test.failed += batch_run(test.batch);
    for (size_t i = 0; i < N; i++) {
        if (finish_golden(&all[i])) {
            dump_case(folder, i, &all[i]);
        }
        free_golden(&all[i]);
    }
    free(all);
    say("dump", 0, began);
}

/* ---- main ----------------------------------------------------------------------------------- */

static void open_all(void)
{
    struct error err = ERROR_NULL;
    families_register();
    if (device_open("cuda:0", &test.device, &err)) {
        printf("SKIP: %s\n", err.text);
        exit(77);
    }
    /* Launchers need a current context, which the device makes only when it loads a module. */
    if (cuda_wake((struct cuda_device *)test.device, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
    gpu_open();
    printf("%s, %s, driver %s, %s\n", test.device->info.name, test.device->info.arch,
           test.device->info.driver, test.device->info.compiler);
    printf("class %s, L2 %lld, peaks %g TFLOP/s %g GB/s\n", test.device->info.class,
           (long long)test.device->info.l2_bytes, test.device->info.peak_tflops,
           test.device->info.peak_gbps);
    test.batch = batch_open("cuda:0");
    test.reference = case_reference_add(test.batch, test.device->info.arch);
    struct variant v = {
        .family = "test", .kind = "cuda", .entry = "compare", .source = compare_source};
    snprintf(v.arch, sizeof(v.arch), "%s", test.device->info.arch);
    test.compare = batch_add(test.batch, &v);
    if (batch_run(test.batch)) {
        exit(1);
    }
    const struct image *image = batch_image(test.batch, test.compare);
    if (cuda_launch_backend.load(image->data, image->size, &test.compare_module, &err)) {
        fprintf(stderr, "FATAL: %s\n", err.text);
        exit(1);
    }
    test.counter = gpu_alloc(sizeof(*test.counter));
    gpu_set(test.counter, 0, sizeof(*test.counter), NULL);
    gpu_wait();
}

/* On an otherwise idle GPU, checks the cluster order found when the first module was loaded. */
static void test_order(void)
{
    const struct cuda_module *m = test.compare_module;
    const uint32_t wanted =
        test.device->info.cc_major >= 9 ? (uint32_t)test.device->info.sm_count / 2 : 0;
    if (m->order->n != wanted) {
        printf("FAIL order: %u clusters of two have places, %u should\n", m->order->n, wanted);
        test.failed++;
        return;
    }
    printf("order: pairs of SMs have places");
    for (uint32_t i = 0; i < m->order->n; i++) {
        printf(" %u", m->order->place[i]);
    }
    printf("\n");
}

static void close_all(void)
{
    gpu_free(test.counter);
    cuda_launch_backend.unload(test.compare_module);
    batch_close(test.batch);
    test.device->ops->close(test.device);
}

int main(int argc, char **argv)
{
    bool small = false, all = getenv("GEMMD_TEST_ALL") != NULL;
    const char *folder = NULL;
    test.random = 1;
    for (int i = 1; i < argc; i++) {
        small = small || strcmp(argv[i], "--small") == 0;
        all = all || strcmp(argv[i], "--all") == 0;
        if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
            test.random = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--dump") == 0 && i + 1 < argc) {
            folder = argv[++i];
        }
    }
    open_all();
    if (folder) {
        dump(folder);
    } else if (small) {
        test_order();
        test_sample(true);
    } else {
        test_order();
        test_sample(false);
        test_launches();
        test_big();
        if (all) {
            test_all();
        }
    }
    close_all();
    printf("%s\n", test.failed ? "FAILED" : "PASSED");
    return test.failed ? 1 : 0;
}
