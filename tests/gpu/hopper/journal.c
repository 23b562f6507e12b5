/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/journal.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "tests/gpu/hopper/options.h"

enum { LINE_MAX_BYTES = 1024 };

static FILE *file;
static uint64_t *known; /* sorted */
static size_t n_known;

static uint64_t key_of(const char *stage, const char *hash, const char *name)
{
    char text[LINE_MAX_BYTES];
    const int n = snprintf(text, sizeof(text), "%s\t%s\t%s", stage, hash, name);
    return hash64(text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void read_line(char *line)
{
    char *rest = line, *fields[4];
    for (int i = 0; i < 4; i++) { /* the last field of a line, the findings, is not needed here */
        fields[i] = strsep(&rest, "\t");
        if (!fields[i]) {
            return; /* the line is cut short */
        }
    }
    if (n_known % 4096 == 0) {
        known = realloc(known, (n_known + 4096) * sizeof(*known));
    }
    known[n_known++] = key_of(fields[0], fields[2], fields[3]);
}

void journal_open(void)
{
    char line[LINE_MAX_BYTES];
    bool whole = true;
    if (!options.journal) {
        return;
    }
    file = fopen(options.journal, "a+");
    if (!file) {
        perror(options.journal);
        exit(2);
    }
    rewind(file);
    while (fgets(line, sizeof(line), file)) {
        whole = strchr(line, '\n') != NULL;
        if (whole) {
            read_line(line);
        }
    }
    if (!whole) {
        fprintf(file, "\n"); /* the run before was stopped in the middle of a line */
    }
    if (n_known) {
        qsort(known, n_known, sizeof(*known), by_value);
    }
}

bool journal_has(const char *stage, const char *hash, const char *name)
{
    const uint64_t key = key_of(stage, hash, name);
    return n_known && bsearch(&key, known, n_known, sizeof(*known), by_value);
}

void journal_add(const char *stage, const char *verdict, const char *hash, const char *name,
                 const char *finding)
{
    if (file) {
        fprintf(file, "%s\t%s\t%s\t%s\t%s\n", stage, verdict, hash, name, finding);
        fflush(file);
    }
}
