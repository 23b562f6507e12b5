/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines: points of the monotonic clock in nanoseconds, so that neither a clock that jumps nor a
 * peer that trickles can stretch a wait.
 */
#ifndef GEMMD_CLIENT_CLOCK_H
#define GEMMD_CLIENT_CLOCK_H

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

#endif
