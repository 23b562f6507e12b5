/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads vLLM's and sglang's JSON of MoE configs (fused_moe.c) into hints, one for each number of
 * tokens. The problem is --problem's, with the file's E, N, M and types in the places that
 * --fields says. Without --problem the op is custom:fused_moe.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { TEXT_MAX = 256, SIZE_MOST = 1 << 30 };

const char *const fused_moe_params[FUSED_MOE_PARAMS] = {
    "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"};

bool fused_moe_reference(const json_t *fields, const char *field, char name[RECORD_NAME_MAX],
                         int64_t *divisor)
{
    const char *text = field_string(fields, field);
    if (!text || field[1]) { /* E, N, M name a field; others a value */
        return false;
    }
    const size_t n = strcspn(text, "/");
    *divisor = 1;
    if (!record_name_ok(text, n) ||
        (text[n] && !text_read_number(text + n + 1, 1, SIZE_MOST, divisor))) {
        return false;
    }
    snprintf(name, RECORD_NAME_MAX, "%.*s", (int)n, text);
    return true;
}

/* ---- the name -------------------------------------------------------------------------------- */

/* Moves *at behind "<name>=<value>" with a comma before all fields but the first; copies the value,
 * which ends at a comma outside brackets. False: another name, or a long value. */
static bool fused_take(const char **at, const char *name, char value[TEXT_MAX])
{
    const char *from = *at + (**at == ',');
    const size_t n = strlen(name);
    if (strncmp(from, name, n) != 0 || from[n] != '=') {
        return false;
    }
    from += n + 1;
    const size_t length = *from == '[' ? strcspn(from, "]") + 1 : strcspn(from, ",");
    if (length == 0 || length >= TEXT_MAX || length > strlen(from)) {
        return false;
    }
    memcpy(value, from, length);
    value[length] = '\0';
    *at = from + length;
    return true;
}

static bool fused_take_number(const char **at, const char *name, json_t *out)
{
    char text[TEXT_MAX];
    int64_t n;
    return fused_take(at, name, text) && text_read_number(text, 1, SIZE_MOST, &n) &&
           json_object_set_new(out, name, json_integer(n)) == 0;
}

/* Reads the optional fields behind device_name. */
static bool fused_take_types(const char **at, json_t *out)
{
    char text[TEXT_MAX];
    long long n, k;
    int end = 0;
    if (fused_take(at, "dtype", text)) {
        json_object_set_new(out, "dtype", json_string(text));
    }
    if (fused_take(at, "block_shape", text)) {
        if (sscanf(text, "[%lld, %lld]%n", &n, &k, &end) != 2 || text[end] || end == 0 || n < 1 ||
            k < 1) {
            return false;
        }
        json_object_set_new(out, "block_n", json_integer(n));
        json_object_set_new(out, "block_k", json_integer(k));
    }
    if (fused_take(at, "per_channel_quant", text) && strcmp(text, "True") == 0) {
        json_object_set_new(out, "per_channel_quant", json_true());
    }
    return **at == '\0';
}

/* The fields of a file's name, a new object; NULL: no such name. */
static json_t *fused_read_name(const char *path)
{
    const char *slash = strrchr(path, '/'), *at;
    TEXT_AUTO *name = text_copy(slash ? slash + 1 : path);
    char device[TEXT_MAX];
    size_t n = strlen(name);
    json_auto_t *out = json_object();
    bool ok = n > 5 && strcmp(name + n - 5, ".json") == 0;
    if (ok) {
        name[n -= 5] = '\0';
        if (n > 5 && strcmp(name + n - 5, "_down") == 0) {
            name[n - 5] = '\0';
            json_object_set_new(out, "down", json_true());
        }
        at = name;
        ok = fused_take_number(&at, "E", out) && fused_take_number(&at, "N", out) &&
             fused_take(&at, "device_name", device) && fused_take_types(&at, out);
    }
    return ok ? json_incref(out) : NULL;
}

/* Adds the version of Triton that the folder of sglang's file names, as "triton_3_6_0". */
static void fused_add_version(const char *path, json_t *named)
{
    const char *slash = strrchr(path, '/');
    const char *folder = slash;
    while (folder && folder > path && folder[-1] != '/') {
        folder--;
    }
    if (folder && strncmp(folder, "triton_", 7) == 0 && slash > folder + 7) {
        TEXT_AUTO *text = text_format("%.*s", (int)(slash - folder - 7), folder + 7);
        for (char *c = text; *c; c++) {
            *c = *c == '_' ? '.' : *c;
        }
        json_object_set_new(named, "triton", json_string(text));
    }
}

/* ---- problems -------------------------------------------------------------------------------- */

/* Puts a field of the file into the problem. Fails when --fields gives another value. */
static int fused_set_field(const struct custom_file *f, json_t *problem, const char *field,
                           const json_t *value)
{
    char name[RECORD_NAME_MAX];
    int64_t divisor;
    const json_t *given = json_object_get(f->fields, field);
    if (fused_moe_reference(f->fields, field, name, &divisor)) {
        json_auto_t *v = json_integer(json_integer_value(value) * divisor);
        custom_set(problem, name, v);
    } else if (given && !json_equal(given, value)) {
        return ctl_failed("%s has another %s than --fields", f->path, field);
    } else if (!given && !(strcmp(field, "triton") == 0 && json_object_get(problem, field))) {
        custom_set(problem, field, value); /* the problem's own version of Triton stays */
    }
    return DONE;
}

static json_t *fused_make_problem(const struct custom_file *f, const json_t *named, const char *m)
{
    json_auto_t *problem = custom_make_problem(f, "custom:fused_moe");
    json_auto_t *tokens = json_integer(strtoll(m, NULL, 10));
    int code = fused_set_field(f, problem, "M", tokens);
    OBJECT_EACH(field, v, named) {
        code = code ? code : fused_set_field(f, problem, field, v);
    }
    return code ? NULL : json_incref(problem);
}

/* ---- the file -------------------------------------------------------------------------------- */

static bool fused_is_count(const char *text)
{
    int64_t n;
    return strspn(text, "0123456789") == strlen(text) && *text != '0' &&
           text_read_number(text, 1, SIZE_MOST, &n);
}

/* Fails when a config lacks parameters of the Triton kernel: the export has no such configs. */
static int fused_check_config(const struct custom_file *f, const char *where, const json_t *config)
{
    json_auto_t *missing = json_object();
    for (size_t i = 0; i < FUSED_MOE_PARAMS; i++) {
        if (!json_is_integer(json_object_get(config, fused_moe_params[i]))) {
            json_object_set_new(missing, fused_moe_params[i], json_true());
        }
    }
    TEXT_AUTO *names = notice_names(missing);
    if (json_object_size(missing) > 0) {
        return ctl_failed("%s: the config lacks these whole numbers, which the Triton kernel of "
                          "%s needs: %s",
                          where, f->format->name, names);
    }
    return field_int(config, "BLOCK_SIZE_M") >= 1
               ? DONE
               : ctl_failed("%s: BLOCK_SIZE_M must be a number from 1 on", where);
}

/* The config of an entry, with num_ctas = 1 added where the file leaves this parameter out:
 * gemmd.triton's configs always have it. */
static json_t *fused_read_config(const struct custom_file *f, const char *m, const json_t *entry)
{
    TEXT_AUTO *where = text_format("%s: \"%.20s\"", f->path, m);
    json_auto_t *config = json_is_object(entry) ? custom_read_config(entry, where) : NULL;
    if (!json_is_object(entry)) {
        ctl_failed("%s: no config of a kernel", where);
    }
    if (config && fused_check_config(f, where, config)) {
        return NULL;
    }
    if (config && field_is(f->problem, "op", "custom:triton") &&
        !json_object_get(config, "num_ctas")) {
        json_object_set_new(config, "num_ctas", json_integer(1));
    }
    return json_incref(config);
}

static int fused_read_entry(const struct custom_file *f, const json_t *named, const char *m,
                            const json_t *entry, json_t *rows)
{
    if (!fused_is_count(m)) {
        return ctl_failed("%s: \"%.20s\" is no number of tokens", f->path, m);
    }
    json_auto_t *config = fused_read_config(f, m, entry);
    json_t *problem = config ? fused_make_problem(f, named, m) : NULL;
    json_t *row = problem ? custom_make_row(problem) : NULL;
    if (row) {
        json_object_set(row, "config", config);
        json_object_set_new(row, "time_us", json_null());
        json_array_append_new(rows, row);
    }
    return row ? DONE : FAILED;
}

int fused_moe_read(const struct custom_file *f, json_t *out)
{
    struct error e;
    json_auto_t *named = fused_read_name(f->path);
    json_t *rows = json_object_get(out, "rows");
    if (!named) {
        return ctl_failed("%s: the name of such a file says E, N and the device, as in "
                          "E=8,N=14336,device_name=NVIDIA_H100,dtype=fp8_w8a8.json",
                          f->path);
    }
    json_auto_t *document = text_read_json(f->path, &e);
    int code = document ? DONE : ctl_failed("%s", e.text);
    if (f->format == &format_sglang) {
        fused_add_version(f->path, named);
    }
    const char *version = field_string(document, "triton_version");
    if (version && *version) {
        json_object_set_new(named, "triton", json_string(version));
    }
    json_object_del(document, "triton_version");
    OBJECT_EACH(m, entry, document) {
        code = code ? code : fused_read_entry(f, named, m, entry, rows);
    }
    if (code == DONE && json_array_size(rows) == 0) {
        code = ctl_failed("%s has no configs", f->path);
    }
    return code;
}
