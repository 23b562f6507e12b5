/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export, import, backup. An export is one JSON document that holds the rows of `best` as the
 * database has them, every digit of every number: imported into an empty database and exported
 * again, it gives the same rows.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum { KEY_OUTPUT = 0x5000, FORMAT_VERSION = 1, CHUNK_BYTES = 40 * 1024, CHUNK_ROWS = 256 };

struct transfer {
    struct ctl ctl;
    const char *path;    /* borrowed */
    bool path_is_option; /* export: --output */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct transfer *t = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &t->ctl;
        return 0;
    case KEY_OUTPUT:
        t->path = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (t->path_is_option || t->path) {
            argp_error(state, "\"%s\" is too much", arg);
        }
        t->path = arg;
        return 0;
    case ARGP_KEY_END:
        if (!t->path) {
            argp_error(state, "which file?");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&ctl_argp, 0, NULL, 0}, {0}};

/* ---- export --------------------------------------------------------------------------------- */

static int write_document(const json_t *document, const char *path)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!f) {
        return ctl_failed("cannot write %s: %s", path, strerror(errno));
    }
    int r = json_dumpf(document, f, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    r = fputc('\n', f) == EOF ? -1 : r;
    int ended = f == stdout ? fflush(f) : fclose(f);
    return r || ended ? ctl_failed("cannot write %s: %s", path, strerror(errno)) : DONE;
}

static int export(struct transfer *t)
{
    int code = ctl_connect(&t->ctl);
    json_t *rows = code ? NULL : ctl_list(&t->ctl, "best", NULL, &code);
    json_t *status = rows ? ctl_call(&t->ctl, "status", NULL, &code) : NULL;
    if (!status) {
        json_decref(rows);
        return code;
    }
    size_t n = json_array_size(rows);
    json_t *document =
        json_pack("{si, sO*, sO*, sO*, sI, so}", "gemmd_export", FORMAT_VERSION, "build",
                  json_object_get(status, "build"), "device", json_object_get(status, "device"),
                  "bucket_scheme", json_object_get(status, "bucket_scheme"), "exported_s",
                  (json_int_t)time(NULL), "rows", rows);
    json_decref(status);
    code = write_document(document, t->path);
    json_decref(document);
    if (code == DONE && !t->ctl.quiet && strcmp(t->path, "-") != 0) {
        fprintf(stderr, "%zu rows written to %s\n", n, t->path);
    }
    return code;
}

int cmd_export(int argc, char **argv)
{
    static char standard[] = "-";
    static const struct argp_option options[] = {
        {"output", KEY_OUTPUT, "FILE", 0, "instead of stdout", 1}, {0}};
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .children = children,
        .doc = "Writes all current answers as one JSON document, which `gemmctl import` reads."};
    struct transfer t = {.path_is_option = true, .path = standard};
    argp_parse(&argp, argc, argv, 0, NULL, &t);
    int code = export(&t);
    ctl_deinit(&t.ctl);
    return code;
}

/* ---- import --------------------------------------------------------------------------------- */

static json_t *read_export(const char *path, json_t **document)
{
    struct gemmd_error e;
    *document = text_read_json(path, &e);
    if (!*document) {
        ctl_failed("%s", e.text);
        return NULL;
    }
    json_t *rows = json_object_get(*document, "rows");
    if (json_integer_value(json_object_get(*document, "gemmd_export")) != FORMAT_VERSION ||
        !json_is_array(rows)) {
        ctl_failed("%s is not an export of gemmctl (version %d)", path, FORMAT_VERSION);
        return NULL;
    }
    return rows;
}

/* Sends a chunk of rows, of which the first is row `first` of the document, and adds up. */
static int send_rows(struct transfer *t, json_t *rows, size_t first, json_t *total)
{
    int code = DONE;
    json_t *result = ctl_call(&t->ctl, "import", json_pack("{sO}", "rows", rows), &code);
    if (!result) {
        return code;
    }
    json_int_t imported = json_integer_value(json_object_get(total, "imported")) +
                          json_integer_value(json_object_get(result, "imported"));
    json_object_set_new(total, "imported", json_integer(imported));
    size_t i;
    json_t *s;
    json_array_foreach (json_object_get(result, "skipped"), i, s) {
        json_int_t row = json_integer_value(json_object_get(s, "row")) + (json_int_t)first;
        json_object_set_new(s, "row", json_integer(row));
        json_array_append(json_object_get(total, "skipped"), s);
    }
    json_decref(result);
    return DONE;
}

static size_t json_bytes(const json_t *j)
{
    return json_dumpb(j, NULL, 0, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

static int send_all(struct transfer *t, const json_t *rows, json_t *total)
{
    json_t *chunk = json_array();
    size_t bytes = 0, i;
    json_t *row;
    int code = DONE;
    json_array_foreach ((json_t *)(uintptr_t)rows, i, row) {
        size_t n = json_bytes(row);
        bool full = bytes + n > CHUNK_BYTES || json_array_size(chunk) == CHUNK_ROWS;
        if (code == DONE && full && bytes > 0) {
            code = send_rows(t, chunk, i - json_array_size(chunk), total);
            json_array_clear(chunk);
            bytes = 0;
        }
        json_array_append(chunk, row);
        bytes += n;
    }
    if (code == DONE && json_array_size(chunk) > 0) {
        code = send_rows(t, chunk, json_array_size(rows) - json_array_size(chunk), total);
    }
    json_decref(chunk);
    return code;
}

static int print_import(struct transfer *t, json_t *total)
{
    if (t->ctl.json) {
        return ctl_print_json(total);
    }
    const json_t *skipped = json_object_get(total, "skipped");
    printf("%lld imported, %zu skipped\n",
           (long long)json_integer_value(json_object_get(total, "imported")),
           json_array_size(skipped));
    size_t i;
    json_t *s;
    json_array_foreach ((json_t *)(uintptr_t)skipped, i, s) {
        char *message = text_visible(show_plain(json_object_get(s, "message")));
        fprintf(stderr, "row %lld skipped: %s\n",
                (long long)json_integer_value(json_object_get(s, "row")), message ? message : "");
        free(message);
    }
    json_decref(total);
    return DONE;
}

static int import(struct transfer *t)
{
    json_t *document;
    json_t *rows = read_export(t->path, &document);
    if (!rows) {
        json_decref(document);
        return FAILED;
    }
    json_t *total = json_pack("{si, s[]}", "imported", 0, "skipped");
    int code = ctl_connect(&t->ctl);
    code = code ? code : send_all(t, rows, total);
    json_decref(document);
    if (code) {
        json_decref(total);
        return code;
    }
    return print_import(t, total);
}

int cmd_import(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "FILE",
        .children = children,
        .doc =
            "Reads what `gemmctl export` wrote (\"-\": stdin). Rows of another device class, or of "
            "another kernel source, come in as hints."};
    struct transfer t = {.path = NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &t);
    int code = import(&t);
    ctl_deinit(&t.ctl);
    return code;
}

/* ---- backup --------------------------------------------------------------------------------- */

/* The daemon writes it, so it needs the whole path. malloc'ed. */
static char *absolute(const char *path)
{
    char *here = *path == '/' ? NULL : getcwd(NULL, 0);
    char *text = NULL;
    if (asprintf(&text, "%s%s%s", here ? here : "", here ? "/" : "", path) < 0) {
        text = NULL;
    }
    free(here);
    return text;
}

static int backup(struct transfer *t)
{
    char *path = absolute(t->path);
    int code = ctl_connect(&t->ctl);
    json_t *result =
        code ? NULL : ctl_call(&t->ctl, "backup", json_pack("{ss}", "path", path), &code);
    free(path);
    if (!result || t->ctl.json) {
        return result ? ctl_print_json(result) : code;
    }
    printf("%s\n", json_string_value(json_object_get(result, "path")));
    json_decref(result);
    return DONE;
}

int cmd_backup(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "FILE",
        .children = children,
        .doc = "Writes a copy of the database to a file that does not exist yet, while the daemon "
               "runs and serves."};
    struct transfer t = {.path = NULL};
    argp_parse(&argp, argc, argv, 0, NULL, &t);
    int code = backup(&t);
    ctl_deinit(&t.ctl);
    return code;
}
