/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/fp8.h"

static void die(const char *what, const struct error *err)
{
    fprintf(stderr, "FATAL: %s: %s\n", what, err->text);
    exit(1);
}

/* ---- numbers -------------------------------------------------------------------------------- */

double case_decode(enum dtype t, const void *data, int64_t at)
{
    if (t == DTYPE_FP32) {
        return ((const float *)data)[at];
    }
    if (t == DTYPE_FP8_E4M3) {
        return fp8_decode(((const uint8_t *)data)[at]);
    }
    uint16_t v = ((const uint16_t *)data)[at];
    if (t == DTYPE_BF16) {
        uint32_t bits = (uint32_t)v << 16;
        float f;
        memcpy(&f, &bits, sizeof(f));
        return f;
    }
    int exponent = v >> 10 & 31, mantissa = v & 1023;
    double size = exponent == 31  ? (mantissa ? (double)NAN : (double)INFINITY)
                  : exponent == 0 ? ldexp(mantissa, -24)
                                  : ldexp(1024 + mantissa, exponent - 25);
    return v & 0x8000 ? -size : size;
}

/* Rounds to the nearest value, ties to even. Values are finite and far inside both types' ranges.
 */
static uint16_t encode(enum dtype t, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof(bits));
    if (t == DTYPE_BF16) {
        return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    uint32_t sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (fabsf(v) < 0x1p-14f) {
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(v) * 0x1p24f));
    }
    size += 0xfff + (size >> 13 & 1);
    return (uint16_t)(sign | (size - (112u << 23)) >> 13);
}

/* `columns`: NULL, or a byte for each of n_columns columns: columns of 0 hold zeros. */
static void fill(uint64_t *random, const struct buffer *b, const uint8_t *columns,
                 int64_t n_columns, void *to)
{
    for (int64_t i = 0; i < b->count; i++) {
        uint64_t z = random_next(random);
        int64_t sum = (int64_t)(z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
        float v = (float)((double)(sum - 2 * 0xffff) * 1.7320508 / 65536 * b->scale);
        v = columns && !columns[i % n_columns] ? 0 : v;
        if (b->init == BUFFER_SCALES) {
            ((float *)to)[i] =
                (float)(b->scale * ldexp(1 + (double)(z >> 41) * 0x1p-23, (int)(z & 3) - 2));
        } else if (b->dtype == DTYPE_FP8_E4M3) {
            ((uint8_t *)to)[i] = fp8_encode(v);
        } else {
            ((uint16_t *)to)[i] = encode(b->dtype, v);
        }
    }
}

/* ---- making it ------------------------------------------------------------------------------- */

static void make_problem(struct gpu_case *c, const char *fields, const struct case_shape *s)
{
    static char text[CASE_TEXT_MAX];
    struct error err = ERROR_NULL;
    int64_t total = 0;
    for (int64_t e = 0; e < s->experts; e++) {
        total += s->rows[e];
    }
    int64_t more = total == 0 ? s->topk : (s->topk - total % s->topk) % s->topk;
    size_t n = (size_t)snprintf(text, sizeof(text),
                                "grouped_gemm %s M=%lld N=%lld K=%lld experts=%lld topk=%lld "
                                "routing=\"rows:",
                                fields, (long long)(total + more), (long long)s->n, (long long)s->k,
                                (long long)s->experts, (long long)s->topk);
    for (int64_t e = 0; e < s->experts; e++) {
        int64_t rows = s->rows[e] + (e == s->experts - 1 ? more : 0);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%lld", e ? "," : "", (long long)rows);
    }
    snprintf(text + n, sizeof(text) - n, "\"");
    if (problem_parse(&c->problem, text, &err)) {
        die(text, &err);
    }
    snprintf(c->text, sizeof(c->text), "%s", text);
    gemm_view(&c->problem, &c->v);
}

static char *guarded(size_t bytes)
{
    return (char *)gpu_alloc(bytes + 2 * CASE_GUARD) + CASE_GUARD;
}

static void make_buffer(struct gpu_case *c, uint32_t i, uint64_t *random)
{
    const struct buffer *b = &c->w.buffers[i];
    size_t bytes = (size_t)b->count * dtype_size(b->dtype);
    if (b->init == BUFFER_OUTPUT) {
        c->out_bytes = bytes;
        c->out = guarded(bytes);
        c->buffers[i] = c->out;
        return;
    }
    c->host[i] = malloc(bytes ? bytes : 1);
    if (b->init == BUFFER_RANDOM || b->init == BUFFER_SCALES) {
        const bool some = b->columns > 0;
        fill(random, b, some ? c->host[b->columns - 1] : NULL,
             some ? c->w.buffers[b->columns - 1].count : 0, c->host[i]);
    } else {
        memcpy(c->host[i], b->host, bytes);
    }
    c->buffers[i] = gpu_alloc(bytes);
    gpu_upload(c->buffers[i], c->host[i], bytes);
}

static void share_dy(struct gpu_case *c)
{
    struct gemm_state *s = c->w.state;
    const size_t all = (size_t)(c->v.m * c->v.n), shared = (size_t)(c->v.tokens * c->v.n);
    const int dy = s->index[GEMM_DY], gather = s->index[GEMM_GATHER];
    int32_t *indices = c->host[gather];
    for (int64_t i = 0; i < c->v.m; i++) {
        indices[i] = s->gather[i] = s->gather[i] / (int32_t)c->v.topk;
    }
    memset((uint16_t *)c->host[dy] + shared, 0xff, (all - shared) * sizeof(uint16_t));
    gpu_upload(c->buffers[dy], c->host[dy], all * sizeof(uint16_t));
    gpu_upload(c->buffers[gather], indices, (size_t)c->v.m * sizeof(*indices));
}

/* Rows with gaps of NaN, of at least `least` and up to `least` + 4 pieces of 16 bytes. */
static void *widen(const struct gpu_case *c, enum gemm_buffer which, int least, uint64_t *random,
                   int64_t *out_stride)
{
    const void *dense = gemm_buffer(&c->w, c->buffers, which);
    size_t element = dtype_size(c->v.in);
    struct gemm_operand o;
    gemm_operand_describe(&c->v, which, c->v.m, &o);
    const int64_t rows = o.experts * o.rows, cols = o.cols;
    const int64_t stride = *out_stride =
        cols + 16 / (int64_t)element * (least + (int64_t)(random_next(random) % 5));
    if (!dense) {
        return NULL;
    }
    void *wide = gpu_alloc((size_t)(rows * stride) * element);
    gpu_set(wide, 0xff, (size_t)(rows * stride) * element, NULL);
    gpu_copy_rows(wide, (size_t)stride * element, dense, (size_t)cols * element,
                  (size_t)cols * element, (size_t)rows);
    return wide;
}

static void *widen_indices(const int32_t *from, int64_t n)
{
    int64_t *wide = malloc((size_t)(n ? n : 1) * sizeof(*wide));
    for (int64_t i = 0; i < n; i++) {
        wide[i] = from[i];
    }
    void *at = gpu_alloc((size_t)n * sizeof(*wide));
    gpu_upload(at, wide, (size_t)n * sizeof(*wide));
    free(wide);
    return at;
}

static void make_wide(struct gpu_case *c, uint64_t *random)
{
    const struct gemm *v = &c->v;
    c->wide_x = widen(c, GEMM_X, 0, random, &c->x_stride);
    c->wide_w = widen(c, GEMM_W, 1, random, &c->w_stride);
    c->wide_dy = widen(c, GEMM_DY, 0, random, &c->dy_stride);
    c->out_stride = v->out_cols + 8 * (int64_t)(1 + random_next(random) % 4);
    c->wide_m_sizes = widen_indices(c->state->m_sizes, v->experts);
    c->wide_gather = widen_indices(c->state->gather, v->m);
    if (c->state->weights) {
        uint16_t *half = malloc((size_t)v->m * sizeof(*half));
        for (int64_t i = 0; i < v->m; i++) {
            half[i] = encode(v->out, c->state->weights[i]);
        }
        c->wide_weights = gpu_alloc((size_t)v->m * sizeof(*half));
        gpu_upload(c->wide_weights, half, (size_t)v->m * sizeof(*half));
        free(half);
    }
    c->wide_out_bytes = (size_t)(v->out_rows * c->out_stride) * dtype_size(v->out);
    c->wide_out = guarded(c->wide_out_bytes);
}

void case_make(struct gpu_case *c, const char *fields, const struct case_shape *shape,
               uint64_t seed)
{
    struct error err = ERROR_NULL;
    *c = (struct gpu_case){0};
    make_problem(c, fields, shape);
    if (grouped_gemm_family.workload_init(&c->w, &c->problem, seed, &err)) {
        die(c->text, &err);
    }
    c->state = c->w.state;
    for (uint32_t i = 0; i < c->w.n_buffers; i++) {
        make_buffer(c, i, &seed);
    }
    if (shape->shared_dy) {
        share_dy(c);
    }
    make_wide(c, &seed);
    size_t most = c->out_bytes > c->wide_out_bytes ? c->out_bytes : c->wide_out_bytes;
    c->got = malloc(most + 2 * CASE_GUARD);
}

void case_free(struct gpu_case *c)
{
    for (uint32_t i = 0; i < c->w.n_buffers; i++) {
        if (c->buffers[i] != c->out) {
            gpu_free(c->buffers[i]);
        }
        free(c->host[i]);
    }
    gpu_free(c->out - CASE_GUARD);
    gpu_free(c->wide_out - CASE_GUARD);
    gpu_free(c->wide_x);
    gpu_free(c->wide_w);
    gpu_free(c->wide_dy);
    gpu_free(c->wide_m_sizes);
    gpu_free(c->wide_gather);
    gpu_free(c->wide_weights);
    free(c->expected);
    free(c->got);
    c->w.family->workload_deinit(&c->w);
}

/* ---- the reference -------------------------------------------------------------------------- */

int case_reference_add(struct batch *p, const char *arch)
{
    struct variant v = {.family = "reference",
                        .kind = "cuda",
                        .entry = "grouped_gemm_reference",
                        .source = grouped_gemm_cuda.reference_source};
    snprintf(v.arch, sizeof(v.arch), "%s", arch);
    return batch_add(p, &v);
}

void case_reference_run(struct gpu_case *c, const struct image *reference)
{
    struct error err = ERROR_NULL;
    size_t n = (size_t)(c->v.out_rows * c->v.out_cols);
    int64_t *check_at = malloc((size_t)c->v.out_rows * sizeof(*check_at));
    for (int64_t i = 0; i < c->v.out_rows; i++) {
        check_at[i] = i * c->v.out_cols;
    }
    void *at = gpu_alloc((size_t)c->v.out_rows * sizeof(*check_at));
    double *out = gpu_alloc(n * sizeof(double));
    gpu_upload(at, check_at, (size_t)c->v.out_rows * sizeof(*check_at));
    struct workload all = c->w;
    all.n_checks = (uint32_t)c->v.out_rows;
    all.check_length = c->v.out_cols;
    struct launch *l = calloc(1, sizeof(*l));
    void *module;
    int r = cuda_launch_backend.load(reference->data, reference->size, &module, &err);
    r = r ? r : grouped_gemm_cuda.reference(&all, c->buffers, at, out, l, &err);
    r = r ? r : cuda_launch_backend.launch(module, l, NULL, &err);
    if (r) {
        die("the reference", &err);
    }
    gpu_wait();
    cuda_launch_backend.unload(module);
    c->expected = malloc(n * sizeof(double));
    gpu_download(c->expected, out, n * sizeof(double));
    gpu_free(at);
    gpu_free(out);
    free(l);
    free(check_at);
}

/* ---- launching ------------------------------------------------------------------------------ */

struct grouped_gemm_args case_args(const struct gpu_case *c, bool wide)
{
    struct grouped_gemm_args a;
    c->w.family->bind(&c->w, c->buffers, NULL, 0, NULL, &a);
    if (wide) {
        a.x = c->wide_x;
        a.w = c->wide_w;
        a.dy = c->wide_dy;
        a.out = c->wide_out;
        a.x_stride = c->x_stride;
        a.w_stride = c->w_stride;
        a.dy_stride = c->dy_stride;
        a.out_stride = c->out_stride;
        a.m_sizes = c->wide_m_sizes;
        a.m_sizes_dtype = DTYPE_INT64;
        a.gather_indices = c->wide_gather;
        a.gather_dtype = DTYPE_INT64;
        a.topk_weights = c->wide_weights;
        a.weights_dtype = (uint32_t)c->v.out;
    }
    return a;
}

void case_poison(const struct gpu_case *c, bool wide, gpu_stream stream)
{
    gpu_set((wide ? c->wide_out : c->out) - CASE_GUARD, 0xff,
            (wide ? c->wide_out_bytes : c->out_bytes) + 2 * CASE_GUARD, stream);
}

static bool untouched(const char *at, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if ((unsigned char)at[i] != 0xff) {
            return false;
        }
    }
    return true;
}

const void *case_fetch(struct gpu_case *c, bool wide)
{
    size_t bytes = wide ? c->wide_out_bytes : c->out_bytes, element = dtype_size(c->v.out);
    gpu_wait();
    gpu_download(c->got, (wide ? c->wide_out : c->out) - CASE_GUARD, bytes + 2 * CASE_GUARD);
    char *data = c->got + CASE_GUARD;
    bool clean = untouched(c->got, CASE_GUARD) && untouched(data + bytes, CASE_GUARD);
    size_t row = (size_t)c->v.out_cols * element, pitch = (size_t)c->out_stride * element;
    for (int64_t i = 0; wide && clean && i < c->v.out_rows; i++) {
        char *from = data + (size_t)i * pitch;
        clean = untouched(from + row, pitch - row);
        memmove(data + (size_t)i * row, from, row);
    }
    return clean ? data : NULL;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* Returns the limit of the relative error of a row. fuse_mul_post rounds twice, and each rounding
 * may differ from the reference's by a unit in the last place, which is much in a short row. */
static double norm_limit(const struct gemm *v)
{
    /* tensor cores of sm_89 keep 13 bits of sums of fp8 products, between promotions */
    double limit = v->out == DTYPE_FP32   ? v->quant->is_scaled ? 4e-4 : 1e-4
                   : v->out == DTYPE_FP16 ? 1e-3
                                          : 5e-3;
    return v->fuse_mul_post ? 3 * limit : limit;
}

static int64_t expert_of(const struct gpu_case *c, int64_t row)
{
    if (c->v.mode == GEMM_DW) {
        return row / c->v.n;
    }
    int64_t i = row, e = 0;
    for (int64_t j = 0; c->v.scatter && j < c->v.m; j++) {
        i = c->state->gather[j] == row ? j : i;
    }
    while (e + 1 < c->v.experts && i >= c->state->start[e + 1]) {
        e++;
    }
    return e;
}

bool case_check(const struct gpu_case *c, const void *out, double factor, const char *what)
{
    const struct gemm *v = &c->v;
    if (!out) {
        printf("FAIL %s: wrote outside the output: %s\n", what, c->text);
        return false;
    }
    for (int64_t row = 0; row < v->out_rows; row++) {
        double difference = 0, norm = 0;
        int64_t bad = -1;
        for (int64_t col = 0; col < v->out_cols; col++) {
            int64_t i = row * v->out_cols + col;
            double want = c->expected[i] * factor, x = fabs(case_decode(v->out, out, i) - want);
            bad = x <= 1e-2 + 1e-2 * fabs(want) ? bad : col;
            double beyond = fmax(x - dtype_grain(v->out), 0);
            difference += beyond * beyond;
            norm += want * want;
        }
        double limit = norm_limit(v) * factor;
        if (bad >= 0 || !(sqrt(difference) <= limit * sqrt(norm) + 1e-12)) {
            int64_t i = row * v->out_cols + (bad < 0 ? 0 : bad);
            printf("FAIL %s: expert %lld row %lld column %lld: %g, not %g (row norm %g): %s\n",
                   what, (long long)expert_of(c, row), (long long)row, (long long)bad,
                   case_decode(v->out, out, i), c->expected[i] * factor, sqrt(difference / norm),
                   c->text);
            return false;
        }
    }
    return true;
}
