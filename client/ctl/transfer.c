/* SPDX-License-Identifier: Apache-2.0 */
/*
 * export, import, backup. An export is one JSON document with the rows of `best` as in the
 * database, with every digit: imported into an empty database and exported again, the document has
 * the same rows. With --format export and import use files of other tuners (formats.h).
 */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/formats.h"

enum { FORMAT_VERSION = 1 };

/* Finds the format of --format. *format NULL: gemmd's own. 0, or USAGE after the error message. */
static int transfer_find_format(const struct subject *s, const struct format **format)
{
    static const struct format *const formats[] = {&format_unsloth,  &format_aiter, &format_vllm,
                                                   &format_sglang,   &format_t4,    &format_wisdom,
                                                   &format_tunableop};
    const char *named = s->given[OWN_FORMAT];
    const bool exports = s->command == &command_export;
    *format = NULL;
    for (size_t i = 0; named && i < COUNT(formats); i++) {
        *format = strcmp(formats[i]->name, named) == 0 ? formats[i] : *format;
    }
    if (*format && !exports && !(*format)->read && !(*format)->read_rows) {
        return ctl_usage("%s's files list shapes: give them to `gemmctl tune --shapes`", named);
    }
    if (s->given[OWN_FIELDS] && !(*format && (*format)->has_fields)) {
        return ctl_usage("--fields goes with --format vllm or sglang");
    }
    if (*format || !named || strcmp(named, "gemmd") == 0) {
        return DONE;
    }
    return ctl_usage("--format takes gemmd, unsloth, aiter, vllm, sglang, t4%s, not \"%s\"",
                     exports ? ", wisdom, tunableop or portfolio" : " or wisdom", named);
}

static int transfer_refuse_files(const struct subject *s)
{
    return ctl_usage("\"%s\" is too much", s->paths[1]);
}

/* ---- export --------------------------------------------------------------------------------- */

json_t *transfer_make_document(const json_t *status, json_t *rows)
{
    return json_pack("{si, sO*, sO*, sO*, sI, sO}", "gemmd_export", FORMAT_VERSION, "build",
                     json_object_get(status, "build"), "device", json_object_get(status, "device"),
                     "bucket_scheme", json_object_get(status, "bucket_scheme"), "exported_s",
                     (json_int_t)time(NULL), "rows", rows);
}

static int transfer_export_rows(struct subject *s)
{
    struct ctl *c = &s->ctl;
    const char *path = s->given[OWN_TO] ? s->given[OWN_TO] : "-";
    int code = listing_find_key(s);
    /* The status comes first, so that rows saved between the two calls are in the export. */
    json_auto_t *status = code ? NULL : listing_status(s, &code),
                *rows = status ? ctl_list(c, "best", json_incref(s->filter), &code) : NULL;
    size_t n = json_array_size(rows);
    code = rows ? custom_add_trials(c, rows) : code;
    if (code) {
        return code;
    }
    if (n == 0 && problems_given(&s->problems)) {
        code = ctl_failed("nothing was found for that key yet: there is no row to export");
        unsaved_fail(status, unsaved_there(status), "this export", "export");
        return code;
    }
    json_auto_t *document = transfer_make_document(status, rows);
    code = writing_save_json(path, document);
    if (code == DONE && !c->quiet && strcmp(path, "-") != 0) {
        fprintf(stderr, "%zu rows written to %s\n", n, path);
    }
    /* Fails, because the user may stop the daemon and rely on the export. */
    return code ? code : unsaved_fail(status, unsaved_there(status), "this export", "export");
}

static int transfer_run_export(struct subject *s)
{
    const char *to = s->given[OWN_TO], *named = s->given[OWN_FORMAT];
    const struct format *format;
    if (to && !*to) {
        return ctl_usage("--to takes a file or a folder, not \"\"");
    }
    if (named && strcmp(named, "portfolio") == 0) {
        return portfolio_export(s);
    }
    if (transfer_find_format(s, &format)) {
        return USAGE;
    }
    return format ? export_foreign(s, format) : transfer_export_rows(s);
}

static const struct argp_option export_options[] = {
    {"to", OWN_KEY + OWN_TO, "PATH", 0,
     "a file, or a folder for formats of many, instead of stdout", 3},
    {"output", OWN_KEY + OWN_TO, "PATH", OPTION_ALIAS, NULL, 3},
    {"format", OWN_KEY + OWN_FORMAT, "NAME", 0,
     "gemmd (default), unsloth (a CSV of each problem's trials), aiter (a JSON file of each N and "
     "K, and a CSV of fp8 GEMMs), portfolio (few configs with bounded regret over all known "
     "shapes), tunableop (shapes of "
     "GEMMs); of custom ops: vllm and sglang (MoE configs), t4 (Kernel Tuner), wisdom (Kernel "
     "Launcher)",
     3},
    {"fields", OWN_KEY + OWN_FIELDS, "TEXT", 0,
     "of vllm and sglang: where problems have the format's fields, as in "
     "\"E=8 N=N/2 M=num_valid_tokens/2\"",
     3},
    {0},
};

const struct command command_export = {
    .name = "export",
    .help = "all answers as JSON",
    .run = transfer_run_export,
    .args_doc = "[KEY|PROBLEM]",
    .doc = "Writes the current answers, of one problem or of all, as one JSON document, which "
           "`gemmctl import` reads; or in the format of another tuner, with a remark on parameters "
           "without a counterpart.",
    .options = export_options,
    .parts = {&problems_argp, &filter_argp, &ctl_argp},
};

/* ---- import --------------------------------------------------------------------------------- */

/* Reads the document of an export. NULL after the error message. */
static json_t *read_export(const char *path)
{
    struct error e;
    json_auto_t *document = text_read_json(path, &e);
    if (!document) {
        ctl_failed("%s", e.text);
        return NULL;
    }
    if (field_int(document, "gemmd_export") != FORMAT_VERSION ||
        !json_is_array(json_object_get(document, "rows"))) {
        ctl_failed("%s is not an export of gemmctl (version %d)", path, FORMAT_VERSION);
        return NULL;
    }
    return json_incref(document);
}

/* The daemon's message about a row, without words that contain a digit: keys, sizes and classes
 * differ from row to row, although the reason is the same. malloc'ed. */
static char *reason_of(const char *message)
{
    char *out = text_copy(message), *to = out;
    for (const char *at = message; *at;) {
        const size_t n = strcspn(at, " "), more = at[n] == ' ';
        if (strcspn(at, "0123456789") >= n) {
            memcpy(to, at, n + more);
            to += n + more;
        }
        at += n + more;
    }
    *to = '\0';
    return out;
}

/* Makes a list with each reason once, its count, and the first row that was skipped for it. */
static json_t *count_reasons(const json_t *skipped)
{
    json_t *reasons = json_object();
    ARRAY_EACH(s, skipped) {
        TEXT_AUTO *reason = reason_of(field_text(s, "message"));
        json_t *known = json_object_get(reasons, reason);
        if (known) {
            notice_count(known, "n", 1);
        } else {
            json_object_set_new(reasons, reason, json_pack("{si, sO}", "n", 1, "first", s));
        }
    }
    return reasons;
}

static void say_skipped(const json_t *skipped)
{
    json_auto_t *reasons = count_reasons(skipped);
    OBJECT_EACH(reason, r, reasons) {
        const char *message = field_text(r, "first.message");
        const long long n = field_int(r, "n"), row = field_int(r, "first.row");
        if (n > 1) {
            text_remark("%lld rows skipped, the first is row %lld: %s", n, row, message);
        } else {
            text_remark("row %lld skipped: %s", row, message);
        }
    }
}

/* Prints the skipped rows also when the import failed half-way. */
int transfer_print_import(const struct ctl *c, json_t *total, int code)
{
    const json_t *skipped = json_object_get(total, "skipped");
    const bool nothing = field_int(total, "imported") == 0 && field_int(total, "trials") == 0;
    if (code == DONE && c->json) {
        code = ctl_print_json(total);
        return code == DONE && nothing ? FAILED : code;
    }
    if (code == DONE) {
        const json_int_t trials = field_int(total, "trials"), modules = field_int(total, "modules");
        printf("%lld imported, %zu skipped", field_int(total, "imported"),
               json_array_size(skipped));
        printf(trials ? ", with %lld trials" : "", (long long)trials);
        printf(modules ? ", %lld modules\n" : "\n", (long long)modules);
    }
    say_skipped(skipped);
    if (code == DONE && nothing) {
        code = ctl_failed(json_array_size(skipped) ? "nothing was imported"
                                                   : "nothing was imported: the file has no rows");
    }
    json_decref(total);
    return code;
}

/* Prints how many rows (pins, for example) are slower than their own reference kernel. */
static void say_slower(const json_t *rows)
{
    size_t n = 0;
    ARRAY_EACH(row, rows) {
        const double us = field_number(row, "time_us");
        const double reference_us = field_number(row, "reference_us");
        n += reference_us > 0 && us > 0 && reference_us / us < 0.98;
    }
    if (n > 0) {
        fprintf(stderr, "slower than the reference of their run: %zu of %zu rows\n", n,
                json_array_size(rows));
    }
}

static int transfer_import_rows(struct subject *s)
{
    struct ctl *c = &s->ctl;
    const char *modes = problems_only_modes(&s->problems);
    if (!modes || *modes || s->given[OWN_DRY_RUN]) {
        return ctl_usage("our own files say which problems their rows are of: options for that, "
                         "and --dry-run, go with --format unsloth or aiter");
    }
    json_auto_t *document = read_export(s->paths[0]);
    json_t *rows = json_object_get(document, "rows");
    if (!document) {
        return FAILED;
    }
    json_t *total = json_pack("{si, s[]}", "imported", 0, "skipped");
    int code = notation_expand_rows(rows);
    code = code ? code : ctl_connect(c);
    code = code ? code : import_rows(c, rows, s->given[OWN_TRUST], total);
    if (code == DONE && !c->quiet) {
        say_slower(rows);
    }
    const bool sent = code == DONE;
    code = transfer_print_import(c, total, code);
    if (sent && !c->quiet) {
        json_auto_t *status = unsaved_status(c);
        unsaved_say(status, "the database");
    }
    return code;
}

static int transfer_run_import(struct subject *s)
{
    const struct format *format;
    if (transfer_find_format(s, &format)) {
        return USAGE;
    }
    if (s->given[OWN_PROBLEM] && !(format && format->read_rows)) {
        return ctl_usage("--problem goes with --format vllm, sglang, t4 or wisdom");
    }
    if (format && s->given[OWN_TRUST]) {
        return ctl_usage(
            "--trust is for our own files: what --format reads was measured with other kernels");
    }
    if (format) {
        return format->read ? import_foreign(s, format) : import_custom(s, format);
    }
    return s->n_paths > 1 ? transfer_refuse_files(s) : transfer_import_rows(s);
}

static const struct argp_option import_options[] = {
    {"format", OWN_KEY + OWN_FORMAT, "NAME", 0,
     "gemmd (default); unsloth or aiter: their configs become hints for the problems that the "
     "options, or the lines of aiter's CSV, say; vllm, sglang, t4, wisdom: rows of a custom op",
     3},
    {"problem", OWN_KEY + OWN_PROBLEM, "TEXT|KEY", 0,
     "of vllm, sglang, t4, wisdom: the custom op's problem, or a known problem's key, in which the "
     "file's fields replace the problem's",
     3},
    {"fields", OWN_KEY + OWN_FIELDS, "TEXT", 0, "as in export", 3},
    {"dry-run", OWN_KEY + OWN_DRY_RUN, 0, 0, "with --format: only show the hints", 3},
    {"trust", OWN_KEY + OWN_TRUST, 0, 0,
     "the rows answer at once, marked as trusted, until they are measured here", 3},
    {0},
};

const struct command command_import = {
    .name = "import",
    .help = "import answers from an export, or hints of other tuners",
    .run = transfer_run_import,
    .args_doc = "FILE\n--format=NAME FILE...",
    .doc = "Reads an export of gemmctl (\"-\": stdin). Rows become hints, and so do configs of "
           "other tuners: a tuning tries hints first, and trusts no hint before a measurement "
           "here, unless --trust is given.",
    .options = import_options,
    .parts = {&files_argp, &ctl_argp, &problems_argp},
};

/* ---- backup --------------------------------------------------------------------------------- */

/* The daemon writes the file, so gemmd needs an absolute path. malloc'ed. */
static char *transfer_make_absolute(const char *path)
{
    TEXT_AUTO *here = *path == '/' ? NULL : getcwd(NULL, 0);
    return text_format("%s%s%s", here ? here : "", here ? "/" : "", path);
}

static int transfer_run_backup(struct subject *s)
{
    if (s->n_paths > 1) {
        return transfer_refuse_files(s);
    }
    TEXT_AUTO *path = transfer_make_absolute(s->paths[0]);
    struct ctl *c = &s->ctl;
    int code = ctl_connect(c);
    /* The status comes first, so that rows saved between the two calls are in the copy. */
    json_auto_t *status = code ? NULL : unsaved_status(c);
    json_auto_t *result =
        code ? NULL : ctl_call(c, "backup", json_pack("{ss}", "path", path), &code);
    int lacks =
        result ? unsaved_fail(status, unsaved_at_all(status), "this copy", "make a backup") : DONE;
    if (result && c->json) {
        json_object_set_new(result, "error", ctl_error()); /* NULL is not set */
        code = ctl_print_json(json_incref(result));
    } else if (result) {
        printf("%s\n", field_string(result, "path"));
    }
    return code ? code : lacks;
}

const struct command command_backup = {
    .name = "backup",
    .help = "a copy of the database, while the daemon runs",
    .run = transfer_run_backup,
    .args_doc = "FILE",
    .doc = "Writes a copy of the database to a file that does not exist yet, while the daemon runs "
           "and serves.",
    .parts = {&files_argp, &ctl_argp},
};
