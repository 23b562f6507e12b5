/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads aiter's JSON of a GEMM: one config for each class of M. The file's name gives N and K. Two
 * schemes of classes are in use: M_LEQ_x, M_GEQ_x, any; and the older small, medium_M32/64/128,
 * large, xlarge, any. An M between two medium classes is rounded up.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

enum { NUMBER_MAX = 65536, SIZE_MOST = 1 << 30, CLASSES_MAX = 256 };

/* Parameters of a config in the file; a value of 0: the compiler chooses. */
static const struct {
    const char *name;
    bool required, used; /* used: a gemmd kernel has the parameter */
    int least;
} params[] = {
    {"BLOCK_SIZE_M", true, true, 1},     {"BLOCK_SIZE_N", true, true, 1},
    {"BLOCK_SIZE_K", true, true, 1},     {"GROUP_SIZE_M", true, true, 0},
    {"num_warps", true, true, 1},        {"num_stages", true, true, 0},
    {"NUM_KSPLIT", false, true, 0},      {"waves_per_eu", false, false, 0},
    {"kpack", false, false, 0},          {"matrix_instr_nonkdim", false, false, 0},
    {"cache_modifier", false, false, 0},
};

/* Classes of the second scheme, in the order in which M is looked up, and the M that stands for
 * each. `small` is below 32; its users tune 16. */
static const struct {
    const char *name;
    int64_t most, bound;
} class_words[] = {{"small", 31, 16},         {"medium_M32", 32, 32}, {"medium_M64", 64, 64},
                   {"medium_M128", 128, 128}, {"large", 256, 256},    {"xlarge", INT64_MAX, 0}};

const struct aiter_kernel aiter_kernels[AITER_KERNELS] = {
    {"A16W16", "gemm_a16w16", NULL},
    {"A8W8_BLOCKSCALE", "gemm_a8w8_blockscale", "gemm_a8w8_blockscale"},
};

struct reading {
    const char *path, *text;
    json_t *out; /* borrowed: the `out` of format.read */
};

/* ---- where ---------------------------------------------------------------------------------- */

/* For error messages: the number of the line where the parameter "param" stands within the class
 * "class", or of the class when the parameter is not found (JSON escapes hide the name). */
static int line_of(const struct reading *r, const char *class, const char *param)
{
    char quoted[80];
    snprintf(quoted, sizeof(quoted), "\"%.70s\"", class);
    const char *at = strstr(r->text, quoted);
    const char *end = at ? strchr(at, '}') : NULL;
    if (at && param) {
        snprintf(quoted, sizeof(quoted), "\"%.70s\"", param);
        const char *deeper = strstr(at + 1, quoted);
        at = deeper && (!end || deeper < end) ? deeper : at;
    }
    int line = 1;
    for (const char *c = r->text; at && c < at; c++) {
        line += *c == '\n';
    }
    return line;
}

static int aiter_refuse_param(const struct reading *r, const char *class, const char *param,
                              const char *what)
{
    return ctl_failed("%s, line %d: %.60s%s%.60s: %s", r->path, line_of(r, class, param), class,
                      param ? ": " : "", param ? param : "", what);
}

/* ---- classes -------------------------------------------------------------------------------- */

/* Returns x of a class "M_LEQ_x", for the prefix "M_LEQ_"; 0 for another class. */
static int64_t number_behind(const char *class, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(class, prefix, n) != 0 || !class[n] || strlen(class + n) > 10 ||
        class[n + strspn(class + n, "0123456789")]) {
        return 0;
    }
    long long v = strtoll(class + n, NULL, 10);
    return v <= SIZE_MOST ? v : 0;
}

static int word_of(const char *class)
{
    for (size_t i = 0; i < COUNT(class_words); i++) {
        if (strcmp(class_words[i].name, class) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* Returns the scheme of a class: 1 for M_LEQ_x and M_GEQ_x; 2 for words; 0 for "any", which is in
 * both; -1: not a class. */
static int scheme_of(const char *class)
{
    return number_behind(class, "M_LEQ_") || number_behind(class, "M_GEQ_") ? 1
           : word_of(class) >= 0                                            ? 2
           : strcmp(class, "any") == 0                                      ? 0
                                                                            : -1;
}

/* Returns the largest M that a class is for; 0: it has no such bound. */
static int64_t aiter_bound(const char *class)
{
    int word = word_of(class);
    return word >= 0 ? class_words[word].bound : number_behind(class, "M_LEQ_");
}

static const json_t *aiter_find_named(const json_t *entries, const char *class)
{
    ARRAY_EACH(e, entries) {
        if (field_is(e, "class", class)) {
            return e;
        }
    }
    return NULL;
}

/* Finds M_LEQ_x with the lowest x >= m, else M_GEQ_x with the highest x <= m. */
static const json_t *aiter_find_numbered(const json_t *entries, int64_t m)
{
    const json_t *leq = NULL, *geq = NULL;
    int64_t least = 0, most = 0;
    ARRAY_EACH(e, entries) {
        const char *class = field_text(e, "class");
        int64_t up = number_behind(class, "M_LEQ_"), down = number_behind(class, "M_GEQ_");
        if (up >= m && up > 0 && (!leq || up < least)) {
            leq = e;
            least = up;
        }
        if (down > most && down <= m) {
            geq = e;
            most = down;
        }
    }
    return leq ? leq : geq;
}

const json_t *aiter_find(const json_t *entries, int64_t m)
{
    const json_t *found = aiter_find_numbered(entries, m);
    for (size_t i = 0; i < COUNT(class_words) && !found; i++) {
        if (m <= class_words[i].most) {
            found = aiter_find_named(entries, class_words[i].name);
            break;
        }
    }
    return found ? found : aiter_find_named(entries, "any");
}

/* ---- entries -------------------------------------------------------------------------------- */

static int read_param(const struct reading *r, const char *class, const char *name, const json_t *v)
{
    size_t i = 0;
    while (i < COUNT(params) && strcmp(params[i].name, name) != 0) {
        i++;
    }
    if (i == COUNT(params) || !params[i].used) {
        notice_count(json_object_get(r->out, "unused"), name, 1);
    }
    if (i == COUNT(params)) {
        return DONE; /* a parameter of a newer aiter is ignored */
    }
    if (strcmp(name, "cache_modifier") == 0) {
        return json_is_string(v) || json_is_null(v)
                   ? DONE
                   : aiter_refuse_param(r, class, name, "it must be a text or null");
    }
    const json_int_t number = json_integer_value(v);
    if (!json_is_integer(v) || number < params[i].least || number > NUMBER_MAX) {
        return aiter_refuse_param(r, class, name,
                                  params[i].least ? "it must be a whole number from 1 to 65536"
                                                  : "it must be a whole number from 0 to 65536");
    }
    return DONE;
}

static int aiter_read_entry(const struct reading *r, const char *class, const json_t *value)
{
    if (scheme_of(class) < 0) {
        return aiter_refuse_param(
            r, class, NULL,
            "no class of M: M_LEQ_64, M_GEQ_8192, any, small, medium_M32, large, xlarge, ...");
    }
    if (!json_is_object(value)) {
        return aiter_refuse_param(r, class, NULL, "an object with the config is wanted");
    }
    OBJECT_EACH(name, v, value) {
        int code = read_param(r, class, name, v);
        if (code) {
            return code;
        }
    }
    for (size_t i = 0; i < COUNT(params); i++) {
        if (params[i].required && !json_object_get(value, params[i].name)) {
            return ctl_failed("%s, line %d: %.60s: %s is missing", r->path, line_of(r, class, NULL),
                              class, params[i].name);
        }
    }
    json_array_append_new(json_object_get(r->out, "entries"),
                          json_pack("{ss, sI, si, sO}", "class", class, "bound",
                                    (json_int_t)aiter_bound(class), "line", line_of(r, class, NULL),
                                    "tile", value));
    return DONE;
}

static int aiter_read_document(const struct reading *r, const json_t *document)
{
    const size_t n = json_object_size(document);
    if (n == 0 || n > CLASSES_MAX) {
        return ctl_failed("%s has %zu classes of M; from 1 to %d are wanted", r->path, n,
                          CLASSES_MAX);
    }
    int scheme = 0;
    OBJECT_EACH(class, v, document) {
        int code = aiter_read_entry(r, class, v);
        int s = code ? 0 : scheme_of(class);
        if (code) {
            return code;
        }
        if (s && scheme && s != scheme) {
            return aiter_refuse_param(r, class, NULL,
                                      "this class is of another scheme than those before it");
        }
        scheme = s ? s : scheme;
    }
    return DONE;
}

/* ---- the file's name ------------------------------------------------------------------------ */

static int64_t size_in_name(const char *name, const char *what)
{
    const char *at = strstr(name, what);
    char *end;
    long long v = at ? strtoll(at + strlen(what), &end, 10) : 0;
    return at && (*end == '-' || *end == '.' || !*end) && v > 0 && v <= SIZE_MOST ? v : 0;
}

/* Copies the name that has N and K: the file's name, or for DEFAULT.json the folder's name. */
static void name_about(const char *path, const char *name, char out[PATH_MAX])
{
    if (strcasestr(name, "GEMM") || name == path) {
        snprintf(out, PATH_MAX, "%s", name);
        return;
    }
    const char *end = name - 1, *begin = end;
    while (begin > path && begin[-1] != '/') {
        begin--;
    }
    snprintf(out, PATH_MAX, "%.*s", (int)(end - begin), begin);
}

static int read_name(const char *path, json_t *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char about[PATH_MAX];
    name_about(path, name, about);
    const char *tag = strcasestr(about, "gemm-");
    tag = tag ? tag : strcasestr(about, "gemm_");
    const struct aiter_kernel *k = aiter_kernels, *end = aiter_kernels + AITER_KERNELS;
    while (tag && k < end && strncasecmp(tag + 5, k->name, strlen(k->name)) != 0) {
        k++;
    }
    if (k == end) {
        return ctl_failed("%s is of %.40s: only GEMM-A16W16, operands of 16 bits, and "
                          "GEMM-A8W8_BLOCKSCALE are known here",
                          path, tag);
    }
    const char *behind = tag ? tag + 5 + strlen(k->name) : "";
    if (strncmp(behind, "-N=", 3) != 0 && (*behind == '-' || *behind == '_') &&
        strncmp(behind, "-K=", 3) != 0 && strncmp(behind, "-B=", 3) != 0) {
        return ctl_failed("%s is of %.40s, which is another kernel than GEMM-%s", path, tag,
                          k->name);
    }
    if (k->op) {
        json_object_set_new(out, "op", json_string(k->op));
    }
    if (strstr(name, "-B=")) {
        return ctl_failed("%s is of a batched GEMM, which has no counterpart here", path);
    }
    json_object_set_new(out, "N", json_integer(size_in_name(name, "-N=")));
    json_object_set_new(out, "K", json_integer(size_in_name(name, "-K=")));
    return DONE;
}

int aiter_read(const char *path, json_t *out)
{
    struct error e;
    json_error_t why;
    const size_t n = strlen(path);
    json_object_set_new(out, "mode", json_string("forward"));
    if (n > 4 && strcmp(path + n - 4, ".csv") == 0) {
        return aiter_csv_read(path, out);
    }
    if (read_name(path, out)) {
        return FAILED;
    }
    TEXT_AUTO *text = text_read_file(path, &e);
    json_auto_t *document = text ? json_loads(text, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (!document) {
        return text ? ctl_failed("%s, line %d: %s", path, why.line, why.text)
                    : ctl_failed("%s", e.text);
    }
    if (!json_is_object(document)) {
        return ctl_failed("%s, line 1: an object with classes of M is wanted", path);
    }
    const struct reading r = {.path = path, .text = text, .out = out};
    return aiter_read_document(&r, document);
}
