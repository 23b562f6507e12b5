/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train_step cuda:0|cpu: a step of an MoE MLP in plain C. Gets the kernels of the layer's six
 * products from gemmd, launches forward and backward, and compares every result with the host's.
 *
 *   h = X W1^T   permute_x: rows gathered into expert order     W1 [experts, 2 * INTER, HIDDEN]
 *   a = silu(h[:, :INTER]) * h[:, INTER:]                       computed on the host, without gemmd
 *   y = a W2^T   permute_y: rows scattered into token order     W2 [experts, HIDDEN, INTER]
 *
 * and backwards from dy: dW2, da, dh, dW1, dX. A real job gets its kernels once, at the start, and
 * launches them in every step, on its own stream. Without a daemon the program compiles the kernels
 * of the analytic default. Exit status: 0 right, 1 wrong or impossible, 2 bad arguments.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gemmd.h" /* installed: <gemmd.h> */
#include "examples/memory.h"

enum { TOKENS = 96, TOPK = 2, EXPERTS = 8, HIDDEN = 128, INTER = 64, ROWS = TOKENS * TOPK };
enum { DEADLINE_MS = 60000 };

static const struct memory *memory;
static const char *device;

/* ---- bf16 tensors, on the host and on the device --------------------------------------------- */

struct tensor {
    size_t n;
    float *host;    /* the device's values, as floats */
    uint16_t *bits; /* the device's values, as bf16 */
    void *data;     /* on the device */
};

static uint16_t to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof(u));
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static float to_float(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float f;
    memcpy(&f, &u, sizeof(f));
    return f;
}

static int tensor_new(struct tensor *t, size_t n)
{
    *t = (struct tensor){.n = n, .host = calloc(n, sizeof(float)), .bits = calloc(n, 2)};
    return t->host && t->bits ? memory->get(n * 2, &t->data) : -1;
}

static void tensor_free(struct tensor *t)
{
    memory->put(t->data);
    free(t->host);
    free(t->bits);
}

static int tensor_upload(struct tensor *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->bits[i] = to_bf16(t->host[i]);
        t->host[i] = to_float(t->bits[i]);
    }
    return memory->upload(t->data, t->bits, t->n * 2);
}

static int tensor_download(struct tensor *t)
{
    int r = memory->download(t->bits, t->data, t->n * 2);
    for (size_t i = 0; i < t->n; i++) {
        t->host[i] = to_float(t->bits[i]);
    }
    return r;
}

static void tensor_random(struct tensor *t, float scale)
{
    for (size_t i = 0; i < t->n; i++) {
        t->host[i] = scale * (2 * (float)rand() / (float)RAND_MAX - 1);
    }
}

/* ---- routing: every token goes to TOPK experts ----------------------------------------------- */

struct routing {
    int32_t m_sizes[EXPERTS], gather[ROWS], expert[ROWS];
    void *device_m_sizes, *device_gather;
};

/* gather: the flat (token, slot) index of each row in expert order, a stable sort by expert. */
static int route(struct routing *r)
{
    int32_t chosen[ROWS];
    for (int t = 0; t < TOKENS; t++) {
        int first = rand() % EXPERTS;
        for (int s = 0; s < TOPK; s++) {
            chosen[t * TOPK + s] = (first + s * (1 + rand() % (EXPERTS - 1))) % EXPERTS;
        }
    }
    int row = 0;
    for (int e = 0; e < EXPERTS; e++) {
        r->m_sizes[e] = 0;
        for (int i = 0; i < ROWS; i++) {
            if (chosen[i] == e) {
                r->expert[row] = e;
                r->gather[row++] = i;
                r->m_sizes[e]++;
            }
        }
    }
    int status = memory->get(sizeof(r->m_sizes), &r->device_m_sizes);
    status = status ? status : memory->get(sizeof(r->gather), &r->device_gather);
    status = status ? status : memory->upload(r->device_m_sizes, r->m_sizes, sizeof(r->m_sizes));
    return status ? status : memory->upload(r->device_gather, r->gather, sizeof(r->gather));
}

/* ---- asking and loading ---------------------------------------------------------------------- */

struct product {
    const char *name, *mode;
    int first; /* 1: the layer's first GEMM (gate and up), 0: the second (down) */
    struct gemmd_kernel *kernel;
};

static struct gemmd_problem problem_of(const struct product *p)
{
    struct gemmd_problem problem = GEMMD_PROBLEM_INIT;
    problem.mode = p->mode;
    problem.m = ROWS;
    problem.n = p->first ? 2 * INTER : HIDDEN;
    problem.k = p->first ? HIDDEN : INTER;
    problem.experts = EXPERTS;
    problem.topk = TOPK;
    problem.permute_x = p->first;
    problem.permute_y = !p->first;
    return problem;
}

/* Loads the measured kernel; otherwise compiles the answer's config in this process. */
static int load(struct gemmd *g, struct product *p)
{
    struct gemmd_problem problem = problem_of(p);
    struct gemmd_query query = GEMMD_QUERY_INIT;
    struct gemmd_answer answer = GEMMD_ANSWER_INIT;
    struct gemmd_error e;
    query.deadline_ms = DEADLINE_MS;
    query.flags = GEMMD_FALLBACK;
    int r = gemmd_get(g, &problem, &query, &answer, &e);
    if (r == 0) {
        printf("%-4s %-8s %-8s %s\n", p->name, answer.tier, answer.source, answer.config);
        r = gemmd_kernel_load(g, &problem, &answer, &p->kernel, &e);
        r = r ? gemmd_kernel_compile(device, &problem, answer.config, &p->kernel, &e) : 0;
    }
    if (r) {
        fprintf(stderr, "%s: %s\n", p->name, e.text);
    }
    return r ? -1 : 0;
}

/* ---- launching ------------------------------------------------------------------------------- */

/* forward reads x and w, dX dy and w, dW dy and x; NULL for an unread operand. */
static int launch(const struct product *p, const struct routing *r, const struct tensor *x,
                  const struct tensor *w, const struct tensor *dy, struct tensor *out)
{
    struct gemmd_grouped_gemm_args args = GEMMD_GROUPED_GEMM_ARGS_INIT;
    struct gemmd_error e;
    args.x = x ? x->data : NULL;
    args.w = w ? w->data : NULL;
    args.dy = dy ? dy->data : NULL;
    args.out = out->data;
    args.m_sizes = r->device_m_sizes;
    args.gather_indices = r->device_gather;
    args.m_sizes_dtype = args.gather_dtype = GEMMD_INT32;
    args.rows = ROWS;
    args.stream = memory->stream();
    void *workspace = NULL; /* a real job allocates the workspace once */
    int status = gemmd_kernel_workspace(p->kernel, &args, &args.workspace_bytes, &e);
    if (status == 0 && args.workspace_bytes > 0) {
        status = memory->get((size_t)args.workspace_bytes, &workspace);
        args.workspace = workspace;
    }
    status = status ? status : gemmd_kernel_launch(p->kernel, &args, &e);
    if (status) {
        fprintf(stderr, "%s: %s\n", p->name, e.text);
    }
    status =
        status ? -1 : tensor_download(out); /* waits for the launch, so the workspace is free */
    memory->put(workspace);
    return status;
}

/* ---- the host's part: SwiGLU and the sum over a token's experts ------------------------------ */

static float sigmoid(float v)
{
    return 1 / (1 + expf(-v));
}

static void swiglu(const struct tensor *h, struct tensor *a)
{
    for (size_t i = 0; i < ROWS; i++) {
        const float *gate = h->host + i * 2 * INTER, *up = gate + INTER;
        for (int j = 0; j < INTER; j++) {
            a->host[i * INTER + (size_t)j] = gate[j] * sigmoid(gate[j]) * up[j];
        }
    }
}

static void swiglu_backward(const struct tensor *h, const struct tensor *da, struct tensor *dh)
{
    for (size_t i = 0; i < ROWS; i++) {
        const float *gate = h->host + i * 2 * INTER, *up = gate + INTER, *d = da->host + i * INTER;
        float *dgate = dh->host + i * 2 * INTER, *dup = dgate + INTER;
        for (int j = 0; j < INTER; j++) {
            float s = sigmoid(gate[j]);
            dup[j] = d[j] * gate[j] * s;
            dgate[j] = d[j] * up[j] * s * (1 + gate[j] * (1 - s));
        }
    }
}

/* ---- checking -------------------------------------------------------------------------------- */

/* Relative norm of the difference to the same operands' result in double precision. */
struct difference {
    double square, norm;
};

static void compare(struct difference *d, float got, double right)
{
    d->square += (got - right) * (got - right);
    d->norm += right * right;
}

static int verdict(const char *name, const struct difference *d)
{
    double error = sqrt(d->square / d->norm);
    int right = error < 1e-2; /* 0 when error is NaN */
    printf("%-4s relative error %.1e %s\n", name, error, right ? "" : "WRONG");
    return right ? 0 : -1;
}

/* Where row i of the expert order lies in X and in Y: a permuted operand is in token order. */
static size_t x_row(const struct product *p, const struct routing *r, size_t i)
{
    return p->first ? (size_t)r->gather[i] / TOPK : i;
}

static size_t y_row(const struct product *p, const struct routing *r, size_t i)
{
    return p->first ? i : (size_t)r->gather[i];
}

static int check_forward(const struct product *p, const struct routing *r, const struct tensor *x,
                         const struct tensor *w, const struct tensor *y)
{
    size_t n = p->first ? 2 * INTER : HIDDEN, k = p->first ? HIDDEN : INTER;
    struct difference d = {0};
    for (size_t i = 0; i < ROWS; i++) {
        const float *row = x->host + x_row(p, r, i) * k;
        for (size_t j = 0; j < n; j++) {
            const float *column = w->host + ((size_t)r->expert[i] * n + j) * k;
            double sum = 0;
            for (size_t c = 0; c < k; c++) {
                sum += (double)row[c] * column[c];
            }
            compare(&d, y->host[y_row(p, r, i) * n + j], sum);
        }
    }
    return verdict(p->name, &d);
}

/* dX of the first GEMM comes in token order, a row for every (token, slot). */
static int check_dx(const struct product *p, const struct routing *r, const struct tensor *dy,
                    const struct tensor *w, const struct tensor *dx)
{
    size_t n = p->first ? 2 * INTER : HIDDEN, k = p->first ? HIDDEN : INTER;
    struct difference d = {0};
    for (size_t i = 0; i < ROWS; i++) {
        const float *row = dy->host + y_row(p, r, i) * n;
        size_t to = p->first ? (size_t)r->gather[i] : i;
        for (size_t c = 0; c < k; c++) {
            double sum = 0;
            for (size_t j = 0; j < n; j++) {
                sum += (double)row[j] * w->host[((size_t)r->expert[i] * n + j) * k + c];
            }
            compare(&d, dx->host[to * k + c], sum);
        }
    }
    return verdict(p->name, &d);
}

static int check_dw(const struct product *p, const struct routing *r, const struct tensor *dy,
                    const struct tensor *x, const struct tensor *dw)
{
    size_t n = p->first ? 2 * INTER : HIDDEN, k = p->first ? HIDDEN : INTER;
    double *right = calloc(EXPERTS * n * k, sizeof(*right));
    struct difference d = {0};
    for (size_t i = 0; right && i < ROWS; i++) {
        const float *a = dy->host + y_row(p, r, i) * n, *b = x->host + x_row(p, r, i) * k;
        for (size_t j = 0; j < n; j++) {
            for (size_t c = 0; c < k; c++) {
                right[((size_t)r->expert[i] * n + j) * k + c] += (double)a[j] * b[c];
            }
        }
    }
    for (size_t i = 0; right && i < EXPERTS * n * k; i++) {
        compare(&d, dw->host[i], right[i]);
    }
    free(right);
    return verdict(p->name, &d);
}

/* ---- the step -------------------------------------------------------------------------------- */

enum { UP, DOWN, DOWN_DX, DOWN_DW, UP_DX, UP_DW, PRODUCTS };
static struct product products[PRODUCTS] = {
    [UP] = {"h", "forward", 1, NULL},  [DOWN] = {"y", "forward", 0, NULL},
    [DOWN_DX] = {"da", "dX", 0, NULL}, [DOWN_DW] = {"dW2", "dW", 0, NULL},
    [UP_DX] = {"dX", "dX", 1, NULL},   [UP_DW] = {"dW1", "dW", 1, NULL},
};

enum { X, W1, W2, H, A, Y, DY, DA, DH, DX, DW1, DW2, TENSORS };
static const size_t sizes[TENSORS] = {
    [X] = TOKENS * HIDDEN,
    [W1] = EXPERTS * 2 * INTER * HIDDEN,
    [W2] = EXPERTS * HIDDEN * INTER,
    [H] = ROWS * 2 * INTER,
    [A] = ROWS * INTER,
    [Y] = ROWS * HIDDEN,
    [DY] = ROWS * HIDDEN,
    [DA] = ROWS * INTER,
    [DH] = ROWS * 2 * INTER,
    [DX] = ROWS * HIDDEN,
    [DW1] = EXPERTS * 2 * INTER * HIDDEN,
    [DW2] = EXPERTS * HIDDEN * INTER,
};

static int forward(const struct routing *r, struct tensor t[TENSORS])
{
    int s = launch(&products[UP], r, &t[X], &t[W1], NULL, &t[H]);
    s = s ? s : check_forward(&products[UP], r, &t[X], &t[W1], &t[H]);
    swiglu(&t[H], &t[A]);
    s = s ? s : tensor_upload(&t[A]);
    s = s ? s : launch(&products[DOWN], r, &t[A], &t[W2], NULL, &t[Y]);
    return s ? s : check_forward(&products[DOWN], r, &t[A], &t[W2], &t[Y]);
}

static int backward(const struct routing *r, struct tensor t[TENSORS])
{
    int s = launch(&products[DOWN_DW], r, &t[A], NULL, &t[DY], &t[DW2]);
    s = s ? s : check_dw(&products[DOWN_DW], r, &t[DY], &t[A], &t[DW2]);
    s = s ? s : launch(&products[DOWN_DX], r, NULL, &t[W2], &t[DY], &t[DA]);
    s = s ? s : check_dx(&products[DOWN_DX], r, &t[DY], &t[W2], &t[DA]);
    swiglu_backward(&t[H], &t[DA], &t[DH]);
    s = s ? s : tensor_upload(&t[DH]);
    s = s ? s : launch(&products[UP_DW], r, &t[X], NULL, &t[DH], &t[DW1]);
    s = s ? s : check_dw(&products[UP_DW], r, &t[DH], &t[X], &t[DW1]);
    s = s ? s : launch(&products[UP_DX], r, NULL, &t[W1], &t[DH], &t[DX]);
    return s ? s : check_dx(&products[UP_DX], r, &t[DH], &t[W1], &t[DX]);
}

static int make_tensors(struct tensor t[TENSORS])
{
    int s = 0;
    for (int i = 0; i < TENSORS && s == 0; i++) {
        s = tensor_new(&t[i], sizes[i]);
    }
    tensor_random(&t[X], 1);
    tensor_random(&t[W1], 0.1f);
    tensor_random(&t[W2], 0.1f);
    tensor_random(&t[DY], 1);
    static const int given[] = {X, W1, W2, DY};
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]) && s == 0; i++) {
        s = tensor_upload(&t[given[i]]);
    }
    return s;
}

static int load_all(void)
{
    struct gemmd_options options = GEMMD_OPTIONS_INIT;
    struct gemmd *g;
    struct gemmd_error e;
    options.device = device;
    if (gemmd_open_lazy(&g, &options, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return -1;
    }
    int s = 0;
    for (int i = 0; i < PRODUCTS && s == 0; i++) {
        s = load(g, &products[i]);
    }
    gemmd_close(g); /* loaded kernels need no daemon */
    return s;
}

static int usage(void)
{
    fprintf(stderr, "train_step: say where the step is to run: `train_step cuda:0` on the first "
                    "GPU, `train_step cpu` on a machine without one\n");
    return 2;
}

int main(int argc, char **argv)
{
    device = argc == 2 ? argv[1] : "";
    if (strcmp(device, "cpu") != 0 && strncmp(device, "cuda:", 5) != 0) {
        return usage();
    }
    memory = strncmp(device, "cpu", 3) == 0 ? &host_memory : &cuda_memory;
    static struct tensor t[TENSORS];
    static struct routing r;
    if (memory->open(device)) {
        fprintf(stderr, "train_step: %s cannot be used; `train_step cpu` needs no GPU\n", device);
        return 1;
    }
    int s = load_all();
    s = s ? s : make_tensors(t);
    s = s ? s : route(&r);
    s = s ? s : forward(&r, t);
    s = s ? s : backward(&r, t);
    for (int i = 0; i < PRODUCTS; i++) {
        gemmd_kernel_free(products[i].kernel);
    }
    for (int i = 0; i < TENSORS; i++) {
        tensor_free(&t[i]);
    }
    memory->put(r.device_m_sizes);
    memory->put(r.device_gather);
    return s ? 1 : 0;
}
