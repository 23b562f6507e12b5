/* SPDX-License-Identifier: Apache-2.0 */
/* Reads an address and listens on it (address.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/address.h"
#include "proto/paths.h"
#include "proto/text.h"

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un path;
    };
    socklen_t n;
};

static const char forms[] = "use 127.0.0.1:PORT, [::1]:PORT or /a/path.sock";

/* Reads the host, without its brackets. False: no numeric address. */
static bool address_read_host(struct address *a, const char *host, uint16_t port)
{
    *a = (struct address){.n = sizeof(a->v4)};
    a->v4.sin_family = AF_INET;
    a->v4.sin_port = htons(port);
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &a->v4.sin_addr) ==
        1) {
        return true;
    }
    *a = (struct address){.n = sizeof(a->v6)};
    a->v6.sin6_family = AF_INET6;
    a->v6.sin6_port = htons(port);
    return inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1;
}

static bool address_is_loopback(const struct address *a)
{
    return a->any.sa_family == AF_INET ? ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET
                                       : IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static int address_read_path(struct address *a, const char *path, struct error *err)
{
    int status = paths_check_socket(path, err);
    *a = (struct address){.n = sizeof(a->path)};
    a->path.sun_family = AF_UNIX;
    if (status == 0) {
        memcpy(a->path.sun_path, path, strlen(path) + 1);
    }
    return status;
}

static int address_read(struct address *a, const char *text, struct error *err)
{
    static const char word[] = "public:";
    const bool public = strncmp(text, word, sizeof(word) - 1) == 0;
    const char *at = text + (public ? sizeof(word) - 1 : 0);
    if (at[0] == '/') {
        return address_read_path(a, at, err);
    }
    const char *colon = strrchr(at, ':');
    const bool brackets = colon && at[0] == '[' && colon > at + 1 && colon[-1] == ']';
    char host[64] = "";
    int64_t port = -1;
    double real;
    if (!colon || text_number(colon + 1, strlen(colon + 1), &port, &real) != TEXT_INT || port < 1 ||
        port > UINT16_MAX || colon - at >= (ptrdiff_t)sizeof(host)) {
        return error_set(err, ERROR_INVALID, "\"%s\" is no address: %s", text, forms);
    }
    snprintf(host, sizeof(host), "%.*s", (int)(colon - at) - 2 * brackets, at + brackets);
    if (!address_read_host(a, host, (uint16_t)port) || brackets != (a->any.sa_family == AF_INET6)) {
        return error_set(err, ERROR_INVALID, "\"%s\" is no numeric address: %s", text, forms);
    }
    if (!public && !address_is_loopback(a)) {
        return error_set(err, ERROR_INVALID,
                         "other hosts can reach %s, and gemmd asks no one who they are: use "
                         "127.0.0.1:%d, or write public:%s if that is meant",
                         text, (int)port, text);
    }
    return 0;
}

int address_check(const char *text, struct error *err)
{
    struct address a;
    return text[0] ? address_read(&a, text, err) : 0;
}

/* Removes the file of a Unix socket on which no process listens. Another file stays, and bind then
 * fails. */
static void address_remove_stale(const struct address *a)
{
    struct stat st;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && lstat(a->path.sun_path, &st) == 0 && S_ISSOCK(st.st_mode) &&
        connect(fd, &a->any, a->n) < 0 && errno == ECONNREFUSED) {
        unlink(a->path.sun_path);
    }
    if (fd >= 0) {
        close(fd);
    }
}

static bool address_bind(const struct address *a, int backlog, int fd)
{
    const int yes = 1;
    if (a->any.sa_family != AF_UNIX) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
        return bind(fd, &a->any, a->n) == 0 && listen(fd, backlog) == 0;
    }
    address_remove_stale(a);
    mode_t old = umask(0111);
    bool bound = bind(fd, &a->any, a->n) == 0;
    umask(old);
    return bound && listen(fd, backlog) == 0;
}

int address_listen(const char *text, int backlog, int *fd, struct error *err)
{
    struct address a;
    int status = address_read(&a, text, err);
    if (status < 0) {
        return status;
    }
    *fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && address_bind(&a, backlog, *fd)) {
        return 0;
    }
    status = errno == EADDRINUSE
                 ? error_set(err, ERROR_BUSY,
                             "metrics-listen: %s is in use by another program or gemmd; choose "
                             "another address for this gemmd (`ss -xltnp` shows the program)",
                             text)
                 : error_set(err, ERROR_IO, "metrics-listen: cannot listen on %s: %s%s", text,
                             strerror(errno),
                             errno == EAFNOSUPPORT ? "; does RestrictAddressFamilies= of the "
                                                     "systemd unit forbid it?"
                                                   : "");
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
    return status;
}

void address_remove(const char *text)
{
    struct address a;
    if (address_read(&a, text, NULL) == 0 && a.any.sa_family == AF_UNIX) {
        address_remove_stale(&a);
    }
}
