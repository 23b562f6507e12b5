/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The known keys of a device, and which of them are stale: rows of another stamp than today's,
 * which serve as hints only. The daemon knows today's stamps, and `why` compares them with a row's.
 * A stamp names its target, so a single `why` judges all rows with the same stamp.
 */
#include <stdio.h>

#include "client/ctl/ctl.h"

/* ---- stale rows ----------------------------------------------------------------------------- */

/* Returns why a row's stamp does not fit; "": it fits. NULL after a failed call. */
static json_t *known_judge(struct ctl *c, json_t *row, int *code)
{
    const char *target = field_text(row, "target");
    struct gemmd_error e;
    json_t *params = json_pack("{sO, ss*}", "key", json_object_get(row, "key"), "target",
                               *target ? target : NULL);
    json_auto_t *why = ctl_try_call(c, "why", params, &e);
    const json_t *stamp = json_object_get(why, "stamp");
    json_t *reason = json_incref(json_object_get(stamp, "difference"));
    if (!why && e.code != GEMMD_INVALID) { /* invalid: this gemmd has no such target */
        *code = ctl_fail(&e);
    } else if (!reason) {
        reason =
            json_sprintf("today's gemmd has no kernels of target \"%s\" for this problem", target);
    }
    return reason;
}

/* Sets "why", and returns true, when the row is stale. `judged`: {stamp: reason}. */
static bool known_is_stale(struct ctl *c, json_t *row, json_t *judged, int *code)
{
    const char *stamp = field_text(row, "stamp");
    json_t *reason = json_object_get(judged, stamp);
    if (result_is_custom(field_string(row, "op"))) {
        return false; /* gemmd only keeps the rows of other ops: no stamp of gemmd's is theirs */
    }
    if (!reason) {
        result_target(row);
        reason = known_judge(c, row, code);
        json_object_set_new(judged, stamp, reason); /* NULL is not set */
    }
    if (!reason || !*json_string_value(reason)) {
        return false;
    }
    json_object_set(row, "why", reason);
    return true;
}

/* Removes rows that are not stale, then applies the filter's offset and limit. Takes over `all`. */
static json_t *known_keep_stale(struct ctl *c, json_t *all, const json_t *filter, int *code)
{
    json_auto_t *rows = all, *judged = json_object();
    const json_t *limit = json_object_get(filter, "limit");
    json_int_t seen = 0, offset = field_int(filter, "offset");
    json_t *kept = json_array();
    ARRAY_EACH(row, rows) {
        const bool full = limit && (json_int_t)json_array_size(kept) >= json_integer_value(limit);
        if (*code == DONE && !full && known_is_stale(c, row, judged, code) && seen++ >= offset) {
            json_array_append(kept, row);
        }
    }
    return kept;
}

json_t *known_rows(struct ctl *c, const json_t *filter, bool stale, int *code)
{
    if (json_object_get(filter, "class")) {
        *code = ctl_usage("these are rows of the daemon's own device class: a daemon of another "
                          "class knows that class's kernels; leave out --where class=...");
        return NULL;
    }
    json_auto_t *status = ctl_call(c, "status", NULL, code);
    if (!status) {
        return NULL;
    }
    json_t *wanted = json_copy((json_t *)(uintptr_t)filter);
    json_t *class = (json_t *)(uintptr_t)field_value(status, "device.class");
    if (!json_object_get(wanted, "sort")) {
        json_object_set_new(wanted, "sort", json_string("-generation"));
    }
    if (class) {
        json_object_set(wanted, "class", class);
    }
    if (stale) {
        json_object_del(wanted, "limit");
        json_object_del(wanted, "offset");
    }
    json_auto_t *rows = ctl_list(c, "best", wanted, code);
    rows = rows && stale ? known_keep_stale(c, rows, filter, code) : rows;
    return *code ? NULL : json_incref(rows);
}

/* ---- tune --known --------------------------------------------------------------------------- */

int known_check(const struct subject *s)
{
    const struct gemmd_query *q = &s->search.query;
    if (problems_given(&s->problems)) {
        return ctl_usage("--known is about all known keys of the device: name no problem");
    }
    if (json_object_size(s->search.restrict_) > 0 || json_array_size(s->search.configs) > 0 ||
        q->target || q->atol > 0 || q->rtol > 0) {
        return ctl_usage("--known makes whole searches, as precise as the rows: leave out "
                         "--restrict, --space, --config, --configs, --target, --atol and --rtol");
    }
    return DONE;
}

int known_problems(struct subject *s)
{
    const bool stale = s->given[OWN_STALE];
    int code = DONE;
    json_auto_t *rows = known_rows(&s->ctl, s->filter, stale, &code);
    s->problems.all = json_array();
    ARRAY_EACH(row, rows) {
        if (result_is_custom(field_string(row, "op"))) {
            continue; /* gemmd cannot tune this op */
        }
        json_array_append_new(s->problems.all,
                              json_pack("{so, sO}", "problem", result_problem(row), "row", row));
    }
    if (code == DONE && json_array_size(s->problems.all) == 0 && !s->ctl.quiet) {
        fprintf(stderr, "nothing to tune: %s\n",
                stale ? "each known key of this device has a row of today's kernels"
                      : "no key of this device is known");
    }
    return code;
}

bool known_set_query(struct subject *s, const json_t *item)
{
    struct gemmd_query *q = &s->search.query;
    const json_t *row = json_object_get(item, "row");
    q->bucket = "exact"; /* the row's problem is a bucket: the key stays the same */
    q->atol = field_number(row, "atol");
    q->rtol = field_number(row, "rtol");
    return !field_is(row, "source", "manual");
}
