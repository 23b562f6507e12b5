/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters and states as text, for monitoring: the method `metrics`, and /metrics
 * (daemon/exporter.c).
 *
 * A family of metrics has a name, a type and samples. OpenMetrics names a counter's family without
 * the suffix _total of its samples; the text format of Prometheus names it with the suffix. The
 * rest is the same in both.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/pending.h"
#include "proto/build.h"

#define SINCE  " Since the start of gemmd; a restart sets it to 0."
#define SHARED " All daemons of the database report the same value."

struct page {
    struct wire_buf *out;
    bool openmetrics;
    char labels[320]; /* labels of every sample */
    char name[64];    /* name of the present family */
    bool counter;     /* the present family is a counter */
};

__attribute__((format(printf, 2, 3))) static void page_print(struct page *p, const char *format,
                                                             ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    p->out->failed = p->out->failed || n < 0 || n >= (int)sizeof(text);
    wire_put_raw(p->out, text, p->out->failed ? 0 : (size_t)n);
}

/* Copies a label's value with the escapes that both formats demand. */
static void metrics_escape_label(char *out, size_t size, const char *value)
{
    size_t n = 0;
    for (; *value && n + 3 < size; value++) {
        if (*value == '"' || *value == '\\' || *value == '\n') {
            out[n++] = '\\';
        }
        out[n++] = *value == '\n' ? 'n' : *value;
    }
    out[n] = '\0';
}

static void page_begin_family(struct page *p, const char *type, const char *name, const char *help)
{
    static const char *const units[] = {"seconds", "bytes"};
    p->counter = strcmp(type, "counter") == 0;
    snprintf(p->name, sizeof(p->name), "gemmd_%s", name);
    const char *suffix = p->counter && !p->openmetrics ? "_total" : "";
    page_print(p, "# TYPE %s%s %s\n", p->name, suffix, type);
    for (size_t i = 0; p->openmetrics && i < sizeof(units) / sizeof(units[0]); i++) {
        const char *end = strstr(name, units[i]);
        if (end && strcmp(end, units[i]) == 0) {
            page_print(p, "# UNIT %s %s\n", p->name, units[i]);
        }
    }
    page_print(p, "# HELP %s%s %s%s\n", p->name, suffix, help, p->counter ? SINCE : "");
}

/* Puts a sample of the present family; `label` NULL: without a label of its own. */
static void page_put(struct page *p, const char *label, const char *value, double v)
{
    page_print(p, "%s%s{%s", p->name, p->counter ? "_total" : "", p->labels);
    if (label) {
        page_print(p, ",%s=\"%s\"", label, value);
    }
    page_print(p, "} %.15g\n", v);
}

static void page_put_counter(struct page *p, const char *name, const char *help, double v)
{
    page_begin_family(p, "counter", name, help);
    page_put(p, NULL, NULL, v);
}

static void page_put_gauge(struct page *p, const char *name, const char *help, double v)
{
    page_begin_family(p, "gauge", name, help);
    page_put(p, NULL, NULL, v);
}

/* ---- families -------------------------------------------------------------------------------- */

static void put_process(struct page *p, const struct daemon_parts *parts)
{
    const struct daemon *d = &parts->daemon;
    char version[64], device[200];
    metrics_escape_label(version, sizeof(version), build_id);
    metrics_escape_label(device, sizeof(device), d->device.name);
    page_begin_family(p, "gauge", "build_info",
                      "Version of gemmd and name of its device; always 1.");
    page_print(p, "%s{%s,version=\"%s\",device=\"%s\"} 1\n", p->name, p->labels, version, device);
    page_put_gauge(p, "start_time_seconds", "Unix time of gemmd's start.",
                   (double)parts->started_s);
    page_put_gauge(p, "resident_memory_bytes", "Memory of gemmd's process.",
                   (double)status_rss_bytes());
    page_put_gauge(p, "connections", "Open connections of clients.", parts->server.sessions.n);
    page_put_gauge(p, "loading", "1 while gemmd still reads keys from the database.",
                   !parts->loader.done);
    page_put_gauge(p, "keys", "Keys in the hot cache.", (double)d->cache.keys.n);
}

static void put_requests(struct page *p, const struct daemon_parts *parts)
{
#define NAME(name, owner, early, params) #name,
    static const char *const methods[] = {METHODS(NAME)};
#undef NAME
    static const char *const ends[] = {"answered", "later", "refused"};
    page_begin_family(p, "counter", "requests",
                      "Requests by method and by what gemmd did at once: it answered, answers "
                      "later, or refused.");
    for (int m = 0; m < METHOD_COUNT; m++) {
        for (int e = 0; e < REQUEST_ENDS; e++) {
            if (parts->requests[m][e]) {
                page_print(p, "%s_total{%s,method=\"%s\",result=\"%s\"} %" PRIu64 "\n", p->name,
                           p->labels, methods[m], ends[e], parts->requests[m][e]);
            }
        }
    }
    /* Zeros, too: Prometheus sees no increase in the first sample of a series. */
    page_begin_family(p, "counter", "errors", "Error answers, by the name of the error.");
    for (int i = 1; i < ERROR_SLOTS; i++) {
        if (error_code_of(error_name(-i)) == -i) { /* the slot has an error */
            page_put(p, "error", error_name(-i), (double)parts->server.sessions.errors[i]);
        }
    }
}

static void put_answers(struct page *p, const struct daemon *d)
{
    page_begin_family(p, "counter", "answers", "Answers to queries, by tier.");
    for (enum tier t = TIER_EXACT; t < TIERS; t++) {
        page_put(p, "tier", tier_names[t],
                 (double)(d->answers[t] + (t == TIER_EXACT ? d->hits : 0)));
    }
    page_put_counter(p, "hits", "Queries that the cache answered at once.", (double)d->hits);
    page_put_counter(p, "misses", "Queries for keys that the cache did not have.",
                     (double)d->misses);
    page_put_counter(p, "saved_seconds",
                     "Time that hits save if a job launches each answer once: time of the analytic "
                     "default less time of the answer, measured in the same run.",
                     (double)d->saved_ns / 1e9);
}

/* The bounds of the histogram, as powers of two of a nanosecond: 0.5 us to 17 ms. */
enum { HIT_FIRST = 9, HIT_LAST = 24 };

static void put_latency(struct page *p, const struct latency *l)
{
    uint64_t n = 0;
    page_begin_family(p, "histogram", "hit_seconds",
                      "Time in which gemmd reads, answers and sends a request that the cache "
                      "answers (get; get_many as one)." SINCE);
    for (int i = 0; i < LATENCY_SLOTS; i++) {
        n += l->n[i];
        if (i >= HIT_FIRST && i <= HIT_LAST) {
            page_print(p, "%s_bucket{%s,le=\"%.9g\"} %" PRIu64 "\n", p->name, p->labels,
                       (double)(1ULL << i) / 1e9, n);
        }
    }
    page_print(p, "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n", p->name, p->labels, n);
    page_print(p, "%s_count{%s} %" PRIu64 "\n", p->name, p->labels, n);
    page_print(p, "%s_sum{%s} %.15g\n", p->name, p->labels, (double)l->sum_ns / 1e9);
}

static void put_scheduler(struct page *p, const struct scheduler *s)
{
    page_put_gauge(p, "tuning_enabled",
                   "1 while gemmd may tune; gemmctl status has the reason for 0.",
                   s->off.code == 0);
    page_put_gauge(p, "jobs_running", "Tunings that have the device: 0 or 1.", s->running != NULL);
    page_put_gauge(p, "jobs_queued", "Tunings that wait for the device.", s->n_queued);
    page_begin_family(p, "counter", "jobs",
                      "Ended tunings, by result. shared: another tuning found the answer.");
    page_put(p, "result", "done", (double)s->done);
    page_put(p, "result", "failed", (double)s->failed);
    page_put(p, "result", "cancelled", (double)s->cancelled);
    page_put(p, "result", "shared", (double)s->shared);
    page_put_counter(p, "tuning_seconds", "Time in which tunings had the device.",
                     (double)scheduler_busy_ms(s) / 1000);
}

static void put_leases(struct page *p, const struct daemon_parts *parts)
{
    unsigned waiting = 0;
    LIST_EACH(const struct account, user, &parts->server.sessions.accounts.all, link) {
        waiting += user->waiting;
    }
    page_begin_family(p, "counter", "lease_waits",
                      "Waits for a lease. tuning: tunings whose key another daemon had leased. "
                      "acquire: requests that found another client's lease.");
    page_put(p, "by", "tuning", (double)parts->tuning.scheduler.waits);
    page_put(p, "by", "acquire", (double)parts->leases.waits);
    page_begin_family(p, "gauge", "lease_waiting", "Tunings and acquires that wait for a lease.");
    page_put(p, "by", "tuning", parts->tuning.scheduler.n_leased_out);
    page_put(p, "by", "acquire", waiting);
}

static void put_fleet(struct page *p, const struct tuning *x)
{
    page_put_counter(p, "fleet_waits", "Keys that gemmd-fleet was asked for.",
                     (double)x->fleet.waits);
    page_begin_family(p, "counter", "fleet_rows",
                      "Rows of other hosts that gemmd has measured: confirmed ones answer.");
    page_put(p, "result", "confirmed", (double)x->fleet.confirmed);
    page_put(p, "result", "refused", (double)x->fleet.refused);
    page_put_counter(p, "fleet_alone",
                     "Keys that gemmd tuned since gemmd-fleet did not answer in time.",
                     (double)x->fleet.alone);
}

static void put_runner(struct page *p, const struct supervisor *s)
{
    page_put_gauge(p, "runner_up", "1 while a runner holds a context of the GPU.",
                   s->state != RUNNER_NONE);
    page_put_counter(p, "runner_up_seconds", "Time in which a runner held a context of the GPU.",
                     (double)supervisor_up_ms(s) / 1000);
    page_put_counter(p, "runner_starts", "Started runners.", (double)s->starts);
    page_begin_family(p, "counter", "runner_deaths",
                      "Runners that crashed, or were killed since they hung.");
    page_put(p, "reason", "hung", (double)s->hung);
    page_put(p, "reason", "crashed", (double)(s->deaths - s->hung));
}

static void put_store(struct page *p, const struct ledger_status *s, double age_s)
{
    page_put_gauge(p, "database_age_seconds",
                   "Age of the figures about the database: grows while the disk does not answer.",
                   age_s);
    page_begin_family(p, "gauge", "unsaved_rows", "Rows that are in memory only.");
    page_put(p, "table", "best", (double)s->unsaved);
    page_put(p, "table", "quarantine", (double)s->unsaved_quarantine);
    page_put_counter(p, "lost_trials", "Trials that could not be written.", (double)s->lost_trials);
    page_put_gauge(p, "disk_full", "1 while the database's disk is full.", s->disk_full);
    page_put_gauge(p, "database_locked", "1 while another program holds the database.", s->locked);
    page_put_gauge(p, "database_daemons", "Daemons that use the database." SHARED,
                   (double)s->daemons);
    page_put_gauge(p, "database_bytes", "Size of the database's file." SHARED,
                   (double)s->file_bytes);
    page_put_gauge(p, "database_wal_bytes", "Size of the database's log." SHARED,
                   (double)s->wal_bytes);
    page_begin_family(p, "gauge", "database_rows", "Rows of the database, by table." SHARED);
    page_put(p, "table", "best", (double)s->bests);
    page_put(p, "table", "trial", (double)s->trials);
    page_put(p, "table", "module", (double)s->modules);
    page_put(p, "table", "quarantine", (double)s->quarantined);
    page_put_gauge(p, "module_cache_bytes", "Compiled kernels on disk." SHARED,
                   (double)s->cache_bytes);
    page_put_gauge(p, "module_cache_files", "Number of compiled kernels on disk." SHARED,
                   (double)s->cache_modules);
}

/* A GPU's label `gpu` is its CUDA number, as other exporters have it; another device's its name. */
static void page_name_device(struct page *p, const struct device_info *device)
{
    char uuid[130], gpu[130];
    metrics_escape_label(uuid, sizeof(uuid), device->uuid);
    memcpy(gpu, uuid, sizeof(gpu));
    if (strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0) {
        snprintf(gpu, sizeof(gpu), "%d", (int)device->index);
    }
    snprintf(p->labels, sizeof(p->labels), "gpu=\"%s\",uuid=\"%s\"", gpu, uuid);
}

void metrics_put(const struct daemon_parts *parts, const struct ledger_status *store, double age_s,
                 bool openmetrics, struct wire_buf *out)
{
    struct page p = {.out = out, .openmetrics = openmetrics};
    page_name_device(&p, &parts->daemon.device);
    put_process(&p, parts);
    put_requests(&p, parts);
    put_answers(&p, &parts->daemon);
    put_latency(&p, &parts->server.sessions.hits);
    put_scheduler(&p, &parts->tuning.scheduler);
    put_leases(&p, parts);
    put_fleet(&p, &parts->tuning);
    put_runner(&p, &parts->tuning.supervisor);
    if (store) {
        put_store(&p, store, age_s);
    }
    if (openmetrics) {
        page_print(&p, "# EOF\n");
    }
}

/* ---- the method ------------------------------------------------------------------------------ */

struct asking {
    struct pending pending; /* first member: its address is the struct's */
    bool openmetrics;
};

static void metrics_on_status(void *ctx, const struct ledger_status *store)
{
    struct asking *x = ctx;
    WIRE_BUF_AUTO text = WIRE_BUF_NULL;
    metrics_put(x->pending.parts, store, 0, x->openmetrics, &text);
    wire_put_raw(&text, "", 1);
    struct wire_buf *out = pending_result(&x->pending);
    out->failed = out->failed || text.failed;
    wire_put_map(out, 1);
    wire_put_kv_str(out, "text", text.failed ? "" : (const char *)text.data);
    pending_drop(&x->pending);
}

int method_metrics(struct call *c, struct error *err)
{
    bool openmetrics = true;
    int status = call_flag(c, "openmetrics", &openmetrics, err);
    struct asking *x = status ? NULL : call_later(c, sizeof(*x), err);
    if (!x) {
        return err->code;
    }
    x->openmetrics = openmetrics;
    return pending_asked(&x->pending, ledger_status(c->d->ledger, metrics_on_status, x), err);
}
