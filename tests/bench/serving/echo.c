/* SPDX-License-Identifier: Apache-2.0 */
/*
 * echo SOCKET REQUEST_BYTES REPLY_BYTES: a server that does the least possible work. Blocking reads
 * and writes, one connection at a time: reads a request of REQUEST_BYTES, writes a reply of
 * REPLY_BYTES. A ping-pong with echo measures the kernel's part of the time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/bench/serving/socket.h"

static int listen_on(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 16) < 0) {
        die("%s: %s", path, strerror(errno));
    }
    return fd;
}

/* False: the client closed the connection. */
static bool read_whole(int fd, uint8_t *data, size_t n)
{
    while (n > 0) {
        ssize_t got = read(fd, data, n);
        if (got <= 0) {
            return false;
        }
        data += got;
        n -= (size_t)got;
    }
    return true;
}

int main(int argc, char **argv)
{
    size_t in = argc == 4 ? (size_t)atoi(argv[2]) : 0, out = argc == 4 ? (size_t)atoi(argv[3]) : 0;
    uint8_t *request = malloc(in + 1), *reply = malloc(out + 1);
    if (!in || !out || !request || !reply) {
        fprintf(stderr, "usage: echo SOCKET REQUEST_BYTES REPLY_BYTES\n");
        return 2;
    }
    memset(reply, 'a', out);
    int listener = listen_on(argv[1]);
    for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
        while (read_whole(fd, request, in)) {
            socket_write(fd, reply, out);
        }
        close(fd);
    }
    die("accept: %s", strerror(errno));
}
