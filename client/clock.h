/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines: points of the monotonic clock in nanoseconds, so that neither a clock that jumps nor a
 * peer that trickles can stretch a wait; and pauses.
 *
 * `busy` says: not now. Who has time left comes again after a pause, each twice as long as the one
 * before, up to a quarter of a second: soon when there is room soon, and no load when there is
 * none. A pause may be longer than a step (handle.h), and is then slept in several.
 */
#ifndef GEMMD_CLIENT_CLOCK_H
#define GEMMD_CLIENT_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

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

/* What ppoll and nanosleep want: the time left, zero when it is past. */
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
    int64_t ms;  /* how long the next one is; 0: there was none yet */
    int64_t end; /* of the one that is on; 0: none is */
};

/* False: it would not be over by the deadline. */
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

/* Sleeps until it is over (true; or none is on), or `until` has passed. */
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
