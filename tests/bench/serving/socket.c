/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/serving/socket.h"

void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(1);
}

int socket_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(a.sun_path)) {
        die("%s is too long for a socket", path);
    }
    strcpy(a.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        die("%s: %s", path, strerror(errno));
    }
    return fd;
}

void socket_write(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t done = write(fd, at, n);
        if (done < 0) {
            die("write: %s", strerror(errno));
        }
        at += done;
        n -= (size_t)done;
    }
}

void socket_read(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t done = read(fd, at, n);
        if (done <= 0) {
            die("read: %s", done ? strerror(errno) : "the server hung up");
        }
        at += done;
        n -= (size_t)done;
    }
}

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}
