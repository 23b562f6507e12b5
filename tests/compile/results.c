/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file has a line per variant, with fields separated by tabs. A single write() appends each
 * line, so that a killed run loses only the variants that were compiling:
 *
 *   hash kind outcome reason seconds registers spills cubin config text
 */
#include "tests/compile/results.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const outcome_names[OUTCOMES] = {"ok", "refused", "failed"};

/* ---- one result ----------------------------------------------------------------------------- */

static void add_code(char *list, size_t size, const char *code)
{
    char name[8];
    snprintf(name, sizeof(name), "%.5s", code);
    size_t n = strlen(list);
    if (!strstr(list, name) && n + sizeof(name) < size) {
        snprintf(list + n, size - n, "%s%s", n ? "," : "", name);
    }
}

/* Codes of ptxas messages, such as "(C7510)". */
static void collect_codes(char *list, size_t size, const char *text)
{
    for (const char *at = strstr(text, "(C7"); at; at = strstr(at + 1, "(C7")) {
        if (isdigit((unsigned char)at[3]) && isdigit((unsigned char)at[4]) &&
            isdigit((unsigned char)at[5]) && at[6] == ')') {
            add_code(list, size, at + 1);
        }
    }
}

void result_judge(struct result *r, int code, const struct image *image, const char *text)
{
    r->outcome = code == 0 ? OUTCOME_OK : code == ERROR_RESOURCE ? OUTCOME_REFUSED : OUTCOME_FAILED;
    r->registers = image->meta.registers;
    r->spills = image->meta.spill_bytes;
    r->cubin = image->meta.size;
    r->reason[0] = '\0';
    collect_codes(r->reason, sizeof(r->reason), image->log);
    collect_codes(r->reason, sizeof(r->reason), text);
    if (!r->reason[0]) {
        snprintf(r->reason, sizeof(r->reason), "%s",
                 code == 0                ? "-"
                 : code == ERROR_RESOURCE ? "spills"
                                          : error_name(code));
    }
}

/* ---- the file ------------------------------------------------------------------------------- */

static int push(struct results *r, const struct result *result, struct error *err)
{
    if (r->n == r->room) {
        uint32_t room = r->room ? r->room * 2 : 4096;
        struct result *more = realloc(r->all, room * sizeof(*more));
        if (!more) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for %u results", room);
        }
        r->all = more;
        r->room = room;
    }
    r->all[r->n++] = *result;
    return 0;
}

static bool read_line(const char *line, struct result *out)
{
    char outcome[16];
    long long registers, spills, cubin;
    *out = (struct result){0};
    if (sscanf(line, "%32s\t%*s\t%15s\t%47s\t%lf\t%lld\t%lld\t%lld\t", out->hash, outcome,
               out->reason, &out->seconds, &registers, &spills, &cubin) != 7) {
        return false;
    }
    while (out->outcome < OUTCOMES && strcmp(outcome_names[out->outcome], outcome) != 0) {
        out->outcome++;
    }
    out->registers = registers;
    out->spills = spills;
    out->cubin = cubin;
    return out->outcome < OUTCOMES;
}

/* Reads whole lines and truncates the file after the last whole line. */
static int read_lines(struct results *r, FILE *f, struct error *err)
{
    char *line = NULL;
    size_t size = 0;
    long end = 0;
    int status = 0;
    for (ssize_t n; status == 0 && (n = getline(&line, &size, f)) > 0 && line[n - 1] == '\n';) {
        struct result result;
        if (read_line(line, &result)) {
            status = push(r, &result, err);
        }
        end += (long)n;
    }
    free(line);
    if (status == 0 && (ftruncate(r->fd, end) || lseek(r->fd, 0, SEEK_END) < 0)) {
        return error_set(err, ERROR_IO, "results file: %s", strerror(errno));
    }
    return status;
}

static int read_file(struct results *r, const char *path, struct error *err)
{
    r->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FILE *f = r->fd < 0 ? NULL : fopen(path, "re");
    if (!f) {
        return error_set(err, ERROR_IO, "results file %s: %s", path, strerror(errno));
    }
    int status = read_lines(r, f, err);
    fclose(f);
    return status;
}

int results_init(struct results *r, const char *path, struct error *err)
{
    *r = (struct results){.fd = -1};
    int status = path ? read_file(r, path, err) : 0;
    if (status) {
        results_deinit(r);
        return status;
    }
    results_sort(r);
    return 0;
}

void results_deinit(struct results *r)
{
    if (r->fd >= 0) {
        close(r->fd);
    }
    free(r->all);
    *r = (struct results){.fd = -1};
}

/* ---- use ------------------------------------------------------------------------------------ */

static int by_hash(const void *a, const void *b)
{
    return strcmp(((const struct result *)a)->hash, ((const struct result *)b)->hash);
}

void results_sort(struct results *r)
{
    if (r->n) {
        qsort(r->all, r->n, sizeof(*r->all), by_hash);
    }
    r->sorted = r->n;
}

const struct result *results_find(const struct results *r, const char *hash)
{
    struct result wanted = {0};
    snprintf(wanted.hash, sizeof(wanted.hash), "%s", hash);
    return r->sorted ? bsearch(&wanted, r->all, r->sorted, sizeof(*r->all), by_hash) : NULL;
}

static void one_line(const char *text, char *out, size_t size)
{
    snprintf(out, size, "%s", text);
    for (char *at = out; *at; at++) {
        *at = *at == '\n' || *at == '\t' ? ' ' : *at;
    }
}

int results_add(struct results *r, const struct result *result, const char *kind,
                const char *config, const char *text, struct error *err)
{
    char line[2048], why[ERROR_TEXT_MAX];
    one_line(text, why, sizeof(why));
    int n = snprintf(line, sizeof(line), "%s\t%s\t%s\t%s\t%.3f\t%lld\t%lld\t%lld\t%s\t%s\n",
                     result->hash, kind, outcome_names[result->outcome], result->reason,
                     result->seconds, (long long)result->registers, (long long)result->spills,
                     (long long)result->cubin, config, why);
    if (r->fd >= 0 && write(r->fd, line, (size_t)n) != n) {
        return error_set(err, ERROR_IO, "results file: %s", strerror(errno));
    }
    return push(r, result, err);
}
