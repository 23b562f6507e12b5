/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --rows-per-expert: the rows that each expert got in a real run, as a list or in a file. M and the
 * number of experts follow from it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static const char between[] = " \t\r\n,[]"; /* a JSON array reads, too */

/* The next number; false: there is none, or (after a sentence, *bad) something else. */
static bool next_rows(const char **at, long long *out, bool *bad)
{
    *at += strspn(*at, between);
    if (!**at) {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    if (end == *at || errno || *out < 0 || (*end && !strchr(between, *end))) {
        ctl_usage("--rows-per-expert has \"%.*s\" where a number of rows should be",
                  (int)strcspn(*at, between), *at);
        *bad = true;
        return false;
    }
    *at = end;
    return true;
}

static char *read_text(const char *arg)
{
    struct gemmd_error e;
    if (*arg && strspn(arg, "0123456789,") == strlen(arg)) {
        return strdup(arg);
    }
    char *text = text_read_file(arg, &e);
    if (!text) {
        ctl_usage("--rows-per-expert takes numbers with commas between, or a file of them: %s",
                  e.text);
    }
    return text;
}

int routing_of_rows(const char *arg, char **profile, long long *experts, long long *sum)
{
    char *text = read_text(arg);
    size_t size = 0;
    FILE *out = text ? open_memstream(profile, &size) : NULL;
    bool bad = !out;
    long long rows;
    *experts = *sum = 0;
    if (out) {
        fputs("rows:", out);
        for (const char *at = text; next_rows(&at, &rows, &bad);) {
            fprintf(out, *experts ? ",%lld" : "%lld", rows);
            *experts += 1;
            bad = bad || __builtin_add_overflow(*sum, rows, sum);
        }
        bad = fclose(out) || bad;
    }
    free(text);
    if (!bad && *experts == 0) {
        return ctl_usage("--rows-per-expert names no expert");
    }
    return bad ? USAGE : DONE;
}
