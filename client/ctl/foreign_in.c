/* SPDX-License-Identifier: Apache-2.0 */
/*
 * import --format: configs of other tuners as hints. gemmctl reads and checks all files before the
 * first row is sent, so that a bad line of the last file leaves the database unchanged. A key keeps
 * one hint: the fastest config of those that a kernel of this device can resemble; the order of the
 * files does not matter. Unsloth's rows give their speed; for aiter's rows, which give none, the
 * daemon predicts the time. The hints have no times, because times of other kernels on other
 * devices do not apply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/formats.h"

struct importing {
    struct ctl *ctl;             /* borrowed */
    const struct format *format; /* borrowed */
    const char *path;            /* borrowed: the current file's */
    const json_t *file;          /* borrowed: the current file's contents */
    json_t *keys;                /* owned: the hints, {key: {"row", "rank", "what"}} */
    json_t *total;               /* borrowed: the document of --json; owns the next three members */
    json_t *skipped;             /* entries and problems without a hint: notice_skip() */
    json_t *unused;              /* fields of the files that no kernel here knows (name: count) */
    json_t *changed;             /* values replaced by the nearest legal value (name: count) */
    json_t *device;              /* owned: of `status`; NULL before the first entry that needs it */
};

/* Names the place of a notice: "FILE, line N, for PROBLEM" (NULL: all problems); malloc'ed. */
static char *foreign_name_place(const struct importing *x, long long line, const json_t *problem)
{
    TEXT_AUTO *text = text_of_json(problem); /* "" without a problem */
    return text_format("%s, line %lld%s%s", x->path, line, problem ? ", for " : "", text);
}

static void foreign_skip_problem(struct importing *x, long long line, const json_t *problem,
                                 const char *why)
{
    TEXT_AUTO *what = foreign_name_place(x, line, problem);
    notice_skip(x->skipped, what, why);
}

/* ---- a config for a problem ------------------------------------------------------------------ */

/* Returns the reason why an entry with these flags is for another problem, or NULL. */
static const char *foreign_find_disagreement(const json_t *flags, const json_t *problem)
{
    static const struct {
        const char *name, *is_set, *is_not_set;
    } sentences[] = {{"permute_x", "permute_x is True in the file: the problem needs --permute-x",
                      "permute_x is False in the file, and the problem permutes X"},
                     {"permute_y", "permute_y is True in the file: the problem needs --permute-y",
                      "permute_y is False in the file, and the problem permutes Y"},
                     {"fuse_mul_post", "fuse_mul_post is not the same in the file and the problem",
                      "fuse_mul_post is not the same in the file and the problem"}};
    if (field_is_true(flags, "permute_x") && field_is_true(flags, "permute_y")) {
        return "permute_x and permute_y are both True, which no problem has";
    }
    for (size_t i = 0; flags && i < COUNT(sentences); i++) {
        const bool is_set = field_is_true(flags, sentences[i].name);
        if (is_set != field_is_true(problem, sentences[i].name)) {
            return is_set ? sentences[i].is_set : sentences[i].is_not_set;
        }
    }
    return NULL;
}

/* Returns the reason why an entry is of another device, or NULL. Asks the daemon for its device
 * once.
 */
static const char *foreign_find_device(struct importing *x, const json_t *entry, int *code)
{
    const json_t *its = json_object_get(entry, "device");
    if (its && !x->device) {
        json_auto_t *status = ctl_call(x->ctl, "status", NULL, code);
        x->device = json_incref(json_object_get(status, "device"));
    }
    const char *arch = field_string(its, "arch");
    if (!its || !x->device) {
        return NULL;
    }
    return field_int(its, "sm_count") != field_int(x->device, "sm_count") ||
                   (arch && strcmp(arch, field_text(x->device, "arch")) != 0)
               ? "it was measured on a device of another gfx or cu_num"
               : NULL;
}

/* Asks the daemon about a config. 1: valid; 0: invalid, with `why`; -1: no answer, with *code. */
static int foreign_judge_config(struct importing *x, const json_t *problem, const json_t *config,
                                const char *target, char why[WHY_MAX], double *predicted_us,
                                int *code)
{
    json_auto_t *verdict = ctl_call(x->ctl, "check",
                                    json_pack("{sO, sO, ss, sb}", "problem", problem, "config",
                                              config, "target", target, "predict", true),
                                    code);
    int valid = verdict ? field_is_true(verdict, "valid") : -1;
    const char *message = field_string(verdict, "message");
    *predicted_us = field_number(verdict, "predicted_us");
    if (why && message) {
        snprintf(why, WHY_MAX, "%s", message);
    }
    return valid;
}

/* The first valid config, a new reference; or NULL, and in `why` the nearest config's fault.
 * Parameters that a tile lacks come from the best known config, or else from the kernel's
 * defaults. */
static json_t *first_valid(struct importing *x, const json_t *configs, const json_t *problem,
                           const json_t *answer, char why[WHY_MAX], double *predicted_us, int *code)
{
    const char *target = field_text(answer, "target");
    ARRAY_EACH_AT(i, config, configs) {
        json_auto_t *whole = json_copy(json_object_get(answer, "config"));
        json_object_update(whole, config);
        int valid = foreign_judge_config(x, problem, whole, target, NULL, predicted_us, code);
        if (valid == 0) {
            json_decref(whole);
            whole = json_incref(config);
            valid = foreign_judge_config(x, problem, whole, target, i == 0 ? why : NULL,
                                         predicted_us, code);
        }
        if (valid != 0) {
            return valid > 0 ? json_incref(whole) : NULL;
        }
    }
    return NULL;
}

static json_t *foreign_make_row(const json_t *problem, const json_t *config)
{
    json_t *fields = json_copy((json_t *)(uintptr_t)problem);
    json_t *op = json_incref(json_object_get(fields, "op"));
    json_object_del(fields, "op");
    return json_pack("{so, so, sO, sn}", "op", op, "problem", fields, "config", config, "time_us");
}

/* Returns the rank of a hint (an imported config, not measured) among the hints of its key, for
 * offer_row(). */
static json_t *rank_of(const json_t *entry, const json_t *problem, const json_t *config,
                       double predicted_us)
{
    TEXT_AUTO *text = text_dump(config, JSON_COMPACT | JSON_SORT_KEYS);
    return json_pack("{sO*, sO*, sO*, sf, ss}", "M", json_object_get(problem, "M"), "speedup",
                     json_object_get(entry, "speedup"), "triton_time",
                     json_object_get(entry, "triton_time"), "predicted_us", predicted_us, "config",
                     text);
}

/* Takes over the row and its rank, and keeps the better hint of the key. The larger M is nearer to
 * the key's M, which is rounded up. Next comes the faster config, by the files or by the daemon's
 * model. The order of the texts decides last, so that the order of files decides nothing. */
static void offer_row(struct importing *x, const char *key, const json_t *entry, json_t *row,
                      json_t *rank)
{
    static const char *const order[] = {"-M",           "-speedup", "triton_time",
                                        "predicted_us", "config",   NULL};
    const json_t *before = json_object_get(x->keys, key);
    TEXT_AUTO *what =
        foreign_name_place(x, field_int(entry, "line"), json_object_get(row, "problem"));
    const bool better = !before || row_compare(rank, json_object_get(before, "rank"), order) < 0;
    if (before) {
        notice_skip(
            x->skipped, better ? field_text(before, "what") : what,
            "its key has the hint of a larger M of its bucket, of a faster row, or the same hint");
    }
    if (better) {
        json_object_set_new(x->keys, key,
                            json_pack("{sO, sO, ss}", "row", row, "rank", rank, "what", what));
    }
    json_decref(row);
    json_decref(rank);
}

/* Offers the entry's config as the hint of the key of `answer`. False: no kernel of the device
 * resembles the config. */
static bool foreign_offer_entry(struct importing *x, const json_t *entry, const json_t *problem,
                                const json_t *answer, int *code)
{
    char why[WHY_MAX];
    double predicted_us = 0;
    json_auto_t *changed = json_object();
    const char *mode = field_string(problem, "mode"), *target = field_text(answer, "target");
    snprintf(why, sizeof(why), "the kernels of target %s have no such tiles", target);
    json_t *own = json_object_get(entry, "config");
    const char *cannot = foreign_find_disagreement(json_object_get(entry, "flags"), problem);
    cannot = cannot ? cannot : foreign_find_device(x, entry, code);
    json_auto_t *configs = cannot || *code ? NULL
                           : own           ? json_pack("[O]", own)
                                           : tile_configs(json_object_get(entry, "tile"), target,
                                                mode ? mode : "forward", changed),
                *config = !configs
                              ? NULL
                              : first_valid(x, configs, problem, answer, why, &predicted_us, code);
    if (config) {
        offer_row(x, field_text(answer, "key"), entry, foreign_make_row(problem, config),
                  rank_of(entry, problem, config, predicted_us));
        notices_add(x->changed, changed);
    } else if (*code == DONE) {
        foreign_skip_problem(x, field_int(entry, "line"), problem, cannot ? cannot : why);
    }
    return config != NULL;
}

/* ---- a problem ------------------------------------------------------------------------------- */

/* `of`: the only entry for the problem; NULL: the file's rule decides. */
static int foreign_offer_entries(struct importing *x, const json_t *problem, const json_t *of,
                                 const json_t *answer)
{
    const json_t *entries = json_object_get(x->file, "entries");
    const json_t *only =
        !of && x->format->find ? x->format->find(entries, field_int(problem, "M")) : of;
    int code = DONE;
    if (only) {
        foreign_offer_entry(x, only, problem, answer, &code);
        return code;
    }
    if (x->format->find) {
        foreign_skip_problem(x, 1, problem, "the file has no class for this M, and no `any`");
        return DONE;
    }
    ARRAY_EACH(entry, entries) {
        if (code || foreign_offer_entry(x, entry, problem, answer, &code)) {
            break;
        }
    }
    return code;
}

/* True when the file says another size than the problem. */
static bool foreign_has_other_size(const struct importing *x, const json_t *problem,
                                   const char *name)
{
    const long long size = field_int(x->file, name);
    return size && size != field_int(problem, name);
}

/* Returns the reason why the file is for other problems than this problem, or NULL. */
static const char *other_problem(const struct importing *x, const json_t *problem)
{
    const char *mode = field_string(problem, "mode");
    if (mode && strcmp(mode, field_text(x->file, "mode")) != 0) {
        return "the problem is of another mode than the file";
    }
    const char *op = field_text(x->file, "op"), *quant = field_text(problem, "quant");
    if (*op ? strcmp(op, field_text(problem, "op")) != 0 && strcmp(quant, "fp8_block") != 0
            : strcmp(quant, "") != 0 && strcmp(quant, "none") != 0) {
        return "the file's kernel has operands of another type";
    }
    return foreign_has_other_size(x, problem, "N") || foreign_has_other_size(x, problem, "K")
               ? "the file's name says another N or K"
               : NULL;
}

/* Sets the answer's target: of its stamp, or, for an unmeasured hint, the target that accepts the
 * hint's config. */
static int foreign_find_target(struct importing *x, const json_t *problem, json_t *answer)
{
    int code = DONE;
    result_target(answer);
    if (!field_string(answer, "target")) {
        json_auto_t *verdict = ctl_call(
            x->ctl, "check",
            json_pack("{sO, sO}", "problem", problem, "config", json_object_get(answer, "config")),
            &code);
        json_object_set(answer, "target", json_object_get(verdict, "target"));
    }
    return code;
}

/* Gets the daemon's current answer for a problem, which gives the target and the key. `of`: the
 * only entry for the problem, or NULL. */
static int take_problem(struct importing *x, const json_t *problem, const json_t *of)
{
    const char *other = of ? NULL : other_problem(x, problem);
    const long long line = of ? field_int(of, "line") : 1;
    if (other) {
        foreign_skip_problem(x, line, problem, other);
        return DONE;
    }
    int code = DONE;
    json_auto_t *answer =
        ctl_call(x->ctl, "get", json_pack("{sO, ss}", "problem", problem, "wait", "cached"), &code);
    code = answer ? foreign_find_target(x, problem, answer) : code;
    if (code == DONE && field_is(answer, "tier", "exact")) {
        foreign_skip_problem(
            x, line, problem,
            field_is(answer, "source", "trusted")
                ? "it has an answer that gemmd's owner trusts, which a hint does not replace"
                : "it has an answer that was measured here, which a hint does not replace");
    } else if (code == DONE) {
        code = foreign_offer_entries(x, problem, of, answer);
    }
    return code;
}

/* ---- the problems ---------------------------------------------------------------------------- */

/* The upper bounds of the classes in the form of --m, malloc'ed; skips unbounded classes. */
static char *bounds_list(struct importing *x)
{
    char *list = text_copy("");
    ARRAY_EACH(e, json_object_get(x->file, "entries")) {
        const long long bound = field_int(e, "bound");
        if (bound > 0) {
            list = text_append(list, "%s%lld", list && *list ? "," : "", bound);
        } else {
            foreign_skip_problem(
                x, field_int(e, "line"), NULL,
                "its class of M has no upper bound: say with --m for which M it is wanted");
        }
    }
    return list;
}

struct lists { /* the values of --m, --n and --k that a file gives */
    char *m;   /* owned */
    char n[24], k[24];
};

/* Sets the options that the user left out from the file: the mode, and for a format with classes of
 * M also M, N and K. */
static void foreign_complete_problems(struct importing *x, struct problems *p, struct lists *lists)
{
    const char **given = p->given;
    const long long n = field_int(x->file, "N"), k = field_int(x->file, "K");
    given[PROBLEM_MODE] = field_text(x->file, "mode");
    if (!given[PROBLEM_OP] && !given[PROBLEM_QUANT]) {
        given[PROBLEM_OP] = field_string(x->file, "op");
    }
    if (!x->format->find || problems_has_table(p)) {
        return;
    }
    if (!given[PROBLEM_M] && !given[PROBLEM_TOKENS]) {
        given[PROBLEM_M] = lists->m = bounds_list(x);
    }
    snprintf(lists->n, sizeof(lists->n), "%lld", n);
    snprintf(lists->k, sizeof(lists->k), "%lld", k);
    if (n && !given[PROBLEM_N]) {
        given[PROBLEM_N] = lists->n;
    }
    if (k && !given[PROBLEM_K]) {
        given[PROBLEM_K] = lists->k;
    }
}

/* Checks that N and K are known, after the file completed them. The error message names the file,
 * since names without sizes are usual (DEFAULT.json). */
static int foreign_check_sizes(const struct importing *x, const struct problems *p)
{
    bool n = p->given[PROBLEM_N], k = p->given[PROBLEM_K];
    if (!x->format->find || problems_has_table(p) || (n && k)) {
        return DONE;
    }
    const char *lacks = n ? "K" : k ? "N" : "N and K";
    const char *give = n ? "--k" : k ? "--n" : "--n and --k";
    return ctl_usage(
        "which problem? the name of %s says no %s: give %s, or --shapes FILE, or --moe", x->path,
        lacks, give);
}

/* A file whose lines name their problems. */
static int foreign_take_lines(struct importing *x, const struct problems *given)
{
    int code =
        problems_given(given)
            ? ctl_usage("each line of %s says its problem: leave the options of problems out",
                        x->path)
            : DONE;
    ARRAY_EACH(e, json_object_get(x->file, "entries")) {
        code = code ? code : take_problem(x, json_object_get(e, "problem"), e);
    }
    return code;
}

static int take_problems(struct importing *x, const struct problems *given)
{
    const json_t *entries = json_object_get(x->file, "entries");
    json_array_extend(x->skipped, json_object_get(x->file, "unusable"));
    if (json_object_get(json_array_get(entries, 0), "problem") || json_array_size(entries) == 0) {
        return foreign_take_lines(x, given);
    }
    struct problems p = *given;
    struct lists lists = {.m = NULL};
    const char *modes = given->given[PROBLEM_MODE], *mode = field_text(x->file, "mode");
    if (modes && !list_has(modes, mode)) {
        return ctl_usage("%s is of mode %s, and --mode is %s", x->path, mode, modes);
    }
    foreign_complete_problems(x, &p, &lists);
    const char *m = p.given[PROBLEM_M];
    const bool none = m && !*m; /* no class has an upper bound, which bounds_list reported */
    int code = none ? DONE : foreign_check_sizes(x, &p);
    code = code || none ? code : problems_make(&p);
    ARRAY_EACH(row, p.all) {
        code = code ? code : take_problem(x, json_object_get(row, "problem"), NULL);
    }
    free(lists.m);
    free(p.profile); /* `given` owns the other members */
    json_decref(p.all);
    return code;
}

/* ---- the import ------------------------------------------------------------------------------ */

/* Prints "<words>: a (2), b (1)" if there are counts; returns the sum. */
static json_int_t say_counts(const struct importing *x, const char *words, const json_t *counts)
{
    TEXT_AUTO *text = NULL;
    json_int_t sum = 0;
    OBJECT_EACH(name, n, counts) {
        text = text_append(text, "%s%s (%lld)", text ? ", " : "", name,
                           (long long)json_integer_value(n));
        sum += json_integer_value(n);
    }
    if (text && !x->ctl->quiet) {
        text_remark("%s: %s", words, text);
    }
    return sum;
}

/* Reads every file before the first call, so that syntax errors need no daemon. Reads each file
 * once, because a pipe can be read only once. */
static int foreign_read_files(const struct format *format, const struct subject *s, json_t *files)
{
    for (size_t i = 0; i < s->n_paths; i++) {
        if (strcmp(s->paths[i], "-") == 0) {
            return ctl_usage("these formats are read from named files, not from stdin");
        }
        json_t *file = json_pack("{s[], s[], s{}}", "entries", "unusable", "unused");
        json_array_append_new(files, file);
        if (format->read(s->paths[i], file)) {
            return FAILED;
        }
    }
    return DONE;
}

static int send_rows(struct importing *x, bool dry_run)
{
    json_t *total = x->total, *rows = json_array();
    OBJECT_EACH(key, hint, x->keys) { /* in the order in which the keys were found */
        json_array_append(rows, json_object_get(hint, "row"));
    }
    json_object_set_new(total, "hints", rows);
    if (json_array_size(rows) == 0) {
        notices_print(x->skipped);
        return ctl_failed("nothing to import: no config became a hint");
    }
    int code = dry_run ? DONE : import_rows(x->ctl, rows, false, total);
    if (code == DONE && x->ctl->json) {
        return ctl_print_json(json_incref(total));
    }
    static const struct column columns[] = {{"PROBLEM", "problem", show_config},
                                            {"HINT", "config", show_config}};
    if (code == DONE) {
        table_print(columns, COUNT(columns), rows);
        notices_print(x->skipped);
        ARRAY_EACH(s, json_object_get(total, "skipped")) {
            text_remark("hint %lld skipped: %s", field_int(s, "row") + 1, field_text(s, "message"));
        }
        const json_int_t unknown =
            say_counts(x, "no kernel here knows, and hints go without", x->unused);
        const json_int_t changed =
            say_counts(x, "not legal here, and became the nearest legal value", x->changed);
        printf("%lld hints imported, %lld parameters passed over, %lld values changed%s\n",
               field_int(total, "imported"), (long long)unknown, (long long)changed,
               dry_run ? ": --dry-run" : "; a tuning of their problems tries them first");
    }
    return code;
}

int import_foreign(struct subject *s, const struct format *format)
{
    struct ctl *ctl = &s->ctl;
    json_auto_t *total = json_pack("{si, s[], s[], s{}, s{}}", "imported", 0, "unusable", "skipped",
                                   "unknown", "changed");
    struct importing x = {.ctl = ctl,
                          .format = format,
                          .keys = json_object(),
                          .total = total,
                          .skipped = json_object_get(total, "unusable"),
                          .unused = json_object_get(total, "unknown"),
                          .changed = json_object_get(total, "changed")};
    json_auto_t *files = json_array();
    int code = foreign_read_files(format, s, files);
    code = code ? code : ctl_connect(ctl);
    for (size_t i = 0; i < s->n_paths && code == DONE; i++) {
        x.path = s->paths[i];
        x.file = json_array_get(files, i);
        code = take_problems(&x, &s->problems);
        notices_add(x.unused, json_object_get(x.file, "unused"));
    }
    code = code ? code : send_rows(&x, s->given[OWN_DRY_RUN]);
    json_decref(x.keys);
    json_decref(x.device);
    return code;
}
