/* SPDX-License-Identifier: Apache-2.0 */
/* status, start, stop, version: the daemon itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "proto/lockfile.h"

enum { START_DEADLINE_MS = 30 * 1000, STOP_DEADLINE_MS = 30 * 1000, POLL_MS = 20 };

/* ---- status --------------------------------------------------------------------------------- */

static char *show_seconds(const json_t *v)
{
    const long s = (long)json_number_value(v);
    return text_format("%ld d %02ld:%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
}

/* Shows {"a": 1, "b": 2} as "1 a, 2 b", without counts of 0. */
static char *show_counts(const json_t *v)
{
    char *text = NULL;
    OBJECT_EACH(name, n, v) {
        if (json_integer_value(n) != 0) {
            text = text_append(text, "%s%lld %s", text ? ", " : "",
                               (long long)json_integer_value(n), name);
        }
    }
    return text ? text : text_copy("none");
}

static char *show_limit(const json_t *v)
{
    return json_integer_value(v) > 0 ? show_bytes(v) : text_copy("none");
}

static void daemon_show_status(struct subject *s, json_t *status)
{
    static const struct column lines[] = {
        {"build", "build"},
        {"pid", "pid"},
        {"up for", "uptime_s", show_seconds},
        {"device", "device.name"},
        {"device class", "device.class"},
        {"driver", "device.driver"},
        {"compiler", "device.compiler"},
        {"tuning", "tuning"},
        {"runner", "runner.state"},
        {"runner pid", "runner.pid"},
        {"runner deaths", "runner.deaths"},
        {"disturbed", "runner.disturbed"},
        {"jobs", "jobs", show_counts},
        {"running", "job.problem", show_config},
        {"running key", "job.key"},
        {"running phase", "job.phase"},
        {"running done", "job.done"},
        {"running total", "job.total"},
        {"connections", "connections"},
        {"keys", "keys"},
        {"generation", "generation"},
        {"fleet number", "fleet"},
        {"requests", "requests"},
        {"hits", "hits"},
        {"misses", "misses"},
        {"errors", "errors", show_counts},
        {"trials", "store.trials"},
        {"modules", "store.modules"},
        {"quarantined", "store.quarantined"},
        {"daemons", "store.daemons"},
        {"unsaved", "store.unsaved"},
        {"unsaved quarantine", "store.unsaved_quarantine"},
        {"disk full", "store.disk_full"},
        {"locked", "store.locked"},
        {"database", "database"},
        {"database size", "store.file_bytes", show_bytes},
        {"WAL size", "store.wal_bytes", show_bytes},
        {"kernels", "cache.path"},
        {"kernels' size", "cache.bytes", show_bytes},
        {"kernels' limit", "cache.max_bytes", show_limit},
        {"socket", "socket"},
        {"bucket scheme", "bucket_scheme"},
        {"memory", "rss_bytes", show_bytes},
    };
    for (size_t i = 0; i < COUNT(lines); i++) {
        const json_t *v = field_value(status, lines[i].key);
        if (v && !json_is_null(v)) {
            (isatty(STDOUT_FILENO) ? table_print_folded : table_print_line)(&lines[i], status);
        }
    }
}

static int daemon_show_once(struct subject *s)
{
    return s->given[OWN_ALL] ? every_show_status(s) : subject_run_method(s);
}

static int daemon_run_status(struct subject *s)
{
    return s->given[OWN_WATCH] ? watch_repeat(s, daemon_show_once) : daemon_show_once(s);
}

static const struct argp_option status_options[] = {
    {"all", OWN_KEY + OWN_ALL, 0, 0, "every daemon of this host, a line for each", 2},
    {"watch", OWN_KEY + OWN_WATCH, "SECONDS", OPTION_ARG_OPTIONAL,
     "again and again, every 2 seconds or as given, until Ctrl-C", 2},
    {0},
};

const struct command command_status = {
    .name = "status",
    .help = "the daemon's state",
    .run = daemon_run_status,
    .show = daemon_show_status,
    .options = status_options,
    .doc = "Shows the daemon's state: its device, the running job, counts of answers.",
    .parts = {&ctl_argp},
};

/* ---- start ---------------------------------------------------------------------------------- */

static int report_started(struct ctl *c, bool was_there)
{
    int code = DONE;
    json_auto_t *j = ctl_call(c, "status", NULL, &code);
    if (!j || c->json) {
        return j ? ctl_print_json(json_incref(j)) : code;
    }
    printf("gemmd %s, pid %lld, for %s on %s\n", was_there ? "runs already" : "started",
           field_int(j, "pid"), field_text(j, "device.name"), field_text(j, "socket"));
    return DONE;
}

/* True for replay-<name>, the name of a running daemon that replays a recording. No daemon can be
 * started by that name: gemmd needs the recording's path. */
static bool names_landscape(const char *spec)
{
    return spec && strncmp(spec, "replay-", 7) == 0;
}

/* Refuses device specs that gemmctl can turn into a socket's path, but that gemmd would refuse. */
static int check_device(const char *spec)
{
    enum { THREADS_MAX = 1024 };
    if (names_landscape(spec)) {
        return ctl_usage("no daemon of %s runs, and none can be started by that name: --device "
                         "replay:<file> says which landscape it is to play",
                         spec);
    }
    if (spec && strncmp(spec, "cpu:", 4) == 0) {
        size_t digits = strspn(spec + 4, "0123456789");
        long n = digits > 0 && digits < 6 && !spec[4 + digits] ? strtol(spec + 4, NULL, 10) : 0;
        return n >= 1 && n <= THREADS_MAX
                   ? DONE
                   : ctl_usage("device \"%s\": use cpu or cpu:<threads> with 1 to %d threads", spec,
                               THREADS_MAX);
    }
    return DONE;
}

static int daemon_fail_start(const struct gemmd_error *e)
{
    ctl_name_error(gemmd_error_name(e->code));
    ctl_failed("%s", e->text); /* not ctl_fail, which would suggest `gemmctl start` */
    return e->code == GEMMD_INVALID                                    ? USAGE
           : e->code == GEMMD_UNREACHABLE || e->code == GEMMD_DEADLINE ? UNREACHABLE
           : e->code == GEMMD_BUSY                                     ? BUSY
                                                                       : FAILED;
}

/* Connects to the daemon of --device. When neither a device nor a socket is named, chooses the
 * device as gemmd does, the first GPU or else the CPU, and sets o->device. */
static int daemon_connect_to_start(struct ctl *c, struct gemmd_options *o, struct gemmd_error *e)
{
    const char *socket = o->socket ? o->socket : getenv("GEMMD_SOCKET");
    const bool chooses = !o->device && !(socket && *socket);
    o->device = chooses ? "cuda:0" : o->device;
    int r = gemmd_connect(&c->g, o, e);
    if (chooses && r == GEMMD_NO_DEVICE) {
        o->device = "cpu";
        r = gemmd_connect(&c->g, o, e);
    }
    return r;
}

static int daemon_run_start(struct subject *s)
{
    struct ctl *c = &s->ctl;
    struct gemmd_options o = ctl_options(c);
    struct gemmd_error e;
    o.deadline_ms = START_DEADLINE_MS;
    int r = daemon_connect_to_start(c, &o, &e);
    bool was_there = r == 0;
    /* When access to a running daemon is denied, the user can start a daemon of their own. */
    if (r == GEMMD_UNREACHABLE || (r == GEMMD_DENIED && !names_landscape(c->device))) {
        int code = check_device(c->device);
        if (code) {
            return code;
        }
        o.autostart = true;
        r = gemmd_connect(&c->g, &o, &e);
    }
    if (r) {
        return daemon_fail_start(&e);
    }
    int code = was_there ? ctl_check_device(c) : DONE;
    return code ? code : report_started(c, was_there);
}

const struct command command_start = {
    .name = "start",
    .help = "start a daemon in the background",
    .run = daemon_run_start,
    .doc =
        "Starts a daemon for --device in the background and waits until it answers. Its log is "
        "in the state directory. The program is $GEMMD_DAEMON, else gemmd beside gemmctl, else "
        "in PATH. Says so when a daemon runs already. The default device is cuda:0 when there is "
        "a GPU, else the CPU.",
    .parts = {&ctl_argp},
};

/* ---- stop ----------------------------------------------------------------------------------- */

static bool is_gone(const char *socket)
{
    const struct ctl c = {.socket = socket};
    const struct gemmd_options o = ctl_options(&c);
    struct gemmd *g = NULL;
    int r = gemmd_connect(&g, &o, NULL);
    gemmd_close(g);
    return r == GEMMD_UNREACHABLE;
}

/* Waits until the process `pid` has ended. pid 0: the daemon's process is not visible here, so
 * waits until nothing listens on the socket. With a pid, makes no connection: systemd may own the
 * socket, and would start a gemmd on a connection. */
static int wait_until_gone(const char *socket, pid_t pid)
{
    double began = ctl_now_ms();
    while (pid ? !lockfile_has_ended(pid) : !is_gone(socket)) {
        if (ctl_now_ms() - began > STOP_DEADLINE_MS) {
            return ctl_failed("gemmd has been asked to stop, but is still there after %d s",
                              STOP_DEADLINE_MS / 1000);
        }
        struct timespec t = {.tv_nsec = POLL_MS * 1000000L};
        nanosleep(&t, NULL);
    }
    return DONE;
}

static int connect_to_stop(struct ctl *c)
{
    struct gemmd_error e;
    int r = ctl_try(c, &e);
    if (r == GEMMD_UNREACHABLE) {
        ctl_name_error(gemmd_error_name(r));
        ctl_failed("%s: there is none to stop", e.text);
        return UNREACHABLE;
    }
    return r ? ctl_fail_waiting(&e, 0) : ctl_check_device(c);
}

static int daemon_run_stop(struct subject *s)
{
    struct ctl *c = &s->ctl;
    int code = connect_to_stop(c);
    json_auto_t *status = code ? NULL : ctl_call(c, "status", NULL, &code);
    pid_t pid = (pid_t)field_int(status, "pid");
    bool seen = pid > 0 && !lockfile_has_ended(pid);
    json_auto_t *stopping = status ? ctl_call(c, "shutdown", NULL, &code) : NULL;
    if (stopping) {
        code = wait_until_gone(field_string(status, "socket"), seen ? pid : 0);
    }
    if (code == DONE && c->json) {
        code = ctl_print_json(json_pack("{sb}", "stopped", 1));
    } else if (code == DONE) {
        printf("gemmd has stopped\n");
    }
    if (code == DONE && unsaved_at_all(status)) {
        fprintf(stderr,
                "it had answers, or rows of quarantine, that were only in its memory: those that "
                "it could not write at its end are lost, and its log says how many\n");
    }
    return code;
}

const struct command command_stop = {
    .name = "stop",
    .help = "stop the daemon",
    .run = daemon_run_stop,
    .doc = "Stops the daemon and waits until it is gone. A running tuning is cancelled in order; "
           "its measurements are kept. When systemd owns the socket, the next job starts a daemon "
           "again: `systemctl stop` the socket.",
    .parts = {&ctl_argp},
};

/* ---- version -------------------------------------------------------------------------------- */

static int daemon_show_version(struct subject *s)
{
    struct ctl *c = &s->ctl;
    struct gemmd_error e;
    int r = ctl_try(c, &e), code = r ? DONE : ctl_check_device(c);
    if (code) {
        return code;
    }
    json_t *params = r ? NULL : json_pack("{si, ss}", "version", 1, "client", "gemmctl");
    json_auto_t *hello = r ? NULL : ctl_call(c, "hello", params, &code);
    const json_t *build = json_object_get(hello, "build");
    code = r && r != GEMMD_UNREACHABLE ? ctl_fail_waiting(&e, 0) : code;
    if (c->json) {
        ctl_print_json(json_pack("{ss, sO?, so*}", "gemmctl", gemmd_version(), "gemmd", build,
                                 "error", ctl_error()));
    } else {
        printf("gemmctl %s\ngemmd %s\n", gemmd_version(),
               build                    ? json_string_value(build)
               : r == GEMMD_UNREACHABLE ? "not running"
                                        : "unknown");
    }
    return code;
}

const struct command command_version = {
    .name = "version",
    .help = "versions of gemmctl and of the daemon",
    .run = daemon_show_version,
    .doc = "Shows the versions of gemmctl and of the daemon, if one runs.",
    .parts = {&ctl_argp},
};
