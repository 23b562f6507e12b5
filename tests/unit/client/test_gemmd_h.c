/* SPDX-License-Identifier: Apache-2.0 */
/* gemmd.h for a user: compiled as strict C11 and as C++, linked against the shared and the static
 * library. Defines names that libgemmd uses inside, which must not clash. */
#include "client/gemmd.h"

#include <stdio.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif
int error_set(int mine);
int hash64(int mine);
int problem_make(int mine);
const char *families(void);
#ifdef __cplusplus
}
#endif

int error_set(int mine)
{
    return mine;
}

int hash64(int mine)
{
    return mine;
}

int problem_make(int mine)
{
    return mine;
}

const char *families(void)
{
    return "mine";
}

static int asks(void)
{
    struct gemmd_options o = GEMMD_OPTIONS_INIT;
    struct gemmd_problem p = GEMMD_PROBLEM_INIT;
    struct gemmd_query q = GEMMD_QUERY_INIT;
    struct gemmd_answer a = GEMMD_ANSWER_INIT;
    struct gemmd_grouped_gemm_args args = GEMMD_GROUPED_GEMM_ARGS_INIT;
    struct gemmd_quantise_args other = GEMMD_QUANTISE_ARGS_INIT;
    struct gemmd_error e;
    struct gemmd *g = NULL;
    o.socket = "/nonexistent/gemmd.sock";
    o.device = "cpu";
    p.m = 64;
    p.n = p.k = 128;
    q.wait = GEMMD_WAIT_CACHED;
    if (args.size != sizeof(args) || other.size != sizeof(other) || gemmd_open_lazy(&g, &o, &e)) {
        return 1;
    }
    int r = gemmd_get(g, &p, &q, &a, &e);
    if (r) {
        fprintf(stderr, "%s\n", e.text);
    }
    gemmd_close(g);
    return r || strcmp(a.tier, "default") != 0;
}

int main(void)
{
    if (error_set(3) != 3 || hash64(4) != 4 || problem_make(5) != 5 || families()[0] != 'm') {
        return 1;
    }
    return asks() || strcmp(gemmd_error_name(GEMMD_DEADLINE), "deadline") != 0;
}
