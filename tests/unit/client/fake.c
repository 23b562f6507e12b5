/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/scan.h"
#include "tests/unit/client/fake.h"

enum { PEERS_MAX = 128 };

struct peer {
    int fd;
    struct scan scan;
    uint8_t data[REQUEST_BYTES_MAX];
    size_t n, scanned;
};

#define REQUIRE(x)                                                                                 \
    do {                                                                                           \
        if (!(x)) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, strerror(errno));           \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

double fake_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

void fake_sleep_ms(int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&t, NULL);
}

void fake_path(char path[108])
{
    char dir[] = "/tmp/gemmd-test-XXXXXX";
    REQUIRE(mkdtemp(dir));
    snprintf(path, 108, "%s/s.sock", dir);
}

void fake_path_remove(const char *path)
{
    char dir[108];
    unlink(path);
    snprintf(dir, sizeof(dir), "%s", path);
    *strrchr(dir, '/') = '\0';
    rmdir(dir);
}

/* ---- sending -------------------------------------------------------------------------------- */

void fake_send_bytes(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t done = send(fd, at, n, MSG_NOSIGNAL);
        if (done <= 0) {
            return; /* a client may leave before its answer */
        }
        at += done;
        n -= (size_t)done;
    }
}

void fake_send(int fd, struct wire_buf *b)
{
    REQUIRE(!b->failed);
    fake_send_bytes(fd, b->data, b->len);
    wire_buf_deinit(b);
}

void fake_result_int(int fd, uint32_t id, const char *key, int64_t value)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, id);
    wire_put_map(&b, 1);
    wire_put_kv_int(&b, key, value);
    fake_send(fd, &b);
}

void fake_error(int fd, uint32_t id, int code, const char *text)
{
    struct wire_buf b = WIRE_BUF_NULL;
    struct error e = {.code = code};
    snprintf(e.text, sizeof(e.text), "%s", text);
    rpc_put_error(&b, id, &e);
    fake_send(fd, &b);
}

void fake_put_answer(struct wire_buf *b, const struct fake_answer *a)
{
    wire_put_map(b, 9);
    wire_put_kv_str(b, "key", "0123456789abcdef0123456789abcdef");
    wire_put_kv_str(b, "tier", a->tier);
    wire_put_kv_str(b, "source", a->source);
    wire_put_str(b, "config");
    wire_put_map(b, 1);
    wire_put_kv_str(b, "name", a->config ? a->config : "plain");
    wire_put_kv_str(b, "module", a->module ? a->module : "");
    wire_put_kv_real(b, "time_us", 12.5);
    wire_put_kv_int(b, "generation", a->generation);
    wire_put_kv_str(b, "stamp", a->stamp ? a->stamp : "");
    wire_put_kv_str(b, "a_field_of_a_newer_gemmd", "is passed over");
}

void fake_answer(int fd, uint32_t id, const struct fake_answer *a)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, id);
    fake_put_answer(&b, a);
    fake_send(fd, &b);
}

void fake_welcome(int fd, uint32_t id, int version)
{
    struct wire_buf b = WIRE_BUF_NULL;
    rpc_put_result(&b, id);
    wire_put_map(&b, 3);
    wire_put_kv_int(&b, "version", version);
    wire_put_kv_str(&b, "build", "fake");
    wire_put_kv_str(&b, "bucket_scheme", "sqrt2");
    fake_send(fd, &b);
}

/* ---- the thread ----------------------------------------------------------------------------- */

static void serve(struct fake *f, struct peer *p, size_t length)
{
    struct wire_doc *doc = wire_doc_new();
    struct rpc_message m;
    struct error e;
    REQUIRE(rpc_decode(doc, p->data, length, &m, &e) == 0);
    REQUIRE(m.type == RPC_REQUEST);
    if (strcmp(m.method, "hello") == 0 && !f->mute) {
        atomic_fetch_add(&f->hellos, 1);
        fake_welcome(p->fd, m.id, PROTOCOL_VERSION);
    } else {
        atomic_fetch_add(&f->requests, 1);
        f->handler(f, p->fd, &m);
    }
    wire_doc_free(doc);
}

/* False: the peer has gone. */
static bool receive(struct fake *f, struct peer *p)
{
    ssize_t n = recv(p->fd, p->data + p->n, sizeof(p->data) - p->n, 0);
    if (n <= 0) {
        return false;
    }
    p->n += (size_t)n;
    size_t used;
    struct error e;
    while (p->scanned < p->n) {
        int r = scan_feed(&p->scan, p->data + p->scanned, p->n - p->scanned, &used, &e);
        REQUIRE(r >= 0);
        if (r == SCAN_MORE) {
            p->scanned = p->n;
            break;
        }
        size_t length = p->scanned + used;
        serve(f, p, length);
        memmove(p->data, p->data + length, p->n - length);
        p->n -= length;
        p->scanned = 0;
    }
    return true;
}

static void add_peer(struct fake *f, struct peer **peers, size_t *n)
{
    int fd = accept(f->listener, NULL, NULL);
    REQUIRE(fd >= 0 && *n < PEERS_MAX);
    struct peer *p = calloc(1, sizeof(*p));
    REQUIRE(p);
    p->fd = fd;
    scan_init(&p->scan, REQUEST_BYTES_MAX);
    peers[(*n)++] = p;
    atomic_fetch_add(&f->connections, 1);
}

static void drop_peer(struct peer **peers, size_t *n, size_t i)
{
    close(peers[i]->fd);
    free(peers[i]);
    peers[i] = peers[--*n];
}

static void *run(void *arg)
{
    struct fake *f = arg;
    struct peer *peers[PEERS_MAX];
    size_t n = 0;
    while (!atomic_load(&f->stopping)) {
        struct pollfd fds[PEERS_MAX + 2] = {{.fd = f->listener, .events = POLLIN},
                                            {.fd = f->wake[0], .events = POLLIN}};
        for (size_t i = 0; i < n; i++) {
            fds[i + 2] = (struct pollfd){.fd = peers[i]->fd, .events = POLLIN};
        }
        size_t polled = n;
        REQUIRE(poll(fds, polled + 2, -1) > 0 || errno == EINTR);
        for (size_t i = polled; i-- > 0;) {
            if (fds[i + 2].revents && !receive(f, peers[i])) {
                drop_peer(peers, &n, i);
            }
        }
        if (fds[0].revents) {
            add_peer(f, peers, &n);
        }
    }
    while (n > 0) {
        drop_peer(peers, &n, n - 1);
    }
    return NULL;
}

void fake_start(struct fake *f)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
    f->connections = f->hellos = f->requests = f->stopping = 0;
    REQUIRE(pipe(f->wake) == 0);
    f->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(f->path);
    REQUIRE(bind(f->listener, (struct sockaddr *)&a, sizeof(a)) == 0);
    REQUIRE(listen(f->listener, f->backlog ? f->backlog : 128) == 0);
    pthread_t *t = malloc(sizeof(*t));
    sigset_t all, before;
    sigfillset(&all); /* signals of a test must reach the test's own thread */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    REQUIRE(t && pthread_create(t, NULL, run, f) == 0);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    f->thread = t;
}

void fake_stop(struct fake *f)
{
    atomic_store(&f->stopping, 1);
    REQUIRE(write(f->wake[1], "x", 1) == 1);
    pthread_join(*(pthread_t *)f->thread, NULL);
    free(f->thread);
    close(f->listener);
    close(f->wake[0]);
    close(f->wake[1]);
    unlink(f->path);
}
