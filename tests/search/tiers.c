/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of the tiers below exact over recorded landscapes, beside the analytic default.
 *
 *   tiers [--check WORST,MEAN] [--quiet] LANDSCAPE...
 *
 * An ordered pair is two landscapes of one card and the same problem except for its rows (M). A
 * daemon knows only the first landscape's best config, and is asked for the second landscape's
 * problem with wait=cached. Two recordings of the same problem are a pair, too: then the row is the
 * asked key's own, measured by other code. The daemon's own function chooses
 * (daemon/answers/tiers.h).
 *
 * Printed for each pair, over the recorded time of the default: the tier and its config's time at
 * the second problem (ANSWER), the known config's time (KNOWN), and the best time (BEST). Then
 * sums; "held out" are pairs of weights without a landscape among the model's teachers. In the last
 * sum the daemon knows all other landscapes of the card at once.
 *
 * Not recorded:
 * - today's default, if kernels got parameters later: the recorded reference kernel, the default of
 *   that time, stands for today's (counted);
 * - an answer that is not the default: the pair counts in no mean (counted, and a failure with more
 *   than one pair in fifty).
 *
 * --check: exit 1 unless the worst and the mean are at most these (the mean: less), over all pairs,
 * and over each target with all other landscapes known.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/target.h"
#include "daemon/answers/tiers.h"
#include "daemon/cache/answer.h"
#include "kernels/devices/replay/replay.h"
#include "kernels/space.h"

enum { RECORDED_MAX = 160 };
#define TOLERANCE 1e-2 /* the default of a query */

struct recorded {
    struct landscape *landscape; /* owned */
    char name[96];
    bool teaches, standard_recorded;
    const struct problem *problem; /* borrowed */
    const struct family_target *target;
    struct record best;
    double best_us, standard_us;
    /* predicted time of today's default over the predicted time of the recorded reference kernel,
     * which stands for it */
    double newer;
};

static struct recorded all[RECORDED_MAX];
static size_t n_all;

/* ---- landscapes ------------------------------------------------------------------------------ */

static double recorded_us(const struct recorded *r, const struct record *config)
{
    const struct landscape_entry *e = landscape_entry(r->landscape, 0, config);
    return e && e->status == 0 ? e->us : NAN;
}

/* Finds the fastest recorded config, if possible among configs with many samples. */
static bool find_best(struct recorded *r, struct error *err)
{
    struct space s;
    bool sure = false;
    if (space_build(&s, r->target, r->problem, &r->landscape->info, NULL, err)) {
        return false;
    }
    r->best_us = INFINITY;
    for (uint32_t i = 0; i < s.n; i++) {
        struct record config;
        space_config(&s, i, &config);
        const struct landscape_entry *e = landscape_entry(r->landscape, 0, &config);
        bool counts = e && e->status == 0 && e->sure >= sure;
        if (counts && (e->us < r->best_us || e->sure > sure)) {
            sure = e->sure;
            r->best_us = e->us;
            record_copy(&r->best, &config);
        }
    }
    space_deinit(&s);
    return isfinite(r->best_us) || error_set(err, ERROR_NOT_FOUND, "nothing recorded") == 0;
}

static bool find_standard(struct recorded *r, struct error *err)
{
    struct record config;
    if (r->target->choose(r->problem, &r->landscape->info, &config, err) < 0) {
        return false;
    }
    r->standard_us = recorded_us(r, &config);
    r->standard_recorded = isfinite(r->standard_us);
    r->newer = 1;
    if (!r->standard_recorded) {
        const struct record *then = &r->landscape->problems[0].reference;
        const struct device_info *info = &r->landscape->info;
        r->standard_us = recorded_us(r, then);
        r->newer = r->target->predict(r->problem, &config, info, NULL) /
                   r->target->predict(r->problem, then, info, NULL);
    }
    return isfinite(r->standard_us) ||
           error_set(err, ERROR_NOT_FOUND, "neither default nor reference kernel recorded") == 0;
}

static bool open_landscape(const char *path)
{
    struct error err = ERROR_NULL;
    struct recorded *r = &all[n_all];
    char spec[600];
    const char *folder = strstr(path, "landscapes");
    folder = folder ? folder : path;
    snprintf(spec, sizeof(spec), "replay:%s", path);
    snprintf(r->name, sizeof(r->name), "%.*s", (int)strcspn(folder, "."), folder);
    r->teaches = strncmp(folder, "landscapes/", strlen("landscapes/")) == 0 ||
                 strncmp(folder, "landscapes_fresh/", strlen("landscapes_fresh/")) == 0;
    if (n_all == RECORDED_MAX || landscape_load(spec, &r->landscape, &err)) {
        fprintf(stderr, "%s: %s\n", path, n_all == RECORDED_MAX ? "too many" : err.text);
        return false;
    }
    n_all++;
    r->problem = &r->landscape->problems[0].problem;
    bool good = family_target_choose(family_of_problem(r->problem), r->problem, &r->landscape->info,
                                     NULL, &r->target, &err) == 0 &&
                find_best(r, &err) && find_standard(r, &err);
    if (!good) {
        fprintf(stderr, "%s: %s\n", path, err.text);
    }
    return good;
}

/* ---- a daemon of one device, without loop and ledger ----------------------------------------- */

struct bench {
    struct daemon daemon;
    struct tiers tiers;
    struct wire_doc *doc;
};

static void bench_open(struct bench *b, const struct recorded *of)
{
    struct error err = ERROR_NULL;
    struct daemon *d = &b->daemon;
    *b = (struct bench){.doc = wire_doc_new()};
    d->device = of->landscape->info;
    d->scratch = calloc(1, sizeof(*d->scratch));
    if (!b->doc || !d->scratch || cache_init(&d->cache, d->device.class, &err) < 0) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }
    defaults_init(&d->defaults, &d->device, &d->quarantine_set, b->doc);
    b->tiers.daemon = d;
    b->tiers.portfolio.daemon = d;
}

static void bench_close(struct bench *b)
{
    defaults_forget(&b->daemon.defaults);
    cache_deinit(&b->daemon.cache);
    free(b->daemon.scratch);
    wire_doc_free(b->doc);
}

static void make_key(struct bench *b, const struct problem *p, struct key *k)
{
    if (key_make(k, p, b->daemon.device.class, NULL) < 0) {
        exit(1);
    }
    key_id(k);
}

/* Puts the row into the cache that a tuning of the landscape's problem would leave: with today's
 * stamp, or with another, so that it is a hint. */
static void learn_row(struct bench *b, const struct recorded *r, bool of_today)
{
    struct daemon *d = &b->daemon;
    const struct family *f = family_of_problem(r->problem);
    static struct key k;
    static struct answer a;
    make_key(b, r->problem, &k);
    answer_init(&a);
    snprintf(a.key, sizeof(a.key), "%s", k.id);
    snprintf(a.tier, sizeof(a.tier), "exact");
    snprintf(a.source, sizeof(a.source), "tuned");
    snprintf(a.family, sizeof(a.family), "%s", f->name);
    snprintf(a.stamp, sizeof(a.stamp), "%s%s", of_today ? "" : "src=other ",
             target_stamp(d, f, r->target) + (of_today ? 0 : strlen("src=")));
    record_copy(&a.config, &r->best);
    a.time_us = r->best_us;
    a.reference_us =
        r->standard_us * r->newer; /* the row has the reference time of its own tuning */
    if (cache_put(&d->cache, &k, r->problem, &a, of_today ? CACHE_SERVES : CACHE_HINT, TOLERANCE,
                  TOLERANCE, 0, NULL) < 0) {
        exit(1);
    }
}

static void ask(struct bench *b, const struct recorded *r, struct answer *out)
{
    static struct key k;
    struct error err = ERROR_NULL;
    struct request *request = &b->daemon.scratch->request;
    request->problem = *r->problem;
    request->query.atol = request->query.rtol = TOLERANCE;
    make_key(b, r->problem, &k);
    if (tiers_answer(&b->tiers, request, 0, r->problem, &k, "not tuned yet", out, NULL, &err) < 0) {
        fprintf(stderr, "%s: %s\n", r->name, err.text);
        exit(1);
    }
}

/* ---- judging --------------------------------------------------------------------------------- */

struct sum {
    const char *name;
    int n, n_known, lower, unrecorded,
        stand_in; /* lower: number of pairs that another tier than the default answered */
    double answer, known, best, worst, worst_known;
};

/* The recorded time of the answer's config, over the default's; NaN: not recorded. */
static double judge(const struct recorded *r, const struct answer *a)
{
    return strcmp(a->tier, "default") == 0 ? 1 : recorded_us(r, &a->config) / r->standard_us;
}

static void count(struct sum *s, const struct recorded *to, const struct answer *a, double known)
{
    double answer = judge(to, a);
    s->unrecorded += isnan(answer);
    if (isfinite(answer)) {
        s->n++;
        s->lower += strcmp(a->tier, "default") != 0;
        s->stand_in += !to->standard_recorded;
        s->answer += answer;
        s->n_known += isfinite(known);
        s->known += isfinite(known) ? known : 0;
        s->worst_known = fmax(s->worst_known, known);
        s->best += to->best_us / to->standard_us;
        s->worst = fmax(s->worst, answer);
    }
}

static void print_sum(const struct sum *s)
{
    if (s->n == 0) {
        return;
    }
    printf("%s: %d asked, %d not by the default: mean %.5f, worst %.3f, best %.3f; "
           "%d answers not recorded; %d times the reference stands for the default\n",
           s->name, s->n, s->lower, s->answer / s->n, s->worst, s->best / s->n, s->unrecorded,
           s->stand_in);
    if (s->n_known > 0) {
        printf("    what is known, where it was recorded (%d): mean %.3f, worst %.3f\n", s->n_known,
               s->known / s->n_known, s->worst_known);
    }
}

static bool same_card(const struct recorded *a, const struct recorded *b)
{
    return strcmp(a->landscape->info.name, b->landscape->info.name) == 0;
}

/* Returns true if the problems are equal except for their rows (M); *rows: the rows differ. */
static bool is_pair(const struct recorded *a, const struct recorded *b, bool *rows)
{
    struct record x, y;
    record_copy(&x, &a->problem->fields);
    record_copy(&y, &b->problem->fields);
    *rows = record_int(&x, "M", 0) != record_int(&y, "M", 0);
    record_put_int(&x, "M", 1);
    record_put_int(&y, "M", 1);
    return a != b && same_card(a, b) && record_equal(&x, &y);
}

/* True: the model learnt from no landscape of a layer with this N, K, experts and topk. */
static bool is_held_out(const struct recorded *r)
{
    static const char *const names[] = {"N", "K", "experts", "topk"};
    bool held_out = true;
    for (size_t i = 0; i < n_all; i++) {
        bool same = all[i].teaches;
        for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
            same = same && record_int(&all[i].problem->fields, names[k], 0) ==
                               record_int(&r->problem->fields, names[k], 0);
        }
        held_out = held_out && !same;
    }
    return held_out;
}

enum { ALL, ROWS, CODE, HELD_OUT, OTHERS, SUMS };

static void judge_pair(const struct recorded *from, const struct recorded *to, bool rows,
                       struct sum sums[SUMS], bool quiet)
{
    static struct bench b;
    static struct answer a;
    bench_open(&b, to);
    learn_row(&b, from, rows);
    ask(&b, to, &a);
    double known = recorded_us(to, &from->best) / to->standard_us, answer = judge(to, &a);
    count(&sums[ALL], to, &a, known);
    count(&sums[rows ? ROWS : CODE], to, &a, known);
    if (is_held_out(to)) {
        count(&sums[HELD_OUT], to, &a, known);
    }
    if (!quiet) {
        printf("%-52s %-52s %-8s %6.3f %6.3f %6.3f%s\n", from->name, to->name, a.tier, answer,
               known, to->best_us / to->standard_us, to->standard_recorded ? "" : " (reference)");
    }
    bench_close(&b);
}

/* Judges the answer of a daemon that knows all other landscapes of the card. us[2] gets the
 * microseconds of two requests: for the first the daemon chooses a default, and remembers it for
 * the second. */
static void judge_with_others(const struct recorded *to, struct sum *s, double us[2])
{
    static struct bench b;
    static struct answer a;
    bench_open(&b, to);
    for (size_t i = 0; i < n_all; i++) {
        if (same_card(&all[i], to) &&
            !record_equal(&all[i].problem->fields, &to->problem->fields)) {
            learn_row(&b, &all[i], true);
        }
    }
    for (int i = 0; i < 2; i++) {
        struct timespec t, u;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        ask(&b, to, &a);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &u);
        us[i] += (double)(u.tv_sec - t.tv_sec) * 1e6 + (double)(u.tv_nsec - t.tv_nsec) / 1e3;
    }
    count(s, to, &a, NAN);
    bench_close(&b);
}

static bool within(const struct sum *s, double worst, double mean)
{
    bool good =
        s->n > 0 && s->worst <= worst && s->answer / s->n < mean && s->unrecorded * 50 <= s->n;
    printf("%s: %s, worst at most %g, mean below %g\n", good ? "within bounds" : "OUT OF BOUNDS",
           s->name, worst, mean);
    return good;
}

int main(int argc, char **argv)
{
    static const struct option table[] = {
        {"check", required_argument, NULL, 'k'}, {"quiet", no_argument, NULL, 'q'}, {0}};
    struct sum sums[SUMS] = {[ALL] = {.name = "all pairs"},
                             [ROWS] = {.name = "other rows"},
                             [CODE] = {.name = "the same problem, measured by other code"},
                             [HELD_OUT] = {.name = "held out"},
                             [OTHERS] = {.name = "all others known"}};
    double worst = 0, mean = 0, us[2] = {0, 0};
    bool quiet = false, checks = false, good = true;
    families_register();
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        checks = checks || c == 'k';
        quiet = quiet || c == 'q';
        if (c == '?' || (c == 'k' && sscanf(optarg, "%lf,%lf", &worst, &mean) != 2)) {
            fprintf(stderr, "usage: see the head of tests/search/tiers.c\n");
            return 2;
        }
    }
    for (; optind < argc; optind++) {
        if (!open_landscape(argv[optind])) {
            return 1;
        }
    }
    if (!quiet) {
        printf("%-52s %-52s %-8s %6s %6s %6s\n", "KNOWN", "ASKED", "TIER", "ANSWER", "KNOWN",
               "BEST");
    }
    for (size_t i = 0; i < n_all; i++) {
        for (size_t k = 0; k < n_all; k++) {
            bool rows;
            if (is_pair(&all[i], &all[k], &rows)) {
                judge_pair(&all[i], &all[k], rows, sums, quiet);
            }
        }
        judge_with_others(&all[i], &sums[OTHERS], us);
    }
    for (int i = 0; i < SUMS; i++) {
        print_sum(&sums[i]);
    }
    printf("asking took %.0f us the first time, %.1f us again\n", us[0] / (double)n_all,
           us[1] / (double)n_all);
    if (checks) {
        good = within(&sums[ALL], worst, mean);
        good = within(&sums[OTHERS], worst, mean) && good;
    }
    for (size_t i = 0; i < n_all; i++) {
        landscape_free(all[i].landscape);
    }
    return good ? 0 : 1;
}
