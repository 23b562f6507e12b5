/* SPDX-License-Identifier: Apache-2.0 */
/* Reads requests, writes answers, closes connections (http.h). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/address.h"
#include "daemon/base/http.h"
#include "daemon/base/list.h"

/* While a timer is due within a few ms, each wait of the loop programs the CPU's timer, which costs
 * microseconds in a virtual machine. So the timer is rare: at 100 ms it touched 4 of 100 hits. */
enum { TICK_MS = 1000 };

static void http_accept(struct http *h);

static void client_close(struct http_client *c)
{
    poller_remove(c->http->poller, c->fd);
    close(c->fd);
    c->fd = -1;
    wire_buf_deinit(&c->rest);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Sends what the socket takes, and closes the connection after the last byte. */
static void client_send(struct http_client *c)
{
    ssize_t n = poller_send(c->fd, c->rest.data, c->rest.len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        n = 0;
    }
    if (n < 0 || (size_t)n == c->rest.len || c->rest.failed) {
        client_close(c);
        return;
    }
    c->rest.len -= (size_t)n;
    memmove(c->rest.data, c->rest.data + n, c->rest.len);
    poller_await_room(c->http->poller, c->fd, &c->polled, true);
}

static const char *http_name_code(int code)
{
    return code == 200   ? "OK"
           : code == 400 ? "Bad Request"
           : code == 404 ? "Not Found"
           : code == 405 ? "Method Not Allowed"
           : code == 431 ? "Request Header Fields Too Large"
                         : "Service Unavailable";
}

void http_answer(struct http_client *c, int code, const char *type, const void *body, size_t n)
{
    char head[256];
    int length =
        snprintf(head, sizeof(head),
                 "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
                 "Connection: close\r\n\r\n",
                 code, http_name_code(code), type, n, code == 405 ? "Allow: GET, HEAD\r\n" : "");
    c->answered = true;
    wire_put_raw(&c->rest, head, (size_t)length);
    wire_put_raw(&c->rest, body, c->head ? 0 : n);
    client_send(c);
}

static void http_refuse(struct http_client *c, int code, const char *text)
{
    http_answer(c, code, "text/plain; charset=utf-8", text, strlen(text));
}

/* ---- requests -------------------------------------------------------------------------------- */

/* True when a header line `name` (with its colon) contains the word. */
static bool header_has(const char *head, const char *name, const char *word)
{
    const size_t length = strlen(name), n = strlen(word);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        const char *end = strstr(line, "\r\n");
        for (const char *at = line; end && strncasecmp(line, name, length) == 0 && at + n <= end;
             at++) {
            if (strncasecmp(at, word, n) == 0) {
                return true;
            }
        }
    }
    return false;
}

/* Reads "GET /path?query HTTP/1.1". Ends c->path with a zero byte. */
static bool client_read_line(struct http_client *c, const char **method)
{
    char *line = c->request, *end = strstr(line, "\r\n");
    char *target = memchr(line, ' ', (size_t)(end - line));
    char *version = target ? memchr(target + 1, ' ', (size_t)(end - target - 1)) : NULL;
    if (!version || target[1] != '/' ||
        (strncmp(version, " HTTP/1.1\r\n", 11) != 0 &&
         strncmp(version, " HTTP/1.0\r\n", 11) != 0)) {
        return false;
    }
    c->openmetrics = header_has(end, "Accept:", "application/openmetrics-text");
    *target = *version = '\0';
    target[1 + strcspn(target + 1, "?#")] = '\0';
    *method = line;
    c->path = target + 1;
    return true;
}

static void client_take_request(struct http_client *c)
{
    const char *method = NULL;
    c->request[c->n] = '\0';
    const bool whole = strstr(c->request, "\r\n\r\n") != NULL;
    if (memchr(c->request, '\0', c->n) || (whole && !client_read_line(c, &method))) {
        http_refuse(c, 400, "this is no HTTP/1.1 request\n");
    } else if (!whole) {
        if (c->n == HTTP_REQUEST_BYTES_MAX) {
            http_refuse(c, 431, "the request is too long\n");
        }
    } else {
        c->head = strcmp(method, "HEAD") == 0;
        if (c->head || strcmp(method, "GET") == 0) {
            c->http->get(c->http->ctx, c, false);
        } else {
            http_refuse(c, 405, "only GET and HEAD\n");
        }
    }
}

/* Reads until the socket is empty or the request is complete. A client that sends more gets its
 * answer; the rest stays unread. */
static void client_read(struct http_client *c)
{
    while (c->fd >= 0 && !c->path && !c->answered) {
        ssize_t n = poller_recv(c->fd, c->request + c->n, HTTP_REQUEST_BYTES_MAX - c->n);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            client_close(c);
            return;
        }
        c->n += (size_t)n;
        client_take_request(c);
    }
}

static void client_ready(struct polled *p, enum peer peer)
{
    struct http_client *c = LIST_OF(p, struct http_client, polled);
    if (c->fd < 0) {
        return; /* closed in this turn of the loop */
    }
    if (peer == PEER_LEFT) {
        client_close(c);
    } else if (c->answered) {
        client_send(c);
    } else {
        client_read(c);
    }
    http_accept(c->http);
}

/* ---- connections ----------------------------------------------------------------------------- */

static struct http_client *http_find_place(struct http *h)
{
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        if (h->clients[i].fd < 0) {
            return &h->clients[i];
        }
    }
    return NULL;
}

/* Accepts a connection. False: no connection waits, or there is no memory for one. */
static bool client_open(struct http *h, struct http_client *c)
{
    int fd = accept4(h->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    c->fd = fd;
    c->since_ms = uv_now(h->timer.loop);
    c->n = 0;
    c->path = NULL;
    c->head = c->openmetrics = c->answered = false;
    h->accepted++;
    if (poller_add(h->poller, fd, &c->polled, NULL) < 0) {
        close(fd);
        c->fd = -1;
    }
    return true;
}

/* Accepts as many connections as the limits allow. When others may wait, the timer tries again. */
static void http_accept(struct http *h)
{
    const uint64_t now = uv_now(h->timer.loop);
    if (now - h->second_ms >= 1000) {
        h->second_ms = now;
        h->accepted = 0;
    }
    struct http_client *c = NULL;
    while (h->fd >= 0 && h->accepted < HTTP_PER_SECOND && (c = http_find_place(h)) &&
           client_open(h, c)) {
    }
    if (h->fd >= 0 && !uv_is_active((uv_handle_t *)&h->timer)) {
        uv_timer_again(&h->timer);
    }
}

static void http_ready(struct polled *p, enum peer peer)
{
    http_accept(LIST_OF(p, struct http, polled));
}

static bool http_has_client(const struct http *h)
{
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        if (h->clients[i].fd >= 0) {
            return true;
        }
    }
    return false;
}

/* Closes connections at their deadline, and accepts connections that had to wait. Stops when no
 * connection is open or had to wait. */
static void http_on_timer(uv_timer_t *timer)
{
    struct http *h = timer->data;
    const uint64_t now = uv_now(timer->loop);
    const bool full = h->accepted >= HTTP_PER_SECOND;
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        struct http_client *c = &h->clients[i];
        if (c->fd >= 0 && now - c->since_ms > HTTP_LIMIT_MS) {
            client_close(c);
        } else if (c->fd >= 0 && c->path && !c->answered && now - c->since_ms > HTTP_LATE_MS) {
            h->get(h->ctx, c, true);
        }
    }
    http_accept(h);
    if (!full && !http_has_client(h)) {
        uv_timer_stop(timer);
    }
}

int http_start(struct http *h, uv_loop_t *loop, struct poller *poller, const char *address,
               void (*get)(void *ctx, struct http_client *c, bool late), void *ctx,
               struct error *err)
{
    int status = address_listen(address, HTTP_BACKLOG, &h->fd, err);
    if (status < 0) {
        return status;
    }
    h->poller = poller;
    h->address = address;
    h->get = get;
    h->ctx = ctx;
    h->polled.ready = http_ready;
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        h->clients[i] = (struct http_client){.polled.ready = client_ready, .http = h, .fd = -1};
    }
    uv_timer_init(loop, &h->timer);
    h->timer.data = h;
    h->open = true;
    /* sets the period; http_accept starts the timer */
    uv_timer_start(&h->timer, http_on_timer, TICK_MS, TICK_MS);
    uv_timer_stop(&h->timer);
    return poller_add(poller, h->fd, &h->polled, err);
}

void http_close(struct http *h)
{
    if (!h->open) {
        return;
    }
    for (int i = 0; i < HTTP_CLIENTS_MAX; i++) {
        if (h->clients[i].fd >= 0) {
            client_close(&h->clients[i]);
        }
    }
    poller_remove(h->poller, h->fd);
    close(h->fd);
    h->fd = -1;
    address_remove(h->address);
    uv_close((uv_handle_t *)&h->timer, NULL);
    h->open = false;
}
