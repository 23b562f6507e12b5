/* SPDX-License-Identifier: Apache-2.0 */
/* The order of the steps matters. The device is probed first, since the default socket is named
 * after the device. The socket's lock comes before the database, so that a second daemon reports
 * the first and not a locked file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/probe.h"
#include "daemon/life.h"
#include "kernels/modules.h"

/* Looks in order: --runner, $GEMMD_RUNNER, gemmd's folder, libexec/gemmd next to bin, the build
 * tree. */
static int find_runner(struct daemon *d, struct error *err)
{
    const char *given = d->config->runner[0] ? d->config->runner : getenv("GEMMD_RUNNER");
    if (given && given[0]) {
        snprintf(d->runner, sizeof(d->runner), "%s", given);
        return paths_is_program(given) ? 0
                                       : error_set(err, ERROR_IO,
                                                   "the runner %s is no program that can "
                                                   "be started",
                                                   given);
    }
    return paths_find_runner(d->runner)
               ? 0
               : error_set(err, ERROR_IO,
                           "gemmd-runner was not found beside gemmd (the last place was %s); name "
                           "it by --runner or GEMMD_RUNNER",
                           d->runner);
}

/* Probes the device: without --device the first GPU, else the CPU. */
static int start_probe_device(struct daemon *d, struct error *err)
{
    char *spec = d->device_spec;
    if (d->config->device[0]) {
        snprintf(spec, sizeof(d->device_spec), "%s", d->config->device);
        return probe_device(d->runner, spec, PROBE_LIMIT_MS, &d->device, err);
    }
    strcpy(spec, "cuda:0");
    int status = probe_device(d->runner, spec, PROBE_LIMIT_MS, &d->device, err);
    if (status == ERROR_NO_DEVICE) {
        log_notice("no GPU (%s): using the CPU; --device chooses", err->text);
        strcpy(spec, "cpu");
        status = probe_device(d->runner, spec, PROBE_LIMIT_MS, &d->device, err);
    }
    return status;
}

/* Makes a default folder; the error says how to choose another. */
static int make_usual(const char *path, unsigned mode, const char *option, const char *variable,
                      struct error *err)
{
    struct error why = ERROR_NULL;
    if (paths_make_dir(path, mode, &why) == 0) {
        return 0;
    }
    return error_set(err, why.code, "%.300s; choose another place by --%s, or set %s", why.text,
                     option, variable);
}

/* A mistyped name would be served as a new, empty database. */
static int check_offline(const struct config *c, struct error *err)
{
    if (c->offline && access(c->database, F_OK) < 0) {
        return error_set(err, ERROR_IO, "there is no database %s to serve --offline: %s",
                         c->database, strerror(errno));
    }
    return 0;
}

/* Makes a path absolute: clients look there from other folders. */
static int make_whole(const char *key, const char *path, char out[PATHS_MAX], struct error *err)
{
    char here[PATHS_MAX] = "";
    const bool whole = path[0] == '/';
    if (!whole && !getcwd(here, sizeof(here))) {
        return error_set(err, ERROR_IO, "%s is \"%s\", and the working directory is not known: %s",
                         key, path, strerror(errno));
    }
    if (snprintf(out, PATHS_MAX, "%s%s%s", here, whole ? "" : "/", path) >= PATHS_MAX) {
        return error_set(err, ERROR_INVALID, "%s is longer than %d bytes", key, PATHS_MAX - 1);
    }
    return 0;
}

static int choose_socket(struct daemon *d, char socket[PATHS_MAX], struct error *err)
{
    const struct config *c = d->config;
    char dir[PATHS_MAX], name[64];
    if (c->socket[0]) {
        return make_whole("socket", c->socket, socket, err);
    }
    if (!c->offline) {
        int r = paths_socket(d->device.uuid, dir, err);
        return r ? r : make_whole("GEMMD_SOCKET", dir, socket, err);
    }
    /* Clients find the socket by its printed path. */
    snprintf(name, sizeof(name), "offline-%d", (int)getpid());
    int status = paths_runtime_dir(dir, err);
    if (status == 0 && snprintf(socket, PATHS_MAX, "%.900s/%s.sock", dir, name) >= PATHS_MAX) {
        status = paths_check_socket(socket, err);
    }
    return status;
}

static int choose_cache_dir(struct daemon *d, struct error *err)
{
    const char *given = d->config->cache_dir;
    return given[0] ? make_whole("cache-dir", given, d->cache_dir, err)
                    : paths_cache_dir(d->cache_dir, err);
}

static int choose_database(struct daemon *d, struct error *err)
{
    char dir[PATHS_MAX];
    const char *given = d->config->database;
    int status = given[0] ? 0 : paths_state_dir(dir, err);
    if (status == 0) {
        snprintf(d->database, sizeof(d->database), "%.1000s%s", given[0] ? given : dir,
                 given[0] ? "" : "/gemmd.db");
    }
    return status;
}

static int make_usual_state_dir(struct error *err)
{
    char dir[PATHS_MAX];
    int status = paths_state_dir(dir, err);
    return status ? status : make_usual(dir, 0700, "database", "XDG_STATE_HOME", err);
}

static int settle_paths(struct daemon *d, char socket[PATHS_MAX], struct error *err)
{
    const struct config *c = d->config;
    int status = choose_socket(d, socket, err);
    status = status ? status : choose_cache_dir(d, err);
    if (status == 0 && !c->cache_dir[0]) {
        status = make_usual(d->cache_dir, 0750, "cache-dir", "XDG_CACHE_HOME", err);
    }
    status = status ? status : choose_database(d, err);
    if (status == 0) {
        status = c->database[0] ? check_offline(c, err) : make_usual_state_dir(err);
    }
    status = status ? status : paths_make_dir(d->cache_dir, 0750, err);
    status = status ? status : modules_check(d->cache_dir, err);
    if (status == 0) {
        modules_tidy(d->cache_dir);
    }
    return status;
}

/* ---- effective settings ---------------------------------------------------------------------- */

struct config_shown {
    struct config *config;
    struct config_sources *from;
    struct error *err;
};

/* An empty setting becomes `effective`. Its source is the environment variable, if set. */
static int show_effective(const struct config_shown *x, const char *name, char of[PATHS_MAX],
                          const char *effective, const char *variable)
{
    const char *value = variable ? getenv(variable) : NULL;
    if (of[0]) { /* a given setting keeps its source */
        snprintf(of, PATHS_MAX, "%s", effective);
        return 0;
    }
    return config_set(x->config, x->from, name, effective, value && value[0] ? variable : "default",
                      x->err);
}

int start_effective(struct config *c, struct config_sources *from, struct error *err)
{
    static struct daemon d; /* too large for a stack */
    const struct config_shown x = {c, from, err};
    char socket[PATHS_MAX];
    d.config = c;
    int r = choose_cache_dir(&d, err);
    r = r ? r : show_effective(&x, "cache-dir", c->cache_dir, d.cache_dir, NULL);
    r = r ? r : choose_database(&d, err);
    r = r ? r : show_effective(&x, "database", c->database, d.database, NULL);
    r = r ? r : find_runner(&d, err);
    r = r ? r : show_effective(&x, "runner", c->runner, d.runner, "GEMMD_RUNNER");
    r = r ? r : start_probe_device(&d, err);
    r = r ? r : show_effective(&x, "device", c->device, d.device_spec, NULL);
    if (r || c->offline) {
        /* the name of an --offline daemon's socket has the pid of that daemon */
        return r;
    }
    r = choose_socket(&d, socket, err);
    return r ? r : show_effective(&x, "socket", c->socket, socket, "GEMMD_SOCKET");
}

enum {
    /* files kept for the database, locks, a runner's start, modules, and refused connections */
    FILES_RESERVED = 40,
    FILES_LEAST = 24, /* files that gemmd needs to start and to serve a client */
};

/* Checks the limit of open files before any file is opened: with fewer files, loops and handles
 * fail later. */
static int check_files(struct error *err)
{
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_max < FILES_LEAST) {
        return error_set(
            err, ERROR_IO,
            "only %llu files may be open, and gemmd needs %d and one for each connection: "
            "raise the hard limit (LimitNOFILE=, ulimit -Hn)",
            (unsigned long long)r.rlim_max, FILES_LEAST);
    }
    return 0;
}

static unsigned raise_files(unsigned connections)
{
    struct rlimit r;
    rlim_t wanted = (rlim_t)connections + FILES_RESERVED;
    if (getrlimit(RLIMIT_NOFILE, &r) < 0) {
        return connections;
    }
    if (r.rlim_cur < wanted && r.rlim_cur < r.rlim_max) {
        struct rlimit more = {wanted < r.rlim_max ? wanted : r.rlim_max, r.rlim_max};
        r = setrlimit(RLIMIT_NOFILE, &more) == 0 ? more : r;
    }
    if (r.rlim_cur >= wanted) {
        return connections;
    }
    unsigned room = r.rlim_cur > FILES_RESERVED ? (unsigned)(r.rlim_cur - FILES_RESERVED) : 1;
    log_warning("at most %u connections, not %u: only %llu files may be open; raise the hard limit "
                "(LimitNOFILE=, ulimit -Hn) or lower --max-connections",
                room, connections, (unsigned long long)r.rlim_cur);
    return room;
}

enum {
    ASKED_MAX = 1024,   /* a user's requests at the ledger: some tenths of a second of its work */
    LEASES_MAX = 2048,  /* a user's leased keys: the ledger renews each every few seconds */
    WAITING_MAX = 2048, /* a user's acquires that wait for leases */
    SUBSCRIPTIONS_MAX = 512, /* a user's subscriptions, each sent every new answer */
};

static unsigned start_share_of(int64_t given, unsigned whole)
{
    return given && given < whole ? (unsigned)given : given ? whole : whole - whole / 4;
}

void start_limits(const struct config *c, struct session_limits *out)
{
    out->sessions = raise_files((unsigned)c->max_connections);
    out->message_ms = (uint64_t)c->message_ms;
    out->answer_ms = (uint64_t)c->answer_ms;
    out->user.connections = start_share_of(c->user_connections, out->sessions);
    out->user.jobs = start_share_of(c->user_jobs, QUEUE_MAX);
    out->user.leases = LEASES_MAX;
    out->user.waiting = WAITING_MAX;
    out->user.subscriptions = SUBSCRIPTIONS_MAX;
    out->user.most[ACCOUNT_IN] = out->user.most[ACCOUNT_OUT] = (size_t)c->user_mib << 20;
    out->user.most[ACCOUNT_ASKED] = ASKED_MAX;
}

int start_prepare(struct daemon_parts *p, struct error *err)
{
    struct daemon *d = &p->daemon;
    char socket[PATHS_MAX];
    int status = check_files(err);
    status = status ? status : find_runner(d, err);
    status = status ? status : start_probe_device(d, err);
    status = status ? status : settle_paths(d, socket, err);
    if (status < 0) {
        return status;
    }
    const struct family *f = family_find("grouped_gemm");
    const struct family_target *t = f ? family_target_find(f, &d->device, NULL) : NULL;
    if (t) {
        family_stamp(f, t, &d->device, d->stamp);
    }
    /* Only measurements on a real GPU disturb each other; a replayed device also calls itself
     * cuda. */
    bool exclusive = strncmp(d->device_spec, "cuda", 4) == 0 && !d->config->offline;
    status = server_lock(&p->server, socket, d->device.uuid, exclusive, err);
    p->server.own_name = status == 0 && d->config->offline && !d->config->socket[0];
    return status;
}
