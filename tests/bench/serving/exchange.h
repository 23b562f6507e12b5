/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their expected replies, byte for byte, made before the measurement. So the same code
 * measures all servers, and compares each reply.
 *
 *   gemmd      requests as libgemmd sends them; a first pass finds and checks the replies;
 *   many       as gemmd, with MANY_MAX problems in each get_many request;
 *   raw        messages of the sizes of gemmd's, to echo.c;
 *   memcached, redis
 *              messages of these sizes, too: the key and the value fill them; a first pass stores
 *              the values.
 */
#ifndef GEMMD_TESTS_SERVING_EXCHANGE_H
#define GEMMD_TESTS_SERVING_EXCHANGE_H

#include <stddef.h>
#include <stdint.h>

struct exchange {
    uint8_t *request, *reply; /* owned */
    size_t request_n, reply_n;
};

/* Each function returns a malloc'ed array of n exchanges. `request_bytes` and `reply_bytes` are
 * sizes of whole messages. An unexpected reply of the server ends the program with an error
 * message. */
struct exchange *exchanges_gemmd(int fd, int n);
struct exchange *exchanges_many(int fd, int problems, int *n);
struct exchange *exchanges_raw(int n, size_t request_bytes, size_t reply_bytes);
struct exchange *exchanges_memcached(int fd, int n, size_t request_bytes, size_t reply_bytes);
struct exchange *exchanges_redis(int fd, int n, size_t request_bytes, size_t reply_bytes);
void exchanges_free(struct exchange *x, int n);

size_t exchanges_request_bytes(const struct exchange *x, int n);
size_t exchanges_reply_bytes(const struct exchange *x, int n);

#endif
