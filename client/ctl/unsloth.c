/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the CSV of Unsloth's MoE tuning: the trials of one problem, the best speedup first. File
 * names give the shape and the device, which the format lacks. Times are in milliseconds. The
 * column torch_time, Unsloth's baseline, has the time of the run's reference kernel. Configs that
 * differ only in parameters that the format lacks become one row, the fastest config's.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/ctl/formats.h"

static const char *const shared_columns =
    "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,flatten,permute_x,permute_y,fuse_"
    "mul_post,use_tma_store";

const struct unsloth_mode unsloth_modes[UNSLOTH_MODES] = {
    {"forward", {"use_tma_load_w", "use_tma_load_x"}},
    {"dX", {"use_tma_load_dy", "use_tma_load_w"}},
    {"dW", {"use_tma_load_dy", "use_tma_load_x"}},
};

static const struct unsloth_mode *unsloth_find_mode(const json_t *problem)
{
    const char *mode = field_string(problem, "mode");
    for (size_t i = 0; mode && i < UNSLOTH_MODES; i++) {
        if (strcmp(unsloth_modes[i].name, mode) == 0) {
            return &unsloth_modes[i];
        }
    }
    return NULL;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *unsloth_format_flag(bool v)
{
    return v ? "True" : "False";
}

/* True when the kernel loads the operand by TMA. The Hopper kernel always loads contiguous operands
 * by TMA, also when the config lacks the parameter. */
static bool unsloth_loads_by_tma(const json_t *problem, const json_t *config, const char *name)
{
    const json_t *said = json_object_get(config, name);
    bool gathered = (strcmp(name, "use_tma_load_x") == 0 && field_is_true(problem, "permute_x")) ||
                    (strcmp(name, "use_tma_load_dy") == 0 && field_is_true(problem, "permute_y"));
    return said ? json_is_true(said) : json_object_get(config, "schedule") && !gathered;
}

static char *unsloth_make_head(const json_t *problem, const json_t *config, const json_t *tile)
{
    const struct unsloth_mode *mode = unsloth_find_mode(problem);
    return text_format("%lld,%lld,%lld,%lld,%lld,True,%s,%s,%s,%s,%s,%s",
                       field_int(tile, "BLOCK_SIZE_M"), field_int(tile, "BLOCK_SIZE_N"),
                       field_int(tile, "BLOCK_SIZE_K"), field_int(tile, "num_warps"),
                       field_int(tile, "num_stages"),
                       unsloth_format_flag(field_is_true(problem, "permute_x")),
                       unsloth_format_flag(field_is_true(problem, "permute_y")),
                       unsloth_format_flag(field_is_true(problem, "fuse_mul_post")),
                       unsloth_format_flag(field_is_true(tile, "use_tma_store")),
                       unsloth_format_flag(unsloth_loads_by_tma(problem, config, mode->loads[0])),
                       unsloth_format_flag(unsloth_loads_by_tma(problem, config, mode->loads[1])));
}

static void unsloth_add_row(json_t *rows, const char *head, double us, double ratio)
{
    if (1 / ratio > field_number(json_object_get(rows, head), "speedup")) {
        json_object_set_new(rows, head,
                            json_pack("{ss, sf, sf, sf}", "head", head, "baseline_ms",
                                      us / ratio / 1e3, "ms", us / 1e3, "speedup", 1 / ratio));
    }
}

/* ---- the rows of a problem ------------------------------------------------------------------ */

static bool is_ok(const json_t *trial)
{
    return field_is(trial, "status", "ok");
}

/* True when the file gets trial a, not trial b, of the same config: a time rather than a failure, a
 * trial of the finals rather than of the search, the newer rather than the older. */
static bool unsloth_is_better(const json_t *a, const json_t *b)
{
    if (is_ok(a) != is_ok(b)) {
        return is_ok(a);
    }
    bool first_a = field_is(a, "stage", "measure");
    bool first_b = field_is(b, "stage", "measure");
    return first_a != first_b ? first_b : field_int(a, "id") > field_int(b, "id");
}

/* Returns {text of a config: its best trial}. */
static json_t *unsloth_pick_trials(const json_t *trials)
{
    json_t *last = json_object();
    ARRAY_EACH(trial, trials) {
        if (field_is(trial, "stage", "baseline")) {
            continue;
        }
        TEXT_AUTO *config = show_config(json_object_get(trial, "config"));
        const json_t *old = json_object_get(last, config);
        if (!old || unsloth_is_better(trial, old)) {
            json_object_set(last, config, trial);
        }
    }
    return last;
}

static void take_trial(struct writing *w, json_t *rows, const json_t *best, const json_t *trial)
{
    const json_t *problem = json_object_get(best, "problem");
    const json_t *config = json_object_get(trial, "config");
    double us = field_number(trial, "time_us");
    double ratio = field_number(trial, "ratio");
    char why[WHY_MAX] = "no time beside a reference kernel's was kept";
    const char *status = field_text(trial, "status");
    if (strcmp(status, "aborted") == 0) {
        snprintf(why, sizeof(why), "it was stopped early, being slower");
    } else if (!is_ok(trial)) {
        snprintf(why, sizeof(why), "it failed: %.32s", status);
    }
    bool timed = is_ok(trial) && us > 0 && ratio > 0 && isfinite(us / ratio);
    json_auto_t *tile = timed ? tile_of_config(config, w->left_out, why) : NULL;
    const bool split = field_int(tile, "NUM_KSPLIT") > 1;
    if (split) {
        snprintf(why, sizeof(why), "NUM_KSPLIT is not 1: their kernels do not split sums");
    }
    TEXT_AUTO *text =
        tile && !split ? unsloth_make_head(problem, config, tile) : show_config(config);
    if (tile && !split) {
        unsloth_add_row(rows, text, us, ratio);
    } else {
        notice_skip(w->skipped, text, why);
    }
    if (!split && field_int(tile, "GROUP_SIZE_M") > 0) {
        json_object_set_new(w->left_out, "GROUP_SIZE_M", json_true());
    }
}

/* The text of the CSV file of a mode's rows, malloc'ed. */
static char *unsloth_make_text(const json_t *rows, const struct unsloth_mode *mode)
{
    static const char *const order[] = {"-speedup", "head", NULL};
    char *text = text_format("%s,%s,%s,torch_time,triton_time,speedup\n", shared_columns,
                             mode->loads[0], mode->loads[1]);
    json_auto_t *sorted = json_array();
    OBJECT_EACH(head, row, rows) {
        json_array_append(sorted, row);
    }
    rows_sort(sorted, order);
    ARRAY_EACH(row, sorted) {
        char baseline[NUMBER_TEXT_MAX], ms[NUMBER_TEXT_MAX], speedup[NUMBER_TEXT_MAX];
        number_text(field_number(row, "baseline_ms"), baseline);
        number_text(field_number(row, "ms"), ms);
        number_text(field_number(row, "speedup"), speedup);
        text = text_append(text, "%s,%s,%s,%s\n", field_text(row, "head"), baseline, ms, speedup);
    }
    return text;
}

/* ---- files ---------------------------------------------------------------------------------- */

static char *path_of(const char *folder, const json_t *best)
{
    const json_t *p = json_object_get(best, "problem");
    return text_format(
        "%s%s%s/E%lld_topk%lld_M%lld_N%lld_K%lld_%s%s%s%s_%.8s.csv", folder, writing_slash(folder),
        unsloth_find_mode(p)->name, field_int(p, "experts"), field_int(p, "topk"),
        field_int(p, "M"), field_int(p, "N"), field_int(p, "K"), field_text(p, "dtype_in"),
        field_is_true(p, "permute_x") ? "_permute_x" : "",
        field_is_true(p, "permute_y") ? "_permute_y" : "",
        field_is_true(p, "fuse_mul_post") ? "_fuse_mul_post" : "", field_text(best, "key"));
}

static int unsloth_save_table(struct writing *w, const json_t *rows, const json_t *best,
                              bool folder)
{
    char *path = folder ? path_of(w->to, best) : text_copy(w->to ? w->to : "-");
    char *text = unsloth_make_text(rows, unsloth_find_mode(json_object_get(best, "problem")));
    int code = writing_add_file(w, path, text, json_object_size(rows));
    if (code == DONE) {
        json_t *file = json_array_get(w->files, json_array_size(w->files) - 1);
        json_object_set(file, "key", json_object_get(best, "key"));
        json_object_set(file, "problem", json_object_get(best, "problem"));
    }
    return code;
}

static int write_one(struct writing *w, const json_t *best, bool folder)
{
    const json_t *problem = json_object_get(best, "problem");
    const char *why = !unsloth_find_mode(problem) ? "the format is of grouped GEMMs only"
                      : field_is_true(problem, "accumulate")
                          ? "their kernels do not add to their output"
                      : field_is_true(problem, "batch_invariant")
                          ? "the format's products take any order of summation"
                          : NULL;
    if (why) {
        writing_skip(w, best, why);
        return DONE;
    }
    int code = DONE;
    json_auto_t *trials = ctl_list(&w->s->ctl, "trials",
                                   json_pack("{sO}", "key", json_object_get(best, "key")), &code),
                *last = trials ? unsloth_pick_trials(trials) : NULL, *rows = json_object();
    OBJECT_EACH(config, trial, last) {
        take_trial(w, rows, best, trial);
    }
    if (code == DONE && json_object_size(rows) > 0) {
        code = unsloth_save_table(w, rows, best, folder);
    } else if (code == DONE) {
        writing_skip(w, best, "nothing that was measured of it has a counterpart");
    }
    return code;
}

static int unsloth_write(struct writing *w)
{
    size_t n = json_array_size(w->rows), length = w->to ? strlen(w->to) : 0;
    struct stat s;
    bool folder =
        w->to && strcmp(w->to, "-") != 0 &&
        (n > 1 || w->to[length - 1] == '/' || (stat(w->to, &s) == 0 && S_ISDIR(s.st_mode)));
    if (n > 1 && !folder) {
        return ctl_usage("this is about %zu problems, and such a CSV is about one: give --to DIR, "
                         "or say which problem",
                         n);
    }
    json_array_append_new(
        w->notes, json_string("torch_time is the time of the run's reference kernel, which is the "
                              "analytic default, not torch's; times are milliseconds"));
    int code = DONE;
    for (size_t i = 0; i < n && code == DONE; i++) {
        code = write_one(w, json_array_get(w->rows, i), folder);
    }
    return code;
}

const struct format format_unsloth = {
    .name = "unsloth", .read = unsloth_read, .write = unsloth_write};
