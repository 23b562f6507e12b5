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
    struct ctl *ctl;  /* borrowed */
    const char *path; /* borrowed: the current file's */
    bool aiter;
    struct entries *entries; /* borrowed: the current file's */
    json_t *keys;            /* owned: the hints, {key: {"row", "rank", "what"}} */
    json_t *total;           /* borrowed: the document of --json; owns the next three members */
    json_t *skipped;         /* see notices */
    json_t *unused;          /* fields of the files that no kernel here knows (name: count) */
    json_t *changed;         /* values replaced by the nearest legal value (name: count) */
};

/* "FILE, line N, for PROBLEM" (NULL: all problems); malloc'ed. */
static char *foreign_name_place(const struct importing *x, int line, const json_t *problem)
{
    char *text = problem ? text_of_json(problem) : NULL;
    char *what =
        text_format("%s, line %d%s%s", x->path, line, text ? ", for " : "", text ? text : "");
    free(text);
    return what;
}

static void foreign_skip_problem(struct importing *x, int line, const json_t *problem,
                                 const char *why)
{
    char *what = foreign_name_place(x, line, problem);
    if (what) {
        notice_skip(x->skipped, what, why);
        free(what);
    }
}

/* The daemon's current answer for a problem. */
struct known {
    char target[32];      /* the target that tunes the problem */
    const json_t *config; /* borrowed */
    const char *key;      /* borrowed */
};

/* ---- a config for a problem ------------------------------------------------------------------ */

/* Returns the reason why the row is for another problem, or NULL. */
static const char *foreign_find_disagreement(const struct importing *x, const struct entry *e,
                                             const json_t *problem)
{
    if (!x->aiter && e->permute_x && e->permute_y) {
        return "permute_x and permute_y are both True, which no problem has";
    }
    if (!x->aiter && e->permute_x != field_is_true(problem, "permute_x")) {
        return e->permute_x ? "permute_x is True in the file: the problem needs --permute-x"
                            : "permute_x is False in the file, and the problem permutes X";
    }
    if (!x->aiter && e->permute_y != field_is_true(problem, "permute_y")) {
        return e->permute_y ? "permute_y is True in the file: the problem needs --permute-y"
                            : "permute_y is False in the file, and the problem permutes Y";
    }
    if (!x->aiter && e->fuse_mul_post != field_is_true(problem, "fuse_mul_post")) {
        return "fuse_mul_post is not the same in the file and the problem";
    }
    return NULL;
}

/* 1: valid; 0: invalid, with `why`; negative: the call failed, with *code. */
static int foreign_judge_config(struct importing *x, const json_t *problem, const json_t *config,
                                const char *target, char why[WHY_MAX], double *predicted_us,
                                int *code)
{
    json_t *verdict = ctl_call(x->ctl, "check",
                               json_pack("{sO, sO, ss, sb}", "problem", problem, "config", config,
                                         "target", target, "predict", true),
                               code);
    int valid = verdict ? field_is_true(verdict, "valid") : -1;
    const char *message = field_string(verdict, "message");
    *predicted_us = field_number(verdict, "predicted_us");
    if (why && message) {
        snprintf(why, WHY_MAX, "%s", message);
    }
    json_decref(verdict);
    return valid;
}

/* The first valid config, a new reference; or NULL, and in `why` the nearest config's fault.
 * Parameters that a tile lacks come from the best known config, or else from the kernel's
 * defaults. */
static json_t *first_valid(struct importing *x, const json_t *configs, const json_t *problem,
                           const struct known *known, char why[WHY_MAX], double *predicted_us,
                           int *code)
{
    size_t i;
    json_t *config;
    json_array_foreach((json_t *)(uintptr_t)configs, i, config) {
        json_t *whole = json_copy((json_t *)(uintptr_t)known->config);
        json_object_update(whole, config);
        int valid =
            foreign_judge_config(x, problem, whole, known->target, NULL, predicted_us, code);
        if (valid == 0) {
            json_decref(whole);
            whole = json_incref(config);
            valid = foreign_judge_config(x, problem, whole, known->target, i == 0 ? why : NULL,
                                         predicted_us, code);
        }
        if (valid > 0) {
            return whole;
        }
        json_decref(whole);
        if (valid < 0) {
            return NULL;
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

/* Above 0: a is the better hint of their key. The larger M is nearer to the key's M, which is
 * rounded up. Next comes the faster config, by the files or by the daemon's model. The order of the
 * texts decides last, so that the order of files decides nothing. */
static int foreign_compare_hints(const json_t *a, const json_t *b)
{
    static const char *const least_first[] = {"-M", "-speedup", "time_ms", "predicted_us"};
    for (size_t i = 0; i < COUNT(least_first); i++) {
        const bool most = least_first[i][0] == '-';
        const double v = field_number(a, least_first[i] + most);
        const double w = field_number(b, least_first[i] + most);
        if (v != w) {
            return (v > w) == most ? 1 : -1;
        }
    }
    return strcmp(field_string(b, "config"), field_string(a, "config"));
}

/* The rank of a hint among the hints of a key. */
static json_t *rank_of(const struct entry *e, const json_t *problem, const json_t *config,
                       double predicted_us)
{
    char *text = json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
    json_t *rank = json_pack("{sO*, sf, sf, sf, ss}", "M", json_object_get(problem, "M"), "speedup",
                             e->speedup, "time_ms", e->time_ms, "predicted_us", predicted_us,
                             "config", text ? text : "");
    free(text);
    return rank;
}

/* Takes over the row and its rank, and keeps the better hint of the key. */
static void offer_row(struct importing *x, const char *key, const struct entry *e, json_t *row,
                      json_t *rank)
{
    const json_t *before = json_object_get(x->keys, key);
    char *what = foreign_name_place(x, e->line, json_object_get(row, "problem"));
    const bool better = !before || foreign_compare_hints(rank, json_object_get(before, "rank")) > 0;
    if (before) {
        notice_skip(
            x->skipped,
            better ? field_text(before, "what")
            : what ? what
                   : "",
            "its key has the hint of a larger M of its bucket, of a faster row, or the same hint");
    }
    if (better) {
        json_object_set_new(
            x->keys, key,
            json_pack("{sO, sO, ss}", "row", row, "rank", rank, "what", what ? what : ""));
    }
    json_decref(row);
    json_decref(rank);
    free(what);
}

static void add_counts(json_t *to, const json_t *counts)
{
    const char *name;
    json_t *n;
    json_object_foreach((json_t *)(uintptr_t)counts, name, n) {
        notice_count(to, name, json_integer_value(n));
    }
}

/* Offers the config as the key's hint. False: no kernel of the device resembles the config. */
static bool foreign_offer_entry(struct importing *x, const struct entry *e, const json_t *problem,
                                const struct known *known, int *code)
{
    char why[WHY_MAX];
    double predicted_us = 0;
    json_t *changed = json_object();
    const char *mode = field_string(problem, "mode");
    snprintf(why, sizeof(why), "the kernels of target %s have no such tiles", known->target);
    const char *cannot = foreign_find_disagreement(x, e, problem);
    json_t *configs =
        cannot ? NULL : tile_configs(&e->tile, known->target, mode ? mode : "forward", changed);
    json_t *config =
        cannot ? NULL : first_valid(x, configs, problem, known, why, &predicted_us, code);
    if (config) {
        offer_row(x, known->key, e, foreign_make_row(problem, config),
                  rank_of(e, problem, config, predicted_us));
        add_counts(x->changed, changed);
    } else if (*code == DONE) {
        foreign_skip_problem(x, e->line, problem, cannot ? cannot : why);
    }
    json_decref(changed);
    json_decref(configs);
    json_decref(config);
    return config != NULL;
}

/* ---- a problem ------------------------------------------------------------------------------- */

static int take_entries(struct importing *x, const json_t *problem, const struct known *known)
{
    int code = DONE;
    if (x->aiter) {
        json_int_t m = field_int(problem, "M");
        const struct entry *e = aiter_find(x->entries, m);
        if (e) {
            foreign_offer_entry(x, e, problem, known, &code);
        } else {
            foreign_skip_problem(x, 1, problem, "the file has no class for this M, and no `any`");
        }
        return code;
    }
    for (size_t i = 0; i < x->entries->n && code == DONE; i++) {
        if (foreign_offer_entry(x, &x->entries->all[i], problem, known, &code)) {
            break;
        }
    }
    return code;
}

/* Returns the reason why the file is for other problems than this problem, or NULL. */
static const char *other_problem(const struct importing *x, const json_t *problem)
{
    const char *mode = field_string(problem, "mode");
    const struct entries *e = x->entries;
    if (mode && strcmp(mode, e->mode) != 0) {
        return "the problem is of another mode than the file";
    }
    if ((e->n_size && field_int(problem, "N") != e->n_size) ||
        (e->k_size && field_int(problem, "K") != e->k_size)) {
        return "the file's name says another N or K";
    }
    return NULL;
}

/* Finds the target that tunes the problem: the answer's target, or, for an unmeasured hint, the
 * target that accepts the hint's config. */
static int foreign_find_known(struct importing *x, const json_t *problem, json_t *answer,
                              struct known *known)
{
    int code = DONE;
    result_target(answer);
    const char *target = field_string(answer, "target");
    json_t *verdict = NULL;
    known->config = json_object_get(answer, "config");
    if (!target) {
        verdict =
            ctl_call(x->ctl, "check",
                     json_pack("{sO, sO}", "problem", problem, "config", known->config), &code);
        target = field_string(verdict, "target");
    }
    snprintf(known->target, sizeof(known->target), "%s", target ? target : "");
    json_decref(verdict);
    return code;
}

/* Gets the daemon's current answer for a problem, which gives the target and the key. */
static int take_problem(struct importing *x, const json_t *problem)
{
    const char *other = other_problem(x, problem);
    if (other) {
        foreign_skip_problem(x, 1, problem, other);
        return DONE;
    }
    int code = DONE;
    json_t *answer =
        ctl_call(x->ctl, "get", json_pack("{sO, ss}", "problem", problem, "wait", "cached"), &code);
    if (!answer) {
        return code;
    }
    struct known known;
    code = foreign_find_known(x, problem, answer, &known);
    known.key = field_text(answer, "key");
    if (code == DONE && strcmp(field_text(answer, "tier"), "exact") == 0) {
        foreign_skip_problem(
            x, 1, problem,
            "it has an answer that was measured here, which a hint does not replace");
    } else if (code == DONE) {
        code = take_entries(x, problem, &known);
    }
    json_decref(answer);
    return code;
}

/* ---- the problems ---------------------------------------------------------------------------- */

/* The upper bounds of the classes in the form of --m, malloc'ed; skips unbounded classes. */
static char *bounds_list(struct importing *x)
{
    char *list = strdup("");
    for (size_t i = 0; i < x->entries->n; i++) {
        const struct entry *e = &x->entries->all[i];
        int64_t bound = aiter_bound(e->class);
        if (bound > 0) {
            list = text_append(list, "%s%lld", list && *list ? "," : "", (long long)bound);
        } else {
            foreign_skip_problem(
                x, e->line, NULL,
                "its class of M has no upper bound: say with --m for which M it is wanted");
        }
    }
    return list;
}

struct lists {
    char *m; /* owned */
    char n[24], k[24];
};

/* Completes the problems from the file where the options leave fields open. */
static void foreign_complete_problems(struct importing *x, struct problems *p, struct lists *lists)
{
    const struct entries *e = x->entries;
    const char **given = p->given;
    given[PROBLEM_MODE] = e->mode;
    if (!x->aiter || problems_has_table(p)) {
        return;
    }
    if (!given[PROBLEM_M] && !given[PROBLEM_TOKENS]) {
        given[PROBLEM_M] = lists->m = bounds_list(x);
    }
    snprintf(lists->n, sizeof(lists->n), "%lld", (long long)e->n_size);
    snprintf(lists->k, sizeof(lists->k), "%lld", (long long)e->k_size);
    if (e->n_size && !given[PROBLEM_N]) {
        given[PROBLEM_N] = lists->n;
    }
    if (e->k_size && !given[PROBLEM_K]) {
        given[PROBLEM_K] = lists->k;
    }
}

/* Checks that N and K are known, after the file completed them. The error message names the file,
 * since names without sizes are usual (DEFAULT.json). */
static int foreign_check_sizes(const struct importing *x, const struct problems *p)
{
    bool n = p->given[PROBLEM_N], k = p->given[PROBLEM_K];
    if (!x->aiter || problems_has_table(p) || (n && k)) {
        return DONE;
    }
    const char *lacks = n ? "K" : k ? "N" : "N and K";
    const char *give = n ? "--k" : k ? "--n" : "--n and --k";
    return ctl_usage(
        "which problem? the name of %s says no %s: give %s, or --shapes FILE, or --moe", x->path,
        lacks, give);
}

static int take_problems(struct importing *x, const struct problems *given)
{
    struct problems p = *given;
    struct lists lists = {.m = NULL};
    const char *modes = given->given[PROBLEM_MODE];
    if (modes && !list_has(modes, x->entries->mode)) {
        return ctl_usage("%s is of mode %s, and --mode is %s", x->path, x->entries->mode, modes);
    }
    foreign_complete_problems(x, &p, &lists);
    const char *m = p.given[PROBLEM_M];
    const bool none = m && !*m; /* no class has an upper bound, which bounds_list reported */
    int code = none ? DONE : foreign_check_sizes(x, &p);
    code = code || none ? code : problems_make(&p);
    size_t i;
    json_t *row;
    json_array_foreach(p.all, i, row) {
        code = code ? code : take_problem(x, json_object_get(row, "problem"));
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
    char *names = x->ctl->quiet ? NULL : notice_counts(counts);
    json_int_t sum = 0;
    const char *name;
    json_t *n;
    json_object_foreach((json_t *)(uintptr_t)counts, name, n) {
        sum += json_integer_value(n);
    }
    if (names && *names) {
        text_remark("%s: %s", words, names);
    }
    free(names);
    return sum;
}

/* Reads every file before the first call, so that syntax errors need no daemon. Reads each file
 * once, because a pipe can be read only once. */
static int foreign_read_files(bool aiter, char **paths, size_t n, struct entries files[])
{
    int code = DONE;
    for (size_t i = 0; i < n && code == DONE; i++) {
        if (strcmp(paths[i], "-") == 0) {
            return ctl_usage("these formats are read from named files, not from stdin");
        }
        code = aiter ? aiter_read(paths[i], &files[i]) : unsloth_read(paths[i], &files[i]);
    }
    return code;
}

static int send_rows(struct importing *x, bool dry_run)
{
    json_t *total = x->total, *rows = json_array(), *hint;
    const char *key;
    json_object_foreach(x->keys, key, hint) { /* in the order in which the keys were found */
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
        size_t i;
        json_t *s;
        json_array_foreach(json_object_get(total, "skipped"), i, s) {
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

int import_foreign(struct subject *s, const char *format)
{
    struct ctl *ctl = &s->ctl;
    const size_t n = s->n_paths;
    json_t *total = json_pack("{si, s[], s[], s{}, s{}}", "imported", 0, "unusable", "skipped",
                              "unknown", "changed");
    struct importing x = {.ctl = ctl,
                          .aiter = strcmp(format, "aiter") == 0,
                          .keys = json_object(),
                          .total = total,
                          .skipped = json_object_get(total, "unusable"),
                          .unused = json_object_get(total, "unknown"),
                          .changed = json_object_get(total, "changed")};
    struct entries *files = calloc(n + 1, sizeof(*files));
    int code = files ? foreign_read_files(x.aiter, s->paths, n, files) : ctl_failed("no memory");
    code = code ? code : ctl_connect(ctl);
    for (size_t i = 0; i < n && code == DONE; i++) {
        x.path = s->paths[i];
        x.entries = &files[i];
        code = take_problems(&x, &s->problems);
        add_counts(x.unused, files[i].unused);
    }
    code = code ? code : send_rows(&x, s->given[OWN_DRY_RUN]);
    for (size_t i = 0; files && i < n; i++) {
        foreign_entries_deinit(&files[i]);
    }
    free(files);
    json_decref(x.keys);
    json_decref(total);
    return code;
}
