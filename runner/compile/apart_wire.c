/* SPDX-License-Identifier: Apache-2.0 */
#include "runner/compile/apart.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

static const size_t BODY_MOST = 1u << 30; /* larger lengths are invalid */

static bool send_all(int fd, const void *data, size_t n)
{
    for (const char *at = data; n > 0;) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return false;
        }
        at += sent > 0 ? sent : 0;
        n -= sent > 0 ? (size_t)sent : 0;
    }
    return true;
}

static bool receive_all(int fd, void *data, size_t n)
{
    for (char *at = data; n > 0;) {
        ssize_t got = recv(fd, at, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
        at += got > 0 ? got : 0;
        n -= got > 0 ? (size_t)got : 0;
    }
    return true;
}

bool apart_send(int fd, const void *head, size_t size, const void *body, size_t n)
{
    return send_all(fd, head, size) && send_all(fd, &n, sizeof(n)) && send_all(fd, body, n);
}

bool apart_receive(int fd, void *head, size_t size, void **body, size_t *n)
{
    *body = NULL;
    if (!receive_all(fd, head, size) || !receive_all(fd, n, sizeof(*n)) || *n > BODY_MOST) {
        return false;
    }
    char *bytes = malloc(*n + 1);
    if (!bytes || !receive_all(fd, bytes, *n)) {
        free(bytes);
        return false;
    }
    bytes[*n] = '\0';
    *body = bytes;
    return true;
}
