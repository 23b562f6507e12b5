/* SPDX-License-Identifier: Apache-2.0 */
/* The methods `hello` and `status`. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/fleet_pins.h"
#include "daemon/methods/pending.h"
#include "kernels/family.h"
#include "proto/build.h"
#include "proto/limits.h"

static void put_capabilities(struct wire_buf *b)
{
#define NAME(name, owner, early, params) #name,
    static const char *const names[] = {METHODS(NAME)};
#undef NAME
    size_t n = sizeof(names) / sizeof(names[0]);
    wire_put_str(b, "capabilities");
    wire_put_array(b, n);
    for (size_t i = 0; i < n; i++) {
        wire_put_str(b, names[i]);
    }
}

static void put_hello(struct wire_buf *b, const struct daemon *d, const struct session *s)
{
    const bool at_number = s->pinned >= FLEET_PIN;
    wire_put_map(b, 12);
    /* the fleet's newest number that is read here; nil: there is no fleet */
    call_put_int(b, "fleet", d->fleet_known, d->fleet_seq);
    call_put_int(b, "pinned", s->pinned >= 0 && !at_number, s->pinned);
    call_put_int(b, "pinned_fleet", at_number, s->pinned - FLEET_PIN);
    wire_put_kv_int(b, "version", PROTOCOL_VERSION);
    wire_put_kv_str(b, "build", build_id);
    put_capabilities(b);
    wire_put_str(b, "device");
    schema_encode(b, &device_info_schema, &d->device);
    wire_put_kv_str(b, "bucket_scheme", bucket_scheme_name(d->scheme));
    wire_put_kv_int(b, "generation", d->generation);
    wire_put_kv_str(b, "stamp", d->stamp);
    wire_put_kv_str(b, "stamp_op", families[0]->op->name);
    wire_put_kv_int(b, "owner", (int64_t)geteuid());
}

/* ---- pinning --------------------------------------------------------------------------------- */

struct pinning {
    struct pending pending; /* first member: its address is the struct's */
    int64_t generation;
};

static int pin_to(struct daemon_parts *p, struct session *s, int64_t generation, struct error *err)
{
    if (generation > p->daemon.generation) {
        return error_set(err, ERROR_INVALID,
                         "generation %lld is not there yet: the database is at %lld; is this the "
                         "right database?",
                         (long long)generation, (long long)p->daemon.generation);
    }
    s->pinned = generation;
    return 0;
}

static void on_news_heard(void *ctx, int status, int64_t newest, const struct error *fault)
{
    struct pinning *x = ctx;
    struct pending *p = &x->pending;
    struct session *s = p->ticket.session;
    struct error err = ERROR_NULL;
    if (status < 0) {
        pending_fail(p, fault);
        return;
    }
    if (newest > p->d->generation) {
        /* the database has a newer generation: its rows were evicted, so no news told this daemon
         * the number */
        p->d->generation = newest;
    }
    if (s && pin_to(p->parts, s, x->generation < 0 ? p->d->generation : x->generation, &err) < 0) {
        pending_fail(p, &err);
        return;
    }
    if (s) {
        put_hello(pending_result(p), p->d, s);
    }
    pending_drop(p);
}

/* Pins this connection to a generation; -1: the newest. Asks the database first: another daemon may
 * have committed a row up to this generation, whose news this daemon has not read yet. */
static int pin_generation(struct call *c, const struct wire_obj *generation, struct error *err)
{
    int64_t g;
    if (!wire_get_int(generation, &g) || g < -1) {
        return error_set(err, ERROR_INVALID,
                         "'generation' must be a number from 0 on, or -1: as it is now");
    }
    struct pinning *x = call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    x->generation = g;
    return pending_asked(&x->pending, ledger_hear(c->d->ledger, on_news_heard, x), err);
}

/* Names the session's job. ERROR_INVALID: the text could disturb a terminal, or is too long. */
static int hello_set_job(struct session *s, const struct wire_obj *job)
{
    char name[SERVED_JOB_MAX];
    bool is_fit = wire_copy_str(job, name, sizeof(name)) && name[0];
    for (const char *at = name; is_fit && *at; at++) {
        is_fit = *at > ' ' && *at <= '~';
    }
    if (is_fit) {
        memcpy(s->job, name, sizeof(name));
        s->tally = NULL;
    }
    return is_fit ? 0 : ERROR_INVALID;
}

int method_hello(struct call *c, struct error *err)
{
    const struct wire_obj *generation = wire_find(c->params, "generation");
    const struct wire_obj *fleet = wire_find(c->params, "fleet");
    const struct wire_obj *version = wire_find(c->params, "version");
    const struct wire_obj *client = wire_find(c->params, "client");
    const struct wire_obj *job = wire_find(c->params, "job");
    int64_t v = PROTOCOL_VERSION;
    if (version && !wire_get_int(version, &v)) {
        return error_set(err, ERROR_INVALID, "'version' must be a number");
    }
    if (v != PROTOCOL_VERSION) {
        return error_set(err, ERROR_VERSION,
                         "the client speaks protocol version %lld, this gemmd (%s) version %d",
                         (long long)v, build_id, PROTOCOL_VERSION);
    }
    if (client && !wire_copy_str(client, c->s->client, sizeof(c->s->client))) {
        return error_set(err, ERROR_INVALID, "'client' must be text of at most %zu bytes",
                         sizeof(c->s->client) - 1);
    }
    if (job && hello_set_job(c->s, job) < 0) {
        return error_set(err, ERROR_INVALID,
                         "'job' must be text of 1 to %d visible ASCII characters",
                         SERVED_JOB_MAX - 1);
    }
    if (generation && fleet) {
        return error_set(err, ERROR_INVALID,
                         "'generation' and 'fleet' pin a connection in two ways: give one of them");
    }
    if (generation && !c->parts->loader.done) { /* the newest generation is not known yet */
        return loader_park(&c->parts->loader, c, NULL, err);
    }
    int status = generation ? pin_generation(c, generation, err)
                 : fleet    ? fleet_pins_hello(c, fleet, put_hello, err)
                            : 0;
    if (status == 0) {
        rpc_put_result(&c->s->out, c->id);
        put_hello(&c->s->out, c->d, c->s);
    }
    return status;
}

/* ---- status ---------------------------------------------------------------------------------- */

static void put_errors(struct wire_buf *b, const struct sessions *s)
{
    size_t n = 0;
    for (int i = 1; i < ERROR_SLOTS; i++) {
        n += s->errors[i] > 0;
    }
    wire_put_str(b, "errors");
    wire_put_map(b, n);
    for (int i = 1; i < ERROR_SLOTS; i++) {
        if (s->errors[i]) {
            wire_put_kv_int(b, error_name(-i), (int64_t)s->errors[i]);
        }
    }
}

static void put_jobs(struct wire_buf *b, const struct scheduler *s)
{
    wire_put_str(b, "jobs");
    wire_put_map(b, 7);
    wire_put_kv_int(b, "running", s->running != NULL);
    wire_put_kv_int(b, "queued", s->n_queued);
    wire_put_kv_int(b, "elsewhere", s->n_leased_out);
    wire_put_kv_int(b, "shared", (int64_t)s->shared);
    wire_put_kv_int(b, "done", (int64_t)s->done);
    wire_put_kv_int(b, "failed", (int64_t)s->failed);
    wire_put_kv_int(b, "cancelled", (int64_t)s->cancelled);
}

/* Puts the resources that each user holds (base/account.h), to show which user is at a limit. */
static void put_users(struct wire_buf *b, const struct accounts *all)
{
    size_t n = 0;
    LIST_EACH(const struct account, user, &all->all, link) {
        n += user->holders > 0;
    }
    wire_put_str(b, "users");
    wire_put_array(b, n);
    LIST_EACH(const struct account, a, &all->all, link) {
        if (a->holders == 0) {
            continue;
        }
        wire_put_map(b, 9);
        wire_put_kv_int(b, "uid", a->uid);
        wire_put_kv_int(b, "connections", a->connections);
        wire_put_kv_int(b, "jobs", a->jobs);
        wire_put_kv_int(b, "leases", a->leases);
        wire_put_kv_int(b, "waiting", a->waiting);
        wire_put_kv_int(b, "subscriptions", a->subscriptions);
        wire_put_kv_int(b, "bytes_in", (int64_t)a->held[ACCOUNT_IN]);
        wire_put_kv_int(b, "bytes_out", (int64_t)a->held[ACCOUNT_OUT]);
        wire_put_kv_int(b, "asked", (int64_t)a->held[ACCOUNT_ASKED]);
    }
}

static void put_runner(struct wire_buf *b, const struct supervisor *s)
{
    wire_put_str(b, "runner");
    wire_put_map(b, 5);
    wire_put_kv_str(b, "state", runner_state_name(s->state));
    wire_put_kv_int(b, "pid", s->state == RUNNER_NONE ? 0 : s->link.process.pid);
    wire_put_kv_int(b, "deaths", (int64_t)s->deaths);
    wire_put_kv_int(b, "starts", (int64_t)s->starts);
    wire_put_kv_str(b, "disturbed", s->disturbed);
}

static void put_job(struct wire_buf *b, const struct job *j)
{
    wire_put_str(b, "job");
    if (!j || !j->request) {
        wire_put_nil(b);
        return;
    }
    wire_put_map(b, 7);
    wire_put_kv_str(b, "key", j->key);
    wire_put_str(b, "problem");
    problem_pack(b, &j->request->problem);
    wire_put_kv_str(b, "phase", j->progress.phase);
    wire_put_kv_int(b, "done", j->progress.done);
    wire_put_kv_int(b, "total", j->progress.total);
    wire_put_str(b, "best_us");
    if (j->progress.best_us > 0) {
        wire_put_real(b, j->progress.best_us);
    } else {
        wire_put_nil(b);
    }
    wire_put_kv_int(b, "waiters", j->n_waiters);
}

static void put_cache(struct wire_buf *b, const struct daemon *d, const struct ledger_status *s)
{
    wire_put_str(b, "cache");
    wire_put_map(b, 4);
    wire_put_kv_str(b, "path", d->cache_dir);
    wire_put_kv_int(b, "bytes", s->cache_bytes);
    wire_put_kv_int(b, "max_bytes", d->config->cache_max_mib << 20);
    wire_put_kv_int(b, "modules", s->cache_modules);
}

int64_t status_rss_bytes(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f) {
        if (fscanf(f, "%*d %ld", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void put_portfolio(struct wire_buf *b, const struct portfolio *l)
{
    wire_put_str(b, "portfolio");
    wire_put_map(b, 3);
    wire_put_kv_int(b, "shapes", (int64_t)l->now.n_shapes);
    wire_put_kv_int(b, "configs", (int64_t)l->now.n_members);
    wire_put_kv_real(b, "bound_percent", l->bound_percent);
}

static void put_status(struct wire_buf *b, struct daemon_parts *p,
                       const struct ledger_status *store)
{
    struct daemon *d = &p->daemon;
    const struct sessions *sessions = &p->server.sessions;
    wire_put_map(b, 25);
    call_put_int(b, "fleet", d->fleet_known, d->fleet_seq);
    wire_put_kv_str(b, "build", build_id);
    wire_put_kv_int(b, "pid", getpid());
    wire_put_kv_int(b, "uptime_s", (int64_t)((uv_now(&d->loop) - p->started_ms) / 1000));
    wire_put_str(b, "device");
    schema_encode(b, &device_info_schema, &d->device);
    wire_put_kv_str(b, "socket", p->server.path);
    wire_put_kv_str(b, "database", d->database);
    wire_put_kv_str(b, "bucket_scheme", bucket_scheme_name(d->scheme));
    wire_put_kv_int(b, "generation", d->generation);
    wire_put_kv_int(b, "keys", (int64_t)d->cache.keys.n);
    wire_put_kv_bool(b, "loading", !p->loader.done);
    wire_put_kv_int(b, "hits", (int64_t)d->hits);
    wire_put_kv_int(b, "misses", (int64_t)d->misses);
    wire_put_kv_int(b, "requests", (int64_t)sessions->requests);
    put_errors(b, sessions);
    wire_put_kv_int(b, "connections", sessions->n);
    put_users(b, &sessions->accounts);
    put_jobs(b, &p->tuning.scheduler);
    put_runner(b, &p->tuning.supervisor);
    put_job(b, p->tuning.scheduler.running);
    wire_put_str(b, "store");
    schema_encode(b, &ledger_status_schema, store);
    put_cache(b, d, store);
    put_portfolio(b, &p->tiers.portfolio);
    wire_put_kv_int(b, "rss_bytes", status_rss_bytes());
    wire_put_kv_str(b, "tuning", scheduler_tuning(&p->tuning.scheduler));
}

static void status_on_status(void *ctx, const struct ledger_status *store)
{
    struct pending *p = ctx;
    put_status(pending_result(p), p->parts, store);
    pending_drop(p);
}

int method_status(struct call *c, struct error *err)
{
    struct ledger *l = c->d->ledger;
    struct pending *p = call_later(c, sizeof(*p), err);
    return p ? pending_asked(p, ledger_status(l, status_on_status, p), err) : err->code;
}
