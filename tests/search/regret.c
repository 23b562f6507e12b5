/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost and the regret of searches: every strategy over recorded landscapes, against the
 * exhaustive strategy on the same landscapes.
 *
 *   regret [--seeds N] [--only STRATEGY] [--alone] [--warm] [--constants FILE] [--jobs N]
 *          [--teachers FOLDER] [--tick US] [--check MEDIAN,P95,COST,SPREAD,COLD]
 *          LANDSCAPE...
 *
 * Each strategy tunes each key N times (10), with other noise each time. Printed for each key and
 * strategy:
 * - regret in per cent: how much slower than the best recorded config the winner truly is, median
 *   and most;
 * - device time and compile time in per cent of the exhaustive search's;
 * - how many winners are the most frequent winner, and the spread of their true times;
 * - median seconds of a runner without compiled kernels and with 16 compilers
 *   (runner/runner/compilers.h), from the order to the answer. A recording lacks the time to open
 *   the device, prepare operands and compile the device's own kernels.
 *
 * Options:
 * - --warm: also the seconds with everything compiled ("warm"), and those of a second search with
 *   other noise that finds the first search's images ("again": median and most; and regret);
 * - --alone: without the exhaustive search, so without relative cost;
 * - --constants: the model's constants, fitted without the problems of each key's language model
 *   (model_eval --leave-out --write);
 * - --teachers: further landscapes from which the model learns corrections (tests/model/learn.h),
 *   except those of the key's language model;
 * - --tick: a winner within a tick of the GPU's timer (in us) of the best is the best, in launches
 *   shorter than 20 us: their recorded times differ by whole ticks;
 * - --check: exit 1 unless ranked's regret over all keys has at most this median and 95th
 *   percentile, each key's cost is at most COST, and winners of a key differ by at most SPREAD, all
 *   in per cent; and unless a search with nothing compiled takes at most COLD seconds, the median
 * of all keys. The clock is the replay's, not the wall's.
 */
#include "harness.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/search/keys.h"

struct options {
    uint32_t seeds, jobs;
    const char *only, *constants, *check;
    bool alone, warm;
    struct lectures lectures;
};

static struct mapped_key *keys; /* KEYS_MAX, shared */
static uint32_t n_keys;

/* ---- running --------------------------------------------------------------------------------- */

static bool wanted(const struct options *o, int strategy)
{
    return strategy == EXHAUSTIVE ? !o->alone
                                  : !o->only || strcmp(o->only, strategies[strategy]) == 0;
}

static void search_key(const struct options *o, struct mapped_key *k)
{
    for (int s = 0; s < STRATEGIES; s++) {
        if (wanted(o, s)) {
            key_search(k, s, o->seeds, o->warm);
        }
    }
}

static bool use_constants(const struct options *o, const struct mapped_key *k)
{
    bool good = !o->constants || key_use_constants(k, o->constants, &o->lectures);
    if (!good) {
        fprintf(stderr, "%s: %s has no constants fitted without it\n", k->name, o->constants);
    }
    return good;
}

/* Searches each key in a process of its own, `jobs` at a time. False: a process failed. */
static bool search_all(const struct options *o)
{
    bool good = true;
    for (uint32_t i = 0, running = 0; i < n_keys || running > 0;) {
        if (i < n_keys && running < o->jobs) {
            good = use_constants(o, &keys[i]) && good;
            pid_t pid = fork();
            if (pid == 0) {
                search_key(o, &keys[i]);
                _exit(0);
            }
            good = good && pid > 0;
            running++;
            i++;
        } else {
            int status = 1;
            wait(&status);
            good = good && status == 0;
            running--;
        }
    }
    return good;
}

/* ---- reporting ------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A quantile of values, which this sorts; part: 0.5 the median. */
static double quantile(double *v, uint32_t n, double part)
{
    qsort(v, n, sizeof(*v), by_value);
    double at = part * (n - 1);
    uint32_t low = (uint32_t)at, high = low + 1 < n ? low + 1 : low;
    return v[low] + (at - low) * (v[high] - v[low]);
}

struct judgement {
    double median, most, device, compile, same, spread, cold_s, warm_s;
    double again_s, most_again_s;
};

static void judge(const struct mapped_key *k, int strategy, uint32_t seeds, struct judgement *out)
{
    const struct search_run *all = &k->runs[EXHAUSTIVE][0], *runs = k->runs[strategy];
    double regret[SEEDS_MAX], device[SEEDS_MAX], compile[SEEDS_MAX], us[SEEDS_MAX];
    double cold[SEEDS_MAX], warm[SEEDS_MAX], again[SEEDS_MAX];
    uint32_t most = 0;
    for (uint32_t i = 0; i < seeds; i++) {
        uint32_t same = 0;
        for (uint32_t j = 0; j < seeds; j++) {
            same += runs[j].config == runs[i].config;
        }
        most = same > most ? same : most;
        regret[i] = 100 * runs[i].regret;
        device[i] = 100 * runs[i].device_ms / all->device_ms;
        compile[i] = 100 * runs[i].compile_ms / all->compile_ms;
        us[i] = runs[i].us;
        cold[i] = runs[i].wall_ms / 1e3;
        warm[i] = k->warm[i].wall_ms / 1e3;
        again[i] = k->again[i].wall_ms / 1e3;
    }
    *out =
        (struct judgement){.median = quantile(regret, seeds, 0.5),
                           .most = quantile(regret, seeds, 1),
                           .device = quantile(device, seeds, 0.5),
                           .compile = quantile(compile, seeds, 0.5),
                           .cold_s = quantile(cold, seeds, 0.5),
                           .warm_s = quantile(warm, seeds, 0.5),
                           .again_s = quantile(again, seeds, 0.5),
                           .most_again_s = quantile(again, seeds, 1),
                           .same = 100.0 * most / seeds,
                           .spread = 100 * (quantile(us, seeds, 1) / quantile(us, seeds, 0) - 1)};
}

static bool looks_at_warm(const struct options *o, int strategy)
{
    return o->warm && !o->alone && strategy == RANKED;
}

/* Prints "; warm 0.38 s, again 0.41 s, at most 0.90" for strategies that ran with --warm. */
static void print_warm(const struct options *o, int strategy, const struct judgement *v)
{
    if (looks_at_warm(o, strategy)) {
        printf("; warm %.2f s, again %.2f s, at most %.2f", v->warm_s, v->again_s, v->most_again_s);
    }
    printf("\n");
}

static void report_key(const struct options *o, const struct mapped_key *k)
{
    const struct search_run *all = &k->runs[EXHAUSTIVE][0];
    printf("%s: %u points of %u variants, best %.1f us; exhaustive %+.2f %%, %.1f s on the device, "
           "%.0f core-s\n",
           k->name, k->points, k->variants, k->best_us, 100 * all->regret, all->device_ms / 1e3,
           all->compile_ms / 1e3);
    for (int s = 0; s < EXHAUSTIVE; s++) {
        struct judgement v;
        if (wanted(o, s)) {
            judge(k, s, o->seeds, &v);
            printf("  %-8s %6.2f %% median %6.2f %% most; device %5.2f %%, compiling %5.2f %%; "
                   "%2u configs of %2u variants; same winner %3.0f %%, apart %5.2f %%; "
                   "cold %.2f s",
                   strategies[s], v.median, v.most, v.device, v.compile, k->runs[s][0].measured,
                   k->runs[s][0].variants, v.same, v.spread, v.cold_s);
            print_warm(o, s, &v);
        }
    }
}

struct summary {
    double median, p95, device, compile, spread; /* median and p95 are over all keys; device,
                                                    compile and spread are the worst key's */
    double same; /* the median key's share of seeds with the same winner, % */
    double cold_s, most_cold_s, warm_s, again_s; /* medians over seeds, in seconds: of the median
                                                    key; most_cold_s of the worst key */
    double most_again_s;                         /* the longest of all searches, in seconds */
    double again_median, again_p95;              /* regret */
};

static void summarise_again(const struct options *o, struct summary *out)
{
    double regret[KEYS_MAX * SEEDS_MAX];
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_keys; i++) {
        for (uint32_t s = 0; s < o->seeds; s++) {
            regret[n++] = 100 * keys[i].again[s].regret;
        }
    }
    out->again_median = quantile(regret, n, 0.5);
    out->again_p95 = quantile(regret, n, 0.95);
}

static void summarise(const struct options *o, int strategy, struct summary *out)
{
    double *regret = calloc((size_t)n_keys * o->seeds, sizeof(*regret));
    double *same = calloc(n_keys, sizeof(*same));
    double cold[KEYS_MAX], warm[KEYS_MAX], again[KEYS_MAX];
    uint32_t n = 0;
    assert_true(regret && same);
    *out = (struct summary){.median = 0};
    for (uint32_t i = 0; i < n_keys; i++) {
        struct judgement v;
        judge(&keys[i], strategy, o->seeds, &v);
        out->device = fmax(out->device, v.device);
        out->compile = fmax(out->compile, v.compile);
        out->spread = fmax(out->spread, v.spread);
        same[i] = v.same;
        cold[i] = v.cold_s;
        warm[i] = v.warm_s;
        again[i] = v.again_s;
        out->most_again_s = fmax(out->most_again_s, v.most_again_s);
        for (uint32_t s = 0; s < o->seeds; s++) {
            regret[n++] = 100 * keys[i].runs[strategy][s].regret;
        }
    }
    out->median = quantile(regret, n, 0.5);
    out->p95 = quantile(regret, n, 0.95);
    out->same = quantile(same, n_keys, 0.5);
    out->cold_s = quantile(cold, n_keys, 0.5);
    out->most_cold_s = quantile(cold, n_keys, 1);
    out->warm_s = quantile(warm, n_keys, 0.5);
    out->again_s = quantile(again, n_keys, 0.5);
    summarise_again(o, out);
    free(regret);
    free(same);
}

static void report(const struct options *o)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        report_key(o, &keys[i]);
    }
    for (int s = 0; s < EXHAUSTIVE; s++) {
        struct summary all;
        if (wanted(o, s)) {
            summarise(o, s, &all);
            printf(
                "%-8s %u keys x %u: regret median %.2f %%, 95th percentile %.2f %%; of the worst "
                "key: device %.2f %%, compiling %.2f %%, winners apart %.2f %%; same winner "
                "%.0f %% (median key); cold %.2f s, at most %.2f",
                strategies[s], n_keys, o->seeds, all.median, all.p95, all.device, all.compile,
                all.spread, all.same, all.cold_s, all.most_cold_s);
            if (looks_at_warm(o, s)) {
                printf("; warm %.2f s; again %.2f s, at most %.2f, regret median %.2f %%, 95th "
                       "percentile %.2f %%",
                       all.warm_s, all.again_s, all.most_again_s, all.again_median, all.again_p95);
            }
            printf("\n");
        }
    }
}

/* True if searches with different seeds saw different times; otherwise many searches are no more
 * evidence than a single search. */
static bool seeds_differ(const struct options *o)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        for (uint32_t s = 1; s < o->seeds; s++) {
            if (keys[i].runs[RANKED][s].device_ms != keys[i].runs[RANKED][0].device_ms) {
                return true;
            }
        }
    }
    return o->seeds == 1;
}

static bool check(const struct options *o)
{
    double median, p95, cost, spread, cold;
    struct summary s;
    if (sscanf(o->check, "%lf,%lf,%lf,%lf,%lf", &median, &p95, &cost, &spread, &cold) != 5) {
        fprintf(stderr, "--check %s: five numbers with commas between\n", o->check);
        return false;
    }
    summarise(o, RANKED, &s);
    if (!seeds_differ(o)) {
        printf("all seeds saw the same times\n");
        return false;
    }
    bool good = s.median <= median && s.p95 <= p95 && s.device <= cost && s.compile <= cost &&
                s.spread <= spread && s.cold_s <= cold;
    printf("%s: at most %s\n", good ? "within bounds" : "OUT OF BOUNDS", o->check);
    return good;
}

/* ---- the program ----------------------------------------------------------------------------- */

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option table[] = {{"seeds", required_argument, NULL, 's'},
                                          {"only", required_argument, NULL, 'o'},
                                          {"constants", required_argument, NULL, 'c'},
                                          {"jobs", required_argument, NULL, 'j'},
                                          {"teachers", required_argument, NULL, 't'},
                                          {"alone", no_argument, NULL, 'a'},
                                          {"warm", no_argument, NULL, 'w'},
                                          {"tick", required_argument, NULL, 'i'},
                                          {"check", required_argument, NULL, 'k'},
                                          {0}};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    *o = (struct options){.seeds = SEEDS_MAX, .jobs = cores > 0 ? (uint32_t)cores : 1};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 's':
            o->seeds = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'j':
            o->jobs = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 't':
            if (!lectures_add(&o->lectures, optarg)) {
                return false;
            }
            break;
        case 'a':
            o->alone = true;
            break;
        case 'w':
            o->warm = true;
            break;
        case 'i':
            key_tick_us = strtod(optarg, NULL);
            break;
        case 'o':
            o->only = optarg;
            break;
        case 'c':
            o->constants = optarg;
            break;
        case 'k':
            o->check = optarg;
            break;
        default:
            return false;
        }
    }
    return o->seeds > 0 && o->seeds <= SEEDS_MAX && o->jobs > 0 && optind < argc &&
           argc - optind <= KEYS_MAX;
}

int main(int argc, char **argv)
{
    struct options o;
    families_register();
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: see the head of tests/search/regret.c\n");
        return 2;
    }
    keys = mmap(NULL, KEYS_MAX * sizeof(*keys), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    if (keys == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    for (; optind < argc; optind++) {
        if (!key_open(&keys[n_keys++], argv[optind])) {
            return 1;
        }
    }
    if (!search_all(&o)) {
        fprintf(stderr, "a search failed\n");
        return 1;
    }
    report(&o);
    lectures_close(&o.lectures);
    return o.check && !check(&o) ? 1 : 0;
}
