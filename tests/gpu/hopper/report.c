/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/gpu/hopper/options.h"

static FILE *results, *records;

static FILE *open_file(const char *path)
{
    FILE *f = path ? fopen(path, "w") : NULL;
    if (path && !f) {
        perror(path);
        exit(2);
    }
    return f;
}

void report_open(void)
{
    results = open_file(options.out);
    records = open_file(options.json);
}

void say(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    vprintf(format, args);
    fflush(stdout);
    if (results) {
        vfprintf(results, format, again);
        fflush(results);
    }
    va_end(again);
    va_end(args);
}

void report_record(const struct record *r)
{
    char text[4096];
    if (records) {
        record_to_json(r, text, sizeof(text));
        fprintf(records, "%s\n", text);
        fflush(records);
    }
}

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
