/* SPDX-License-Identifier: Apache-2.0 */
/* /metrics and /health by HTTP (life.h). */
#include <stdio.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/life.h"
#include "daemon/methods/methods.h"

enum { PAGE_MS = 1000 };

static const char *const types[] = {"text/plain; version=0.0.4; charset=utf-8",
                                    "application/openmetrics-text; version=1.0.0; charset=utf-8"};

static void exporter_render_pages(struct exporter *x)
{
    const struct daemon_parts *p = x->parts;
    const uint64_t now = uv_now(&p->daemon.loop);
    const struct ledger_status *store = x->store_ms ? &x->store : NULL;
    for (int i = 0; i < 2; i++) {
        wire_buf_clear(&x->pages[i]);
        metrics_put(p, store, (double)(now - x->store_ms) / 1000, i == 1, &x->pages[i]);
    }
    x->page_ms = now;
}

static void exporter_send_page(struct exporter *x, struct http_client *c)
{
    const struct wire_buf *page = &x->pages[c->openmetrics];
    if (page->failed) {
        static const char text[] = "no memory for the metrics\n";
        http_answer(c, 503, "text/plain; charset=utf-8", text, sizeof(text) - 1);
    } else {
        http_answer(c, 200, types[c->openmetrics], page->data, page->len);
    }
}

static void exporter_on_status(void *ctx, const struct ledger_status *store)
{
    struct exporter *x = ctx;
    x->asking = false;
    if (!x->http.open) {
        return;
    }
    x->store = *store;
    x->store_ms = uv_now(&x->parts->daemon.loop);
    exporter_render_pages(x);
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        struct http_client *c = &x->http.clients[i];
        if (c->fd >= 0 && c->path && !c->answered) {
            exporter_send_page(x, c);
        }
    }
}

static void exporter_answer_metrics(struct exporter *x, struct http_client *c, bool late)
{
    const struct daemon *d = &x->parts->daemon;
    const uint64_t now = uv_now(&d->loop);
    if (x->page_ms && now - x->page_ms < PAGE_MS) {
        exporter_send_page(x, c);
        return;
    }
    if (!late && !x->asking) {
        x->asking = d->ledger && ledger_status(d->ledger, exporter_on_status, x) == 0;
    }
    if (late || !x->asking) { /* no answer of the ledger: its last figures, with their age */
        exporter_render_pages(x);
        exporter_send_page(x, c);
    }
}

/* 200: gemmd serves its clients. Reasons why gemmd does not tune are in the body, and are no reason
 * to restart gemmd. */
static void exporter_answer_health(struct exporter *x, struct http_client *c)
{
    const struct daemon_parts *p = x->parts;
    char text[600];
    const bool serves = p->server.fd >= 0 && !p->daemon.stopping;
    int n = serves ? snprintf(text, sizeof(text), "ok\ntuning: %.500s\n",
                              scheduler_tuning(&p->tuning.scheduler))
                   : snprintf(text, sizeof(text), "%s\n",
                              p->daemon.stopping ? "gemmd is stopping"
                                                 : "gemmd still loads its database");
    http_answer(c, serves ? 200 : 503, "text/plain; charset=utf-8", text, (size_t)n);
}

static void exporter_get(void *ctx, struct http_client *c, bool late)
{
    static const char text[] = "gemmd has /metrics and /health\n";
    if (strcmp(c->path, "/metrics") == 0) {
        exporter_answer_metrics(ctx, c, late);
    } else if (strcmp(c->path, "/health") == 0) {
        exporter_answer_health(ctx, c);
    } else {
        http_answer(c, 404, "text/plain; charset=utf-8", text, sizeof(text) - 1);
    }
}

/* True when clients would take this socket for a daemon's: they look for *.sock beside `socket`. */
static bool exporter_looks_like_daemon(const char *address, const char *socket)
{
    const char *end = strrchr(socket, '/');
    const size_t n = end ? (size_t)(end + 1 - socket) : 0, length = strlen(address);
    return n && strncmp(address, socket, n) == 0 && !strchr(address + n, '/') && length > n + 5 &&
           strcmp(address + length - 5, ".sock") == 0;
}

int exporter_start(struct exporter *x, struct daemon_parts *p, struct error *err)
{
    struct daemon *d = &p->daemon;
    const char *address = d->config->metrics_listen;
    x->parts = p;
    if (!address[0] || d->config->offline) {
        return 0;
    }
    if (exporter_looks_like_daemon(address, p->server.path)) {
        return error_set(err, ERROR_INVALID,
                         "metrics-listen: clients would take %s for the socket of a gemmd; choose "
                         "another folder, or an end other than .sock",
                         address);
    }
    int status = http_start(&x->http, &d->loop, &d->poller, address, exporter_get, x, err);
    if (status == 0) {
        log_notice("metrics on %s", address);
    }
    return status;
}

void exporter_close(struct exporter *x)
{
    http_close(&x->http);
    wire_buf_deinit(&x->pages[0]);
    wire_buf_deinit(&x->pages[1]);
}
