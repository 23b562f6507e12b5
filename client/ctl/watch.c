/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output that goes on until Ctrl-C: `status --watch` and `events --follow`. gemmctl asks again
 * after a pause. A daemon costs such a question less than a millisecond.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum { WATCH_S = 2, WATCH_S_MAX = 86400, FOLLOW_MS = 500, FOLLOW_TOP = 10 };

/* Sleeps; a signal that stops the command ends the sleep. */
static void watch_sleep(int64_t ms)
{
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    if (!stops_came()) {
        nanosleep(&t, NULL);
    }
}

/* ---- status --watch ------------------------------------------------------------------------- */

int watch_repeat(struct subject *s, int (*show)(struct subject *s))
{
    const bool redraws = isatty(STDOUT_FILENO) && !s->ctl.json;
    const char *given = s->given[OWN_WATCH];
    int64_t seconds = WATCH_S;
    int code = *given ? option_number("watch", given, 1, WATCH_S_MAX, &seconds) : DONE;
    if (code) {
        return code;
    }
    stops_catch();
    for (bool first = true; !stops_came(); first = false) {
        if (redraws) {
            fputs("\033[H\033[2J", stdout); /* before show, whose error messages go to stderr */
            fflush(stdout);
        } else if (!first && !s->ctl.json) {
            putchar('\n');
        }
        code = show(s);
        fflush(stdout);
        if (code == USAGE || ferror(stdout)) {
            return code;
        }
        watch_sleep(seconds * 1000);
    }
    stops_raise();
    return code;
}

/* ---- events --follow ------------------------------------------------------------------------ */

/* The events of a database, and the daemons that can be asked for them. */
struct followed {
    json_t *daemons; /* owned: [{"device", "socket"}], first the daemon that is asked now; without
                        --all an empty object: the daemon of the options */
    json_t *name;    /* owned: a daemon's name, with --all; or NULL */
    json_int_t last; /* id of the last printed event */
};

static void watch_print_event(const struct ctl *c, const struct followed *f, json_t *row)
{
    char at[32] = "-";
    const time_t created = (time_t)field_number(row, "created_s");
    struct tm tm;
    if (c->json) {
        if (f->name) {
            json_object_set(row, "device", f->name);
        }
        json_dumpf(row, stdout, JSON_COMPACT | JSON_REAL_PRECISION(17));
        ctl_printed();
        putchar('\n');
        return;
    }
    if (localtime_r(&created, &tm)) {
        strftime(at, sizeof(at), "%F %T", &tm);
    }
    text_print("%s  %s%s%-10s  %s", at, f->name ? json_string_value(f->name) : "",
               f->name ? "  " : "", field_text(row, "kind"), field_text(row, "text"));
    putchar('\n');
}

static void watch_print_events(const struct ctl *c, struct followed *f, const json_t *rows,
                               bool backwards)
{
    const size_t n = json_array_size(rows);
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_array_get(rows, backwards ? n - 1 - i : i);
        watch_print_event(c, f, row);
        f->last = field_int(row, "id");
    }
    fflush(stdout);
}

/* The newest events, the newest first; or the events after the last printed event. */
static json_t *watch_list(struct subject *s, const struct followed *f, bool begins, int *code)
{
    json_t *filter = json_copy(s->filter);
    if (begins) {
        json_object_set_new(filter, "sort", json_string("-id"));
        if (!json_object_get(filter, "limit")) {
            json_object_set_new(filter, "limit", json_integer(FOLLOW_TOP));
        }
    } else {
        json_object_del(filter, "limit");
        json_object_set_new(filter, "after", json_integer(f->last));
    }
    return ctl_list(&s->ctl, "events", filter, code);
}

/* Prints what is new. A daemon that has ended gives way to the next daemon of the database. Returns
 * false when no daemon is left; *code is then of the last failure. */
static bool watch_ask(struct subject *s, struct followed *f, bool begins, int *code)
{
    struct ctl *c = &s->ctl;
    const char *socket = c->socket;
    const json_t *daemon;
    bool answered = false;
    while (!answered && (daemon = json_array_get(f->daemons, 0))) {
        *code = DONE;
        c->socket = f->name ? field_string(daemon, "socket") : socket;
        ctl_set_label(field_string(daemon, "device"));
        *code = ctl_connect(c);
        json_auto_t *rows = *code ? NULL : watch_list(s, f, begins, code);
        c->g = gemmd_close(c->g);
        ctl_set_label(NULL);
        answered = rows;
        if (answered) {
            watch_print_events(c, f, rows, begins);
        } else {
            json_array_remove(f->daemons, 0);
        }
    }
    c->socket = socket;
    return answered;
}

/* Makes a list of the databases to follow: of every daemon with --all. */
static struct followed *watch_find(struct subject *s, size_t *n, int *code)
{
    json_auto_t *all = s->given[OWN_ALL] ? every_rows(s, code) : NULL;
    *n = s->given[OWN_ALL] ? 0 : 1;
    struct followed *list = calloc(json_array_size(all) + 1, sizeof(*list));
    if (!list) {
        *code = ctl_failed("no memory");
    }
    if (list && *n) {
        list[0].daemons = json_pack("[{}]");
    }
    ARRAY_EACH(daemon, all) {
        if (!list || !json_object_get(daemon, "rows")) {
            continue;
        }
        struct followed *f = &list[(*n)++];
        f->name = json_incref(json_object_get(daemon, "device"));
        f->daemons = json_pack("[O]", daemon);
        json_array_extend(f->daemons, json_object_get(daemon, "others"));
    }
    return list;
}

static void watch_free(struct followed *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_decref(list[i].daemons);
        json_decref(list[i].name);
    }
    free(list);
}

/* Prints new events until a signal arrives, or the last daemon has ended. */
static int watch_follow(struct subject *s)
{
    if (json_object_get(s->filter, "sort") || json_object_get(s->filter, "offset")) {
        return ctl_usage("--follow prints events in the order of time: leave out --sort and "
                         "--offset");
    }
    int code = DONE, failed = DONE;
    size_t n;
    struct followed *list = watch_find(s, &n, &code);
    stops_catch();
    for (bool begins = true, ended = !list || n == 0; !ended && !stops_came(); begins = false) {
        ended = true;
        for (size_t i = 0; i < n && !ferror(stdout); i++) {
            ended = !watch_ask(s, &list[i], begins, &failed) && ended;
        }
        if (ferror(stdout)) { /* errno says why, for the error message at the exit */
            failed = DONE;
            break;
        }
        if (!ended) {
            failed = DONE;
            watch_sleep(FOLLOW_MS);
        } else if (!begins) {
            fprintf(stderr, "gemmd has ended: no further events come\n");
        }
    }
    watch_free(list, list ? n : 0);
    stops_raise();
    return failed ? failed : code;
}

static int watch_run_events(struct subject *s)
{
    return s->given[OWN_FOLLOW] ? watch_follow(s) : listing_show_rows(s, "events");
}

static const struct argp_option events_options[] = {
    {"all", OWN_KEY + OWN_ALL, 0, 0, "of every daemon of this host", 2},
    {"follow", OWN_KEY + OWN_FOLLOW, 0, 0,
     "the newest events (--top, 10), then new events as they come", 2},
    {0},
};

const struct command command_events = {
    .name = "events",
    .help = "what has happened: starts, tunings, pins, removals",
    .run = watch_run_events,
    .doc = "Lists the events of the database.",
    .options = events_options,
    .parts = {&filter_argp, &view_argp, &ctl_argp},
};
