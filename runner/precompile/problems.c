/* SPDX-License-Identifier: Apache-2.0 */
/* The searches to precompile. The usual problems are every mode with each of its permutes, in
 * four sizes. Four are enough: a variant does not contain the sizes, which only change slightly
 * which configs are legal and good. With --problems the searches come from lines of stdin: a
 * problem's text, or a search as JSON, as `tune` takes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "runner/precompile/precompile.h"

static const struct {
    const char *mode, *fields;
    bool rare; /* true: only with --all */
} usual_modes[] = {
    {"forward", "mode=forward", false},
    {"forward", "mode=forward permute_x=true", false},
    {"forward", "mode=forward permute_y=true", false},
    {"forward", "mode=forward permute_y=true fuse_mul_post=true", true},
    {"dX", "mode=dX", false},
    {"dX", "mode=dX permute_x=true", false},
    {"dX", "mode=dX permute_y=true", false},
    {"dW", "mode=dW", false},
    {"dW", "mode=dW permute_x=true", false},
    {"dW", "mode=dW permute_y=true", false},
};
static const struct {
    const char *fields;
    bool rare;
} usual_types[] = {
    {"dtype_in=bf16", false},
    {"dtype_in=fp16", true},
    {"dtype_in=fp32", true},
    {"dtype_in=bf16 dtype_out=fp32", true},
    {"dtype_in=fp16 dtype_out=fp32", true},
    {"quant=fp8_block", true},
    {"quant=fp8_row", true},
    {"quant=fp8_block dtype_out=fp32", true},
    {"quant=fp8_row dtype_out=fp32", true},
};
static const char *const usual_sizes[] = {
    "M=65536 N=8192 K=8192 experts=8 topk=2",
    "M=65536 N=8192 K=8192 experts=128 topk=8",
    "M=65536 N=2048 K=2048 experts=1024 topk=8",
    "M=64 N=2048 K=2048 experts=8 topk=2",
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- the usual problems ---------------------------------------------------------------------- */

static bool list_names(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || !at[n])) {
            return true;
        }
    }
    return !list;
}

static int precompile_check_modes(const char *modes, struct error *err)
{
    for (const char *at = modes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = (int)strcspn(at, ",");
        char word[16];
        snprintf(word, sizeof(word), "%.*s", n, at);
        if (n > 15 || !list_names("forward,dX,dW", word)) {
            return error_set(err, ERROR_INVALID, "mode \"%.*s\": it is forward, dX or dW", n, at);
        }
    }
    return 0;
}

/* Adds a usual problem's search. Skips a problem that the op or the target refuses. */
static int add_usual(const struct precompile_order *o, const char *mode, const char *type,
                     const char *size, bool *any, struct error *err)
{
    char text[512];
    struct request r = {.n_restrict = 0};
    struct error why = ERROR_NULL;
    snprintf(text, sizeof(text), "grouped_gemm %s %s %s", mode, type, size);
    if (problem_parse(&r.problem, text, NULL) != 0) {
        return 0;
    }
    int status = precompile_add_search(&o->setup, &r, &why);
    *any = *any || status == 0;
    return status == 0 || status == ERROR_NO_CONFIG ? 0 : error_set(err, status, "%s", why.text);
}

static int add_all_usual(const struct precompile_order *o, struct error *err)
{
    bool any = false;
    int r = precompile_check_modes(o->modes, err);
    for (size_t i = 0; i < COUNT(usual_modes) * COUNT(usual_types) && r == 0; i++) {
        size_t m = i % COUNT(usual_modes), t = i / COUNT(usual_modes);
        bool rare = usual_modes[m].rare || usual_types[t].rare;
        bool wanted = list_names(o->modes, usual_modes[m].mode) && (!rare || o->all);
        for (size_t k = 0; wanted && k < COUNT(usual_sizes) && r == 0; k++) {
            r = add_usual(o, usual_modes[m].fields, usual_types[t].fields, usual_sizes[k], &any,
                          err);
        }
    }
    if (r == 0 && !any) {
        r = error_set(err, ERROR_NO_CONFIG, "target %s has no kernels for %s of %s",
                      o->setup.target ? o->setup.target : "", o->modes ? o->modes : "any mode",
                      o->setup.info.name);
    }
    return r;
}

/* ---- lines ----------------------------------------------------------------------------------- */

static int read_search(const char *line, struct request *r, struct error *err)
{
    const struct wire_obj *map;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    struct wire_doc *doc = wire_doc_new();
    int status = doc ? wire_from_json(&packed, line, err)
                     : error_set(err, ERROR_NO_MEMORY, "no memory for a search");
    status = status ? status : wire_decode(doc, packed.data, packed.len, &map, err);
    status = status ? status : request_unpack(r, map, err);
    wire_doc_free(doc);
    return status;
}

/* Adds the search of a line. An empty space skips a JSON search, but is an error for a problem. */
static int add_line(const struct precompile_setup *s, const char *line, struct error *err)
{
    bool search = line[0] == '{';
    struct request r = {.n_restrict = 0};
    struct error why = ERROR_NULL;
    int status = search ? read_search(line, &r, &why) : problem_parse(&r.problem, line, &why);
    status = status ? status : precompile_add_search(s, &r, &why);
    request_deinit(&r);
    return status == 0 || (search && status == ERROR_NO_CONFIG)
               ? 0
               : error_set(err, status, "%s", why.text);
}

static int add_lines(const struct precompile_order *o, struct error *err)
{
    char *line = NULL;
    size_t room = 0;
    int r = 0, lines = 0;
    for (ssize_t n; r == 0 && (n = getline(&line, &room, stdin)) > 0;) {
        line[n - (line[n - 1] == '\n')] = '\0';
        if (line[0]) {
            lines++;
            r = add_line(&o->setup, line, err);
        }
    }
    if (r == 0 && lines == 0) {
        r = error_set(err, ERROR_INVALID, "no problem is given: one line of text for each");
    }
    free(line);
    return r;
}

int precompile_add_problems(const struct precompile_order *o, struct error *err)
{
    return o->problems ? add_lines(o, err) : add_all_usual(o, err);
}
