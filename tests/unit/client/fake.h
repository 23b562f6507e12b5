/* SPDX-License-Identifier: Apache-2.0 */
/* A gemmd under a test's control: a thread that listens on a socket, answers `hello`, and passes
 * every other request to the test's handler. Handlers run in that thread. */
#ifndef GEMMD_TESTS_FAKE_H
#define GEMMD_TESTS_FAKE_H

#include <stdatomic.h>

#include "proto/limits.h"
#include "proto/rpc.h"

struct fake;
typedef void (*fake_handler)(struct fake *f, int fd, const struct rpc_message *m);

struct fake {
    char path[108];
    fake_handler handler;
    void *ctx; /* for the test's handler */
    bool mute; /* true: the handler gets `hello`, too, and the fake does not answer it */
    int backlog;
    atomic_int connections, hellos, requests;
    atomic_int stopping;
    int listener, wake[2];
    void *thread;
};

/* Makes a socket path in a new directory, which fake_path_remove removes. */
void fake_path(char path[108]);
void fake_path_remove(const char *path);

/* Listens on f->path, and answers until fake_stop, which closes all connections. */
void fake_start(struct fake *f);
void fake_stop(struct fake *f);

/* Handlers call this function to answer. It frees the buffer. */
void fake_send(int fd, struct wire_buf *b);
void fake_send_bytes(int fd, const void *data, size_t n);
void fake_result_int(int fd, uint32_t id, const char *key, int64_t value); /* {key: value} */
void fake_error(int fd, uint32_t id, int code, const char *text);

struct fake_answer {
    const char *tier, *source, *config, *module, *stamp;
    int64_t generation;
};
void fake_put_answer(struct wire_buf *b, const struct fake_answer *a);
void fake_answer(int fd, uint32_t id, const struct fake_answer *a);
void fake_welcome(int fd, uint32_t id, int version);

double fake_ms(void); /* monotonic */
void fake_sleep_ms(int ms);

#endif
