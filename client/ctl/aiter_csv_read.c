/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads aiter's CSV files of dense GEMMs. An untuned file lists shapes, "M,N,K"; a tuned file of
 * gemm_a8w8_blockscale has the kernel of each shape. A tuned line becomes a hint: gemmd's own lines
 * (libtype "gemmd") give the config itself, and lines of AMD's kernels a tile, which stands in the
 * kernel's name:
 *
 *   ck      a8w8_blockscale_1x128x128_<threads>x<M>x<N>x<K>_...
 *   cktile  a8w8_blockscale_cktile_<M>x<N>x<K>_<warps of M>x<of N>x<of K>_...
 *
 * The column kernelId numbers the kernels of one version of aiter, so the name decides, as in
 * aiter.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { SIZE_MOST = 1 << 30, SPLIT_MOST = 30, WAVE = 64, TILE_MOST = 1 << 16 };
/* As many stages as shared memory has: the names say none, and tile_configs() tries fewer. */
enum { STAGES = 8 };

enum tuned_column {
    GFX,
    CU_NUM,
    M,
    N,
    K,
    LIBTYPE,
    KERNEL_ID,
    SPLIT_K,
    US,
    KERNEL_NAME,
    Q_DTYPE,
    COLUMNS
};
static const struct {
    const char *name;
    bool optional;
} columns[COLUMNS] = {
    [GFX] = {"gfx", true},
    [CU_NUM] = {"cu_num"},
    [M] = {"M"},
    [N] = {"N"},
    [K] = {"K"},
    [LIBTYPE] = {"libtype", true},
    [KERNEL_ID] = {"kernelId"},
    [SPLIT_K] = {"splitK"},
    [US] = {"us"},
    [KERNEL_NAME] = {"kernelName"},
    [Q_DTYPE] = {"q_dtype_w", true},
};
/* Columns without a meaning for a hint. */
static const char passed_over[] = "tflops,bw,errRatio";

static bool is_fp8(const char *type)
{
    return !type || !*type || strstr(type, "float8_e4m3") || strcmp(type, "fp8") == 0;
}

/* ---- a line ---------------------------------------------------------------------------------- */

struct tuned {
    const struct csv *csv;          /* borrowed */
    const char *field[COLUMNS];     /* borrowed: of the current line; NULL: no such column */
    int64_t size[3], split, cu_num; /* size: M, N, K */
    json_t *out;                    /* borrowed: the `out` of format.read */
    json_t *skipped;                /* borrowed: lines without a hint */
};

static int tuned_refuse(const struct tuned *t, enum tuned_column c, const char *wanted)
{
    return ctl_failed("%s, line %d: %s is \"%.60s\", %s", t->csv->path, t->csv->line,
                      columns[c].name, t->field[c], wanted);
}

static int tuned_read_numbers(struct tuned *t)
{
    const struct {
        enum tuned_column at;
        int64_t least, most, *to;
        const char *wanted;
    } numbers[] = {
        {M, 1, SIZE_MOST, &t->size[0], "which is no whole number from 1 on"},
        {N, 1, SIZE_MOST, &t->size[1], "which is no whole number from 1 on"},
        {K, 1, SIZE_MOST, &t->size[2], "which is no whole number from 1 on"},
        {CU_NUM, 1, SIZE_MOST, &t->cu_num, "which is no number of compute units"},
        {SPLIT_K, 0, SPLIT_MOST, &t->split, "and the exponent of the parts of a sum is 0 to 30"},
    };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        if (!text_read_number(t->field[numbers[i].at], numbers[i].least, numbers[i].most,
                              numbers[i].to)) {
            return tuned_refuse(t, numbers[i].at, numbers[i].wanted);
        }
    }
    int64_t id;
    return text_read_number(t->field[KERNEL_ID], 0, SIZE_MOST, &id)
               ? DONE
               : tuned_refuse(t, KERNEL_ID, "which is no number of a kernel");
}

/* Reads the time. *ran is false for a kernel that aiter could not run: -1, inf. */
static int tuned_read_time(const struct tuned *t, bool *ran)
{
    char *end;
    const double us = strtod(t->field[US], &end);
    if (end == t->field[US] || *end) {
        return tuned_refuse(t, US, "which is no number");
    }
    *ran = isfinite(us) && us > 0;
    return DONE;
}

/* The tile of AMD's kernel, a new object; NULL: the name tells none. */
static json_t *tuned_make_tile(const struct tuned *t)
{
    const char *name = t->field[KERNEL_NAME], *at = strstr(name, "bpreshuffle_");
    long long threads = 0, m, n, k, w[3];
    at = at                                           ? at + strlen("bpreshuffle_")
         : strncmp(name, "a8w8_blockscale_", 16) == 0 ? name + 16
                                                      : "";
    if (sscanf(at, "cktile_%lldx%lldx%lld_%lldx%lldx%lld_", &m, &n, &k, &w[0], &w[1], &w[2]) == 6) {
        threads = w[0] > 0 && w[0] < 16 && w[1] > 0 && w[1] < 16 && w[2] > 0 && w[2] < 16
                      ? w[0] * w[1] * w[2] * WAVE
                      : 0;
    } else if (sscanf(at, "%*dx%*dx%*d_%lldx%lldx%lldx%lld_", &threads, &m, &n, &k) != 4) {
        return NULL;
    }
    if (threads < WAVE || threads > 16 * WAVE || m < 1 || n < 1 || k < 1 || m > TILE_MOST ||
        n > TILE_MOST || k > TILE_MOST) {
        return NULL;
    }
    return json_pack("{sI, sI, sI, sI, si, sI, si}", "BLOCK_SIZE_M", (json_int_t)m, "BLOCK_SIZE_N",
                     (json_int_t)n, "BLOCK_SIZE_K", (json_int_t)k, "num_warps",
                     (json_int_t)(threads / WAVE), "num_stages", STAGES, "NUM_KSPLIT",
                     (json_int_t)1 << t->split, "GROUP_SIZE_M", 0);
}

/* The config of gemmd's own line, a new object; NULL after an error message. */
static json_t *tuned_read_config(const struct tuned *t)
{
    struct error e;
    if (strcmp(t->field[KERNEL_ID], "0") != 0) {
        tuned_refuse(t, KERNEL_ID, "and gemmd's kernels have no numbers: 0 is wanted");
        return NULL;
    }
    json_auto_t *config = text_to_json(t->field[KERNEL_NAME], &e);
    if (!config || json_object_size(config) == 0) {
        tuned_refuse(t, KERNEL_NAME, "which is no config of gemmd's, NAME=VALUE ...");
        return NULL;
    }
    const json_int_t parts = field_int(config, "NUM_KSPLIT");
    if ((parts > 1 ? parts : 1) != (json_int_t)1 << t->split) {
        tuned_refuse(t, SPLIT_K, "and NUM_KSPLIT in kernelName is another power of two");
        return NULL;
    }
    return json_incref(config);
}

static void tuned_skip(const struct tuned *t, const char *why)
{
    TEXT_AUTO *what = text_format("%s, line %d", t->csv->path, t->csv->line);
    notice_skip(t->skipped, what, why);
}

/* Adds the line's entry, or its reason to t->skipped. */
static int tuned_add_line(struct tuned *t)
{
    bool ran = false;
    const char *libtype = t->field[LIBTYPE] ? t->field[LIBTYPE] : "ck";
    int code = tuned_read_numbers(t);
    code = code ? code : tuned_read_time(t, &ran);
    if (code) {
        return code;
    }
    const bool own = strcmp(libtype, "gemmd") == 0;
    json_t *made = NULL;
    if (!is_fp8(t->field[Q_DTYPE])) {
        tuned_skip(t, "its weights are not fp8");
    } else if (!ran) {
        tuned_skip(t, "aiter could not run its kernel (us is -1 or inf)");
    } else if (!own && !(made = tuned_make_tile(t))) {
        tuned_skip(t, "the name of its kernel tells no tile");
    } else if (own && !(made = tuned_read_config(t))) {
        return FAILED;
    }
    if (!made) {
        return DONE;
    }
    json_t *entry =
        json_pack("{si, s{ss, sI, sI, sI}, so}", "line", t->csv->line, "problem", "op",
                  "gemm_a8w8_blockscale", "M", (json_int_t)t->size[0], "N", (json_int_t)t->size[1],
                  "K", (json_int_t)t->size[2], own ? "config" : "tile", made);
    /* NULL: the name is not UTF-8. AMD's devices are all other devices, so only the tile counts. */
    json_auto_t *device =
        json_pack("{ss*, sI}", "arch", t->field[GFX], "sm_count", (json_int_t)t->cu_num);
    const bool failed = own && (!device || json_object_set(entry, "device", device));
    return json_array_append_new(json_object_get(t->out, "entries"), entry) || failed
               ? ctl_failed("%s, line %d is not UTF-8", t->csv->path, t->csv->line)
               : DONE;
}

/* ---- the tuned file -------------------------------------------------------------------------- */

static int tuned_check_head(const struct csv *csv, json_t *unused)
{
    for (int c = 0; c < COLUMNS; c++) {
        if (csv_find(csv, columns[c].name) < 0 && !columns[c].optional) {
            return ctl_failed(
                "%s has no column \"%s\" in its first line, as aiter's tuned files of "
                "gemm_a8w8_blockscale have: gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName",
                csv->path, columns[c].name);
        }
    }
    for (int i = 0; i < csv->n_names; i++) {
        int c = 0;
        while (c < COLUMNS && strcmp(columns[c].name, csv->names[i]) != 0) {
            c++;
        }
        if (csv_find(csv, csv->names[i]) != i) {
            return ctl_failed("%s has the column \"%s\" twice", csv->path, csv->names[i]);
        }
        if (c == COLUMNS && !list_has(passed_over, csv->names[i])) {
            notice_count(unused, csv->names[i], 1);
        }
    }
    return DONE;
}

static int tuned_read_line(struct tuned *t)
{
    for (int c = 0; c < COLUMNS; c++) {
        t->field[c] = csv_field(t->csv, columns[c].name);
        if (!t->field[c] && csv_find(t->csv, columns[c].name) >= 0) {
            return ctl_failed("%s, line %d is cut short: it has %d columns, and the first line %d",
                              t->csv->path, t->csv->line, t->csv->n, t->csv->n_names);
        }
    }
    return tuned_add_line(t);
}

int aiter_csv_read(const char *path, json_t *out)
{
    struct error e;
    struct csv csv;
    if (!csv_open(&csv, path, &e)) {
        return ctl_failed("%s", e.text);
    }
    struct tuned t = {.csv = &csv, .out = out, .skipped = json_object_get(out, "unusable")};
    int code = tuned_check_head(&csv, json_object_get(out, "unused"));
    while (code == DONE && csv_next(&csv)) {
        code = tuned_read_line(&t);
    }
    csv_close(&csv);
    return code;
}

/* ---- lists of shapes ------------------------------------------------------------------------- */

/* True for an untuned list, and for a tuned file. The table of layers (shapes.c) has column mode.
 */
bool aiter_is_list(const struct csv *csv)
{
    static const char known[] = "M,N,K,B,q_dtype_w,gfx,cu_num,libtype,kernelId,splitK,us,"
                                "kernelName,tflops,bw,errRatio";
    for (int i = 0; i < csv->n_names; i++) {
        if (!list_has(known, csv->names[i])) {
            return false;
        }
    }
    return csv_find(csv, "M") >= 0 && csv_find(csv, "N") >= 0 && csv_find(csv, "K") >= 0;
}

/* Checks that the command's options and the file's columns agree. 0, or USAGE. */
static int list_check(const struct csv *csv, const struct problems *p)
{
    const char *op = p->given[PROBLEM_OP],
               *others[] = {p->given[PROBLEM_MODEL], p->given[PROBLEM_LAYER],
                            p->given[PROBLEM_TOKENS]};
    for (size_t i = 0; i < COUNT(others); i++) {
        if (others[i]) {
            return ctl_usage("%s is a list of M, N and K without models, layers and tokens: "
                             "--model, --layer and --tokens choose nothing there",
                             csv->path);
        }
    }
    if (!list_has(p->given[PROBLEM_MODE], "forward")) {
        return ctl_usage("%s lists GEMMs of mode forward, and --mode is %s", csv->path,
                         p->given[PROBLEM_MODE]);
    }
    if (csv_find(csv, "B") >= 0) {
        return ctl_usage("%s lists batched GEMMs (column B), which have no counterpart here",
                         csv->path);
    }
    if (csv_find(csv, "q_dtype_w") >= 0 && (!op || strcmp(op, "gemm_a8w8_blockscale") != 0)) {
        return ctl_usage("%s lists GEMMs of quantised weights (column q_dtype_w): give --op "
                         "gemm_a8w8_blockscale",
                         csv->path);
    }
    return DONE;
}

static int list_read_line(const struct csv *csv, json_t *rows, json_t *seen, json_t *skipped)
{
    static const char *const sizes[] = {"M", "N", "K"};
    json_auto_t *problem = json_pack("{ss}", "mode", "forward");
    TEXT_AUTO *name = NULL;
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const char *field = csv_field(csv, sizes[i]);
        int64_t v = 0;
        if (!field || !text_read_number(field, 1, INT64_MAX, &v)) {
            return ctl_usage("%s, line %d: %s is \"%.60s\", which is no whole number from 1 on",
                             csv->path, csv->line, sizes[i], field ? field : "");
        }
        json_object_set_new(problem, sizes[i], json_integer(v));
        name = text_append(name, "%s%lld", i ? "x" : "", (long long)v);
    }
    const char *type = csv_field(csv, "q_dtype_w");
    if (!is_fp8(type)) {
        notice_skip(skipped, name, "its weights are not fp8");
    } else if (notice_count(seen, name, 1) == 1) {
        json_array_append_new(rows, json_pack("{sO, ss}", "problem", problem, "name", name));
    }
    return DONE;
}

int aiter_read_list(struct csv *csv, const struct problems *p, json_t *rows)
{
    json_auto_t *seen = json_object(), *skipped = json_array();
    int code = list_check(csv, p);
    while (code == DONE && csv_next(csv)) {
        code = list_read_line(csv, rows, seen, skipped);
    }
    notices_print(skipped);
    if (code == DONE && json_array_size(rows) == 0) {
        code = ctl_usage("%s has no shape that gemmd can tune", csv->path);
    }
    return code;
}
