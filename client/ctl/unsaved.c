/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unsaved answers and rows of quarantine: the daemon serves them, but could not write them yet. The
 * disk is full, another program has locked the database, or the writer does not answer. Readers of
 * the database lack these rows, and the rows end with the daemon, so gemmctl warns.
 */
#include "client/ctl/ctl.h"

json_t *unsaved_status(struct ctl *c)
{
    struct gemmd_error e;
    return ctl_try_call(c, "status", NULL, &e);
}

bool unsaved_there(const json_t *status)
{
    return field_int(status, "store.unsaved") > 0;
}

bool unsaved_at_all(const json_t *status)
{
    return field_int(status, "store.unsaved") + field_int(status, "store.unsaved_quarantine") > 0;
}

/* Names the unsaved rows, as "2 answers and 1 row of quarantine are"; malloc'ed. */
static char *name_them(const json_t *status)
{
    long long a = field_int(status, "store.unsaved");
    long long q = field_int(status, "store.unsaved_quarantine");
    char *text = a ? text_format("%lld answer%s", a, a == 1 ? "" : "s") : NULL;
    if (q) {
        text =
            text_append(text, "%s%lld row%s of quarantine", a ? " and " : "", q, q == 1 ? "" : "s");
    }
    return text_append(text, a + q == 1 ? " is" : " are");
}

static char *unsaved_sentence(const json_t *status, const char *where)
{
    const char *database = field_string(status, "database");
    bool full = field_is_true(status, "store.disk_full");
    bool locked = field_is_true(status, "store.locked");
    TEXT_AUTO *what = name_them(status);
    return text_format("%s only in the daemon's memory and not in %s: %s %s%s gemmd writes "
                       "what is missing by itself",
                       what, where,
                       full     ? "make room on the disk of"
                       : locked ? "end the program that has locked"
                                : "once",
                       database ? database : "its database",
                       full || locked ? ", and" : " can be written,");
}

void unsaved_say(const json_t *status, const char *where)
{
    TEXT_AUTO *text = unsaved_there(status) ? unsaved_sentence(status, where) : NULL;
    if (text) {
        text_remark("%s", text);
    }
}

int unsaved_fail(const json_t *status, bool there, const char *where, const char *again)
{
    TEXT_AUTO *text = there ? unsaved_sentence(status, where) : NULL;
    return text ? ctl_failed("%s; then %s again", text, again) : DONE;
}

/* True for an exact answer with `saved` false. Answers of other tiers are never saved: the daemon
 * computes them for each query. */
static bool may_be_unsaved(const json_t *row)
{
    return field_is(row, "tier", "exact") && json_is_false(json_object_get(row, "saved"));
}

void unsaved_remark(struct ctl *c, const json_t *rows)
{
    size_t n = 0;
    ARRAY_EACH(row, rows) {
        n += may_be_unsaved(row);
    }
    /* `saved` is false also for a winner of a restricted query, although nothing is unsaved. */
    json_auto_t *status = n ? unsaved_status(c) : NULL;
    const bool all_saved = n == 0 || (status && !unsaved_there(status));
    if (all_saved) {
        return;
    }
    TEXT_AUTO *which = json_array_size(rows) == 1 ? text_copy("this answer")
                                                  : text_format("%zu of these answers", n);
    text_remark("%s could not be saved and %s only in the daemon's memory: gemmd saves what it can "
                "by itself; `gemmctl status` says whether its disk is full, or its database locked",
                which, n == 1 ? "is" : "are");
}
