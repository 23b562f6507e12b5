/* SPDX-License-Identifier: Apache-2.0 */
/* A job with two handles, the second pinned to a generation, while another program improves their
 * answer. Prints a line with the answer of each handle; uses only gemmd.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gemmd.h"

static struct gemmd_error e;

static void must(int r)
{
    if (r) {
        fprintf(stderr, "%s: %s\n", gemmd_error_name(e.code), e.text);
        exit(1);
    }
}

static struct gemmd *open_at(const char *generation)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd *g;
    o.generation = generation;
    must(gemmd_connect(&g, &o, &e));
    return g;
}

static void show(const char *who, struct gemmd *g, const struct gemmd_problem *p)
{
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    q.flags = GEMMD_NO_TABLE;
    must(gemmd_get(g, p, &q, &a, &e));
    printf("%s %s\n", who, a.config);
}

static void hear(void *ctx, const char *problem_json, const struct gemmd_answer *a)
{
    (void)ctx;
    printf("improved %s %d\n", a->config, strstr(problem_json, "custom:job") != NULL);
}

int main(void)
{
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    char number[32];
    int64_t newest, pinned;
    int n;
    p.text = "custom:job n=4096";
    struct gemmd *free_one = open_at(NULL), *listening = open_at(NULL);
    must(gemmd_put(free_one, &p, "A=1", 5, &e));
    struct gemmd *rank = open_at("now");
    must(gemmd_generation(rank, &newest, &pinned, &e));
    printf("pinned %d\n", pinned == newest && pinned > 0);
    must(gemmd_generation(free_one, NULL, &pinned, &e));
    printf("free %lld\n", (long long)pinned);
    must(gemmd_improvements(listening, 0, hear, NULL, &n, &e));
    must(gemmd_put(free_one, &p, "A=2", 4, &e));
    must(gemmd_improvements(listening, 5000, hear, NULL, &n, &e));
    printf("heard %d\n", n);
    snprintf(number, sizeof(number), "%lld", (long long)newest);
    struct gemmd *other = open_at(number);
    show("free", free_one, &p);
    show("rank", rank, &p);
    show("other", other, &p);
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    o.generation = "newest";
    printf("bad %s\n", gemmd_error_name(gemmd_connect(&other, &o, &e)));
    return 0;
}
