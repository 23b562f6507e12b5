/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/layers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/report.h"

static const char *const modes[] = {"forward", "dX", "dW"};

static double number(const char *text)
{
    return text && *text ? atof(text) : 0;
}

/* Cuts the next cell off a CSV line. (strtok would skip empty cells.) */
static const char *cell(char **rest)
{
    const char *c = strsep(rest, ",\n");
    return c ? c : "";
}

static struct layer read_row(char *line)
{
    struct layer l = {0};
    char *rest = line;
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
    return l;
}

static int read_file(struct layer out[LAYERS_MAX])
{
    FILE *f = fopen(options.shapes_file, "r");
    char line[512];
    int n = 0;
    if (!f) {
        say("FAULT cannot read %s\n", options.shapes_file);
        return -1;
    }
    while (n < LAYERS_MAX && fgets(line, sizeof(line), f)) {
        const struct layer l = read_row(line);
        if (l.tokens && (l.tokens == options.tokens || options.tokens == 0)) {
            out[n++] = l;
        }
    }
    fclose(f);
    return n;
}

static bool mode_wanted(enum gemm_mode mode)
{
    for (int k = 0; k < n_kinds; k++) {
        if (kinds[k].mode == mode && options_kind(kinds[k].name)) {
            return true;
        }
    }
    return false;
}

/* Adds a shape once for each mode of the kinds that --kind names. */
static int read_shape(const char *text, struct layer *out)
{
    struct layer l = {.free = true};
    int n = 0;
    if (sscanf(text, "%ld %ld %ld %d %d", &l.m, &l.n, &l.k, &l.experts, &l.topk) != 5) {
        say("FAULT --shape \"%s\": give M N K experts topk\n", text);
        return -1;
    }
    l.tokens = l.topk > 0 ? (int)(l.m / l.topk) : 0;
    snprintf(l.model, sizeof(l.model), l.experts == 1 ? "dense" : "experts-%d-%d", l.experts,
             l.topk);
    snprintf(l.name, sizeof(l.name), "%ldx%ldx%ld", l.m, l.n, l.k);
    for (int mode = 0; mode < 3; mode++) {
        if (mode_wanted((enum gemm_mode)mode)) {
            out[n] = l;
            snprintf(out[n++].mode, sizeof(l.mode), "%s", modes[mode]);
        }
    }
    return n;
}

int layers_read(struct layer out[LAYERS_MAX])
{
    int n = 0;
    for (int i = 0; i < options.n_free_shapes; i++) {
        const int more = read_shape(options.free_shapes[i], out + n);
        if (more < 0) {
            return -1;
        }
        n += more;
    }
    return options.n_free_shapes ? n : read_file(out);
}

enum gemm_mode layer_mode(const struct layer *l)
{
    return strcmp(l->mode, modes[0]) == 0   ? GEMM_FORWARD
           : strcmp(l->mode, modes[1]) == 0 ? GEMM_DX
                                            : GEMM_DW;
}

int layer_problem(const struct layer *l, const struct kind *k, struct problem *p)
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
    record_put_text(&f, "dtype_out", k->out_fp32 ? "fp32" : "same");
    record_put_bool(&f, "permute_x", k->permute_x);
    record_put_bool(&f, "permute_y", k->permute_y);
    record_put_bool(&f, "fuse_mul_post", k->fuse);
    record_put_bool(&f, "accumulate", k->accumulate);
    if (problem_make(p, "grouped_gemm", &f, &err)) {
        say("FAULT %s\n", err.text);
        return -1;
    }
    return 0;
}

double layer_flops(const struct layer *l)
{
    return 2.0 * (double)l->m * (double)l->n * (double)l->k;
}
