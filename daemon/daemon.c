/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of the daemon: prepare, open the ledger, load what is known, listen, run, and end in the
 * reverse order. Each step of the beginning and of the end calls the next one when it is done.
 */
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/announce.h"
#include "daemon/answer.h"
#include "daemon/daemon.h"
#include "daemon/elsewhere.h"
#include "daemon/log.h"
#include "daemon/notify.h"
#include "daemon/scheme.h"
#include "daemon/start.h"
#include "daemon/views.h"
#include "proto/build.h"

enum { EXIT_USAGE = 2, EXIT_BUSY = 75, CHORES_MS = 1000 };

int daemon_key(struct daemon *d, struct error *err)
{
    struct scratch *x = d->scratch;
    enum bucket_scheme scheme = d->scheme;
    const char *asked = x->request.query.bucket;
    int status = asked[0] ? bucket_scheme_parse(asked, &scheme, err) : 0;
    if (status < 0) {
        return status;
    }
    problem_bucket(&x->request.problem, scheme, &x->bucket);
    return key_make(&x->key, &x->bucket, d->device.class, err);
}

void daemon_event(struct daemon *d, const char *kind, int64_t uid, const char *format, ...)
{
    struct event e = {.created_s = time(NULL), .uid = uid};
    va_list args;
    va_start(args, format);
    vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    snprintf(e.kind, sizeof(e.kind), "%s", kind);
    if (d->ledger) {
        d->ledger->ops->add_event(d->ledger, &e);
    }
}

static int fail(struct daemon *d, const struct error *err)
{
    log_error("%s", err->text);
    d->exit_code = err->code == ERROR_BUSY      ? EXIT_BUSY
                   : err->code == ERROR_INVALID ? EXIT_USAGE
                                                : EXIT_FAILURE;
    return d->exit_code;
}

static void fail_start(struct daemon *d, const struct error *err)
{
    fail(d, err);
    daemon_stop(d, geteuid(), "it could not start");
}

/* ---- what is known ---------------------------------------------------------------------------------- */

enum cache_rank daemon_rank(struct daemon *d, const struct best *b, const struct problem *bucket)
{
    const struct family *f = family_of_problem(bucket);
    const struct family_target *t;
    bool manual = strcmp(b->source, "manual") == 0;
    char pinned[TARGET_MAX] = "";
    if (!f) {
        return CACHE_SERVES; /* gemmd only keeps it */
    }
    if (manual) { /* a person may have chosen another target than the device does */
        family_stamp_target(b->stamp, pinned);
    }
    if (strcmp(b->source, "imported") == 0 || strcmp(b->source, "partial") == 0 ||
        daemon_target(d, bucket, pinned, &t, NULL) < 0 ||
        strcmp(daemon_stamp(d, f, t), b->stamp) != 0) {
        return CACHE_HINT;
    }
    return manual ? CACHE_PINNED : CACHE_SERVES;
}

static void watch_chores(struct daemon *d);

void daemon_learn(struct daemon *d, const struct best *b, bool saved)
{
    struct scratch *x = d->scratch;
    struct error err = ERROR_NULL;
    d->generation = b->generation > d->generation ? b->generation : d->generation;
    if (strcmp(b->class, d->device.class) != 0) {
        return;
    }
    int status = problem_make(&x->learned, b->op, &b->problem, &err);
    status = status ? status : key_make(&x->learned_key, &x->learned, d->device.class, &err);
    const struct cache_entry *e = status == 0 ? cache_find(&d->cache, &x->learned_key) : NULL;
    /* What is loaded may be older than what was told; what has no generation yet is the newest. */
    if (e && b->generation && e->generation > b->generation) {
        return;
    }
    if (status == 0) {
        answer_of_best(&x->hint, b, saved);
        status = cache_put(&d->cache, &x->learned_key, &x->learned, &x->hint,
                           daemon_rank(d, b, &x->learned), b->atol, b->rtol, &err);
    }
    if (status < 0) {
        log_warning("row %s is not served: %s", b->key, err.text);
    }
    shortlist_changed(&d->shortlist);
    watch_chores(d);
}

/* ---- chores: answers that are only in memory, idle exit ---------------------------------------------- */

static void on_saved(void *ctx, const struct ledger_status *s)
{
    struct daemon *d = ctx;
    struct error err = ERROR_NULL;
    if (s->unsaved == 0 && cache_all_saved(&d->cache, &err) < 0) {
        log_warning("%s", err.text);
    }
}

static bool is_idle(const struct daemon *d)
{
    return d->server.n_sessions == 0 && !d->scheduler.running && d->scheduler.n_queued == 0 &&
           d->scheduler.n_elsewhere == 0;
}

static void on_chores(uv_timer_t *timer)
{
    struct daemon *d = timer->data;
    int64_t limit_s = d->config->idle_exit_s;
    if (d->cache.unsaved && d->ledger) {
        d->ledger->ops->status(d->ledger, on_saved, d);
    }
    if (!is_idle(d)) {
        d->server.quiet_since_ms = server_now(&d->server);
    } else if (limit_s && server_now(&d->server) - d->server.quiet_since_ms >=
                              (uint64_t)limit_s * 1000) {
        daemon_stop(d, geteuid(), "idle for --idle-exit-s");
        return;
    }
    watch_chores(d);
}

static void watch_chores(struct daemon *d)
{
    bool needed = d->cache.unsaved || d->config->idle_exit_s;
    if (needed && !d->stopping && !uv_is_active((uv_handle_t *)&d->chores)) {
        uv_timer_start(&d->chores, on_chores, CHORES_MS, 0);
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *signal, int number)
{
    /* libuv does not tell who sent it: only root and our own user can. */
    daemon_stop(signal->data, geteuid(), number == SIGTERM ? "SIGTERM" : "SIGINT");
}

/* From the loop and from nowhere else: what stops when the loop does is what it shows. */
static void feed_watchdog(uv_timer_t *timer)
{
    (void)timer;
    notify_send("WATCHDOG=1");
}

static void start_serving(struct daemon *d)
{
    struct error err = ERROR_NULL;
    struct server_limits limits;
    start_limits(d, &limits);
    int status = server_start(&d->server, d, &d->loop, d->config->group, &limits,
                              notify_listen_fd(), &err);
    if (status < 0) {
        fail_start(d, &err);
        return;
    }
    if (d->config->offline) {
        error_set(&d->scheduler.off, ERROR_NO_DEVICE,
                  "this gemmd runs --offline: nothing is tuned by it");
        printf("%s\n", d->server.path);
        fflush(stdout);
    }
    log_notice("gemmd %s serves %s (%s) on %s: %zu keys from %s%s", build_id, d->device.name,
               d->device.uuid, d->server.path, d->cache.n, d->database,
               d->loader.done ? "" : ", the rest is being loaded");
    daemon_event(d, "start", (int64_t)geteuid(), "gemmd %s on %s", build_id, d->device.name);
    watch_chores(d);
    notify_send("READY=1");
    spread_ready(d);
}

static void on_scheme(struct daemon *d, int status, const struct error *err)
{
    if (d->stopping) {
        return;
    }
    if (status < 0) {
        fail_start(d, err);
    } else {
        loader_start(&d->loader, start_serving, fail_start);
    }
}

static void on_notice(void *ctx, const char *kind, const char *text)
{
    struct daemon *d = ctx;
    if (strcmp(kind, "cache") == 0) {
        log_notice("%s", text);
        return;
    }
    log_warning("database: %s: %s", kind, text);
    if (d->ledger && strncmp(kind, "corrupt", 7) == 0) { /* not "lost": that would be lost too */
        daemon_event(d, "corrupt", 0, "%s", text);
    }
}

/* Of all daemons of the database, this one too. */
static void on_news(void *ctx, const struct ledger_news *n)
{
    struct daemon *d = ctx;
    if (n->kind == NEWS_BEST) {
        daemon_learn(d, n->best, n->saved);
        views_learned(d, n->key);
        announce(d, n->best);
        scheduler_learned(&d->scheduler, n->key);
    } else if (n->kind == NEWS_EVICTED) {
        cache_remove_id(&d->cache, n->key);
        loader_evicted(&d->loader);
    } else if (n->kind == NEWS_SAID) {
        followers_tell(&d->followers, n); /* before an answer to it */
        spread_heard(d, n->said);
        return;
    } else {
        scheduler_freed(&d->scheduler, n->key);
        leases_freed(&d->leases, n->key);
    }
    followers_tell(&d->followers, n);
}

static int64_t count_daemons(void *ctx)
{
    return 1 + (int64_t)((struct daemon *)ctx)->followers.n;
}

static int use_ledger(struct daemon *d, struct error *err)
{
    d->ledger->ops->put_device(d->ledger, &d->device);
    return scheme_settle(d, on_scheme, err);
}

static void on_ready(void *ctx, int status, const struct error *err)
{
    struct daemon *d = ctx;
    struct error local = ERROR_NULL;
    if (status == 0 && !d->stopping) {
        err = &local;
        status = use_ledger(d, &local);
    }
    if (status < 0) {
        fail_start(d, err);
    }
}

/* Offline the database is this process's alone: others have to be stopped first. */
static int open_ledger(struct daemon *d, struct error *err)
{
    struct ledger_config c = {.path = d->database,
                              .address = d->config->offline ? NULL : d->server.path,
                              .owner = d->owner,
                              .keeper_ms = (uint64_t)d->config->keeper_ms,
                              .force_network_fs = d->config->force_network_fs,
                              .trials_per_key_max = d->config->trials_per_key,
                              .cache_dir = d->cache_dir,
                              .cache_max_bytes =
                                  d->config->offline ? 0 : d->config->cache_max_mib << 20,
                              .notice = on_notice,
                              .ready = on_ready,
                              .news = on_news,
                              .daemons = count_daemons,
                              .ctx = d};
    const struct ledger_ops *home = d->config->offline ? &ledger_local_ops : &ledger_shared_ops;
    int status = home->start(&d->ledger, &d->loop, &c, err);
    if (status < 0) {
        d->ledger = NULL;
        return status;
    }
    return d->config->offline ? use_ledger(d, err) : 0;
}

static int allocate(struct daemon *d, struct error *err)
{
    d->scratch = calloc(1, sizeof(*d->scratch));
    d->doc = wire_doc_new();
    if (!d->scratch || !d->doc) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to start");
    }
    return cache_init(&d->cache, d->device.class, err);
}

static void init_handles(struct daemon *d)
{
    static const int numbers[2] = {SIGTERM, SIGINT};
    for (int i = 0; i < 2; i++) {
        uv_signal_init(&d->loop, &d->signals[i]);
        d->signals[i].data = d;
        uv_signal_start(&d->signals[i], on_signal, numbers[i]);
    }
    uv_timer_init(&d->loop, &d->chores);
    d->chores.data = d;
    uint64_t period_ms = notify_watchdog_ms();
    uv_timer_init(&d->loop, &d->watchdog);
    if (period_ms) {
        uv_timer_start(&d->watchdog, feed_watchdog, period_ms, period_ms);
    }
    d->started_ms = uv_now(&d->loop);
    shortlist_init(&d->shortlist, d);
    loader_init(&d->loader, d);
    scheduler_init(&d->scheduler, d);
    supervisor_init(&d->supervisor, d);
    ahead_init(&d->ahead, d);
    leases_init(&d->leases, d);
    followers_init(&d->followers);
    list_init(&d->views);
    list_init(&d->subscribers);
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static void on_server_stopped(struct daemon *d)
{
    for (int i = 0; i < 2; i++) {
        uv_close((uv_handle_t *)&d->signals[i], NULL);
    }
    uv_close((uv_handle_t *)&d->chores, NULL);
    shortlist_close(&d->shortlist);
    uv_close((uv_handle_t *)&d->watchdog, NULL);
    loader_close(&d->loader);
}

static void on_ledger_stopped(void *ctx)
{
    struct daemon *d = ctx;
    d->ledger = NULL;
    if (d->server.open_handles) {
        server_stop(&d->server, on_server_stopped);
    } else {
        on_server_stopped(d);
    }
}

static void on_runner_stopped(struct daemon *d)
{
    if (d->ledger) {
        d->ledger->ops->stop(d->ledger, on_ledger_stopped, d);
    } else {
        on_ledger_stopped(d);
    }
}

void daemon_stop(struct daemon *d, uid_t by, const char *why)
{
    if (d->stopping) {
        return;
    }
    d->stopping = true;
    log_notice("stopping: %s", why);
    notify_send("STOPPING=1");
    if (d->server.open_handles) {
        daemon_event(d, "stop", (int64_t)by, "%s", why);
        server_stop_listening(&d->server);
    }
    scheduler_stop(&d->scheduler);
    ahead_stop(&d->ahead);
    leases_stop(&d->leases);
    followers_stop(&d->followers);
    announce_stop(d);
    supervisor_stop(&d->supervisor, on_runner_stopped);
}

static void release(struct daemon *d)
{
    server_deinit(&d->server);
    defaults_deinit(&d->defaults);
    shortlist_deinit(&d->shortlist);
    cache_deinit(&d->cache);
    wire_doc_free(d->doc);
    free(d->scratch);
}

int daemon_run(const struct config *c)
{
    static struct daemon daemon; /* one per process; handles must not move */
    struct daemon *d = &daemon;
    struct error err = ERROR_NULL;
    d->config = c;
    d->server.lock_fd = -1;
    d->server.device_lock = DEVICE_LOCK_NULL;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is a full disk (EFBIG), not an end */
    mallopt(M_ARENA_MAX, 1); /* the writer thread is no reason for a second heap */
    families_register();
    int status = start_prepare(d, &err);
    status = status ? status : allocate(d, &err);
    if (status < 0) {
        fail(d, &err);
        release(d);
        return d->exit_code;
    }
    uv_loop_init(&d->loop);
    init_handles(d);
    snprintf(d->owner, sizeof(d->owner), "%d.%llu", (int)getpid(), (unsigned long long)uv_hrtime());
    if (open_ledger(d, &err) < 0) {
        fail_start(d, &err);
    }
    uv_run(&d->loop, UV_RUN_DEFAULT);
    if (uv_loop_close(&d->loop) != 0) {
        log_error("a handle was left open at the end: this is a bug");
        d->exit_code = EXIT_FAILURE;
    }
    release(d);
    return d->exit_code;
}
