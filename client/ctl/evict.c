/* SPDX-License-Identifier: Apache-2.0 */
/* evict: forgets a key, or the keys that --where and --older-than select. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

/* "30d", "12h", "45m", "10s" as seconds. 0, or USAGE after the error message. */
static int evict_read_age(const char *arg, int64_t *out)
{
    static const char units[] = "smhd";
    static const int64_t seconds[] = {1, 60, 3600, 86400};
    char number[16];
    const size_t n = strlen(arg);
    const char *unit = n > 1 && n <= sizeof(number) ? strchr(units, arg[n - 1]) : NULL;
    snprintf(number, sizeof(number), "%.*s", unit ? (int)n - 1 : 0, arg);
    if (!unit || !text_read_number(number, 0, 100000, out)) {
        return ctl_usage("--older-than takes a number with s, m, h or d behind it, as in 30d, not "
                         "\"%s\"",
                         arg);
    }
    *out *= seconds[unit - units];
    return DONE;
}

/* Removes rows that are not older than --older-than. Takes over `all`. */
static json_t *evict_keep_old(json_t *all, int64_t age_s)
{
    json_auto_t *rows = all;
    json_t *kept = json_array();
    const double before = (double)time(NULL) - (double)age_s;
    ARRAY_EACH(row, rows) {
        if (field_number(row, "created_s") < before) {
            json_array_append(kept, row);
        }
    }
    return kept;
}

/* Asks on the terminal. 0: yes; else an exit code. */
static int evict_confirm(const struct subject *s, size_t n)
{
    char answer[16] = "";
    if (s->given[OWN_YES]) {
        return DONE;
    }
    if (!isatty(STDIN_FILENO)) {
        return ctl_failed("nothing was removed: no terminal is there to ask whether %zu "
                          "key%s may go; --yes removes them without a question",
                          n, n == 1 ? "" : "s");
    }
    fprintf(stderr, "evict %s %zu key%s, with all trials? [y/N] ", n == 1 ? "this" : "these", n,
            n == 1 ? "" : "s");
    if (!fgets(answer, sizeof(answer), stdin)) {
        answer[0] = '\0';
    }
    answer[strcspn(answer, "\n")] = '\0';
    return list_has("y,Y,yes,Yes,YES", answer) ? DONE : ctl_failed("nothing was removed");
}

/* Evicts the keys one after the other, and prints the sums, also when a removal fails. */
static int evict_rows(struct subject *s, const json_t *rows)
{
    json_int_t keys = 0, removed = 0;
    int code = DONE;
    ARRAY_EACH(row, rows) {
        json_t *params = json_pack("{sO}", "key", json_object_get(row, "key"));
        json_auto_t *result = ctl_call(&s->ctl, "evict", params, &code);
        if (code) {
            break;
        }
        keys++;
        removed += field_int(result, "removed");
    }
    if (s->ctl.json) {
        int r = ctl_print_json(json_pack("{sI, sI, so*}", "keys", keys, "removed", removed, "error",
                                         code ? ctl_error() : NULL));
        return code ? code : r;
    }
    printf("%lld key%s evicted, %lld rows removed\n", (long long)keys, keys == 1 ? "" : "s",
           (long long)removed);
    return code;
}

static int evict_run_where(struct subject *s)
{
    int64_t age_s = 0;
    const char *older = s->given[OWN_OLDER];
    int code = older ? evict_read_age(older, &age_s) : DONE;
    if (code == DONE && problems_given(&s->problems)) {
        code = ctl_usage("a key or problem stands beside --where or --older-than: use one or the "
                         "other");
    }
    code = code ? code : rows_check_view(&s->ctl, "best");
    code = code ? code : ctl_connect(&s->ctl);
    json_auto_t *rows = code ? NULL : ctl_list(&s->ctl, "best", json_incref(s->filter), &code);
    rows = rows && older ? evict_keep_old(rows, age_s) : rows;
    const size_t n = json_array_size(rows);
    if (rows && n > 0 && !s->ctl.json) {
        rows_derive("best", NULL, rows);
        rows_complete(&s->ctl, "best", rows);
        rows_print_table(&s->ctl, "best", rows);
    } else if (rows && n == 0 && !s->ctl.quiet) {
        fprintf(stderr, "no key matches\n");
    }
    code = rows && n > 0 ? evict_confirm(s, n) : code;
    return rows && code == DONE && (n > 0 || s->ctl.json) ? evict_rows(s, rows) : code;
}

static void evict_show(struct subject *s, json_t *result)
{
    printf("%lld rows removed\n", field_int(result, "removed"));
}

static int evict_run(struct subject *s)
{
    const bool selects = json_object_size(s->filter) > 0 || s->given[OWN_OLDER];
    return selects ? evict_run_where(s) : subject_run_method(s);
}

static const struct argp_option evict_options[] = {
    {"older-than", OWN_KEY + OWN_OLDER, "AGE", 0, "only keys whose row is older: 30d, 12h, 45m", 2},
    {"yes", OWN_KEY + OWN_YES, 0, 0, "do not ask whether the selected keys may go", 2},
    {0},
};

const struct command command_evict = {
    .name = "evict",
    .help = "forget a problem's answer and its trials",
    .run = evict_run,
    .show = evict_show,
    .args_doc = "[KEY|PROBLEM]",
    .doc = "Forgets a problem's answer and all its trials. KEY is an id, or its first 6 digits or "
           "more. With --where or --older-than: the answers that are so, which the command prints "
           "before it asks.",
    .options = evict_options,
    .parts = {&problems_argp, &filter_argp, &view_argp, &ctl_argp},
};
