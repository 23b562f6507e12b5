/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes aiter's JSON: for each (N, K) a file with the config of each class of M, and DEFAULT.json,
 * which has for each class the config that most files have. `any` has the config that most classes
 * have. The format covers forward GEMMs of one matrix: GEMM-A16W16 with operands of 16 bits, and
 * GEMM-A8W8_BLOCKSCALE, whose answers go to the tuned CSV as well (aiter_csv.c). The JSON's lookup
 * rounds M up to a class, so the largest M of a class decides. Of problems with equal M, bf16
 * precedes fp16, then uniform routing precedes other routings, then the order of the list decides.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

static const int classes[] = {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
enum { CLASSES = COUNT(classes), CLASS_MAX = 24, M_MOST = 8192 };

/* Writes the name of class i; i == CLASSES is the class of all larger M. */
static void class_name(size_t i, char out[CLASS_MAX])
{
    if (i < CLASSES) {
        snprintf(out, CLASS_MAX, "M_LEQ_%d", classes[i]);
    } else {
        snprintf(out, CLASS_MAX, "M_GEQ_%d", M_MOST);
    }
}

static size_t class_of(json_int_t m)
{
    size_t i = 0;
    while (i < CLASSES && m > classes[i]) {
        i++;
    }
    return i;
}

/* ---- configs --------------------------------------------------------------------------------- */

/* The reason why the format cannot express the problem's answer; NULL: the format can. */
static const char *no_counterpart(const json_t *best)
{
    const json_t *p = json_object_get(best, "problem");
    const char *source = field_text(best, "source"), *in = field_text(p, "dtype_in");
    if (!field_is(p, "mode", "forward")) {
        return "the format is of forward GEMMs only";
    }
    if (field_int(p, "experts") > 1) {
        return "the format is of GEMMs of one matrix, and this has several experts";
    }
    if (field_is_true(p, "permute_x") || field_is_true(p, "permute_y") ||
        field_is_true(p, "fuse_mul_post")) {
        return "the format's GEMMs do not permute";
    }
    if (field_is_true(p, "batch_invariant")) {
        return "the format's GEMMs take any order of summation";
    }
    if (!aiter_csv_takes(best) && strcmp(in, "bf16") != 0 && strcmp(in, "fp16") != 0) {
        return "the format's GEMMs have operands of 16 bits, or of fp8 in blocks";
    }
    const bool is_confirmed = strcmp(source, "fleet") == 0 && field_int(best, "trial") > 0;
    if (strcmp(source, "tuned") != 0 && strcmp(source, "manual") != 0 && !is_confirmed) {
        return strcmp(source, "partial") == 0 ? "it comes from a restricted search"
                                              : "it was not measured here";
    }
    return NULL;
}

/* AMD's own parameters, which a tile lacks, are 0: the compiler chooses their values. */
static json_t *aiter_make_entry(const json_t *tile)
{
    static const char *const params[] = {
        "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K",         "GROUP_SIZE_M",   "num_warps",
        "num_stages",   "waves_per_eu", "matrix_instr_nonkdim", "cache_modifier", "NUM_KSPLIT"};
    json_t *entry = json_object();
    for (size_t i = 0; i < COUNT(params); i++) {
        json_object_set_new(entry, params[i], json_integer(field_int(tile, params[i])));
    }
    if (field_int(tile, "GROUP_SIZE_M") <= 0) {
        json_object_set_new(entry, "GROUP_SIZE_M", json_integer(1));
    }
    json_object_set_new(entry, "cache_modifier", json_null());
    return entry;
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Computes the rank of a problem among the problems of the same class of M: the problem with the
 * highest out[0], then out[1], then out[2], gives the class its entry. */
static void aiter_rank(const json_t *problem, json_int_t out[3])
{
    const char *routing = field_text(problem, "routing");
    out[0] = field_int(problem, "M");
    out[1] = field_is(problem, "dtype_in", "bf16");
    out[2] = !*routing || strcmp(routing, "uniform") == 0;
}

/* Above 0: the class gets the config of `a`; below 0: of `b`; 0: they rank equal. *why says why the
 * winner ranks higher. */
static int aiter_compare_bests(const json_t *a, const json_t *b, const char **why)
{
    static const char *const reasons[] = {"a larger M", "bf16 beside fp16",
                                          "uniform routing beside another"};
    json_int_t x[3], y[3];
    aiter_rank(json_object_get(a, "problem"), x);
    aiter_rank(json_object_get(b, "problem"), y);
    for (size_t i = 0; i < COUNT(reasons); i++) {
        if (x[i] != y[i]) {
            *why = reasons[i];
            return x[i] > y[i] ? 1 : -1;
        }
    }
    *why = "an answer of the same M that is listed before";
    return 0;
}

static void aiter_put_class(struct writing *w, json_t *file, const char *class, json_t *best,
                            json_t *entry)
{
    json_t *old = json_object_get(file, class);
    json_t *before = json_object_get(old, "best");
    char why[WHY_MAX];
    const char *what = "";
    bool first = !before || aiter_compare_bests(best, before, &what) > 0;
    if (before) {
        snprintf(why, sizeof(why), "%s decides %s of its file", what, class);
        writing_skip(w, first ? before : best, why);
    }
    if (first) {
        json_object_set_new(file, class, json_pack("{sO, sO}", "best", best, "entry", entry));
    }
}

static void aiter_add_best(struct writing *w, json_t *files, json_t *lines, json_t *best)
{
    char why[WHY_MAX], name[64], class[CLASS_MAX];
    const char *cannot = no_counterpart(best);
    const bool is_fp8 = aiter_csv_takes(best);
    if (!cannot && is_fp8) {
        aiter_csv_add(w, lines, best);
    }
    json_auto_t *tile =
        cannot ? NULL : tile_of_config(json_object_get(best, "config"), w->left_out, why);
    if (!tile) {
        TEXT_AUTO *of_json = text_format(
            "%s%s", is_fp8 && !cannot ? "only the CSV has it, as " : "", cannot ? cannot : why);
        writing_skip(w, best, of_json);
        return;
    }
    const json_t *p = json_object_get(best, "problem");
    files = json_array_get(files, is_fp8);
    snprintf(name, sizeof(name), "N=%lld-K=%lld", field_int(p, "N"), field_int(p, "K"));
    class_name(class_of(field_int(p, "M")), class);
    if (!json_object_get(files, name)) {
        json_object_set_new(files, name, json_object());
    }
    json_auto_t *entry = aiter_make_entry(tile);
    aiter_put_class(w, json_object_get(files, name), class, best, entry);
}

/* ---- the most common ------------------------------------------------------------------------ */

/* Returns the most frequent entry. Among equally frequent entries, the JSON text that sorts first
 * decides, so that the order of rows does not matter. */
static json_t *most_common(const json_t *entries)
{
    json_auto_t *counts = json_object();
    json_t *found = NULL;
    json_int_t most = 0;
    TEXT_AUTO *best_text = NULL;
    ARRAY_EACH(e, entries) {
        TEXT_AUTO *text = text_dump(e, JSON_COMPACT | JSON_SORT_KEYS);
        json_int_t n = notice_count(counts, text, 1);
        if (n > most || (n == most && strcmp(text, best_text) < 0)) {
            most = n;
            found = e;
            free(best_text);
            best_text = text_copy(text);
        }
    }
    return found;
}

/* Makes a document: {class: the most frequent entry of `files`}, in the order of classes, then
 * `any`. */
static json_t *document_of(const json_t *files)
{
    json_t *document = json_object();
    json_auto_t *all = json_array();
    for (size_t i = 0; i <= CLASSES; i++) {
        char class[CLASS_MAX];
        class_name(i, class);
        json_auto_t *entries = json_array();
        OBJECT_EACH(name, file, files) {
            json_array_append(entries, json_object_get(json_object_get(file, class), "entry"));
        }
        json_t *e = most_common(entries);
        if (e) {
            json_object_set(document, class, e);
        }
        json_array_extend(all, entries);
    }
    json_object_set(document, "any", most_common(all));
    return document;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int aiter_save_files(struct writing *w, const struct aiter_kernel *kernel, const char *name,
                            const json_t *files)
{
    json_auto_t *document = document_of(files);
    char *text = text_append(text_dump(document, JSON_INDENT(4)), "\n");
    char *path = text_format("%s%s%s/triton/gemm/%s/%s.json", w->to, writing_slash(w->to), w->arch,
                             kernel->folder, name);
    return writing_add_file(w, path, text, json_object_size(document));
}

static int aiter_save_kernel(struct writing *w, const struct aiter_kernel *kernel,
                             const json_t *files)
{
    if (json_object_size(files) == 0) {
        return DONE;
    }
    int code = DONE;
    OBJECT_EACH(sizes, file, files) {
        char name[96];
        json_auto_t *one = json_pack("{sO}", sizes, file);
        snprintf(name, sizeof(name), "GEMM-%s-%s", kernel->name, sizes);
        code = code ? code : aiter_save_files(w, kernel, name, one);
    }
    return code ? code : aiter_save_files(w, kernel, "DEFAULT", files);
}

static int aiter_write(struct writing *w)
{
    if (!w->to || strcmp(w->to, "-") == 0) {
        return ctl_usage("aiter's files are one for each (N, K): give --to DIR");
    }
    json_auto_t *files = json_pack("[{}, {}]"); /* of each kernel: its files */
    json_auto_t *lines = json_object();
    ARRAY_EACH(best, w->rows) {
        aiter_add_best(w, files, lines, best);
    }
    json_array_append_new(
        w->notes,
        json_string("waves_per_eu and matrix_instr_nonkdim are 0: of another vendor's devices"));
    int code = DONE;
    for (size_t k = 0; k < AITER_KERNELS && code == DONE; k++) {
        code = aiter_save_kernel(w, &aiter_kernels[k], json_array_get(files, k));
    }
    return code == DONE && json_object_size(lines) ? aiter_csv_save(w, lines) : code;
}

const struct format format_aiter = {
    .name = "aiter", .read = aiter_read, .find = aiter_find, .write = aiter_write};
