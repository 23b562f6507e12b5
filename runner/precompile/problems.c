/* SPDX-License-Identifier: Apache-2.0 */
/* The searches to precompile: the usual problems of each family. With --problems the searches come
 * from lines of stdin: a problem's text, or a search as JSON, as `tune` takes it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/family.h"
#include "runner/precompile/precompile.h"

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

/* Appends the modes of an op's field "mode" to a list, unless the list has the mode. */
static void precompile_list_modes(const struct op *op, char *list, size_t size)
{
    for (uint32_t i = 0; i < op->n_fields; i++) {
        const bool is_mode = strcmp(op->fields[i].name, "mode") == 0;
        for (const char *const *c = op->fields[i].choices; is_mode && c && *c; c++) {
            const size_t n = strlen(list);
            if (!n || !list_names(list, *c)) {
                snprintf(list + n, size - n, "%s%s", n ? "," : "", *c);
            }
        }
    }
}

static int precompile_check_modes(const char *modes, struct error *err)
{
    char list[256] = "";
    for (const struct family *const *f = families; *f; f++) {
        precompile_list_modes((*f)->op, list, sizeof(list));
    }
    for (const char *at = modes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        int n = (int)strcspn(at, ",");
        char word[16];
        snprintf(word, sizeof(word), "%.*s", n, at);
        if (n > 15 || !list_names(list, word)) {
            return error_set(err, ERROR_INVALID, "mode \"%.*s\": it is of %s", n, at, list);
        }
    }
    return 0;
}

/* Adds a usual problem's search. Skips a problem that the op or the target refuses. */
static int add_usual(const struct precompile_order *o, const char *text, bool *any,
                     struct error *err)
{
    struct request r = {.n_restrict = 0};
    struct error why = ERROR_NULL;
    if (problem_parse(&r.problem, text, NULL) != 0 ||
        !list_names(o->modes, record_text(&r.problem.fields, "mode", ""))) {
        return 0;
    }
    int status = precompile_add_search(&o->setup, &r, &why);
    *any = *any || status == 0;
    return status == 0 || status == ERROR_NO_CONFIG ? 0 : error_set(err, status, "%s", why.text);
}

static int add_family(const struct precompile_order *o, const struct family *f, bool *any,
                      struct error *err)
{
    char text[512];
    bool is_rare = false;
    int r = 0;
    for (uint32_t i = 0; r == 0 && f->usual && f->usual(i, text, sizeof(text), &is_rare); i++) {
        r = is_rare && !o->all ? 0 : add_usual(o, text, any, err);
    }
    return r;
}

static int add_all_usual(const struct precompile_order *o, struct error *err)
{
    const char *target = o->setup.target;
    bool any = false;
    int r = precompile_check_modes(o->modes, err);
    for (const struct family *const *f = families; *f && r == 0; f++) {
        /* A target may be of one family alone. The first family's error lists the targets. */
        if (f == families || !target || family_target_find(*f, &o->setup.info, target)) {
            r = add_family(o, *f, &any, err);
        }
    }
    if (r == 0 && !any) {
        r = error_set(err, ERROR_NO_CONFIG, "target %s has no kernels for %s of %s",
                      target ? target : "", o->modes ? o->modes : "any mode", o->setup.info.name);
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
