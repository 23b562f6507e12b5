/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ask.h"
#include "proto/limits.h"
#include "proto/message.h"
#include "proto/rpc.h"
#include "proto/scan.h"
#include "tests/bench/serving/exchange.h"
#include "tests/bench/serving/problems.h"
#include "tests/bench/serving/socket.h"

static struct exchange *list_new(int n)
{
    struct exchange *x = calloc((size_t)n, sizeof(*x));
    if (!x) {
        die("no memory for %d messages", n);
    }
    return x;
}

static uint8_t *copy_of(const void *data, size_t n)
{
    uint8_t *copy = malloc(n);
    if (!copy) {
        die("no memory for a message");
    }
    return memcpy(copy, data, n);
}

void exchanges_free(struct exchange *x, int n)
{
    for (int i = 0; i < n; i++) {
        free(x[i].request);
        free(x[i].reply);
    }
    free(x);
}

size_t exchanges_request_bytes(const struct exchange *x, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i].request_n;
    }
    return sum / (size_t)n;
}

size_t exchanges_reply_bytes(const struct exchange *x, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i].reply_n;
    }
    return sum / (size_t)n;
}

/* ---- gemmd ----------------------------------------------------------------------------------- */

static void pack_get(struct wire_buf *b, int i)
{
    struct error err = ERROR_NULL;
    struct ask a = {.problem = bench_problem(i), .query = GEMMD_QUERY_INIT};
    wire_buf_clear(b);
    rpc_put_request(b, 0x10000 + (uint32_t)i, "get"); /* ids of equal length */
    if (ask_pack(b, &a, 0, &err) || b->failed) {
        die("%s", err.text);
    }
}

static size_t read_message(int fd, uint8_t *out, size_t size)
{
    struct scan scan;
    struct error err = ERROR_NULL;
    scan_init(&scan, RESPONSE_BYTES_MAX);
    for (size_t n = 0; n < size;) {
        size_t used;
        ssize_t got = read(fd, out + n, size - n);
        if (got <= 0) {
            die("gemmd hung up");
        }
        int r = scan_feed(&scan, out + n, (size_t)got, &used, &err);
        n += (size_t)got;
        if (r < 0) {
            die("%s", err.text);
        }
        if (r == SCAN_DONE) {
            return n;
        }
    }
    die("gemmd's answer is longer than %zu bytes", size);
}

static struct rpc_message decode(struct wire_doc *doc, const struct exchange *x)
{
    struct rpc_message m;
    struct error err = ERROR_NULL;
    if (rpc_decode(doc, x->reply, x->reply_n, &m, &err) ||
        (m.error && rpc_get_error(m.error, &err))) {
        die("%s", err.text);
    }
    return m;
}

static void check_answer(const struct wire_obj *answer, int i)
{
    static struct answer a;
    static struct record config;
    struct error err = ERROR_NULL;
    bench_config(i, &config);
    if (schema_decode(&answer_schema, SCHEMA_LENIENT, answer, &a, &err)) {
        die("problem %d: %s", i, err.text);
    }
    if (strcmp(a.tier, "exact") != 0 || a.time_us != bench_time_us(i) ||
        !record_equal(&a.config, &config)) {
        die("problem %d has another answer than the one it was given (tier %s, %g us)", i, a.tier,
            a.time_us);
    }
}

struct exchange *exchanges_gemmd(int fd, int n)
{
    static uint8_t reply[64 * 1024];
    struct exchange *x = list_new(n);
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (int i = 0; i < n; i++) {
        pack_get(&b, i);
        socket_write(fd, b.data, b.len);
        size_t length = read_message(fd, reply, sizeof(reply));
        x[i] = (struct exchange){.request = copy_of(b.data, b.len),
                                 .request_n = b.len,
                                 .reply = copy_of(reply, length),
                                 .reply_n = length};
        check_answer(decode(doc, &x[i]).result, i);
    }
    wire_doc_free(doc);
    return x;
}

static void pack_many(struct wire_buf *b, int first, int count)
{
    struct error err = ERROR_NULL;
    wire_buf_clear(b);
    rpc_put_request(b, 0x10000, "get_many");
    wire_put_map(b, 1);
    wire_put_str(b, "problems");
    wire_put_array(b, (size_t)count);
    for (int i = 0; i < count; i++) {
        struct gemmd_problem p = bench_problem(first + i);
        if (ask_pack_problem(b, &p, &err)) {
            die("%s", err.text);
        }
    }
}

struct exchange *exchanges_many(int fd, int problems, int *n)
{
    static uint8_t reply[RESPONSE_BYTES_MAX];
    *n = (problems + MANY_MAX - 1) / MANY_MAX;
    struct exchange *x = list_new(*n);
    struct wire_doc *doc = wire_doc_new();
    WIRE_BUF_AUTO b = WIRE_BUF_NULL;
    for (int i = 0; i < *n; i++) {
        int first = i * MANY_MAX, count = problems - first < MANY_MAX ? problems - first : MANY_MAX;
        pack_many(&b, first, count);
        socket_write(fd, b.data, b.len);
        size_t length = read_message(fd, reply, sizeof(reply));
        x[i] = (struct exchange){.request = copy_of(b.data, b.len),
                                 .request_n = b.len,
                                 .reply = copy_of(reply, length),
                                 .reply_n = length};
        const struct wire_obj *answers = wire_find(decode(doc, &x[i]).result, "answers");
        for (int j = 0; j < count; j++) {
            check_answer(wire_at(answers, (size_t)j), first + j);
        }
    }
    wire_doc_free(doc);
    return x;
}

/* ---- the others ------------------------------------------------------------------------------ */

__attribute__((format(printf, 1, 2))) static char *text(const char *format, ...)
{
    char *out;
    va_list args;
    va_start(args, format);
    if (vasprintf(&out, format, args) < 0) {
        die("no memory for a message");
    }
    va_end(args);
    return out;
}

/* Returns the bytes that are left of a message of `bytes` when other fields take `other` bytes. */
static int room(size_t bytes, size_t other)
{
    if (bytes <= other) {
        die("messages of %zu bytes are too short", bytes);
    }
    return (int)(bytes - other);
}

static void put_texts(struct exchange *x, char *request, char *reply)
{
    *x = (struct exchange){.request = (uint8_t *)request,
                           .request_n = strlen(request),
                           .reply = (uint8_t *)reply,
                           .reply_n = strlen(reply)};
}

static void set(int fd, char *command, const char *good)
{
    char got[32];
    size_t n = strlen(good);
    socket_write(fd, command, strlen(command));
    socket_read(fd, got, n);
    if (memcmp(got, good, n) != 0) {
        die("the server took no value: it said \"%.*s\"", (int)n, got);
    }
    free(command);
}

struct exchange *exchanges_raw(int n, size_t request_bytes, size_t reply_bytes)
{
    struct exchange *x = list_new(n);
    for (int i = 0; i < n; i++) {
        x[i] = (struct exchange){.request = calloc(1, request_bytes),
                                 .request_n = request_bytes,
                                 .reply = calloc(1, reply_bytes),
                                 .reply_n = reply_bytes};
        if (!x[i].request || !x[i].reply) {
            die("no memory for a message");
        }
        memset(x[i].request, 'q', request_bytes);
        memset(x[i].reply, 'a', reply_bytes);
    }
    return x;
}

struct exchange *exchanges_memcached(int fd, int n, size_t request_bytes, size_t reply_bytes)
{
    struct exchange *x = list_new(n);
    int key = room(request_bytes, strlen("get \r\n"));
    key = key < 250 ? key : 250; /* memcached's limit */
    int value = room(reply_bytes, strlen("VALUE  0 1000\r\n\r\nEND\r\n") + (size_t)key);
    for (int i = 0; i < n; i++) {
        set(fd, text("set %0*d 0 0 %d\r\n%0*d\r\n", key, i, value, value, i), "STORED\r\n");
        put_texts(&x[i], text("get %0*d\r\n", key, i),
                  text("VALUE %0*d 0 %d\r\n%0*d\r\nEND\r\n", key, i, value, value, i));
    }
    return x;
}

struct exchange *exchanges_redis(int fd, int n, size_t request_bytes, size_t reply_bytes)
{
    struct exchange *x = list_new(n);
    int key = room(request_bytes, strlen("*2\r\n$3\r\nGET\r\n$100\r\n\r\n"));
    int value = room(reply_bytes, strlen("$100\r\n\r\n"));
    for (int i = 0; i < n; i++) {
        set(fd,
            text("*3\r\n$3\r\nSET\r\n$%d\r\n%0*d\r\n$%d\r\n%0*d\r\n", key, key, i, value, value, i),
            "+OK\r\n");
        put_texts(&x[i], text("*2\r\n$3\r\nGET\r\n$%d\r\n%0*d\r\n", key, key, i),
                  text("$%d\r\n%0*d\r\n", value, value, i));
    }
    return x;
}
