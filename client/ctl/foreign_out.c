/* SPDX-License-Identifier: Apache-2.0 */
/* export --format: answers and trials in the formats of other tuners. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

/* ---- notices -------------------------------------------------------------------------------- */

static void print_notices(struct writing *w)
{
    const bool quiet = w->s->ctl.quiet;
    size_t i;
    json_t *x;
    json_array_foreach(w->files, i, x) {
        if (!quiet && strcmp(field_text(x, "path"), "-") != 0) {
            fprintf(stderr, "%lld rows written to %s\n", field_int(x, "rows"),
                    field_text(x, "path"));
        }
    }
    notices_print(w->skipped);
    char *names = quiet ? NULL : notice_names(w->left_out);
    if (names && *names) {
        text_remark("left out, since the format has no name for it: %s", names);
    }
    free(names);
    json_array_foreach(w->notes, i, x) {
        if (!quiet) {
            text_remark("%s", json_string_value(x));
        }
    }
}

static int foreign_finish_writing(struct writing *w, int code)
{
    if (code == DONE && json_array_size(w->files) == 0) {
        print_notices(w);
        return ctl_failed("nothing was written: no answer that is asked for has a counterpart");
    }
    if (code == DONE && w->s->ctl.json) {
        json_object_set_new(w->report, "error", ctl_error()); /* NULL is not set */
        return ctl_print_json(json_incref(w->report));
    }
    if (code == DONE) {
        print_notices(w);
    }
    return code;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Without those of other devices: the formats say of no row whose it is. */
static json_t *only_class(struct writing *w, json_t *rows, const char *class)
{
    json_t *ours = json_array();
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        const char *its = field_string(row, "class");
        if (!class || !its || strcmp(class, its) == 0) {
            json_array_append(ours, row);
        } else {
            writing_skip(w, row, "it is of another class of devices");
        }
    }
    json_decref(rows);
    return ours;
}

static int write_rows(struct writing *w, const char *format)
{
    int code = DONE;
    struct ctl *c = &w->s->ctl;
    json_t *status = listing_status(w->s, &code);
    json_t *rows = status ? ctl_list(c, "best", json_incref(w->s->filter), &code) : NULL;
    const char *arch = field_string(status, "device.arch");
    if (rows) {
        rows = only_class(w, rows, field_string(status, "device.class"));
        w->rows = rows;
        code = strcmp(format, "aiter") == 0 ? aiter_write(w, arch && *arch ? arch : "unknown")
                                            : unsloth_write(w);
    }
    w->incomplete =
        code == DONE && unsaved_fail(status, unsaved_there(status), "this export", "export");
    json_decref(rows);
    json_decref(status);
    return code;
}

int export_foreign(struct subject *s, const char *format)
{
    const char *to = s->given[OWN_TO];
    if (s->ctl.json && (!to || strcmp(to, "-") == 0)) {
        return ctl_usage("--json says what was written, and that needs --to: stdout has the file");
    }
    json_t *report = json_pack("{s[], s[], s{}, s[]}", "files", "skipped", "left_out", "notes");
    struct writing w = {.s = s,
                        .to = to,
                        .report = report,
                        .files = json_object_get(report, "files"),
                        .skipped = json_object_get(report, "skipped"),
                        .left_out = json_object_get(report, "left_out"),
                        .notes = json_object_get(report, "notes")};
    int code = listing_find_key(s);
    code = code ? code : write_rows(&w, format);
    code = foreign_finish_writing(&w, code);
    code = code == DONE && w.incomplete ? FAILED : code;
    json_decref(report);
    return code;
}
