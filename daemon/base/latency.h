/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A histogram of durations by powers of two, cheap enough for every hit: no system call, no
 * division. Slot i counts durations above 2^(i-1) ns and up to 2^i ns; the last slot also counts
 * all longer durations.
 */
#ifndef GEMMD_DAEMON_BASE_LATENCY_H
#define GEMMD_DAEMON_BASE_LATENCY_H

#include <stdint.h>

enum { LATENCY_SLOTS = 32 };

struct latency {
    uint64_t n[LATENCY_SLOTS];
    uint64_t sum_ns;
};

static inline void latency_add(struct latency *l, uint64_t ns)
{
    const unsigned slot = ns > 1 ? 64 - (unsigned)__builtin_clzll(ns - 1) : 0;
    l->n[slot < LATENCY_SLOTS ? slot : LATENCY_SLOTS - 1]++;
    l->sum_ns += ns;
}

#endif
