/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The section of single keys: of each layer and mode the key that loses most time, until KEYS_DRAWN
 * keys are drawn. Times of other runs than the answer's are shown as their ratio to the reference
 * kernel, times the reference kernel's time in the answer's run.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"

/* ---- trials ---------------------------------------------------------------------------------- */

/* The key's trials without baselines, at most TRIALS_DRAWN, the newest; *older: the number of those
 * left out. NULL and *code after the error message. */
static json_t *keys_read_trials(struct report *r, json_t *key, size_t *older, int *code)
{
    json_auto_t *all = ctl_list(&r->s->ctl, "trials", json_pack("{sO}", "key", key), code);
    json_t *trials = json_array();
    ARRAY_EACH(row, all) {
        if (!field_is(row, "stage", "baseline")) {
            json_array_append(trials, row);
        }
    }
    *older = 0;
    for (; json_array_size(trials) > TRIALS_DRAWN; (*older)++) {
        json_array_remove(trials, 0);
    }
    return trials;
}

/* ---- drawing --------------------------------------------------------------------------------- */

static long long keys_find_area(const char *tile)
{
    const char *x = strchr(tile, 'x');
    return strtoll(tile, NULL, 10) * (x ? strtoll(x + 1, NULL, 10) : 0);
}

static int keys_compare_tiles(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    const long long area = keys_find_area(*x) - keys_find_area(*y);
    return area ? (area > 0) - (area < 0) : strcmp(*x, *y);
}

/* The tile of a config, "128x256" (malloc'ed): rows and columns of the block of the output. NULL:
 * the config has none. */
static char *keys_make_tile(const json_t *config, const char *mode)
{
    const char *rows = strcmp(mode, "dW") == 0 ? "BLOCK_SIZE_N" : "BLOCK_SIZE_M";
    const char *columns = strcmp(mode, "forward") == 0 ? "BLOCK_SIZE_N" : "BLOCK_SIZE_K";
    const long long m = field_int(config, rows), n = field_int(config, columns);
    return m > 0 && n > 0 ? text_format("%lldx%lld", m, n) : NULL;
}

/* The names of the trials' tiles, the smallest first; the object owns the names. */
static const char **keys_sort_tiles(json_t *tiles, size_t *n)
{
    const char **names = calloc(json_object_size(tiles) + 1, sizeof(*names));
    *n = 0;
    OBJECT_EACH(name, v, tiles) {
        if (names) {
            names[(*n)++] = name;
        }
    }
    if (names) {
        qsort(names, *n, sizeof(*names), keys_compare_tiles);
    }
    for (size_t i = 0; i < *n; i++) {
        json_object_set_new(tiles, names[i], json_integer((json_int_t)i));
    }
    return names;
}

static struct dot keys_make_dot(const json_t *trial, const json_t *best, const json_t *tiles)
{
    const char *status = field_text(trial, "status"), *tile = field_string(trial, "tile");
    const double ratio = field_number(trial, "ratio");
    const double reference_us = field_number(best, "reference_us");
    const json_t *id = json_object_get(trial, "id");
    return (struct dot){.us = ratio > 0 && reference_us > 0 ? ratio * reference_us
                                                            : field_number(trial, "time_us"),
                        .tile = tile ? (int)field_int(tiles, tile) : -1,
                        .is_ok = strcmp(status, "ok") == 0,
                        .is_final = field_is(trial, "stage", "final"),
                        .is_winner = id && json_equal(id, json_object_get(best, "trial")),
                        .config = field_text(trial, "shown"),
                        .failure = field_text(trial, "failure")};
}

static void keys_draw(struct report *r, const json_t *best, const json_t *trials)
{
    json_auto_t *tiles = json_object();
    const json_t *before = NULL;
    size_t n = 0;
    ARRAY_EACH_AT(i, trial, trials) {
        TEXT_AUTO *tile =
                      keys_make_tile(json_object_get(trial, "config"), field_text(best, "mode")),
                  *shown = show_config(json_object_get(trial, "config"));
        if (tile) {
            json_object_set_new(tiles, tile, json_true());
            json_object_set_new(trial, "tile", json_string(tile));
        }
        json_object_set_new(trial, "shown", json_string(shown));
        json_object_set_new(
            trial, "failure",
            json_sprintf("%s: %s", field_text(trial, "status"), field_text(trial, "reason")));
    }
    const char **names = keys_sort_tiles(tiles, &n);
    struct dot *dots = calloc(json_array_size(trials) + 1, sizeof(*dots));
    ARRAY_EACH_AT(i, trial, trials) {
        const json_t *run = json_object_get(trial, "run");
        if (dots) {
            dots[i] = keys_make_dot(trial, best, tiles);
            dots[i].begins_run = i > 0 && run && before && !json_equal(run, before);
        }
        before = run;
    }
    const struct drawing d = {.dots = dots,
                              .n = dots ? json_array_size(trials) : 0,
                              .tiles = names,
                              .n_tiles = n,
                              .reference_us = field_number(best, "reference_us"),
                              .floor_us = field_number(best, "floor_us")};
    page_print(&r->page, "<div class=\"plots\">\n");
    if (n > 0) {
        svg_print_landscape(&r->page, &d);
    }
    svg_print_path(&r->page, &d);
    page_print(&r->page, "</div>\n");
    free(dots);
    free(names);
}

/* ---- words ----------------------------------------------------------------------------------- */

/* The confidence and the doubts, which only `why` knows. */
static void keys_print_confidence(struct report *r, const json_t *key)
{
    struct gemmd_error e;
    json_auto_t *why = ctl_try_call(&r->s->ctl, "why", json_pack("{sO}", "key", key), &e);
    const json_t *doubts = json_object_get(why, "doubts");
    if (why) {
        page_print(&r->page, "<p>Confidence: %s.", field_text(why, "confidence"));
        ARRAY_EACH_AT(i, doubt, doubts) {
            page_print(&r->page, " %s%s", json_string_value(doubt),
                       i + 1 < json_array_size(doubts) ? ";" : ".");
        }
        page_print(&r->page, "</p>\n");
    }
}

static void keys_print_counts(struct report *r, const json_t *trials, size_t older)
{
    json_auto_t *counts = json_object();
    ARRAY_EACH(trial, trials) {
        notice_count(counts, field_text(trial, "status"), 1);
    }
    page_print(&r->page, "<p class=\"dim\">%zu trials", json_array_size(trials));
    page_print_counts(&r->page, ": ", counts);
    page_print(&r->page, ".");
    if (older > 0) {
        page_print(&r->page, " %zu older trials are not drawn.", older);
    }
    page_print(&r->page, "</p>\n");
}

static void keys_print_title(struct report *r, const json_t *row)
{
    struct page *p = &r->page;
    const json_t *problem = json_object_get(row, "problem");
    TEXT_AUTO *fields = show_config(problem), *config = show_config(json_object_get(row, "config"));
    const double us = field_number(row, "time_us"), speedup = field_number(row, "speedup");
    if (result_is_product(field_string(row, "op"), problem)) {
        const char *flags = field_text(row, "flags");
        page_print(p, "<h3>%s, %s, M %lld</h3>\n<p>", field_text(row, "name"),
                   field_text(row, "mode"), field_int(problem, "M"));
        page_print(p, "N %lld, K %lld, %lld experts, topk %lld%s%s", field_int(problem, "N"),
                   field_int(problem, "K"), field_int(problem, "experts"),
                   field_int(problem, "topk"), *flags ? ", " : "", flags);
    } else {
        page_print(p, "<h3>%s</h3>\n<p>%s", field_text(row, "name"), fields);
    }
    page_print(p, "; key %s. <b>%.*f us</b>", field_text(row, "key"), show_decimals(us), us);
    if (speedup > 0) {
        page_print(p, ", %.2f x the speed of the reference kernel", speedup);
    }
    if (field_number(row, "floor_percent") > 0) {
        page_print(p, ", %.1f %% of the floor", field_number(row, "floor_percent"));
    }
    page_print(p, ".</p>\n<p class=\"config\"><code>%s</code></p>\n", config);
}

/* ---- the section ----------------------------------------------------------------------------- */

/* False when the key's layer is drawn already. */
static bool keys_is_new_layer(json_t *seen, const json_t *row)
{
    const json_t *p = json_object_get(row, "problem");
    TEXT_AUTO *id = text_format("%s %s %lld %lld %lld %s", field_text(row, "op"),
                                field_text(row, "mode"), field_int(p, "experts"), field_int(p, "N"),
                                field_int(p, "K"), field_text(row, "class"));
    return notice_count(seen, id, 1) == 1;
}

int report_print_keys(struct report *r)
{
    enum { ASKED_MOST = 4 * KEYS_DRAWN };
    int code = DONE;
    json_auto_t *seen = json_object();
    size_t drawn = 0, asked = 0;
    page_begin_section(&r->page, "keys-drawn", "Landscapes");
    page_print(
        &r->page,
        "<p>Of each layer and mode the measured key that loses most time against its floor, at "
        "most %d "
        "keys. Each dot is a trial: green in the finals, hollow when it was cut short, a red "
        "cross when it failed; a ring marks the answer. The line is the fastest time so far. "
        "Times of other runs are scaled by the reference kernel's time.</p>\n",
        KEYS_DRAWN);
    ARRAY_EACH(row, r->tried) {
        if (code || drawn >= KEYS_DRAWN || asked >= ASKED_MOST) {
            break;
        }
        if (!keys_is_new_layer(seen, row)) {
            continue;
        }
        size_t older = 0;
        json_auto_t *trials = keys_read_trials(r, json_object_get(row, "key"), &older, &code);
        asked++;
        code = code ? code : report_complete_row(r, row);
        if (code == DONE && json_array_size(trials) > 0) {
            keys_print_title(r, row);
            keys_print_confidence(r, json_object_get(row, "key"));
            keys_print_counts(r, trials, older);
            keys_draw(r, row, trials);
            drawn++;
        }
    }
    if (drawn == 0) {
        page_print(&r->page, "<p>No trials are known of these keys: they were imported or put, or "
                             "nothing has been tuned yet.</p>\n");
    }
    page_end_section(&r->page);
    return code;
}
