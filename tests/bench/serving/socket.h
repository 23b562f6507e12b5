/* SPDX-License-Identifier: Apache-2.0 */
/* Blocking sockets for the serving benchmarks; every fault ends the program with an error message.
 */
#ifndef GEMMD_TESTS_SERVING_SOCKET_H
#define GEMMD_TESTS_SERVING_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
int socket_connect(const char *path);
void socket_write(int fd, const void *data, size_t n);
void socket_read(int fd, void *data, size_t n); /* reads exactly n bytes */
double now_us(void);                            /* monotonic */

#endif
