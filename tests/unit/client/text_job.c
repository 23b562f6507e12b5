/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for the problem of each argument's text, to compare the library with gemmctl. Prints a line
 * each: "taken", or "refused" and the error message. */
#include <stdio.h>

#include "client/gemmd.h"

int main(int argc, char **argv)
{
    struct gemmd *g;
    struct gemmd_error e;
    if (gemmd_connect(&g, NULL, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        struct gemmd_problem p = GEMMD_PROBLEM_INIT;
        struct gemmd_query q = GEMMD_QUERY_INIT;
        struct gemmd_answer a = GEMMD_ANSWER_INIT;
        p.text = argv[i];
        q.flags = GEMMD_NO_TABLE;
        int r = gemmd_get(g, &p, &q, &a, &e);
        printf("%s %s\n", r ? "refused" : "taken", r ? e.text : "");
    }
    gemmd_close(g);
    return 0;
}
