/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that `gemmctl import` reads. The first byte gives the format:
 *
 *   'c'            Unsloth's CSV.
 *   'a' 'k' 'l'    aiter's JSON, tuned CSV, list of shapes.
 *   'j'            gemmd's own export.
 *   'v' 't' 'w'    vLLM's and sglang's JSON, Kernel Tuner's T4, Kernel Launcher's wisdom.
 *   's'            TunableOp's list of shapes.
 *
 * Rows of an export are decoded as in the daemon. Accepted values must be within the bounds that
 * later code relies on.
 */
#include <stdarg.h>

#include "client/ctl/formats.h"
#include "kernels/family.h"
#include "proto/limits.h"
#include "proto/message.h"
#include "tests/fuzz/checks.h"

__attribute__((format(printf, 1, 0))) static void check_message(const char *format, va_list args)
{
    char text[4096] = "";
    vsnprintf(text, sizeof(text), format, args);
    CHECK(text[0]);
}

/* Replaces gemmctl's functions, which write to stderr. */
int ctl_failed(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    check_message(format, args);
    va_end(args);
    return FAILED;
}

int ctl_usage(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    check_message(format, args);
    va_end(args);
    return USAGE;
}

const struct format format_sglang = {.name = "sglang"}; /* without its writer */

/* The readers must not call these functions, which show values and write files. */
char *show_plain(const json_t *v)
{
    (void)v;
    abort();
}

void writing_skip(struct writing *w, const json_t *row, const char *why)
{
    (void)w;
    (void)row;
    (void)why;
    abort();
}

int writing_add_file(struct writing *w, char *path, char *text, size_t rows)
{
    (void)w;
    (void)path;
    (void)text;
    (void)rows;
    abort();
}

static void check_tile(const json_t *tile, const char *mode)
{
    char why[WHY_MAX];
    CHECK(field_int(tile, "BLOCK_SIZE_M") >= 1 && field_int(tile, "BLOCK_SIZE_N") >= 1 &&
          field_int(tile, "BLOCK_SIZE_K") >= 1 && field_int(tile, "num_warps") >= 1 &&
          field_int(tile, "num_stages") >= 0 && field_int(tile, "NUM_KSPLIT") >= 0);
    json_t *left_out = json_object(), *changed = json_object();
    json_t *configs = tile_configs(tile, "portable", mode, changed);
    size_t i;
    json_t *config;
    json_array_foreach(configs, i, config) {
        json_t *back = tile_of_config(config, left_out, why);
        CHECK(back ? field_int(back, "num_stages") >= 1 && field_int(back, "NUM_KSPLIT") >= 1
                   : why[0]);
        json_decref(back);
    }
    json_decref(changed);
    json_decref(left_out);
    json_decref(configs);
}

static void check_file(const json_t *file)
{
    const json_t *entries = json_object_get(file, "entries");
    CHECK(json_array_size(entries) > 0 && *field_text(file, "mode"));
    for (size_t i = 0; i < json_array_size(entries) && i < 8; i++) { /* all take the same path */
        const json_t *e = json_array_get(entries, i);
        check_tile(json_object_get(e, "tile"), field_text(file, "mode"));
        CHECK(field_int(e, "line") >= 1);
    }
}

/* Reads a file by format.read. NULL: refused. */
static json_t *read_file(int (*read)(const char *path, json_t *out), const char *path)
{
    json_t *file = json_pack("{s[], s[], s{}}", "entries", "unusable", "unused");
    if (read(path, file)) {
        json_decref(file);
        return NULL;
    }
    return file;
}

static void check_csv(const uint8_t *data, size_t n)
{
    json_t *file = read_file(unsloth_read, fuzz_file("results.csv", data, n));
    if (file) {
        check_file(file);
    }
    json_decref(file);
}

static void check_aiter(const uint8_t *data, size_t n)
{
    static const int64_t ms[] = {1, 16, 31, 32, 33, 64, 256, 257, 8192, INT64_C(1) << 30};
    json_t *file = read_file(aiter_read, fuzz_file("GEMM-A16W16-N=512-K=256.json", data, n));
    if (file) {
        CHECK(field_int(file, "N") == 512 && field_int(file, "K") == 256);
        check_file(file);
        for (size_t i = 0; i < sizeof(ms) / sizeof(ms[0]); i++) {
            const json_t *found = aiter_find(json_object_get(file, "entries"), ms[i]);
            CHECK(!found || (*field_text(found, "class") && field_int(found, "bound") >= 0));
        }
    }
    json_decref(file);
}

/* A problem of a list is three sizes; the daemon checks what they mean. */
static void check_sizes(const json_t *problem)
{
    CHECK(field_int(problem, "M") >= 1 && field_int(problem, "N") >= 1 &&
          field_int(problem, "K") >= 1);
}

static void check_aiter_csv(const uint8_t *data, size_t n)
{
    json_t *file = read_file(aiter_read, fuzz_file("tuned.csv", data, n)), *e;
    size_t i;
    json_array_foreach(json_object_get(file, "entries"), i, e) {
        check_sizes(json_object_get(e, "problem"));
        CHECK(field_int(e, "line") >= 1);
        if (json_object_get(e, "tile") && i < 8) {
            check_tile(json_object_get(e, "tile"), "forward");
        }
        CHECK(json_object_get(e, "tile") ||
              (json_object_size(json_object_get(e, "config")) && json_object_get(e, "device")));
    }
    json_decref(file);
}

static void check_aiter_list(const uint8_t *data, size_t n)
{
    struct error e;
    struct csv csv;
    const struct problems p = {.given = {[PROBLEM_OP] = "gemm_a8w8_blockscale"}};
    if (!csv_open(&csv, fuzz_file("untuned.csv", data, n), &e)) {
        return;
    }
    json_t *rows = json_array(), *row;
    size_t i;
    if (aiter_is_list(&csv)) {
        aiter_read_list(&csv, &p, rows);
    }
    json_array_foreach(rows, i, row) {
        check_sizes(json_object_get(row, "problem"));
    }
    json_decref(rows);
    csv_close(&csv);
}

static void check_row(const json_t *row)
{
    static struct best b;
    static struct problem p;
    static struct wire_doc *doc;
    struct error err = ERROR_NULL;
    const struct wire_obj *map;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    char *text = json_dumps(row, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    doc = doc ? doc : wire_doc_new();
    if (text && wire_from_json(&packed, text, &err) == 0 && packed.len <= REQUEST_BYTES_MAX &&
        wire_decode(doc, packed.data, packed.len, &map, &err) == 0 &&
        schema_decode(&best_schema, SCHEMA_LENIENT, map, &b, &err) == 0) {
        check_record(&b.config);
        if (problem_make(&p, b.op, &b.problem, &err) == 0) {
            check_problem(&p);
        }
    }
    free(text);
}

static void check_export(const uint8_t *data, size_t n)
{
    struct error e;
    json_t *document = text_read_json(fuzz_file("export.json", data, n), &e), *row;
    size_t i;
    CHECK(document || e.text[0]);
    json_array_foreach(json_object_get(document, "rows"), i, row) {
        check_row(row);
    }
    json_decref(document);
}

/* Checks the rows of a file that is not refused: each has a custom op's problem and config, and
 * trials with times. */
static void check_custom(int (*read)(const struct custom_file *f, json_t *out),
                         const struct custom_file *f)
{
    size_t i, j;
    json_t *row, *trial, *file = json_pack("{s[], s{}}", "rows", "unused");
    const bool is_good = read(f, file) == 0;
    CHECK(!is_good || json_array_size(json_object_get(file, "rows")) > 0);
    json_array_foreach(is_good ? json_object_get(file, "rows") : NULL, i, row) {
        const json_t *config = json_object_get(row, "config");
        CHECK(strncmp(field_text(row, "op"), "custom:", 7) == 0);
        CHECK(json_is_object(json_object_get(row, "problem")));
        CHECK(!config || json_object_size(config) > 0);
        CHECK(config || json_array_size(json_object_get(row, "trials")) > 0);
        check_row(row);
        json_array_foreach(json_object_get(row, "trials"), j, trial) {
            CHECK(json_object_size(json_object_get(trial, "config")) > 0);
            CHECK(strcmp(field_text(trial, "status"), "ok") != 0 ||
                  field_number(trial, "time_us") > 0);
        }
    }
    json_decref(file);
}

static void check_custom_formats(uint8_t format, const uint8_t *data, size_t n)
{
    json_t *problem = json_pack("{ss, ss}", "op", "custom:triton", "arguments", "N=2,M=4,x=f32");
    json_t *fields = json_pack("{ss, ss}", "N", "N/2", "M", "M");
    const bool is_moe = format == 'v';
    int (*read)(const struct custom_file *f, json_t *out) = is_moe          ? fused_moe_read
                                                            : format == 't' ? t4_read
                                                                            : wisdom_read;
    struct custom_file f = {
        .format = &format_sglang,
        .path = fuzz_file(is_moe ? "E=8,N=512,device_name=x,dtype=y,block_shape=[64, 32]_down.json"
                                 : "file",
                          data, n),
        .problem = format == 't' || is_moe ? problem : NULL,
        .fields = is_moe ? fields : NULL};
    check_custom(read, &f);
    f.problem = f.fields = NULL;
    f.format = NULL;
    check_custom(read, &f);
    json_decref(problem);
    json_decref(fields);
}

static void check_shapes(const uint8_t *data, size_t n)
{
    struct csv csv;
    struct error e;
    const struct problems p = {.given = {NULL}};
    if (!csv_open(&csv, fuzz_file("tunableop_untuned0.csv", data, n), &e)) {
        return;
    }
    json_t *rows = json_array(), *row;
    size_t i;
    if (tunable_is_list(&csv)) {
        tunable_read(&csv, &p, rows);
    }
    json_array_foreach(rows, i, row) {
        CHECK(field_int(row, "problem.M") >= 1 && field_int(row, "problem.N") >= 1 &&
              field_int(row, "problem.K") >= 1 && *field_text(row, "problem.mode"));
    }
    csv_close(&csv);
    json_decref(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool registered;
    if (!registered) {
        families_register();
        registered = true;
    }
    if (n == 0) {
        return 0;
    }
    switch (data[0]) {
    case 'c':
        check_csv(data + 1, n - 1);
        break;
    case 'k':
        check_aiter_csv(data + 1, n - 1);
        break;
    case 'l':
        check_aiter_list(data + 1, n - 1);
        break;
    case 'a':
        check_aiter(data + 1, n - 1);
        break;
    case 'j':
        check_export(data + 1, n - 1);
        break;
    case 'v':
    case 't':
    case 'w':
        check_custom_formats(data[0], data + 1, n - 1);
        break;
    case 's':
        check_shapes(data + 1, n - 1);
        break;
    }
    return 0;
}
