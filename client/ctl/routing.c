/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --rows-per-expert: the rows that each expert got in a real run, as a list or in a file. M and the
 * number of experts follow from it.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static const char between[] = " \t\r\n,"; /* a JSON array reads, too */

static int refuse_rows(const char *at)
{
    return ctl_usage("--rows-per-expert has \"%.*s\" where a number of rows should be, 0 for an "
                     "expert without any",
                     (int)(strchr(between, *at) ? 1 : strcspn(at, between)), at);
}

/* The next number, behind one comma at most; false: there is none, or (after a sentence, *bad)
 * something else. An empty place is no number: all experts behind it would move up. */
static bool next_rows(const char **at, bool first, long long *out, bool *bad)
{
    const char *spaces = " \t\r\n";
    *at += strspn(*at, spaces);
    const bool comma = !first && **at == ',';
    *at += comma;
    *at += strspn(*at, spaces);
    if (!**at && !comma) {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    if (end == *at || errno || *out < 0 || (*end && !strchr(between, *end))) {
        *bad = refuse_rows(*at) != DONE;
        return false;
    }
    *at = end;
    return true;
}

/* What stands within the brackets of a JSON array, or all of it. */
static char *routing_strip_brackets(char *text)
{
    text += strspn(text, " \t\r\n");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1])) {
        text[--n] = '\0';
    }
    if (n > 1 && text[0] == '[' && text[n - 1] == ']') {
        text[n - 1] = '\0';
        text++;
    }
    return text;
}

static char *routing_read_text(const char *arg)
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
    char *text = routing_read_text(arg);
    size_t size = 0;
    FILE *out = text ? open_memstream(profile, &size) : NULL;
    bool bad = !out, overflows = false;
    long long rows;
    *experts = *sum = 0;
    if (out) {
        fputs("rows:", out);
        for (const char *at = routing_strip_brackets(text);
             next_rows(&at, *experts == 0, &rows, &bad);) {
            fprintf(out, *experts ? ",%lld" : "%lld", rows);
            *experts += 1;
            overflows = overflows || __builtin_add_overflow(*sum, rows, sum);
        }
        if (fclose(out)) {
            bad = true;
            ctl_failed("no memory for the rows of %lld experts", *experts);
        }
    }
    free(text);
    if (!bad && *experts == 0) {
        return ctl_usage("--rows-per-expert names no expert");
    }
    if (overflows) {
        return ctl_usage("--rows-per-expert: the rows are more than %lld in all", LLONG_MAX);
    }
    return bad ? USAGE : DONE;
}
