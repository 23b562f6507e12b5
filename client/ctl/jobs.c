/* SPDX-License-Identifier: Apache-2.0 */
/*
 * jobs: the training jobs that got answers. why --job: the products of a job that were answered by
 * a lower tier, and the time that this cost by today's measurements.
 */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

/* ---- jobs ----------------------------------------------------------------------------------- */

static int jobs_run(struct subject *s)
{
    return listing_show_rows(s, "jobs");
}

static const struct argp_option jobs_options[] = {
    {"all", OWN_KEY + OWN_ALL, 0, 0, "of every daemon of this host", 2},
    {0},
};

const struct command command_jobs = {
    .name = "jobs",
    .help = "the training jobs that got answers, by tier",
    .run = jobs_run,
    .doc = "Lists the jobs that got answers, the latest first, and the number of answers of each "
           "tier. `gemmctl why --job ID` explains a slow job.",
    .options = jobs_options,
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};

/* ---- why --job ------------------------------------------------------------------------------ */

/* True when `id` is the job's name, or the part of the name behind the kind, as in "slurm:4711". */
static bool jobs_is_named(const char *job, const char *id)
{
    const char *colon = strchr(job, ':');
    return strcmp(job, id) == 0 || (colon && strcmp(colon + 1, id) == 0);
}

/* Returns the row's job in `jobs`, which it adds when it is new. */
static json_t *jobs_find(json_t *jobs, const json_t *row)
{
    ARRAY_EACH(known, jobs) {
        if (field_int(known, "uid") == field_int(row, "uid") &&
            field_is(known, "job", field_text(row, "job"))) {
            return known;
        }
    }
    json_t *job =
        json_pack("{sO, sO, sO, sO, si, si, si, si, s[]}", "uid", json_object_get(row, "uid"),
                  "job", json_object_get(row, "job"), "first_s", json_object_get(row, "first_s"),
                  "last_s", json_object_get(row, "last_s"), "exact", 0, "near", 0, "portfolio", 0,
                  "default", 0, "products");
    json_array_append_new(jobs, job);
    return job;
}

static void jobs_add_row(json_t *jobs, json_t *row)
{
    json_t *job = jobs_find(jobs, row);
    notice_count(job, field_text(row, "tier"), field_int(row, "answers"));
    if (field_int(row, "first_s") < field_int(job, "first_s")) {
        json_object_set(job, "first_s", json_object_get(row, "first_s"));
    }
    if (field_int(row, "last_s") > field_int(job, "last_s")) {
        json_object_set(job, "last_s", json_object_get(row, "last_s"));
    }
    if (!field_is(row, "tier", "exact")) {
        json_array_append(json_object_get(job, "products"), row);
    }
}

/* The rows of the daemon, or of every database of the host, also when *code is a failure of one of
 * its daemons. NULL: no rows. */
static json_t *jobs_rows(struct subject *s, int *code)
{
    if (!s->given[OWN_ALL]) {
        *code = ctl_connect(&s->ctl);
        return *code ? NULL : ctl_list(&s->ctl, "served", json_incref(s->filter), code);
    }
    json_auto_t *all = every_rows(s, code);
    json_t *rows = json_array();
    ARRAY_EACH(daemon, all) {
        json_array_extend(rows, json_object_get(daemon, "rows"));
    }
    return rows;
}

/* ---- the page ------------------------------------------------------------------------------- */

/* The evidence for a row in some words, and the loss where both configs were measured. */
static char *jobs_explain(const json_t *row)
{
    const double lost = field_number(row, "lost_us");
    if (!*field_text(row, "key")) {
        return text_copy("products beyond the limit of a job");
    }
    if (!json_is_number(json_object_get(row, "best_us"))) {
        return text_copy("no evidence: never measured");
    }
    if (!json_is_number(json_object_get(row, "lost_us"))) {
        return text_copy("no evidence for its config");
    }
    TEXT_AUTO *age = show_age(json_object_get(row, "best_s"));
    return lost > 0 ? text_format("%.0f %% lost; best is %s old",
                                  100 * lost / field_number(row, "served_us"), age)
                    : text_copy("nothing lost");
}

static void jobs_print_sums(const json_t *job)
{
    static const char *const tiers[] = {"exact", "near", "portfolio", "default"};
    TEXT_AUTO *first = show_age(json_object_get(job, "first_s")),
              *last = show_age(json_object_get(job, "last_s")), *text = NULL;
    for (size_t i = 0; i < COUNT(tiers); i++) {
        const long long n = field_int(job, tiers[i]);
        text = n ? text_append(text, "%s%lld %s", text ? ", " : "", n, tiers[i]) : text;
    }
    const char *name = field_text(job, "job");
    text_print_named("job", "%s of uid %lld", *name ? name : "(further jobs)",
                     field_int(job, "uid"));
    text_print_named("answers", "first %s ago, last %s ago", first, last);
    text_print_named("", "%s", text ? text : "none");
}

/* Sums a launch of each product with evidence; of several rows of a product its worst counts. */
static void jobs_print_loss(const json_t *products)
{
    json_auto_t *worst = json_object();
    double lost = 0, served = 0;
    size_t n_known = 0;
    ARRAY_EACH(row, products) { /* the greatest loss comes first */
        const bool is_known = json_is_number(json_object_get(row, "lost_us"));
        const char *key = field_text(row, "key");
        n_known += is_known;
        if (is_known && !json_object_get(worst, key)) {
            json_object_set(worst, key, row);
        }
    }
    OBJECT_EACH(key, row, worst) {
        const double more = field_number(row, "lost_us");
        lost += more > 0 ? more : 0;
        served += field_number(row, "served_us");
    }
    if (json_array_size(products) == 0) {
        text_print_named("lost", "nothing: every answer was of the tier exact");
    } else if (n_known == 0) {
        text_print_named("lost", "not known: there is no evidence");
    } else {
        text_print_named("lost",
                         "%.*f of %.*f us when each of these products is launched once; evidence "
                         "for %zu of %zu rows",
                         show_decimals(served), lost, show_decimals(served), served, n_known,
                         json_array_size(products));
    }
}

static void jobs_print_actions(const json_t *products)
{
    enum { SHOWN = 8 };
    json_auto_t *seen = json_object();
    ARRAY_EACH(row, products) {
        const char *key = field_text(row, "key");
        if (!*key || json_is_number(json_object_get(row, "best_us")) ||
            json_object_get(seen, key)) {
            continue;
        }
        if (json_object_size(seen) >= SHOWN) {
            text_print_named("", "... and further products, which --json lists");
            break;
        }
        json_auto_t *problem = result_problem(row);
        TEXT_AUTO *text = why_shorten_problem(problem);
        text_print_named(json_object_size(seen) ? "" : "do", "gemmctl tune '%s'", text);
        json_object_set_new(seen, key, json_true());
    }
    if (json_object_size(seen) == 0 && json_array_size(products) > 0) {
        text_print_named("do", "nothing: a job that asks now gets the best answers of today");
    }
}

static void jobs_print(const struct ctl *c, const json_t *job)
{
    const json_t *products = json_object_get(job, "products");
    jobs_print_sums(job);
    jobs_print_loss(products);
    ARRAY_EACH(row, products) {
        TEXT_AUTO *text = jobs_explain(row);
        json_object_set_new(row, "why", json_string(text));
        result_derive(row);
    }
    if (json_array_size(products) > 0) {
        putchar('\n');
        rows_print(c, "served", products);
        putchar('\n');
    }
    jobs_print_actions(products);
}

int jobs_explain_job(struct subject *s)
{
    static const char *const order[] = {"-lost_us", "-answers", NULL};
    const char *id = s->given[OWN_JOB];
    int code = DONE;
    json_auto_t *jobs = json_array();
    if (problems_given(&s->problems) || !*id) {
        return ctl_usage("--job takes the ID of a job, and no problem; `gemmctl jobs` lists them");
    }
    json_object_set_new(s->filter, "job", json_sprintf("~%s", id));
    json_auto_t *rows = jobs_rows(s, &code);
    const bool rows_came = json_array_size(rows) > 0 || code == DONE;
    rows_sort(rows, order);
    ARRAY_EACH(row, rows) {
        if (jobs_is_named(field_text(row, "job"), id)) {
            jobs_add_row(jobs, row);
        }
    }
    if (code == DONE && json_array_size(jobs) == 0) {
        code = ctl_failed("no job \"%s\" got an answer here in the last 30 days; `gemmctl jobs` "
                          "lists the jobs",
                          id);
    } else if (rows_came && s->ctl.json) {
        const int printed = ctl_print_json(json_incref(jobs));
        return code ? code : printed;
    }
    ARRAY_EACH_AT(i, job, jobs) {
        if (i > 0) {
            putchar('\n');
        }
        jobs_print(&s->ctl, job);
    }
    return code;
}
