/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --all: asks every daemon of the host whose socket this user can see. Sockets are in the user's
 * runtime directory and in /run/gemmd; $GEMMD_SOCKET adds one. Daemons with the same database have
 * the same rows, so gemmctl lists the rows of each database once.
 *
 * A daemon that does not answer is a line on stderr. The exit status is that of the first failure.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/paths.h"

enum { EVERY_PATIENCE_MS = 2000 }; /* limit of a call, should a daemon hang: several may hang */

/* ---- sockets -------------------------------------------------------------------------------- */

static bool every_is_found(const json_t *found, const struct stat *st)
{
    struct stat its;
    ARRAY_EACH(daemon, found) {
        if (stat(field_string(daemon, "socket"), &its) == 0 && its.st_dev == st->st_dev &&
            its.st_ino == st->st_ino) {
            return true;
        }
    }
    return false;
}

/* Adds a socket, unless another path of the same socket is there. One that was not `given` by the
 * user or the system must be the user's or root's, as for a job. */
static void every_add_socket(json_t *found, const char *path, bool given)
{
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const char *dot = strrchr(file, '.');
    struct stat st;
    if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode) && !every_is_found(found, &st) &&
        (given || st.st_uid == 0 || st.st_uid == geteuid())) {
        json_array_append_new(
            found, json_pack("{so, ss}", "device",
                             json_stringn(file, dot ? (size_t)(dot - file) : strlen(file)),
                             "socket", path));
    }
}

/* True for a daemon's socket. Only the process that started an offline- daemon uses its socket. */
static int every_is_socket(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".sock") == 0 && strncmp(entry->d_name, "offline-", 8) != 0;
}

static void every_add_folder(json_t *found, const char *folder, bool given)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, every_is_socket, alphasort);
    for (int i = 0; i < n; i++) {
        TEXT_AUTO *path = text_format("%s/%s", folder, entries[i]->d_name);
        every_add_socket(found, path, given);
        free(entries[i]);
    }
    if (n >= 0) {
        free(entries);
    }
}

json_t *every_list_sockets(void)
{
    char folder[PATHS_MAX];
    struct error ignored; /* of a folder that another user has made: the system's daemons serve */
    const char *named = getenv("GEMMD_SOCKET");
    json_t *found = json_array();
    if (paths_runtime_dir(folder, &ignored) == 0) {
        every_add_folder(found, folder, false);
    }
    every_add_folder(found, SYSTEM_RUNTIME_DIR, true);
    if (named && *named) {
        every_add_socket(found, named, true);
    }
    return found;
}

int every_say_none(void)
{
    char folder[PATHS_MAX];
    struct error e;
    const bool is_closed = access(SYSTEM_RUNTIME_DIR, R_OK | X_OK) && errno == EACCES;
    if (paths_runtime_dir(folder, &e)) {
        return ctl_failed("%s", e.text);
    }
    ctl_name_error("unreachable");
    ctl_failed("no daemon of this user's reach has a socket in %s or " SYSTEM_RUNTIME_DIR
               "%s; start one with `gemmctl start`",
               folder,
               is_closed ? ", where this user may not connect: ask for membership in its group"
                         : "");
    return UNREACHABLE;
}

/* every_list_sockets() for --all, which needs a daemon. NULL and *code after the error message. */
static json_t *every_find(const struct ctl *c, int *code)
{
    if (c->socket || c->named_device) {
        *code = ctl_usage("--all is about every daemon of this host: leave out --socket and "
                          "--device");
        return NULL;
    }
    json_auto_t *found = every_list_sockets();
    if (json_array_size(found) == 0) {
        *code = every_say_none();
        return NULL;
    }
    return json_incref(found);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* Connects, and sets "status", and "device" by the daemon's own word. 0, or an exit code. */
static int every_connect(struct subject *s, json_t *daemon)
{
    int code = DONE;
    struct ctl *c = &s->ctl;
    struct gemmd_error e;
    c->socket = field_string(daemon, "socket");
    c->patience_ms = EVERY_PATIENCE_MS;
    ctl_set_label(field_string(daemon, "device"));
    if (ctl_try(c, &e)) {
        return ctl_fail_waiting(&e, 0);
    }
    json_t *status = ctl_call(c, "status", NULL, &code);
    const char *uuid = field_text(status, "device.uuid");
    if (*uuid) {
        json_object_set_new(daemon, "device", json_string(uuid));
        ctl_set_label(field_string(daemon, "device"));
    }
    json_object_set_new(daemon, "status", status); /* NULL is not set */
    return code;
}

/* Connects to every daemon of the host and calls `ask` (or NULL), which adds to `daemon`, an
 * element of `all`: [{"device", "socket", "status"}], or "error" in place of "status" after the
 * error message. *code is of the first failure. NULL: no daemon was asked. */
static json_t *every_ask(struct subject *s,
                         int (*ask)(struct subject *s, json_t *all, json_t *daemon), int *code)
{
    json_t *all = every_find(&s->ctl, code), *filter = s->filter;
    ARRAY_EACH(daemon, all) {
        s->filter = json_deep_copy(filter);
        int r = every_connect(s, daemon);
        r = r == DONE && ask ? ask(s, all, daemon) : r;
        if (r) {
            json_object_set_new(daemon, "error", ctl_take_error());
            json_object_del(daemon, "status");
            *code = *code ? *code : r;
        }
        ctl_set_label(NULL);
        s->ctl.socket = NULL;
        s->ctl.g = gemmd_close(s->ctl.g);
        json_decref(s->filter);
        json_decref(s->shown);
        s->shown = NULL;
    }
    s->filter = filter;
    return all;
}

/* ---- status --------------------------------------------------------------------------------- */

/* The table fits a terminal: --device takes the beginning of a GPU's UUID. */
static char *every_show_device(const json_t *v)
{
    const char *name = json_string_value(v);
    const bool gpu = strncmp(name, "GPU-", 4) == 0 || strncmp(name, "MIG-", 4) == 0;
    return gpu ? text_format("%.*s", (int)strlen("GPU-01234567"), name) : text_copy(name);
}

static char *every_show_name(const json_t *v)
{
    enum { NAME_SHOWN = 20 };
    static const char maker[] = "NVIDIA ";
    const char *name = json_string_value(v);
    const size_t n = sizeof(maker) - 1;
    const size_t skipped = name && strncmp(name, maker, n) == 0 ? n : 0;
    return name ? text_format("%.*s", NAME_SHOWN, name + skipped) : text_copy("-");
}

static char *every_show_state(const json_t *v)
{
    const char *tuning = json_string_value(v);
    return text_copy(!tuning ? "no answer" : strcmp(tuning, "on") == 0 ? "on" : "off");
}

static char *every_show_hours(const json_t *v)
{
    const json_int_t s = (json_int_t)json_number_value(v);
    return json_is_number(v) ? text_format("%lld:%02lld", s / 3600, s / 60 % 60) : text_copy("-");
}

static void every_print_status(const struct ctl *c, const json_t *all)
{
    static const struct column columns[] = {
        {"DEVICE", "device", every_show_device},
        {"NAME", "status.device.name", every_show_name},
        {"TUNING", "status.tuning", every_show_state},
        {"UP h", "status.uptime_s", every_show_hours, true},
        {"RUNNER", "status.runner.state"},
        {"QUEUED", "status.jobs.queued", NULL, true},
        {"KEYS", "status.keys", NULL, true},
        {"HITS", "status.hits", NULL, true},
        {"MISSES", "status.misses", NULL, true},
        {"DEATHS", "status.runner.deaths", NULL, true},
        {"UNSAVED", "status.store.unsaved", NULL, true},
    };
    static const char order[] =
        "DEVICE,TUNING,DEATHS,UNSAVED,KEYS,RUNNER,QUEUED,UP h,NAME,HITS,MISSES";
    table_print_fitted(columns, COUNT(columns), order, all);
    ARRAY_EACH(daemon, all) {
        const char *tuning = field_text(daemon, "status.tuning");
        if (*tuning && strcmp(tuning, "on") != 0 && !c->quiet) {
            text_remark("%s: tuning is off: %s", field_string(daemon, "device"), tuning);
        }
    }
}

int every_show_status(struct subject *s)
{
    int code = DONE;
    json_auto_t *all = every_ask(s, NULL, &code);
    if (all && s->ctl.json) {
        int r = ctl_print_json(json_incref(all));
        return code ? code : r;
    }
    if (all) {
        every_print_status(&s->ctl, all);
    }
    return code;
}

/* ---- rows ----------------------------------------------------------------------------------- */

/* Finds an earlier daemon with the same rows. Rows of a named problem, and stale rows, also depend
 * on the device class. */
static json_t *every_find_like(const struct subject *s, const char *what, const json_t *all,
                               const json_t *daemon)
{
    const bool by_class = problems_given(&s->problems) || strcmp(what, "stale") == 0;
    ARRAY_EACH(other, all) {
        if (other != daemon && json_object_get(other, "rows") &&
            json_equal(field_value(other, "status.database"),
                       field_value(daemon, "status.database")) &&
            (!by_class || json_equal(field_value(other, "status.device.class"),
                                     field_value(daemon, "status.device.class")))) {
            return other;
        }
    }
    return NULL;
}

static int every_ask_rows(struct subject *s, json_t *all, json_t *daemon)
{
    const char *what = listing_name(s);
    json_t *like = every_find_like(s, what, all, daemon);
    json_auto_t *baselines = NULL;
    /* a daemon adds the counts that only it has before it lists them, so the last list has all */
    const bool has_counts = list_has("jobs,served", what);
    int code = DONE;
    if (strcmp(what, "best") == 0 && !s->ctl.quiet) {
        unsaved_say(json_object_get(daemon, "status"), "this list");
    }
    if (like) {
        json_array_append_new(json_object_get(like, "others"),
                              json_pack("{sO, sO}", "device", json_object_get(daemon, "device"),
                                        "socket", json_object_get(daemon, "socket")));
    }
    if (like && !has_counts) {
        return DONE;
    }
    json_t *rows = listing_rows(s, what, &baselines, &code);
    if (rows) {
        rows_derive(what, baselines, rows);
        if (!s->ctl.json) {
            rows_complete(&s->ctl, what, rows);
        }
        json_object_set_new(like ? like : daemon, "rows", rows);
    }
    if (rows && !like) {
        json_object_set_new(daemon, "others", json_array());
    }
    return code;
}

/* Removes the daemons whose rows another daemon has given. Of "status" only "database" stays. */
static void every_tidy(json_t *all)
{
    for (size_t i = json_array_size(all); i-- > 0;) {
        json_t *daemon = json_array_get(all, i);
        json_t *database = (json_t *)(uintptr_t)field_value(daemon, "status.database");
        if (database) {
            json_object_set(daemon, "database", database);
        }
        json_object_del(daemon, "status");
        if (!json_object_get(daemon, "rows") && !json_object_get(daemon, "error")) {
            json_array_remove(all, i);
        }
    }
}

json_t *every_rows(struct subject *s, int *code)
{
    json_t *all = every_ask(s, every_ask_rows, code);
    every_tidy(all);
    return all;
}

/* Prints "device A, B (the database)", in lines that fit the terminal. */
static void every_print_heading(const json_t *daemon)
{
    TEXT_AUTO *name = every_show_device(json_object_get(daemon, "device")),
              *text = text_format("device %s", name);
    ARRAY_EACH(other, json_object_get(daemon, "others")) {
        free(name);
        name = every_show_device(json_object_get(other, "device"));
        text = text_append(text, ", %s", name);
    }
    text = text_visible(text_append(text, " (%s)", field_text(daemon, "database")));
    fit_fold(text, (size_t)fit_width(STDOUT_FILENO));
    printf("%s\n", text);
    fflush(stdout); /* before "no rows" on stderr */
}

int every_show_rows(struct subject *s)
{
    int code = DONE;
    json_auto_t *all = every_rows(s, &code);
    if (all && s->ctl.json) {
        int r = ctl_print_json(json_incref(all));
        return code ? code : r;
    }
    ARRAY_EACH(daemon, all) {
        if (json_object_get(daemon, "rows")) {
            every_print_heading(daemon);
            rows_print_table(&s->ctl, listing_name(s), json_object_get(daemon, "rows"));
        }
    }
    return code;
}
