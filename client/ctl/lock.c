/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmctl lock: writes the lock file of a job, the answers of its problems with their kernels
 * (client/joblock.h has the form of the file and reads it).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/formats.h"
#include "proto/hash.h"

enum { SUM_DIGITS = 16 };

struct locking {
    struct subject *s; /* borrowed */
    char *text;        /* owned: the file */
    json_t *rows;      /* owned: the lines of --json */
    json_t *keys;      /* owned: keys that have a line */
    size_t missing;    /* problems without an answer */
    char *first;       /* owned: the first of these problems */
};

/* Appends a line and its checksum; takes over `line`. */
static void lock_add_line(struct locking *l, char *line)
{
    char hex[HASH_HEX] = "";
    hash128_hex(line, strlen(line), hex);
    l->text = text_append(l->text, "%s | %.*s\n", line, SUM_DIGITS, hex);
    free(line);
}

static void lock_add_head(struct locking *l, const json_t *status)
{
    char day[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(day, sizeof(day), "%Y-%m-%d", localtime_r(&now, &tm));
    l->text = text_format("# The kernels of a job, for GEMMD_LOCK. Made by gemmctl %s on %s.\n"
                          "# Lines may be removed, not changed: key | module | problem | config | "
                          "stamp | sum\n",
                          gemmd_version(), day);
    lock_add_line(l, text_format("gemmd-lock 1 | %s | %s", field_text(status, "bucket_scheme"),
                                 field_text(status, "device.class")));
}

static void lock_add_row(struct locking *l, const json_t *shown)
{
    const json_t *best = json_object_get(shown, "best");
    const char *key = field_text(shown, "key");
    TEXT_AUTO *problem = text_of_json(json_object_get(shown, "problem")),
              *config = text_of_json(json_object_get(best, "config"));
    if (notice_count(l->keys, key, 1) == 1) {
        lock_add_line(l, text_format("%s | %s | %s | %s | %s", key, field_text(best, "module"),
                                     problem, config, field_text(best, "stamp")));
        json_array_append_new(l->rows, json_pack("{ss, ss, sO, sO, ss}", "key", key, "module",
                                                 field_text(best, "module"), "problem",
                                                 json_object_get(shown, "problem"), "config",
                                                 json_object_get(best, "config"), "stamp",
                                                 field_text(best, "stamp")));
    }
}

/* Locks the answer that a job would get now: the row of the key, if the row serves. */
static int lock_add_problem(struct locking *l, json_t *problem)
{
    struct gemmd_error e;
    json_auto_t *shown =
        ctl_try_call(&l->s->ctl, "show", json_pack("{sO}", "problem", problem), &e);
    if (!shown && e.code != GEMMD_NOT_FOUND) {
        return ctl_fail(&e);
    }
    if (field_is(shown, "answer.tier", "exact") && field_string(shown, "best.module")) {
        lock_add_row(l, shown);
    } else if (l->missing++ == 0) {
        l->first = text_of_json(problem);
    }
    return DONE;
}

static int lock_finish(struct locking *l, const json_t *status)
{
    const char *to = l->s->given[OWN_TO] ? l->s->given[OWN_TO] : "-";
    if (l->missing > 0) {
        return ctl_failed(
            "%zu of %zu problems have no tuned, pinned or trusted answer, the first is "
            "%s: `gemmctl tune` them with the same options, then lock again",
            l->missing, json_array_size(l->s->problems.all), l->first ? l->first : "");
    }

    int code = l->s->ctl.json && strcmp(to, "-") == 0 ? DONE : writing_save(to, l->text);
    if (code == DONE && l->s->ctl.json) {
        return ctl_print_json(json_pack("{sO*, sO*, sO}", "bucket_scheme",
                                        json_object_get(status, "bucket_scheme"), "class",
                                        field_value(status, "device.class"), "rows", l->rows));
    }
    if (code == DONE && !l->s->ctl.quiet && strcmp(to, "-") != 0) {
        fprintf(stderr, "%zu keys written to %s\n", json_array_size(l->rows), to);
    }
    return code;
}

static int lock_run(struct subject *s)
{
    struct locking l = {.s = s};
    int code = problems_make(&s->problems);
    code = code ? code : ctl_connect(&s->ctl);
    json_auto_t *status = code ? NULL : ctl_call(&s->ctl, "status", NULL, &code);
    l.rows = json_array();
    l.keys = json_object();
    if (status) {
        lock_add_head(&l, status);
    }
    ARRAY_EACH(item, s->problems.all) {
        code = code ? code : lock_add_problem(&l, json_object_get(item, "problem"));
    }
    code = code ? code : lock_finish(&l, status);
    json_decref(l.rows);
    json_decref(l.keys);
    free(l.text);
    free(l.first);
    return code;
}

static const struct argp_option lock_options[] = {
    {"to", OWN_KEY + OWN_TO, "FILE", 0, "a file instead of stdout", 3},
    {0},
};

const struct command command_lock = {
    .name = "lock",
    .help = "write the lock file of a job",
    .run = lock_run,
    .args_doc = "[PROBLEM]",
    .doc = "Writes the config and the kernel of each problem into a lock file. A job with "
           "GEMMD_LOCK=FILE runs these kernels or fails, on any host with the same kind of device, "
           "kernels and compiler. Tunes nothing.",
    .options = lock_options,
    .parts = {&problems_argp, &ctl_argp},
};
