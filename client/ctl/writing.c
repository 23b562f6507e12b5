/* SPDX-License-Identifier: Apache-2.0 */
/* export --format: answers and trials in the formats of other tuners; and functions that the
 * writers share: writing files, and skipped rows. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/formats.h"

/* ---- files ---------------------------------------------------------------------------------- */

const char *writing_slash(const char *folder)
{
    size_t n = strlen(folder);
    return n > 0 && folder[n - 1] == '/' ? "" : "/";
}

static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int r = mkdir(path, 0777) && errno != EEXIST ? errno : 0;
        if (r) {
            ctl_failed("cannot make %s: %s", path, strerror(r));
            *slash = '/';
            return FAILED;
        }
        *slash = '/';
    }
    return DONE;
}

static int cannot_write(const char *path)
{
    return ctl_failed("cannot write %s: %s", path, strerror(errno));
}

/* ---- kinds of paths -------------------------------------------------------------------------- */

/* True for the name of an open descriptor. The descriptor may be a regular file that another
 * process continues to write, so a renamed new file would not reach that process. */
static bool is_descriptor(const char *path)
{
    return strncmp(path, "/dev/std", 8) == 0 || strncmp(path, "/dev/fd/", 8) == 0 ||
           strncmp(path, "/proc/", 6) == 0;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes to stdout, a pipe or a device: a file that renaming a new file cannot replace. */
static int save_there(const char *path, const void *data, size_t size)
{
    FILE *f = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    bool failed = !f || fwrite(data, 1, size, f) != size;
    if (f == stdout) {
        ctl_printed();
    }
    failed = (f && (f == stdout ? fflush(f) : fclose(f))) || failed;
    return failed ? cannot_write(path) : DONE;
}

/* Writes a file in the same folder, then renames the file, with the mode of the old file. */
static int save_whole(const char *path, const void *data, size_t size, const struct stat *before)
{
    const char *slash = strrchr(path, '/');
    TEXT_AUTO *part = text_format("%.*s.gemmctl.%d.part", slash ? (int)(slash + 1 - path) : 0, path,
                                  (int)getpid());
    if (part) {
        unlink(part); /* a file that a dead process of the same pid left, or another user's link */
    }
    FILE *f = part ? fopen(part, "wex") : NULL;
    bool failed = !f || (before && fchmod(fileno(f), before->st_mode & 0777));
    failed = failed || fwrite(data, 1, size, f) != size;
    failed = (f && fclose(f)) || failed || rename(part, path);
    int code = failed ? cannot_write(path) : DONE;
    if (failed && f) {
        unlink(part);
    }
    return code;
}

/* Creates the missing target of a symbolic link, so that the new file replaces the target, not the
 * link. */
static int make_target(const char *path)
{
    struct stat link;
    if (lstat(path, &link) || !S_ISLNK(link.st_mode)) {
        return DONE;
    }
    FILE *f = fopen(path, "ae");
    return f && fclose(f) == 0 ? DONE : cannot_write(path);
}

static int save_file(const char *path, const void *data, size_t size)
{
    struct stat before;
    bool there = stat(path, &before) == 0;
    if (!there && make_target(path)) {
        return FAILED;
    }
    if (there && (!S_ISREG(before.st_mode) || is_descriptor(path))) {
        return save_there(path, data, size);
    }
    TEXT_AUTO *real = realpath(path, NULL); /* replaces the link's target, not the link */
    return save_whole(real ? real : path, data, size, there ? &before : NULL);
}

int writing_save_bytes(const char *path, const void *data, size_t size)
{
    if (strcmp(path, "-") == 0) {
        return save_there(path, data, size);
    }
    if (!*path) {
        errno = ENOENT;
        return cannot_write("\"\"");
    }
    TEXT_AUTO *copy = text_copy(path);
    return make_folders(copy) ? FAILED : save_file(path, data, size);
}

int writing_save(const char *path, const char *text)
{
    return writing_save_bytes(path, text, strlen(text));
}

int writing_save_json(const char *path, const json_t *document)
{
    TEXT_AUTO *text =
        text_append(text_dump(document, JSON_INDENT(1) | JSON_REAL_PRECISION(17)), "\n");
    return writing_save(path, text);
}

int writing_add_file(struct writing *w, char *path, char *text, size_t rows)
{
    int code = writing_save(path, text);
    if (code == DONE) {
        json_array_append_new(w->files,
                              json_pack("{ss, sI}", "path", path, "rows", (json_int_t)rows));
    }
    free(path);
    free(text);
    return code;
}

/* ---- notices -------------------------------------------------------------------------------- */

void writing_skip(struct writing *w, const json_t *row, const char *why)
{
    TEXT_AUTO *problem = show_config(json_object_get(row, "problem")),
              *what =
                  text_format("%.8s %s %s", field_text(row, "key"), field_text(row, "op"), problem);
    notice_skip(w->skipped, what, why);
}

static void print_notices(struct writing *w)
{
    const bool quiet = w->s->ctl.quiet;
    ARRAY_EACH(x, w->files) {
        if (!quiet && !field_is(x, "path", "-")) {
            fprintf(stderr, "%lld rows written to %s\n", field_int(x, "rows"),
                    field_text(x, "path"));
        }
    }
    notices_print(w->skipped);
    TEXT_AUTO *names = quiet ? NULL : notice_names(w->left_out);
    if (names && *names) {
        text_remark("left out, since the format has no name for it: %s", names);
    }
    ARRAY_EACH(x, w->notes) {
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

/* Skips rows of other device classes, because the formats name no device. */
static json_t *only_class(struct writing *w, const json_t *rows, const char *class)
{
    json_t *ours = json_array();
    ARRAY_EACH(row, rows) {
        const char *its = field_string(row, "class");
        if (!class || !its || strcmp(class, its) == 0) {
            json_array_append(ours, row);
        } else {
            writing_skip(w, row, "it is of another class of devices");
        }
    }
    return ours;
}

static int write_rows(struct writing *w)
{
    int code = DONE;
    struct ctl *c = &w->s->ctl;
    json_auto_t *status = listing_status(w->s, &code),
                *rows = status ? ctl_list(c, "best", json_incref(w->s->filter), &code) : NULL;
    const char *arch = field_text(status, "device.arch");
    if (rows) {
        json_auto_t *ours = only_class(w, rows, field_string(status, "device.class"));
        w->rows = ours;
        w->device = json_object_get(status, "device");
        w->arch = *arch ? arch : "unknown";
        code = w->format->write(w);
    }
    w->incomplete =
        code == DONE && unsaved_fail(status, unsaved_there(status), "this export", "export");
    return code;
}

int export_foreign(struct subject *s, const struct format *format)
{
    const char *to = s->given[OWN_TO];
    if (s->ctl.json && (!to || strcmp(to, "-") == 0)) {
        return ctl_usage("--json says what was written, and that needs --to: stdout has the file");
    }
    json_auto_t *report =
        json_pack("{s[], s[], s{}, s[]}", "files", "skipped", "left_out", "notes");
    struct writing w = {.s = s,
                        .format = format,
                        .to = to,
                        .report = report,
                        .files = json_object_get(report, "files"),
                        .skipped = json_object_get(report, "skipped"),
                        .left_out = json_object_get(report, "left_out"),
                        .notes = json_object_get(report, "notes")};
    int code = listing_find_key(s);
    code = code ? code : write_rows(&w);
    code = foreign_finish_writing(&w, code);
    return code == DONE && w.incomplete ? FAILED : code;
}
