/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a job with its own kernel, using only gemmd.h: gets the best of three configs, and
 * measures them (that is, sleeps) if it gets the lease. Prints the first status, the number of
 * measured configs, and the config.
 */
#include <stdio.h>
#include <unistd.h>

#include "client/gemmd.h"

static const char configs[] = "[\"BLOCK=64\", {\"BLOCK\": 128}, \"BLOCK=256 fast=true\"]";

static int measure(struct gemmd *g, const struct gemmd_problem *p, struct gemmd_error *e)
{
    static const char *const trials[] = {
        "[{\"config\": \"BLOCK=64\", \"time_us\": 9.5}]",
        "[{\"config\": {\"BLOCK\": 128}, \"status\": \"resource\", \"reason\": \"out of shared "
        "memory\"}]",
        "[{\"config\": \"BLOCK=256 fast=true\", \"time_us\": 4.5}]"};
    int r = 0;
    for (int i = 0; i < 3 && r == 0; i++) {
        usleep(50000);
        r = gemmd_record(g, p, trials[i], e);
    }
    return r ? r : gemmd_put(g, p, "BLOCK=256 fast=true", 4.5, e);
}

int main(void)
{
    static const char *const names[] = {"hit", "lease", "held"};
    struct gemmd *g;
    struct gemmd_error e;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_acquire o = GEMMD_ACQUIRE_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    enum gemmd_outcome first, last = GEMMD_HELD;
    char *known = NULL;
    p.text = "custom:rank source=0123abcd n=4096";
    o.configs_json = configs;
    int r = gemmd_connect(&g, NULL, &e);
    r = r ? r : gemmd_acquire(g, &p, &o, &first, &a, &known, &e);
    if (r == 0 && first == GEMMD_LEASE) {
        gemmd_free(known);
        r = measure(g, &p, &e);
        r = r ? r : gemmd_acquire(g, &p, &o, &last, &a, &known, &e);
    } else {
        last = first;
    }
    if (r == 0) {
        printf("%s %s %s\n%s\n", names[first], names[last], a.config, known);
        r = gemmd_release(g, &p, &e); /* without a lease: no effect */
    }
    if (r) {
        fprintf(stderr, "%s: %s\n", gemmd_error_name(e.code), e.text);
    }
    gemmd_free(known);
    gemmd_close(g);
    return r != 0;
}
