/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load PEER SOCKET COUNT REQUEST_BYTES REPLY_BYTES: asks a server for COUNT values repeatedly, in
 * an order without a pattern, and compares every byte of every reply.
 *
 * Standard input has commands, a line each, so that a warm server is measured in blocks that
 * alternate with other servers':
 *   CPU CONNECTIONS PIPELINE SECONDS
 * The answer to a command is a line of JSON. A single connection without a pipeline uses plain
 * write and read; otherwise epoll, with a batch of PIPELINE requests under way on each connection.
 * Latencies are of batches. SOCKET and sizes: see exchange.h; gemmd uses its own sizes and prints
 * them.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "tests/bench/serving/exchange.h"
#include "tests/bench/serving/problems.h"
#include "tests/bench/serving/socket.h"

enum { SAMPLES = 1 << 20, EVENTS = 256, CONNECTIONS_MAX = 4096, PIPELINE_MAX = 256 };

struct connection {
    int fd;
    uint8_t *out, *in, *expected; /* owned; a batch */
    size_t out_n, in_n, expected_n;
    double began;
};

struct load {
    const char *socket;
    const struct exchange *x;
    const int *order;
    int n, next;
    int pipeline;
    size_t longest; /* message, bytes */
    float *samples; /* us */
    size_t n_samples;
    struct connection c[CONNECTIONS_MAX];
};

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (cpu >= 0 && sched_setaffinity(0, sizeof(set), &set) < 0) {
        die("no CPU %d: %s", cpu, strerror(errno));
    }
}

static void sample(struct load *l, double us)
{
    l->samples[l->n_samples++ % SAMPLES] = (float)us;
}

static const struct exchange *next(struct load *l)
{
    const struct exchange *x = &l->x[l->order[l->next]];
    l->next = l->next + 1 < l->n ? l->next + 1 : 0;
    return x;
}

static void check(const uint8_t *got, const uint8_t *expected, size_t n)
{
    if (memcmp(got, expected, n) != 0) {
        die("a reply is not what it was before");
    }
}

/* ---- one connection -------------------------------------------------------------------------- */

static void ping_pong(struct load *l, double until)
{
    uint8_t *reply = malloc(l->longest);
    int fd = socket_connect(l->socket);
    for (double t = now_us(); reply && t < until;) {
        const struct exchange *x = next(l);
        socket_write(fd, x->request, x->request_n);
        socket_read(fd, reply, x->reply_n);
        double end = now_us();
        sample(l, end - t);
        check(reply, x->reply, x->reply_n);
        t = now_us();
    }
    close(fd);
    free(reply);
}

/* ---- many ------------------------------------------------------------------------------------ */

static void send_batch(struct load *l, struct connection *c)
{
    c->out_n = c->in_n = c->expected_n = 0;
    for (int i = 0; i < l->pipeline; i++) {
        const struct exchange *x = next(l);
        memcpy(c->out + c->out_n, x->request, x->request_n);
        memcpy(c->expected + c->expected_n, x->reply, x->reply_n);
        c->out_n += x->request_n;
        c->expected_n += x->reply_n;
    }
    c->began = now_us();
    socket_write(c->fd, c->out, c->out_n);
}

static void open_all(struct load *l, int epoll, int connections)
{
    size_t bytes = (size_t)l->pipeline * l->longest;
    for (int i = 0; i < connections; i++) {
        struct connection *c = &l->c[i];
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
        *c = (struct connection){.fd = socket_connect(l->socket),
                                 .out = malloc(bytes),
                                 .in = malloc(bytes),
                                 .expected = malloc(bytes)};
        if (!c->out || !c->in || !c->expected || epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e) < 0) {
            die("no memory for a connection");
        }
    }
}

static void close_all(struct load *l, int connections)
{
    for (int i = 0; i < connections; i++) {
        close(l->c[i].fd);
        free(l->c[i].out);
        free(l->c[i].in);
        free(l->c[i].expected);
    }
}

/* Reads replies of the connection's batch. Returns true when the batch is complete. */
static bool receive(struct load *l, struct connection *c)
{
    ssize_t n = read(c->fd, c->in + c->in_n, c->expected_n - c->in_n);
    if (n <= 0) {
        die("read: %s", n ? strerror(errno) : "the server hung up");
    }
    c->in_n += (size_t)n;
    if (c->in_n < c->expected_n) {
        return false;
    }
    sample(l, now_us() - c->began);
    check(c->in, c->expected, c->in_n);
    return true;
}

static void many(struct load *l, int connections, double until)
{
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    int busy = connections;
    open_all(l, epoll, connections);
    for (int i = 0; i < connections; i++) {
        send_batch(l, &l->c[i]);
    }
    while (busy > 0) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(epoll, events, EVENTS, -1);
        bool over = now_us() >= until;
        for (int i = 0; i < n; i++) {
            if (!receive(l, events[i].data.ptr)) {
                continue;
            }
            if (over) {
                busy--;
            } else {
                send_batch(l, events[i].data.ptr);
            }
        }
    }
    close_all(l, connections);
    close(epoll);
}

/* ---- commands -------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void run(struct load *l, int cpu, int connections, int pipeline, double seconds)
{
    if (connections < 1 || connections > CONNECTIONS_MAX || pipeline < 1 ||
        pipeline > PIPELINE_MAX) {
        die("%d connections, %d requests at a time: at most %d and %d", connections, pipeline,
            CONNECTIONS_MAX, PIPELINE_MAX);
    }
    pin(cpu);
    l->n_samples = 0;
    l->pipeline = pipeline;
    double began = now_us();
    double until = began + seconds * 1e6;
    if (connections == 1 && pipeline == 1) {
        ping_pong(l, until);
    } else {
        many(l, connections, until);
    }
    double took = now_us() - began;
    size_t n = l->n_samples < SAMPLES ? l->n_samples : SAMPLES;
    qsort(l->samples, n, sizeof(*l->samples), by_value);
    printf("{\"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.1f, \"per_s\": %.0f, "
           "\"requests\": %zu}\n",
           (double)l->samples[n / 2], (double)l->samples[n * 99 / 100], (double)l->samples[n - 1],
           (double)l->n_samples * pipeline / took * 1e6, l->n_samples * (size_t)pipeline);
    fflush(stdout);
}

static struct exchange *make_exchanges(char **argv, int *count)
{
    int n = *count;
    size_t request_bytes = (size_t)atoi(argv[4]), reply_bytes = (size_t)atoi(argv[5]);
    if (strcmp(argv[1], "raw") == 0) {
        return exchanges_raw(n, request_bytes, reply_bytes);
    }
    int fd = socket_connect(argv[2]);
    struct exchange *x =
        strcmp(argv[1], "gemmd") == 0       ? exchanges_gemmd(fd, n)
        : strcmp(argv[1], "many") == 0      ? exchanges_many(fd, n, count)
        : strcmp(argv[1], "memcached") == 0 ? exchanges_memcached(fd, n, request_bytes, reply_bytes)
        : strcmp(argv[1], "redis") == 0     ? exchanges_redis(fd, n, request_bytes, reply_bytes)
                                            : NULL;
    close(fd);
    return x;
}

int main(int argc, char **argv)
{
    static struct load load;
    int n = argc == 6 ? atoi(argv[3]) : 0;
    struct exchange *x = n > 0 ? make_exchanges(argv, &n) : NULL;
    if (!x) {
        fprintf(stderr, "usage: load gemmd|many|raw|memcached|redis SOCKET COUNT REQUEST_BYTES "
                        "REPLY_BYTES\n");
        return 2;
    }
    load.socket = argv[2];
    load.x = x;
    load.n = n;
    for (int i = 0; i < n; i++) {
        size_t longer = x[i].request_n > x[i].reply_n ? x[i].request_n : x[i].reply_n;
        load.longest = longer > load.longest ? longer : load.longest;
    }
    load.order = bench_order(n);
    load.samples = malloc(SAMPLES * sizeof(*load.samples));
    if (!load.order || !load.samples) {
        die("no memory");
    }
    printf("{\"request_bytes\": %zu, \"reply_bytes\": %zu}\n", exchanges_request_bytes(x, n),
           exchanges_reply_bytes(x, n));
    fflush(stdout);
    int cpu, connections, pipeline;
    double seconds;
    while (scanf("%d %d %d %lf", &cpu, &connections, &pipeline, &seconds) == 4) {
        run(&load, cpu, connections, pipeline, seconds);
    }
    return 0;
}
