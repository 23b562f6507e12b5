/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to the server and waits for its socket (link.h). */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/link_inner.h"
#include "fleet/log.h"
#include "fleet/target.h"

enum {
    CONNECT_MS = 5000,
    AGAIN_FIRST_MS = 1000,
};

/* ---- the socket ------------------------------------------------------------------------------ */

struct link_poll {
    uv_poll_t handle;
    struct link *link;
};

static void link_free_poll(uv_handle_t *handle)
{
    free(handle->data);
}

/* libuv must not watch a descriptor that libpq closes. So the watch ends before each call in which
 * libpq may close its socket. */
void link_unwatch(struct link *l)
{
    if (l->poll) {
        uv_poll_stop(&l->poll->handle);
        uv_close((uv_handle_t *)&l->poll->handle, link_free_poll);
        l->poll = NULL;
    }
}

static void link_on_poll(uv_poll_t *handle, int status, int events);

bool link_watch(struct link *l, int events)
{
    if (!l->poll) {
        struct link_poll *p = calloc(1, sizeof(*p));
        const int fd = PQsocket(l->connection);
        if (!p || fd < 0 || uv_poll_init(l->loop, &p->handle, fd)) {
            free(p);
            return false;
        }
        p->link = l;
        p->handle.data = p;
        l->poll = p;
    }
    return uv_poll_start(&l->poll->handle, events, link_on_poll) == 0;
}

/* ---- an attempt ------------------------------------------------------------------------------ */

static void link_try_address(struct link *l);
static void link_try_host(struct link *l);

/* Half to one and a half of `ms`, so that hosts do not come back all at once. */
static unsigned link_spread(unsigned ms)
{
    return ms / 2 + (unsigned)(((uint64_t)(unsigned)random() * ms) / RAND_MAX);
}

static void link_on_again(uv_timer_t *timer)
{
    struct link *l = timer->data;
    l->host = 0;
    link_try_host(l);
}

static void link_forget_addresses(struct link *l)
{
    if (l->found) {
        uv_freeaddrinfo(l->found);
    }
    l->found = l->next = NULL;
}

void link_fail(struct link *l, const char *why, bool slowly)
{
    snprintf(l->why, sizeof(l->why), "%.*s", (int)strcspn(why, "\n"), why);
    link_unwatch(l);
    uv_timer_stop(&l->deadline);
    PQclear(l->result);
    PQfinish(l->connection);
    l->result = NULL;
    l->connection = NULL;
    l->busy = l->up = false;
    link_forget_addresses(l);
    if (l->ending) {
        return;
    }
    unsigned ms = AGAIN_FIRST_MS << (l->failures < 5 ? l->failures : 5);
    l->failures++;
    ms = slowly || ms > l->pause_ms ? l->pause_ms : ms;
    ms = link_spread(ms);
    uv_timer_start(&l->again, link_on_again, ms, 0);
    l->on_down(l->ctx, l->why, ms);
}

/* The attempt with this address has failed: tries the next address, the next host, or later. */
static void link_fail_attempt(struct link *l, const char *why)
{
    char text[LINK_TEXT_MAX];
    snprintf(text, sizeof(text), "%s", why);
    link_unwatch(l);
    uv_timer_stop(&l->deadline);
    PQfinish(l->connection);
    l->connection = NULL;
    if (l->next) {
        link_try_address(l);
    } else if (l->host + 1 < l->n_hosts) {
        link_forget_addresses(l);
        l->host++;
        link_try_host(l);
    } else {
        link_fail(l, text, false);
    }
}

static void link_on_connect_deadline(uv_timer_t *timer)
{
    struct link *l = timer->data;
    link_fail_attempt(l, "the server does not answer the attempt to connect");
}

static void link_go_on_connecting(struct link *l)
{
    link_unwatch(l);
    const PostgresPollingStatusType state = PQconnectPoll(l->connection);
    if (state == PGRES_POLLING_FAILED) {
        link_fail_attempt(l, PQerrorMessage(l->connection));
    } else if (state != PGRES_POLLING_OK) {
        if (!link_watch(l, state == PGRES_POLLING_READING ? UV_READABLE : UV_WRITABLE)) {
            link_fail_attempt(l, "no memory, or no descriptor, for the connection");
        }
    } else if (PQsetnonblocking(l->connection, 1) || !link_watch(l, UV_READABLE)) {
        link_fail_attempt(l, "the connection cannot be watched");
    } else {
        uv_timer_stop(&l->deadline);
        link_forget_addresses(l);
        l->up = true;
        l->on_up(l->ctx);
    }
}

static void link_on_poll(uv_poll_t *handle, int status, int events)
{
    struct link *l = ((struct link_poll *)handle->data)->link;
    if (!l->up) { /* also after an error of the socket, which libpq puts into words */
        link_go_on_connecting(l);
    } else if (status < 0) {
        link_fail(l, "the connection was lost", false);
    } else {
        link_go_on_query(l);
    }
}

/* Begins an attempt: libpq gets the address too, so that it resolves no name itself. */
static void link_begin_attempt(struct link *l, const char *address)
{
    const struct link_host *h = &l->hosts[l->host];
    const char *const words[] = {"dbname",
                                 "host",
                                 "hostaddr",
                                 "port",
                                 "gssencmode",
                                 "application_name",
                                 "client_encoding",
                                 "target_session_attrs",
                                 "keepalives",
                                 "keepalives_idle",
                                 "keepalives_interval",
                                 "keepalives_count",
                                 "tcp_user_timeout",
                                 NULL};
    const char *const values[] = {l->conninfo, h->name, address,      h->port, "disable",
                                  l->name,     "UTF8",  "read-write", "1",     "5",
                                  "1",         "3",     "4000",       NULL};
    l->connection = PQconnectStartParams(words, values, 1);
    uv_timer_start(&l->deadline, link_on_connect_deadline, CONNECT_MS, 0);
    if (!l->connection || PQstatus(l->connection) == CONNECTION_BAD) {
        link_fail_attempt(l, l->connection ? PQerrorMessage(l->connection) : "no memory");
    } else if (!link_watch(l, UV_WRITABLE)) {
        link_fail_attempt(l, "no memory, or no descriptor, for the connection");
    }
}

static void link_try_address(struct link *l)
{
    char address[64] = "";
    const struct addrinfo *a = l->next;
    l->next = a->ai_next;
    if (a->ai_family == AF_INET6) {
        uv_ip6_name((const struct sockaddr_in6 *)(const void *)a->ai_addr, address,
                    sizeof(address));
    } else {
        uv_ip4_name((const struct sockaddr_in *)(const void *)a->ai_addr, address, sizeof(address));
    }
    link_begin_attempt(l, address);
}

static void link_on_resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct link *l = request->data;
    l->is_resolving = false;
    l->found = l->next = found;
    if (l->ending) {
        link_forget_addresses(l);
    } else if (status < 0 || !found) {
        char text[LINK_TEXT_MAX];
        snprintf(text, sizeof(text), "the name of host %s cannot be resolved: %s",
                 l->hosts[l->host].name, uv_strerror(status));
        link_fail_attempt(l, text);
    } else {
        link_try_address(l);
    }
}

static void link_try_host(struct link *l)
{
    const struct link_host *h = &l->hosts[l->host];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    if (h->address[0] || !h->name[0] || h->name[0] == '/' || h->name[0] == '@') {
        link_begin_attempt(l, h->address);
        return;
    }
    l->resolving.data = l;
    l->is_resolving =
        uv_getaddrinfo(l->loop, &l->resolving, link_on_resolved, h->name, NULL, &hints) == 0;
    if (!l->is_resolving) {
        link_fail_attempt(l, "no memory to resolve a host's name");
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

int link_init(struct link *l, uv_loop_t *loop, struct error *err)
{
    l->loop = loop;
    int r = target_read(l, err);
    if (r == 0) {
        uv_timer_init(loop, &l->deadline);
        uv_timer_init(loop, &l->again);
        l->deadline.data = l->again.data = l;
    }
    return r;
}

void link_start(struct link *l)
{
    l->host = 0;
    link_try_host(l);
}

void link_drop(struct link *l, const char *why)
{
    link_fail(l, why, true);
}

void link_end(struct link *l)
{
    l->ending = true;
    if (l->is_resolving) {
        uv_cancel((uv_req_t *)&l->resolving);
    }
    link_fail(l, "gemmd-fleet ends", false);
    uv_close((uv_handle_t *)&l->deadline, NULL);
    uv_close((uv_handle_t *)&l->again, NULL);
}
