/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Judges the analytic model of the target "hopper" by measured times, and fits its constants to
 * them.
 *
 *   model_eval [--rows] [--most MEDIAN,P95,MOST] FILE...
 *       regret of following the model, in per cent of the best measured time. --rows: of each
 *       problem. --most: fails when a regret of the first choice is higher than given.
 *   model_eval --leave-out [--write OUT] [--only NAMES --from OLD] FILE...
 *       the same for each language model's problems, with constants fitted to the others' problems.
 *       --write: a line with these constants for each language model, for searches over its
 *       landscapes. --only: all other constants come from OLD, an earlier OUT.
 *   model_eval --fit OUT [--fp8] [--only NAMES] FILE...
 *       fits the constants, writes OUT (hopper/model/constants.h). --fp8: the values for fp8
 *       operands. --only: these, separated by commas; all other constants keep their compiled
 *       values.
 *   model_eval --dump OUT FILE...
 *       each measured time and the predicted time, separated by tabs.
 *
 * FILEs are written by collect.py, or are folders of landscapes.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/model/fit.h"
#include "tests/model/judge.h"

enum { FILES_MAX = 8, PROBLEMS_MAX = 4096, MODELS_MAX = 32 };

static struct measured sets[FILES_MAX];
static uint32_t n_sets;
static struct verdict verdicts[PROBLEMS_MAX];

/* ---- regret ---------------------------------------------------------------------------------- */

/* A folder's landscapes give no configs, so their tiles are described. */
static void describe(const struct measured_time *t, char out[512])
{
    const struct hopper_tile *x = &t->tile;
    if (t->config) {
        record_format(t->config, out, 512);
        return;
    }
    snprintf(
        out, 512, "%dx%d%s%s, %d consumers, %d stages, %d staging, split %d%s%s%s, group %d %s",
        x->r, x->c, x->swap_ab ? " swap" : "", hopper_sharers(x) > 1 ? " 2x1" : "", x->consumers,
        x->stages, x->staging, x->ksplit, x->skip_rows ? " skip" : "", x->dynamic ? " dynamic" : "",
        x->tma_store ? "" : " threads store", x->group, x->raster_columns ? "columns" : "rows");
}

static void show_row(const struct measured_problem *p, const struct verdict *v)
{
    char best[512], first[512];
    describe(&p->times[v->best], best);
    describe(&p->times[v->first], first);
    printf("%s %s %d %s%s%s: best %.1f us, ranked %u of %u; first choice +%.1f %%, choose() +%.1f "
           "%%%s\n  best  %s\n  first %s\n",
           p->model, p->layer, p->tokens, gemm_mode_name(p->facts.v.mode),
           p->facts.v.permute_x ? " permute_x" : "", p->facts.v.permute_y ? " permute_y" : "",
           p->best, v->rank + 1, p->n, 100 * v->regret[JUDGE_FIRST], 100 * v->regret[JUDGE_CHOICE],
           v->exact ? "" : " (its kernel)", best, first);
}

static void show_summary(const struct summary *s, int judges)
{
    for (int k = 0; k < judges; k++) {
        printf("%-40s %3u problems: median %5.2f %%, 95th percentile %5.2f %%, most %5.2f %%\n",
               judge_names[k], s->n[k], 100 * s->median[k], 100 * s->p95[k], 100 * s->most[k]);
    }
}

/* Adds the verdicts on the problems of the language model `model` (NULL: on all), and returns the
 * number of verdicts. */
static uint32_t judge_all(const char *model, const struct hopper_constants *c, bool rows,
                          uint32_t n)
{
    for (uint32_t s = 0; s < n_sets; s++) {
        for (uint32_t i = 0; i < sets[s].n && n < PROBLEMS_MAX; i++) {
            const struct measured_problem *p = &sets[s].problems[i];
            if (!model || strcmp(p->model, model) == 0) {
                judge(p, c, &verdicts[n]);
                if (rows) {
                    show_row(p, &verdicts[n]);
                }
                n++;
            }
        }
    }
    return n;
}

static int check_most(const struct summary *s, const char *most)
{
    double median, p95, worst;
    if (sscanf(most, "%lf,%lf,%lf", &median, &p95, &worst) != 3) {
        fprintf(stderr, "--most %s: three numbers with commas between\n", most);
        return 2;
    }
    for (int k = JUDGE_FIRST; k <= JUDGE_CHOICE; k += JUDGE_CHOICE - JUDGE_FIRST) {
        if (!(100 * s->median[k] <= median && 100 * s->p95[k] <= p95 &&
              100 * s->most[k] <= worst)) {
            fprintf(stderr, "%s: more than %s per cent\n", judge_names[k], most);
            return 1;
        }
    }
    return 0;
}

static int evaluate(bool rows, const char *most)
{
    struct summary s;
    judge_sum(verdicts, judge_all(NULL, NULL, rows, 0), &s);
    show_summary(&s, JUDGES);
    return most ? check_most(&s, most) : 0;
}

/* ---- leaving a model out --------------------------------------------------------------------- */

static uint32_t list_models(const char *models[MODELS_MAX])
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < n_sets; s++) {
        for (uint32_t i = 0; i < sets[s].n; i++) {
            const char *name = sets[s].problems[i].model;
            uint32_t k = 0;
            while (k < n && strcmp(models[k], name) != 0) {
                k++;
            }
            if (k == n && n < MODELS_MAX) {
                models[n++] = name;
            }
        }
    }
    return n;
}

static void write_constants(FILE *f, const char *model, const struct hopper_constants *c)
{
    fputs(model, f);
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        fprintf(f, " %s=%.5g", fit_constants[i].name, ((const double *)c)[i]);
    }
    fputc('\n', f);
    fflush(f);
}

/* Reads the constants that an earlier fit found without the language model `model`. Constants that
 * the fit lacks keep their values. */
static void read_constants(FILE *f, const char *model, struct hopper_constants *c)
{
    char line[8192];
    const size_t n = strlen(model);
    for (rewind(f); fgets(line, sizeof(line), f);) {
        if (strncmp(line, model, n) != 0 || line[n] != ' ') {
            continue;
        }
        for (int i = 0; i < FIT_CONSTANTS; i++) {
            char word[64];
            snprintf(word, sizeof(word), " %s=", fit_constants[i].name);
            const char *at = strstr(line, word);
            ((double *)c)[i] = at ? strtod(at + strlen(word), NULL) : ((double *)c)[i];
        }
    }
}

/* ---- fitting --------------------------------------------------------------------------------- */

static const char *const head =
    "/* SPDX-License-Identifier: Apache-2.0 */\n"
    "/* Written by tests/model/refit.py from measured times: change those, not the values. */\n"
    "#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H\n"
    "#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H\n"
    "\n"
    "/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper/model/facts.c). Name; value "
    "for\n"
    " * 16-bit operands, and for fp8 operands; where a fit begins, between the least and the most "
    "that it\n"
    " * may try; what it is. Rates are those of one SM, in bytes or flops per microsecond, unless "
    "it says\n"
    " * otherwise. fp8 operands count as half as many operands of 16 bits. */\n"
    "#define HOPPER_CONSTANTS(X)";

/* Keeps all constants unchanged except `names`, separated by commas. False: an unknown name. */
static bool hold_others(const char *names, bool held[FIT_CONSTANTS])
{
    memset(held, 1, FIT_CONSTANTS * sizeof(held[0]));
    for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
        const size_t n = strcspn(at, ",");
        int i = 0;
        while (i < FIT_CONSTANTS &&
               (strlen(fit_constants[i].name) != n || memcmp(fit_constants[i].name, at, n) != 0)) {
            i++;
        }
        if (i == FIT_CONSTANTS) {
            fprintf(stderr,
                    "--only %.*s: the model has no such constant (hopper/model/constants.h)\n",
                    (int)n, at);
            return false;
        }
        held[i] = false;
    }
    return true;
}

/* Holds the constants that only measurements with fp8 operands show. */
static void hold_fp8(struct hopper_constants *c, bool held[FIT_CONSTANTS])
{
    static const char *const begins[] = {"promote", "added", "sums_columns", "sums_groups"};
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        for (size_t k = 0; k < sizeof(begins) / sizeof(begins[0]); k++) {
            held[i] |= strncmp(fit_constants[i].name, begins[k], strlen(begins[k])) == 0;
        }
        ((double *)c)[i] = held[i] ? ((const double *)&hopper_h200)[i] : ((double *)c)[i];
    }
}

static void write_row(FILE *f, int i, double value, double fp8)
{
    const struct fit_constant *x = &fit_constants[i];
    fprintf(f, " \\\n    X(%s, %.5g, %.5g, %.5g, %.5g, %.5g, \"%s\")", x->name, value, fp8,
            x->least, x->start, x->most, x->what);
}

static int fit_to(const char *path, const char *only, bool fp8)
{
    struct hopper_constants c = fp8 ? hopper_fp8_h200 : hopper_h200;
    bool held[FIT_CONSTANTS] = {false};
    if (only) {
        if (!hold_others(only, held)) {
            return 2;
        }
    } else {
        fit_start(&c);
        if (!fp8) {
            hold_fp8(&c, held);
        }
    }
    const double loss = fit(sets, n_sets, NULL, held, &c);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return 1;
    }
    fputs(head, f);
    const double *fitted = (const double *)&c;
    for (int i = 0; i < FIT_CONSTANTS; i++) {
        write_row(f, i, fp8 ? ((const double *)&hopper_h200)[i] : fitted[i],
                  fp8 ? fitted[i] : ((const double *)&hopper_fp8_h200)[i]);
    }
    fputs("\n\n#endif\n", f);
    printf("%s: loss %.4f\n", path, loss);
    return fclose(f) ? 1 : 0;
}

/* Judges each language model's problems by constants fitted to the others' problems. Constants with
 * held[] true come from an earlier OUT, `from`. */
static int leave_out(const char *path, const char *from, const bool held[])
{
    const char *models[MODELS_MAX];
    const uint32_t n_models = list_models(models);
    struct summary s;
    uint32_t n = 0;
    FILE *f = path ? fopen(path, "w") : NULL, *old = from ? fopen(from, "r") : NULL;
    if ((path && !f) || (from && !old)) {
        perror(from ? from : path);
        return 1;
    }
    for (uint32_t k = 0; k < n_models; k++) {
        struct hopper_constants c = hopper_h200;
        const uint32_t begin = n;
        fit_start(&c);
        if (old) {
            read_constants(old, models[k], &c);
        }
        fit(sets, n_sets, models[k], held, &c);
        if (f) {
            write_constants(f, models[k], &c);
        }
        n = judge_all(models[k], &c, false, n);
        judge_sum(verdicts + begin, n - begin, &s);
        printf("fitted without %s, on it: first choice median %.2f %%, most %.2f %%\n", models[k],
               100 * s.median[JUDGE_FIRST], 100 * s.most[JUDGE_FIRST]);
        fflush(stdout);
    }
    if (old) {
        fclose(old);
    }
    judge_sum(verdicts, n, &s);
    show_summary(&s, JUDGE_CHOICE); /* choose() always uses the compiled constants, so it is judged
                                       with no others */
    return f && fclose(f) ? 1 : 0;
}

static int leave_out_only(const char *path, const char *from, const char *only)
{
    bool held[FIT_CONSTANTS];
    if (!only != !from) {
        fprintf(stderr, "--leave-out: --only and --from go together\n");
        return 2;
    }
    if (!only) {
        return leave_out(path, NULL, NULL);
    }
    return hold_others(only, held) ? leave_out(path, from, held) : 2;
}

static int dump_to(const char *path)
{
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        return 1;
    }
    for (uint32_t s = 0; s < n_sets; s++) {
        for (uint32_t i = 0; i < sets[s].n; i++) {
            const struct measured_problem *p = &sets[s].problems[i];
            for (uint32_t t = 0; t < p->n; t++) {
                char problem[512], config[512];
                record_format(&p->problem.fields, problem, sizeof(problem));
                describe(&p->times[t], config);
                fprintf(f, "%s\t%s\t%d\t%s\t%s\t%.1f\t%.1f\n", p->model, p->layer, p->tokens,
                        problem, config, p->times[t].us,
                        hopper_time(&p->facts, &p->times[t].tile,
                                    hopper_constants_of(&p->times[t].tile)));
            }
        }
    }
    return fclose(f) ? 1 : 0;
}

/* ---- the program ----------------------------------------------------------------------------- */

static int run(int argc, char **argv)
{
    const char *fit_path = NULL, *dump_path = NULL, *most = NULL, *write = NULL;
    const char *only = NULL, *from = NULL;
    bool rows = false, leave = false, fp8 = false;
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--fit") == 0     ? &fit_path
                             : strcmp(argv[i], "--dump") == 0  ? &dump_path
                             : strcmp(argv[i], "--most") == 0  ? &most
                             : strcmp(argv[i], "--only") == 0  ? &only
                             : strcmp(argv[i], "--from") == 0  ? &from
                             : strcmp(argv[i], "--write") == 0 ? &write
                                                               : NULL;
        if (value && i + 1 < argc) {
            *value = argv[++i];
        } else if (strcmp(argv[i], "--rows") == 0) {
            rows = true;
        } else if (strcmp(argv[i], "--leave-out") == 0) {
            leave = true;
        } else if (strcmp(argv[i], "--fp8") == 0) {
            fp8 = true;
        } else if (argv[i][0] == '-' || n_sets == FILES_MAX) {
            fprintf(stderr, "%s: see the head of tests/model/model_eval.c\n", argv[i]);
            return 2;
        } else if (measured_open(&sets[n_sets], argv[i])) {
            n_sets++;
        } else {
            return 1;
        }
    }
    if (n_sets == 0) {
        fprintf(stderr, "no FILE given\n");
        return 2;
    }
    return fit_path    ? fit_to(fit_path, only, fp8)
           : dump_path ? dump_to(dump_path)
           : leave     ? leave_out_only(write, from, only)
                       : evaluate(rows, most);
}

int main(int argc, char **argv)
{
    const int code = run(argc, argv);
    for (uint32_t i = 0; i < n_sets; i++) {
        measured_close(&sets[i]);
    }
    return code;
}
