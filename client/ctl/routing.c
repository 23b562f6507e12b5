/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --rows-per-expert: the rows that each expert got in a real run, as a list or in a file. M and the
 * number of experts follow from the rows.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

static const char blanks[] = " \t\r\n", between[] = " \t\r\n,"; /* comma: as in a JSON array */

static int refuse_rows(const char *at)
{
    return ctl_usage("--rows-per-expert has \"%.*s\" where a number of rows should be, 0 for an "
                     "expert without any",
                     (int)(strchr(between, *at) ? 1 : strcspn(at, between)), at);
}

/* Returns the text within the brackets of a JSON array; a text without brackets whole. */
static char *routing_strip_brackets(char *text)
{
    text += strspn(text, blanks);
    size_t n = strlen(text);
    while (n > 0 && strchr(blanks, text[n - 1])) {
        text[--n] = '\0';
    }
    if (n > 1 && text[0] == '[' && text[n - 1] == ']') {
        text[n - 1] = '\0';
        text++;
    }
    return text + strspn(text, blanks);
}

/* Reads numbers that are separated by blanks or one comma. Refuses two commas in a row, because a
 * skipped number would shift all later experts. */
static int routing_read_rows(const char *at, FILE *out, long long *experts, long long *sum)
{
    bool overflows = false;
    for (bool comma = false; *at || comma; *experts += 1) {
        char *end;
        errno = 0;
        const long long rows = strtoll(at, &end, 10);
        if (end == at || errno || rows < 0 || (*end && !strchr(between, *end))) {
            return refuse_rows(at);
        }
        fprintf(out, *experts ? ",%lld" : "rows:%lld", rows);
        overflows = overflows || __builtin_add_overflow(*sum, rows, sum);
        at = end + strspn(end, blanks);
        comma = *at == ',';
        at += comma;
        at += strspn(at, blanks);
    }
    return *experts == 0 ? ctl_usage("--rows-per-expert names no expert")
           : overflows
               ? ctl_usage("--rows-per-expert: the rows are more than %lld in all", LLONG_MAX)
               : DONE;
}

int routing_of_rows(const char *arg, char **profile, long long *experts, long long *sum)
{
    struct error e;
    const bool list = *arg && strspn(arg, "0123456789,") == strlen(arg);
    TEXT_AUTO *text = list ? text_copy(arg) : text_read_file(arg, &e);
    *experts = *sum = 0;
    if (!text) {
        return ctl_usage(
            "--rows-per-expert takes numbers with commas between, or a file of them: %s",
            list ? "no memory" : e.text);
    }
    size_t size = 0;
    FILE *out = open_memstream(profile, &size);
    int code = out ? routing_read_rows(routing_strip_brackets(text), out, experts, sum) : USAGE;
    if (out && fclose(out)) {
        code = ctl_failed("no memory for the rows of %lld experts", *experts);
    }
    return code;
}
