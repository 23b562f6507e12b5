/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The regret of the analytic default of the targets "hopper" and "hopper_fp8": choose() beside
 * whole recorded landscapes.
 *
 *   defaults [--most MEAN,MOST] FOLDER...
 *       for each landscape in the FOLDERs, by how many per cent the default is slower than the best
 *       recorded config; no figure if the default's kernel was not recorded (landscapes of
 *       tests/data lack cluster_shape_mn=2x1, and four staging buffers of fp8's dW with fp32).
 * --most: fails when they are slower than given.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernels/family.h"
#include "tests/model/alike.h"
#include "tests/model/described.h"
#include "tests/model/learn.h"

enum { TEXT_MAX = 1024 };

static double least(const struct lecture *l)
{
    double us = INFINITY;
    for (uint32_t i = 0; i < l->n; i++) {
        us = fmin(us, l->us[i]);
    }
    return us;
}

/* The default's time: of the recorded config with the same kernel and the nearest settings. NaN:
 * kernel not recorded. */
static double time_of_default(const struct lecture *l, char text[TEXT_MAX])
{
    struct record config;
    struct hopper_tile tile;
    struct error err;
    text[0] = '\0';
    if (described_target(&l->problem)->choose(&l->problem, &l->info, &config, &err)) {
        return NAN;
    }
    record_format(&config, text, TEXT_MAX);
    described_tile(&l->problem, &config, &tile);
    struct alike a = alike_to(&tile);
    bool recorded = false; /* a kernel with as many staging buffers */
    for (uint32_t i = 0; i < l->n; i++) {
        alike_look(&a, &l->tiles[i], l->us[i]);
        recorded = recorded || l->tiles[i].staging == tile.staging;
    }
    return recorded ? a.us : NAN;
}

static int check(const char *most, double mean, double worst)
{
    double mean_most, worst_most;
    if (sscanf(most, "%lf,%lf", &mean_most, &worst_most) != 2) {
        fprintf(stderr, "--most %s: two numbers with a comma between\n", most);
        return 2;
    }
    if (!(100 * mean <= mean_most && 100 * worst <= worst_most)) {
        fprintf(stderr, "more than %s per cent\n", most);
        return 1;
    }
    return 0;
}

static int show(const struct lectures *l, const char *most)
{
    double sum = 0, worst = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        char text[TEXT_MAX];
        const double more = time_of_default(&l->all[i], text) / least(&l->all[i]) - 1;
        if (isnan(more)) {
            printf("%-40s  not recorded  %s\n", l->all[i].name, text);
            continue;
        }
        printf("%-40s  %+10.1f %%  %s\n", l->all[i].name, 100 * more, text);
        sum += more;
        worst = fmax(worst, more);
        n++;
    }
    printf("%u of %u: mean %.2f %%, most %.2f %%\n", n, l->n, n ? 100 * sum / n : 0, 100 * worst);
    return most ? check(most, n ? sum / n : INFINITY, worst) : 0;
}

int main(int argc, char **argv)
{
    struct lectures l = {.n = 0};
    const char *most = NULL;
    families_register();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--most") == 0 && i + 1 < argc) {
            most = argv[++i];
        } else if (!lectures_add(&l, argv[i])) {
            return 1;
        }
    }
    if (l.n == 0) {
        fputs("no landscapes: see the head of tests/model/defaults.c\n", stderr);
        return 2;
    }
    const int status = show(&l, most);
    lectures_close(&l);
    return status;
}
