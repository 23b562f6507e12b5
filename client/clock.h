/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines are points of the monotonic clock in nanoseconds, so that neither a change of the
 * system time nor a peer that sends byte by byte can extend a wait.
 *
 * A request that gemmd answered with `busy` is repeated after a pause. Each pause is twice as long
 * as the pause before, up to a quarter of a second: the caller notices soon when gemmd has room
 * again, and causes no load meanwhile. When a pause is longer than gemmd_options.step_ms, the call
 * returns to its caller in between.
 */
#ifndef GEMMD_CLIENT_CLOCK_H
#define GEMMD_CLIENT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Returned by functions that take a point in time until which they may wait, when it has passed. */
enum { CLOCK_PASSED = 1 };
#define CLOCK_NEVER INT64_MAX
#define CLOCK_MS    INT64_C(1000000)

static inline int64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static inline int64_t clock_after_ms(int64_t ms)
{
    return clock_ns() + ms * CLOCK_MS;
}

static inline int64_t clock_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Timeout for ppoll and nanosleep: the remaining time, zero after the deadline. */
static inline struct timespec clock_left(int64_t deadline)
{
    int64_t left = deadline - clock_ns();
    left = left > 0 ? left : 0;
    return (struct timespec){.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
}

enum { PAUSE_MS = 4, PAUSE_MAX_MS = 256 };

static inline void clock_sleep(int64_t until)
{
    struct timespec left = clock_left(until);
    nanosleep(&left, NULL);
}

struct pause {
    int64_t ms;  /* length of the next pause; 0: no pause yet */
    int64_t end; /* end of the current pause; 0: no pause */
};

/* Begins the next pause. False: the pause would not end before the deadline. */
static inline bool pause_begin(struct pause *p, int64_t deadline)
{
    p->ms = p->ms ? p->ms : PAUSE_MS;
    int64_t end = clock_after_ms(p->ms);
    if (end >= deadline) {
        return false;
    }
    p->ms = p->ms < PAUSE_MAX_MS ? 2 * p->ms : p->ms;
    p->end = end;
    return true;
}

/* Sleeps to the end of the pause, at most until `until`. True: the pause is over, or there was no
 * pause. */
static inline bool pause_sleep(struct pause *p, int64_t until)
{
    int64_t now, wake = clock_earlier(p->end, until);
    while ((now = clock_ns()) < wake) {
        clock_sleep(wake);
    }
    bool over = now >= p->end;
    p->end = over ? 0 : p->end;
    return over;
}

#endif
