/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends the daemon (life.h). Each step calls the next when it is done. wiring.c has the
 * hooks between parts. */
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/answers/learn.h"
#include "daemon/answers/target.h"
#include "daemon/base/log.h"
#include "daemon/base/notify.h"
#include "daemon/life.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/methods/methods.h"
#include "proto/build.h"

enum { EXIT_USAGE = 2, EXIT_BUSY = 75, SIGNALS = 3 };

struct life {
    struct daemon_parts parts;
    uv_signal_t signals[SIGNALS];
    struct chores chores;
    struct exporter exporter;
    struct orphans orphans;
    int exit_code;
};

static struct life *life_of(struct daemon *d)
{
    return LIST_OF(d, struct life, parts.daemon);
}

static int life_report_failure(struct life *x, const struct error *err)
{
    log_error("%s", err->text);
    x->exit_code = err->code == ERROR_BUSY      ? EXIT_BUSY
                   : err->code == ERROR_INVALID ? EXIT_USAGE
                                                : EXIT_FAILURE;
    return x->exit_code;
}

/* Reports why the start failed. The error becomes the log's last line, since a person looks there
 * after a failed start. */
static void life_fail_start(struct life *x, const struct error *err)
{
    life_report_failure(x, err);
    x->parts.stop(&x->parts, geteuid(), NULL);
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Handles SIGHUP, sent after the log was renamed, or when the terminal is gone. Opens the log's
 * path again. A lost terminal does not end gemmd. */
static void life_on_hangup(void)
{
    struct error err = ERROR_NULL;
    if (log_reopen(&err) < 0) {
        log_warning("SIGHUP: %s", err.text);
    } else {
        log_notice("SIGHUP: the log is open anew");
    }
}

static void life_on_signal(uv_signal_t *signal, int number)
{
    struct daemon_parts *p = signal->data;
    if (number == SIGHUP) {
        life_on_hangup();
    } else {
        /* libuv does not tell the signal's sender, so gemmd's own user counts as the sender: only
         * it and root can send one */
        p->stop(p, geteuid(), number == SIGTERM ? "SIGTERM" : "SIGINT");
    }
}

static void init_signals(struct life *x)
{
    static const int numbers[SIGNALS] = {SIGTERM, SIGINT, SIGHUP};
    for (int i = 0; i < SIGNALS; i++) {
        uv_signal_init(&x->parts.daemon.loop, &x->signals[i]);
        x->signals[i].data = &x->parts;
        uv_signal_start(&x->signals[i], life_on_signal, numbers[i]);
    }
}

static void on_quarantine_changed(struct daemon *d, const char *key)
{
    defaults_forget(&d->defaults);
    if (key[0]) {
        learned_judge(d, key);
        generations_forget(&life_of(d)->parts.generations, key);
    }
}

static void say_served(const struct daemon_parts *p)
{
    const struct daemon *d = &p->daemon;
    log_notice("gemmd %s serves %s (%s) on %s: %zu keys from %s%s", build_id, d->device.name,
               d->device.uuid, p->server.path, d->cache.keys.n, d->database,
               p->loader.done ? "" : ", the rest is being loaded");
}

static void on_loaded(struct loader *l)
{
    static const struct session_hooks hooks = {.known = dispatch_known,
                                               .message = dispatch_message};
    struct life *x = life_of(l->daemon);
    struct daemon_parts *p = &x->parts;
    struct daemon *d = &p->daemon;
    struct error err = ERROR_NULL;
    struct session_limits limits;
    start_limits(d->config, &limits);
    if (server_start(&p->server, &d->turns, &d->poller, d->config->group, &limits, &hooks, p,
                     notify_listen_fd(), &err) < 0) {
        life_fail_start(x, &err);
        return;
    }
    if (d->config->offline) {
        error_set(&p->tuning.scheduler.off, ERROR_NO_DEVICE,
                  "this gemmd runs --offline: nothing is tuned by it");
        printf("%s\n", p->server.path);
        fflush(stdout);
    }
    say_served(p);
    daemon_event(d, "start", (int64_t)geteuid(), "gemmd %s on %s", build_id, d->device.name);
    notify_send("READY=1");
    offers_ready(&p->tuning);
}

static void on_load_failed(struct loader *l, const struct error *err)
{
    life_fail_start(life_of(l->daemon), err);
}

static void on_scheme(struct daemon *d, int status, const struct error *err)
{
    struct life *x = life_of(d);
    if (d->stopping) {
        return;
    }
    if (status < 0) {
        life_fail_start(x, err);
    } else {
        quarantine_read(d);
        loader_start(&x->parts.loader, on_loaded, on_load_failed);
    }
}

static void on_notice(void *ctx, const char *kind, const char *text)
{
    struct daemon_parts *p = ctx;
    struct daemon *d = &p->daemon;
    if (!kind || !text) {
        return;
    }
    if (strcmp(kind, "cache") == 0) {
        log_notice("%s", text);
        return;
    }
    log_warning("database: %s: %s", kind, text);
    if (strcmp(kind, "corrupt_file") == 0 && p->loader.done) {
        p->restore.due = true;
    }
    if (strcmp(kind, "corrupt_row") == 0 && p->loader.done) {
        restore_begin(&p->restore);
    }
    /* Damage also becomes an event in the database. The notice "lost" does not: rows cannot be
     * written then, and the event would be lost, too. */
    if (d->ledger && strncmp(kind, "corrupt", 7) == 0) {
        daemon_event(d, "corrupt", 0, "%s", text);
    }
}

static int open_ledger(struct daemon_parts *p, struct error *err)
{
    struct daemon *d = &p->daemon;
    const struct config *config = d->config;
    struct ledger_config c = {.path = d->database,
                              .force_network_fs = config->force_network_fs,
                              .trials_per_key_max = config->trials_per_key,
                              .cache_dir = d->cache_dir,
                              .cache_max_bytes = config->offline ? 0 : config->cache_max_mib << 20,
                              .notice = on_notice,
                              .news = wiring_news,
                              .ctx = p};
    int status = ledger_start(&d->ledger, &d->loop, &c, err);
    if (status < 0) {
        d->ledger = NULL;
        return status;
    }
    /* not the highest of the rows: these load later, and the newest may be evicted */
    d->generation = ledger_generation(d->ledger);
    ledger_put_device(d->ledger, &d->device);
    return scheme_settle(d, on_scheme, err);
}

static int life_allocate_daemon(struct daemon *d, struct error *err)
{
    d->scratch = calloc(1, sizeof(*d->scratch));
    d->doc = wire_doc_new();
    if (!d->scratch || !d->doc) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to start");
    }
    int status = cache_init(&d->cache, d->device.class, err);
    status = status ? status : cache_init(&d->alike, d->device.class, err);
    defaults_init(&d->defaults, &d->device, &d->quarantine_set, d->cache.entries.doc);
    return status;
}

static void init_handles(struct life *x)
{
    uv_loop_t *loop = &x->parts.daemon.loop;
    init_signals(x);
    chores_init(&x->chores, &x->parts);
    orphans_init(&x->orphans, loop);
    turns_init(&x->parts.daemon.turns, loop);
    x->parts.started_ms = uv_now(loop);
    x->parts.started_s = time(NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

static void life_close_handles(struct life *x)
{
    for (int i = 0; i < SIGNALS; i++) {
        uv_close((uv_handle_t *)&x->signals[i], NULL);
    }
    chores_close(&x->chores);
    exporter_close(&x->exporter);
    orphans_close(&x->orphans);
    loader_close(&x->parts.loader);
    fleet_pins_close(&x->parts);
    turns_close(&x->parts.daemon.turns);
}

static void on_server_stopped(struct server *s)
{
    life_close_handles(LIST_OF(s, struct life, parts.server));
}

static void on_ledger_stopped(void *ctx)
{
    struct life *x = ctx;
    x->parts.daemon.ledger = NULL;
    if (x->parts.server.open) {
        server_stop(&x->parts.server, on_server_stopped);
    } else {
        life_close_handles(x);
    }
}

static void on_tuning_stopped(struct tuning *t)
{
    struct life *x = LIST_OF(t, struct life, parts.tuning);
    struct ledger *l = x->parts.daemon.ledger;
    if (l) {
        served_send(&x->parts);
        ledger_stop(l, on_ledger_stopped, x);
    } else {
        on_ledger_stopped(x);
    }
}

static void life_stop_daemon(struct daemon_parts *p, uid_t by, const char *why)
{
    struct daemon *d = &p->daemon;
    if (d->stopping) {
        return;
    }
    d->stopping = true;
    if (why) {
        log_notice("stopping: %s", why);
    }
    restore_finish(&p->restore);
    notify_send("STOPPING=1");
    if (p->server.open) {
        daemon_event(d, "stop", (int64_t)by, "%s", why ? why : "it could not start");
        server_stop_listening(&p->server);
    }
    leases_stop(&p->leases);
    tuning_stop(&p->tuning, on_tuning_stopped);
}

static void life_release_parts(struct daemon_parts *p)
{
    server_deinit(&p->server);
    generations_deinit(&p->generations);
    defaults_forget(&p->daemon.defaults);
    quarantine_set_deinit(&p->daemon.quarantine_set);
    quarantine_set_deinit(&p->daemon.doubts);
    portfolio_deinit(&p->tiers.portfolio);
    cache_deinit(&p->daemon.cache);
    cache_deinit(&p->daemon.alike);
    tried_deinit(&p->daemon.tried);
    wire_doc_free(p->daemon.doc);
    free(p->daemon.scratch);
}

/* ---- the whole life -------------------------------------------------------------------------- */

static void set_process(void)
{
    static const int ignored[] = {SIGPIPE, SIGHUP, SIGUSR1,
                                  SIGUSR2}; /* SIGHUP: ignored until init_signals */
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++) {
        signal(ignored[i], SIG_IGN);
    }
    /* without the signal a write beyond the limit of file sizes fails like a full disk (EFBIG), and
     * does not end gemmd */
    signal(SIGXFSZ, SIG_IGN);
    /* one heap for all threads: a heap of its own for the ledger's thread would cost memory */
    mallopt(M_ARENA_MAX, 1);
    families_register();
}

static void life_run_loop(struct life *x)
{
    struct daemon *d = &x->parts.daemon;
    struct error err = ERROR_NULL;
    const int made = uv_loop_init(&d->loop);
    if (made < 0) {
        error_set(&err, ERROR_IO, "cannot make an event loop: %s", uv_strerror(made));
        life_report_failure(x, &err);
        return;
    }
    init_handles(x);
    wiring_init(&x->parts);
    if (poller_init(&d->poller, &d->loop, &err) < 0 ||
        exporter_start(&x->exporter, &x->parts, &err) < 0 || open_ledger(&x->parts, &err) < 0) {
        life_fail_start(x, &err);
    }
    poller_run(&d->poller);
    poller_deinit(&d->poller);
    if (uv_loop_close(&d->loop) != 0) {
        log_error("a handle was left open at the end: this is a bug");
        x->exit_code = EXIT_FAILURE;
    }
}

int daemon_run(struct config *c, struct config_sources *from)
{
    static struct life life; /* static, since libuv's handles in it must not move */
    struct daemon_parts *p = &life.parts;
    struct error err = ERROR_NULL;
    p->daemon.config = c;
    p->daemon.database = c->database;
    p->daemon.cache_dir = c->cache_dir;
    p->daemon.fleet_serves = strcmp(c->fleet_trust, "serve") == 0;
    p->daemon.quarantine_changed = on_quarantine_changed;
    p->stop = life_stop_daemon;
    p->server.lock_fd = -1;
    generations_init(&p->generations);
    p->server.device_lock = DEVICE_LOCK_NULL;
    set_process();
    int status = start_prepare(p, c, from, &err);
    status = status ? status : life_allocate_daemon(&p->daemon, &err);
    if (status < 0) {
        life_report_failure(&life, &err);
    } else {
        life_run_loop(&life);
    }
    life_release_parts(p);
    return life.exit_code;
}
