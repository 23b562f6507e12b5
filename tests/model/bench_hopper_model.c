/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of the analytic model of the target "hopper": facts of a problem, the default, ranking a
 * space. Fails above bounds with room for a busy machine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/space.h"
#include "tests/model/measured.h"

enum { REPEATS = 50 };
static const double CHOOSE_MS_MOST = 0.6, RANK_MS_MOST = 15; /* took 0.3 and 5 on an idle machine */

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static double facts_ms(const struct problem *p)
{
    struct hopper_facts f;
    const double began = now_ms();
    for (int i = 0; i < REPEATS; i++) {
        hopper_facts_init(&f, p, &measured_h200, NULL);
    }
    return (now_ms() - began) / REPEATS;
}

static double choose_ms(const struct problem *p)
{
    struct record config;
    struct error err = ERROR_NULL;
    const double began = now_ms();
    for (int i = 0; i < REPEATS; i++) {
        if (hopper_choose(p, &measured_h200, &config, &err)) {
            fprintf(stderr, "%s\n", err.text);
            exit(1);
        }
    }
    return (now_ms() - began) / REPEATS;
}

static double rank_ms(const struct space *s, const struct problem *p)
{
    double *us = calloc(s->n, sizeof(*us));
    const double began = now_ms();
    hopper_predict_space(p, &measured_h200, NULL, s, us);
    const double ms = now_ms() - began;
    free(us);
    return ms;
}

static bool bench(const char *text)
{
    struct problem p;
    struct space s;
    struct error err = ERROR_NULL;
    const double began = now_ms();
    if (problem_parse(&p, text, &err) ||
        space_build(&s, &grouped_gemm_hopper, &p, &measured_h200, NULL, &err)) {
        fprintf(stderr, "%s: %s\n", text, err.text);
        return false;
    }
    const double build = now_ms() - began, choose = choose_ms(&p), rank = rank_ms(&s, &p);
    printf("%s: facts %.1f us, choose %.3f ms, %u points of %llu in %.1f ms, ranked in %.2f ms\n",
           text, facts_ms(&p) * 1e3, choose, s.n, (unsigned long long)s.raw, build, rank);
    space_deinit(&s);
    return choose < CHOOSE_MS_MOST && rank < RANK_MS_MOST;
}

int main(void)
{
    static const char *const problems[] = {
        "grouped_gemm M=32768 N=1536 K=2048 experts=128 topk=8 mode=forward permute_x=true",
        "grouped_gemm M=32768 N=1536 K=2048 experts=128 topk=8 mode=dX permute_y=true",
        "grouped_gemm M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW permute_x=true",
        "grouped_gemm M=32768 N=1536 K=2048 experts=128 topk=8 mode=dW routing=zipf:1.2",
        "grouped_gemm M=8192 N=28672 K=4096 experts=8 topk=2 mode=forward",
    };
    bool fast = true;
    families_register();
    for (size_t i = 0; i < sizeof(problems) / sizeof(problems[0]); i++) {
        fast &= bench(problems[i]);
    }
    return fast ? 0 : 1;
}
