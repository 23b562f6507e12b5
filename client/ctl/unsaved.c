/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that the daemon serves and could not write into its database yet: its disk is full,
 * another program has locked it, or whoever writes the database does not answer. What reads the
 * database lacks them, and they end with the daemon, so that is said.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"

json_t *unsaved_status(struct ctl *c)
{
    char *text = NULL;
    struct gemmd_error e;
    if (gemmd_call(c->g, "status", NULL, 0, &text, NULL, NULL, &e)) {
        return NULL;
    }
    json_t *status = json_loads(text, JSON_ALLOW_NUL, NULL);
    gemmd_free(text);
    return status;
}

static long long count(const json_t *status)
{
    return json_integer_value(table_value(status, "store.unsaved"));
}

bool unsaved_there(const json_t *status)
{
    return count(status) > 0;
}

char *unsaved_sentence(const json_t *status, const char *where)
{
    const char *database = json_string_value(json_object_get(status, "database"));
    bool full = json_is_true(table_value(status, "store.disk_full"));
    bool locked = json_is_true(table_value(status, "store.locked"));
    char *text = NULL;
    int r = asprintf(
        &text,
        "%lld %s only in the daemon's memory and not in %s: %s %s%s gemmd writes what is "
        "missing by itself",
        count(status), count(status) == 1 ? "answer is" : "answers are", where,
        full     ? "make room on the disk of"
        : locked ? "end the program that has locked"
                 : "once",
        database ? database : "its database", full || locked ? ", and" : " can be written,");
    return r < 0 ? NULL : text;
}

void unsaved_say(const json_t *status, const char *where)
{
    char *text = unsaved_there(status) ? unsaved_sentence(status, where) : NULL;
    if (text) {
        fprintf(stderr, "%s\n", text);
    }
    free(text);
}

int unsaved_fail(const json_t *status, const char *where, const char *again)
{
    char *text = unsaved_there(status) ? unsaved_sentence(status, where) : NULL;
    int code = text ? ctl_failed("%s; then %s again", text, again) : DONE;
    free(text);
    return code;
}

/* Lower tiers are made anew for each who asks: there is nothing to save. */
static bool may_be_unsaved(const json_t *row)
{
    const char *tier = json_string_value(json_object_get(row, "tier"));
    return tier && strcmp(tier, "exact") == 0 && json_is_false(json_object_get(row, "saved"));
}

/* Nor is there of a winner that answers its own query alone, when nothing is unsaved. */
static bool has_all_saved(struct ctl *c)
{
    json_t *status = unsaved_status(c);
    bool all = status && !unsaved_there(status);
    json_decref(status);
    return all;
}

void unsaved_remark(struct ctl *c, const json_t *rows)
{
    size_t i, n = 0;
    const json_t *row;
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
        n += may_be_unsaved(row);
    }
    if (n == 0 || has_all_saved(c)) {
        return;
    }
    if (json_array_size(rows) == 1) {
        fprintf(stderr, "this answer");
    } else {
        fprintf(stderr, "%zu of these answers", n);
    }
    fprintf(stderr,
            " could not be saved and %s only in the daemon's memory: gemmd saves what it can by "
            "itself; `gemmctl status` says whether its disk is full, or its database locked\n",
            n == 1 ? "is" : "are");
}
