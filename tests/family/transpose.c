/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The family `transpose`: op, work, workload, and its target, "cpu", in the order of
 * docs/adding-a-family.md.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "tests/family/transpose.h"

/* ---- the op: its fields --------------------------------------------------------------- */

static const char *const dtypes[] = {"bf16", "fp32", NULL};

static const struct op_field fields[] = {
    {.name = "rows",
     .type = VALUE_INT,
     .required = true,
     .min = 1,
     .max = 1 << 20,
     .help = "rows of the input"},
    {.name = "cols",
     .type = VALUE_INT,
     .required = true,
     .min = 1,
     .max = 1 << 20,
     .help = "columns of the input"},
    {.name = "dtype",
     .type = VALUE_TEXT,
     .choices = dtypes,
     .fallback = {.type = VALUE_TEXT, .text = "fp32"},
     .help = "element type"},
};

static int check_op(struct problem *p, struct error *err)
{
    int64_t rows = record_int(&p->fields, "rows", 0), cols = record_int(&p->fields, "cols", 0);
    if (rows * cols > INT64_C(1) << 34) {
        return error_set(err, ERROR_INVALID,
                         "the matrix has %lld elements: at most 2^34 are supported",
                         (long long)(rows * cols));
    }
    return 0;
}

static void bucket(struct problem *p, enum bucket_scheme scheme)
{
    if (scheme != BUCKET_EXACT) {
        record_put_int(&p->fields, "rows", bucket_pow2(record_int(&p->fields, "rows", 1)));
    }
}

static const struct op transpose_op = {
    .name = "transpose",
    .fields = fields,
    .n_fields = sizeof(fields) / sizeof(fields[0]),
    .check = check_op,
    .bucket = bucket,
};

/* The problem as numbers. */
struct view {
    int64_t rows, cols;
    enum dtype dtype;
};

static struct view view_of(const struct problem *p)
{
    bool half = strcmp(record_text(&p->fields, "dtype", "fp32"), "bf16") == 0;
    return (struct view){record_int(&p->fields, "rows", 1), record_int(&p->fields, "cols", 1),
                         half ? DTYPE_BF16 : DTYPE_FP32};
}

static void work(const struct problem *p, double *flops, double *bytes)
{
    struct view v = view_of(p);
    *flops = 0;
    *bytes = 2.0 * (double)v.rows * (double)v.cols * (double)dtype_size(v.dtype);
}

/* ---- the workload: a problem with real buffers ----------------------------------------------- */

enum { IN, OUT, CHECKS = 16 };

static int workload_init(struct workload *w, const struct problem *p, uint64_t seed,
                         struct error *err)
{
    struct view v = view_of(p);
    *w = (struct workload){.family = &transpose_family, .problem = *p, .seed = seed};
    w->n_buffers = 2;
    w->buffers[IN] = (struct buffer){.name = "in",
                                     .dtype = v.dtype,
                                     .init = BUFFER_RANDOM,
                                     .count = v.rows * v.cols,
                                     .scale = 1,
                                     .rotate = true};
    w->buffers[OUT] = (struct buffer){.name = "out",
                                      .dtype = v.dtype,
                                      .init = BUFFER_OUTPUT,
                                      .count = v.rows * v.cols,
                                      .rotate = true};
    w->output = OUT;
    w->check_length = v.rows; /* one row of the output */
    w->n_checks = v.cols < CHECKS ? (uint32_t)v.cols : CHECKS;
    w->check_at = calloc(w->n_checks, sizeof(*w->check_at));
    if (!w->check_at) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the check rows");
    }
    for (uint32_t i = 1; i < w->n_checks;
         i++) { /* checks the first row, the last row, and some rows between */
        w->check_at[i] = i * (v.cols - 1) / (w->n_checks - 1) * v.rows;
    }
    return 0;
}

static void workload_deinit(struct workload *w)
{
    free(w->check_at);
    w->check_at = NULL;
}

static void bind(const struct workload *w, void *const buffers[], void *workspace,
                 int64_t workspace_bytes, void *stream, void *args)
{
    (void)w;
    struct transpose_args a = {.size = sizeof(a),
                               .in = buffers[IN],
                               .out = buffers[OUT],
                               .workspace = workspace,
                               .workspace_bytes = workspace_bytes,
                               .stream = stream};
    memcpy(args, &a, sizeof(a));
}

static void context(const void *args, struct launch_context *out)
{
    const struct transpose_args *a = args;
    *out = (struct launch_context){a->stream, a->workspace, a->workspace_bytes};
}

/* ---- the target "cpu": tunables, rules, model ------------------------------------------------ */

static bool supports(const struct device_info *info)
{
    return strcmp(info->kind, "cpu") == 0;
}

static uint32_t params(const struct problem *p, const struct device_info *info,
                       struct param out[PARAMS_MAX])
{
    (void)p;
    (void)info;
    out[0] = (struct param){.name = "TILE_ROWS",
                            .n = 3,
                            .help = "rows of a tile",
                            .values = {VALUE_OF_INT(1), VALUE_OF_INT(16), VALUE_OF_INT(64)}};
    out[1] = (struct param){.name = "TILE_COLS",
                            .n = 3,
                            .help = "columns of a tile",
                            .values = {VALUE_OF_INT(16), VALUE_OF_INT(64), VALUE_OF_INT(1024)}};
    out[2] = (struct param){.name = "read_rows",
                            .n = 2,
                            .help = "the inner loop reads a row",
                            .values = {VALUE_OF_BOOL(false), VALUE_OF_BOOL(true)}};
    out[3] = (struct param){.name = "strip",
                            .n = 2,
                            .run_time = true,
                            .help = "tiles of a block",
                            .values = {VALUE_OF_INT(1), VALUE_OF_INT(4)}};
    return 4;
}

static int check(const struct problem *p, const struct record *config,
                 const struct device_info *info, struct rejection *why)
{
    static const char *const names[] = {"TILE_ROWS", "TILE_COLS", "read_rows", "strip"};
    for (uint32_t i = 0; i < config->n; i++) {
        bool known = false;
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            known = known || strcmp(config->fields[i].name, names[n]) == 0;
        }
        if (!known) {
            return rejection_set(why, ERROR_INVALID, "unknown_parameter",
                                 "unknown parameter \"%s\"; known: TILE_ROWS TILE_COLS read_rows "
                                 "strip",
                                 config->fields[i].name);
        }
    }
    int64_t rows = record_int(config, "TILE_ROWS", 0), cols = record_int(config, "TILE_COLS", 0);
    int64_t strip = record_int(config, "strip", 1);
    if (rows < 1 || cols < 1 || strip < 1 || rows > 4096 || cols > 4096 || strip > 4096) {
        return rejection_set(why, ERROR_INVALID, "range",
                             "TILE_ROWS, TILE_COLS and strip must be from 1 to 4096");
    }
    int64_t bytes = 2 * rows * cols * (int64_t)dtype_size(view_of(p).dtype);
    if (bytes > info->smem_optin) {
        return rejection_resource(why, "cache", bytes, info->smem_optin,
                                  "the tile needs %lld bytes, the L2 cache of a core has %lld",
                                  (long long)bytes, (long long)info->smem_optin);
    }
    return 0;
}

static int choose(const struct problem *p, const struct device_info *info, struct record *config,
                  struct error *err)
{
    (void)p;
    (void)info;
    (void)err;
    record_init(config);
    record_put_int(config, "TILE_ROWS", 16);
    record_put_int(config, "TILE_COLS", 16);
    record_put_bool(config, "read_rows", false);
    record_put_int(config, "strip", 4);
    return 0;
}

/* Predicts the time by the bytes that are moved. Tiles narrower than a cache line in either
 * direction move more bytes. */
static double predict(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w)
{
    (void)w;
    double flops, bytes, element = (double)dtype_size(view_of(p).dtype);
    work(p, &flops, &bytes);
    double rows = (double)record_int(config, "TILE_ROWS", 1) * element;
    double cols = (double)record_int(config, "TILE_COLS", 1) * element;
    double waste = (rows < 64 ? 64 / rows : 1) + (cols < 64 ? 64 / cols : 1);
    return bytes / ((info->peak_gbps > 0 ? info->peak_gbps : 10) * 1e3) * waste / 2;
}

/* ---- the target "cpu": compiling and launching ----------------------------------------------- */

struct kernel_params { /* struct params of transpose_kernel.c.in */
    const void *in;
    void *out;
    int64_t rows, cols, strip;
};

static int variant(const struct problem *p, const struct record *config, const char *arch,
                   struct variant *out, struct error *err)
{
    (void)err;
    *out = (struct variant){.family = "transpose",
                            .kind = "cpu",
                            .entry = "transpose_block",
                            .source = transpose_source};
    snprintf(out->arch, sizeof(out->arch), "%s", arch);
    snprintf(out->options, sizeof(out->options),
             "-DELEMENT_BYTES=%zu -DTILE_ROWS=%d -DTILE_COLS=%d -DREAD_ROWS=%d -DPARAMS_SIZE=%zu",
             dtype_size(view_of(p).dtype), (int)record_int(config, "TILE_ROWS", 1),
             (int)record_int(config, "TILE_COLS", 1), record_bool(config, "read_rows", false),
             sizeof(struct kernel_params));
    hash128_hex(out->source, strlen(out->source), out->source_hash);
    return 0;
}

static int plan(const struct problem *p, const struct record *config,
                const struct device_info *info, const void *args, struct launch_plan *out,
                struct error *err)
{
    (void)info;
    const struct transpose_args *a = args;
    struct view v = view_of(p);
    if (a->size != sizeof(*a) || !a->in || !a->out) {
        return error_set(err, ERROR_INVALID, "args.size is %u (%zu expected), or in or out is NULL",
                         a->size, sizeof(*a));
    }
    out->workspace_bytes = 8; /* the kernel needs no workspace; tests check that one is passed on */
    if (!a->workspace || a->workspace_bytes < out->workspace_bytes) {
        return error_set(err, ERROR_INVALID, "the workspace has %lld bytes, the launch needs %lld",
                         (long long)a->workspace_bytes, (long long)out->workspace_bytes);
    }
    struct kernel_params k = {a->in, a->out, v.rows, v.cols, record_int(config, "strip", 1)};
    int64_t tile_rows = record_int(config, "TILE_ROWS", 1),
            tile_cols = record_int(config, "TILE_COLS", 1);
    int64_t tiles = (v.cols + tile_cols - 1) / tile_cols, strips = (tiles + k.strip - 1) / k.strip;
    out->n = 1;
    out->steps[0] =
        (struct launch){.entry = "transpose_block", .block = {1, 1, 1}, .params_bytes = sizeof(k)};
    out->steps[0].grid[0] = (uint32_t)((v.rows + tile_rows - 1) / tile_rows * strips);
    out->steps[0].grid[1] = out->steps[0].grid[2] = 1;
    memcpy(out->steps[0].params, &k, sizeof(k));
    return 0;
}

/* ---- the target "cpu": the reference --------------------------------------------------------- */

struct reference {
    const struct workload *workload;
    const void *in;
    double *out;
};

static void reference_row(const void *params, uint32_t check)
{
    struct reference r;
    memcpy(&r, params, sizeof(r));
    struct view v = view_of(&r.workload->problem);
    int64_t column = r.workload->check_at[check] / v.rows;
    for (int64_t row = 0; row < v.rows; row++) {
        int64_t at = row * v.cols + column;
        uint32_t bits = v.dtype == DTYPE_BF16 ? (uint32_t)((const uint16_t *)r.in)[at] << 16
                                              : ((const uint32_t *)r.in)[at];
        float value;
        memcpy(&value, &bits, sizeof(value));
        r.out[check * v.rows + row] = value;
    }
}

static int reference(const struct workload *w, void *const buffers[], const int64_t *check_at,
                     double *out, struct launch *launch, struct error *err)
{
    (void)check_at; /* the device's copy of w->check_at, which reference_row reads on the CPU */
    (void)err;
    struct reference r = {w, buffers[IN], out};
    *launch = (struct launch){
        .grid = {w->n_checks, 1, 1}, .cpu_entry = reference_row, .params_bytes = sizeof(r)};
    memcpy(launch->params, &r, sizeof(r));
    return 0;
}

static const struct family_target transpose_cpu = {
    .kind = "cpu",
    .label = "cpu",
    .source = transpose_source,
    .supports = supports,
    .params = params,
    .check = check,
    .choose = choose,
    .predict = predict,
    .variant = variant,
    .plan = plan,
    .reference = reference,
};

/* ---- the family ------------------------------------------------------------------------------ */

static const struct family_target *const targets[] = {&transpose_cpu, NULL};

const struct family transpose_family = {
    .name = "transpose",
    .op = &transpose_op,
    .targets = targets,
    .work = work,
    .workload_init = workload_init,
    .workload_deinit = workload_deinit,
    .bind = bind,
    .context = context,
};
