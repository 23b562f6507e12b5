/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes vLLM's and sglang's JSON of MoE configs: for each number of tokens the config of their
 * Triton kernel. The file's name has the number of experts, the size N, the device and the types:
 * E=8,N=14336,device_name=NVIDIA_H100,dtype=fp8_w8a8,block_shape=[128,128].json. The two formats
 * differ in the name, and sglang has a folder for each version of Triton.
 *
 * Rows are of any custom op whose problem has the fields E, N and M, and optionally dtype, block_n,
 * block_k, per_channel_quant, down and triton (Triton's version). --fields says where a problem has
 * a field under another name, or gives the field itself.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

/* ---- a row ----------------------------------------------------------------------------------- */

/* Returns a field of the file's name, from --fields or the problem, as a new reference; NULL:
 * neither has the field. */
static json_t *fused_find_field(const json_t *problem, const json_t *fields, const char *field)
{
    char name[RECORD_NAME_MAX];
    int64_t divisor;
    if (!fused_moe_reference(fields, field, name, &divisor)) {
        json_t *given = json_object_get(fields, field);
        return given ? json_incref(given) : custom_find(problem, field);
    }
    json_auto_t *v = custom_find(problem, name);
    const json_int_t n = json_integer_value(v);
    return n > 0 && n % divisor == 0 ? json_integer(n / divisor) : NULL;
}

static bool fused_is_true(const json_t *problem, const json_t *fields, const char *field)
{
    json_auto_t *v = fused_find_field(problem, fields, field);
    const char *text = json_string_value(v);
    return json_is_true(v) || (text && strcmp(text, "True") == 0);
}

/* A field that is a number; 0: neither --fields nor the problem has it. */
static json_int_t fused_number(const json_t *problem, const json_t *fields, const char *field)
{
    json_auto_t *v = fused_find_field(problem, fields, field);
    const json_int_t n = json_integer_value(v);
    return n > 0 ? n : 0;
}

/* A field as text, malloc'ed; NULL: no such field, or a file's name cannot hold the text. */
static char *fused_text(const json_t *problem, const json_t *fields, const char *field)
{
    json_auto_t *v = fused_find_field(problem, fields, field);
    const char *text = json_string_value(v);
    const bool ok = text && *text && !strpbrk(text, ",/ ") && strcmp(text, "None") != 0;
    return ok ? text_copy(text) : NULL;
}

/* The device's name in a file's name; vLLM has one name for all variants of the H200. malloc'ed. */
static char *fused_device(const json_t *device, bool is_sglang)
{
    char *name = text_copy(field_text(device, "name"));
    for (char *c = name; *c; c++) {
        *c = *c == ' ' || *c == '/' || *c == ',' ? '_' : *c;
    }
    const char *h200 = strstr(name, "H200");
    const bool is_h200 = h200 && (h200 == name || h200[-1] == '_') && (!h200[4] || h200[4] == '_');
    if (is_h200 && !is_sglang) {
        free(name);
        return text_copy("NVIDIA_H200");
    }
    return name;
}

/* True when a field has a value: null, false, 0, "" and Python's None count as no value. */
static bool fused_has_value(const json_t *problem, const json_t *fields, const char *field)
{
    json_auto_t *v = fused_find_field(problem, fields, field);
    const char *text = json_string_value(v);
    const bool is_zero = json_is_integer(v) && json_integer_value(v) == 0;
    return text ? *text && strcmp(text, "None") != 0
                : v && !json_is_null(v) && !json_is_false(v) && !is_zero;
}

/* The file's path below --to, malloc'ed. NULL: the problem has no such file, for the reason `why`.
 */
static char *fused_path(const json_t *problem, const json_t *fields, const char *device,
                        bool is_sglang, const char **why)
{
    const json_int_t e = fused_number(problem, fields, "E"), n = fused_number(problem, fields, "N");
    const json_int_t block_n = fused_number(problem, fields, "block_n");
    const json_int_t block_k = fused_number(problem, fields, "block_k");
    const bool is_down = fused_is_true(problem, fields, "down");
    TEXT_AUTO *version = fused_text(problem, fields, "triton"),
              *dtype = fused_text(problem, fields, "dtype");
    char *path = NULL;
    for (char *c = version; c && *c; c++) {
        *c = *c == '.' ? '_' : *c;
    }
    if (!e || !n || !fused_number(problem, fields, "M")) {
        *why = "its problem has no E, N and M: --fields says where they are";
    } else if (is_sglang && !version) {
        *why =
            "sglang has a folder for each version of Triton, and its problem has no field triton";
    } else if (is_down && !is_sglang) {
        *why = "vLLM has no files of the second product";
    } else if (!dtype && fused_has_value(problem, fields, "dtype")) {
        *why = "a file's name cannot hold its dtype";
    } else if (!block_n != !block_k ||
               (!block_n && (fused_has_value(problem, fields, "block_n") ||
                             fused_has_value(problem, fields, "block_k")))) {
        *why = "its block_n and block_k are not two numbers above 0";
    } else {
        path = is_sglang ? text_format("configs/triton_%s/", version) : text_copy("");
        path = text_append(path, "E=%lld,N=%lld,device_name=%s", e, n, device);
        path = dtype ? text_append(path, ",dtype=%s", dtype) : path;
        path = block_n ? text_append(path, ",block_shape=[%lld,%s%lld]", block_n,
                                     is_sglang ? " " : "", block_k)
                       : path;
        path = is_sglang && fused_is_true(problem, fields, "per_channel_quant")
                   ? text_append(path, ",per_channel_quant=True")
                   : path;
        path = text_append(path, "%s.json", is_down ? "_down" : "");
    }
    return path;
}

/* The config as the formats write it, without Triton's default num_ctas=1. NULL: the formats cannot
 * express the config, for the reason `why`. */
static json_t *fused_make_entry(const json_t *config, const char **why)
{
    json_auto_t *entry = json_object();
    for (size_t i = 0; i < FUSED_MOE_PARAMS; i++) {
        json_t *v = json_object_get(config, fused_moe_params[i]);
        json_object_set(entry, fused_moe_params[i], v);
        if (!json_is_integer(v)) {
            *why = "its config lacks a parameter of their Triton kernel: BLOCK_SIZE_M, "
                   "BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M, num_warps, num_stages";
            return NULL;
        }
    }
    OBJECT_EACH(name, v, config) {
        if (json_is_string(v)) {
            *why = "its config has a parameter that is a text, such as the hash of a pre_hook";
            return NULL;
        }
        if (strcmp(name, "num_ctas") != 0 || json_integer_value(v) != 1) {
            json_object_set(entry, name, v);
        }
    }
    return json_incref(entry);
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Adds an entry to `files`, {path: {"version", "entries": [{"M", "entry", "time_us"}]}}. Of two
 * rows with the same path and M, the file gets the faster. */
static void fused_put(struct writing *w, json_t *files, const char *path, json_t *new,
                      const char *version, const json_t *row)
{
    json_t *file = json_object_get(files, path);
    if (!file) {
        file = json_pack("{s[], ss}", "entries", "version", version ? version : "");
        json_object_set_new(files, path, file);
    }
    if (!field_is(file, "version", version ? version : "")) {
        writing_skip(w, row, "the file's newest row is of another version of Triton");
        return;
    }
    json_t *entries = json_object_get(file, "entries");
    ARRAY_EACH_AT(i, e, entries) {
        if (field_int(e, "M") != field_int(new, "M")) {
            continue;
        }
        writing_skip(w, row, "another row has the same E, N, M and types; the faster is written");
        if (custom_is_faster(new, e)) {
            json_array_set(entries, i, new);
        }
        return;
    }
    json_array_append(entries, new);
}

static void fused_add_row(struct writing *w, json_t *files, const json_t *row, const json_t *fields,
                          const char *device, bool is_sglang)
{
    const json_t *problem = json_object_get(row, "problem");
    const char *why = NULL;
    TEXT_AUTO *path = fused_path(problem, fields, device, is_sglang, &why);
    json_auto_t *entry = path ? fused_make_entry(json_object_get(row, "config"), &why) : NULL;
    if (entry) {
        TEXT_AUTO *version = is_sglang ? NULL : fused_text(problem, fields, "triton");
        json_auto_t *new = json_pack("{sI, sO, sO}", "M", fused_number(problem, fields, "M"),
                                     "entry", entry, "time_us", json_object_get(row, "time_us"));
        fused_put(w, files, path, new, version, row);
    } else {
        writing_skip(w, row, why);
    }
}

static int fused_save(struct writing *w, const char *name, const json_t *file)
{
    static const char *const order[] = {"M", NULL};
    json_t *entries = json_object_get(file, "entries");
    json_auto_t *document = json_object();
    const char *version = field_text(file, "version");
    rows_sort(entries, order);
    if (*version) {
        json_object_set_new(document, "triton_version", json_string(version));
    }
    ARRAY_EACH(e, entries) {
        char m[24];
        snprintf(m, sizeof(m), "%lld", field_int(e, "M"));
        json_object_set(document, m, json_object_get(e, "entry"));
    }
    char *path = text_format("%s%s%s", w->to, writing_slash(w->to), name);
    char *text = text_append(text_dump(document, JSON_INDENT(4)), "\n");
    return writing_add_file(w, path, text, json_array_size(entries));
}

static int fused_write(struct writing *w)
{
    const bool is_sglang = w->format == &format_sglang;
    if (!w->to || strcmp(w->to, "-") == 0) {
        return ctl_usage("these files are found by their names: give --to DIR");
    }
    struct error e;
    const char *given = w->s->given[OWN_FIELDS];
    json_auto_t *fields = given ? text_to_json(given, &e) : NULL;
    json_auto_t *files = json_object();
    if (given && !fields) {
        return ctl_usage("--fields: %s", e.text);
    }
    TEXT_AUTO *device = fused_device(w->device, is_sglang);
    int code = DONE;
    json_auto_t *rows = custom_rows(w, &code);
    ARRAY_EACH(row, rows) {
        fused_add_row(w, files, row, fields, device, is_sglang);
    }
    OBJECT_EACH(name, file, files) {
        code = code ? code : fused_save(w, name, file);
    }
    return code;
}

const struct format format_vllm = {
    .name = "vllm", .read_rows = fused_moe_read, .write = fused_write, .has_fields = true};
const struct format format_sglang = {
    .name = "sglang", .read_rows = fused_moe_read, .write = fused_write, .has_fields = true};
