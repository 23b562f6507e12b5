/* SPDX-License-Identifier: Apache-2.0 */
/* An epoll that contains the epoll of libuv (poller.h). */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "daemon/base/poller.h"

enum { EVENTS = 256 };

#define EVENTS_OF_INPUT (EPOLLIN | EPOLLRDHUP | EPOLLET)

int poller_init(struct poller *p, uv_loop_t *loop, struct error *err)
{
    struct epoll_event libuv = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event timer = {.events = EPOLLIN | EPOLLET, .data.ptr = p};
    *p = (struct poller){.loop = loop,
                         .fd = epoll_create1(EPOLL_CLOEXEC),
                         .timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                         .timer_ms = UINT64_MAX};
    if (p->fd < 0 || p->timer < 0 ||
        epoll_ctl(p->fd, EPOLL_CTL_ADD, uv_backend_fd(loop), &libuv) < 0 ||
        epoll_ctl(p->fd, EPOLL_CTL_ADD, p->timer, &timer) < 0) {
        error_set(err, ERROR_IO, "cannot make an epoll with a timer: %s", strerror(errno));
        poller_deinit(p); /* this epoll does not contain libuv's, so it would miss libuv's events */
        return ERROR_IO;
    }
    return 0;
}

void poller_deinit(struct poller *p)
{
    if (p->fd >= 0) {
        close(p->fd);
    }
    if (p->timer >= 0) {
        close(p->timer);
    }
    p->fd = p->timer = -1;
}

int poller_add(struct poller *p, int fd, struct polled *who, struct error *err)
{
    struct epoll_event e = {.events = EVENTS_OF_INPUT, .data.ptr = who};
    if (epoll_ctl(p->fd, EPOLL_CTL_ADD, fd, &e) < 0) {
        return error_set(err, ERROR_IO, "epoll: %s", strerror(errno));
    }
    return 0;
}

void poller_await_room(struct poller *p, int fd, struct polled *who, bool await)
{
    struct epoll_event e = {.events = EVENTS_OF_INPUT | (await ? EPOLLOUT : 0), .data.ptr = who};
    epoll_ctl(p->fd, EPOLL_CTL_MOD, fd, &e);
}

void poller_remove(struct poller *p, int fd)
{
    epoll_ctl(p->fd, EPOLL_CTL_DEL, fd, &(struct epoll_event){0});
}

ssize_t poller_recv(int fd, void *to, size_t size)
{
    return syscall(SYS_recvfrom, fd, to, size, MSG_DONTWAIT, NULL, NULL);
}

ssize_t poller_send(int fd, const void *from, size_t n)
{
    return syscall(SYS_sendto, fd, from, n, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static enum peer poller_peer_of(uint32_t events)
{
    return events & (EPOLLHUP | EPOLLERR) ? PEER_LEFT
           : events & EPOLLRDHUP          ? PEER_SHUT
                                          : PEER_SENDS;
}

/* Sets the timer for the time when libuv must run, unless it is set for an earlier time: then it
 * ends one wait for nothing. Returns the timeout of the wait. libuv's clock may be a tick behind
 * the timer's: then 1 ms is left after the timer, and an ordinary wait ends it. */
static int poller_set_timer(struct poller *p, int timeout_ms)
{
    if (timeout_ms <= 1) {
        return timeout_ms;
    }
    const uint64_t ms = uv_now(p->loop) + (uint64_t)timeout_ms;
    if (ms >= p->timer_ms) {
        return -1;
    }
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000 * 1000000)}};
    if (timerfd_settime(p->timer, TFD_TIMER_ABSTIME, &at, NULL) < 0) {
        return timeout_ms;
    }
    p->timer_ms = ms;
    return -1;
}

/* Waits once for events and calls `ready` of each ready socket. True: libuv must run, too. */
static bool wait_once(struct poller *p, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    long n =
        syscall(SYS_epoll_pwait, p->fd, events, EVENTS, poller_set_timer(p, timeout_ms), NULL, 0);
    bool libuv = false;
    uv_update_time(p->loop);
    for (long i = 0; i < n; i++) {
        void *what = events[i].data.ptr;
        if (what == p) {
            p->timer_ms = UINT64_MAX;
        }
        if (what == p || !what) {
            libuv = true;
        } else {
            struct polled *who = what;
            who->ready(who, poller_peer_of(events[i].events));
        }
    }
    return libuv || n <= 0;
}

/* True for libuv from 1.44 on: there uv_backend_timeout is 0 while libuv has new descriptors that
 * it has not given to its epoll yet. Older libuv must run after each wait. */
static bool says_what_is_new(void)
{
    return uv_version() >= (1 << 16 | 44 << 8);
}

void poller_run(struct poller *p)
{
    const bool says_new = says_what_is_new();
    int timeout_ms = 0;
    bool libuv = true;
    if (p->fd < 0) { /* poller_init has failed: the loop only closes the handles that exist */
        uv_run(p->loop, UV_RUN_DEFAULT);
        return;
    }
    for (;;) {
        if (libuv || timeout_ms == 0 ||
            !says_new) { /* timeout_ms 0: libuv has work, or no active handle */
            if (!uv_run(p->loop, UV_RUN_NOWAIT)) {
                return;
            }
            timeout_ms = uv_backend_timeout(p->loop);
        }
        libuv = wait_once(p, timeout_ms);
        timeout_ms = uv_backend_timeout(p->loop);
    }
}
