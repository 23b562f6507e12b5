/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio (store/portfolio.h) of this device class, in memory: what the tier `portfolio`
 * answers from. It is made by the store from all trials, and fetched anew some time after results
 * have changed. Only what today's kernels were measured with is kept: times of other code do not
 * choose.
 *
 * A problem gets the member that is best for the known shape nearest to it, among shapes of its op,
 * mode and types. Other than for `near`, permutes and fusions may differ: the caller checks whether
 * the config is valid.
 */
#ifndef GEMMD_DAEMON_ANSWERS_PORTFOLIO_H
#define GEMMD_DAEMON_ANSWERS_PORTFOLIO_H

#include <uv.h>

#include "daemon/cache/cache.h"

struct daemon;

struct portfolio_member {
    uint64_t group;
    int64_t place;   /* in its group, from 1 */
    uint8_t *config; /* owned: packed */
    size_t len;
    char stamp[STAMP_MAX];
};

struct portfolio_shape { /* a known one */
    uint64_t group;
    float dims[CACHE_DIMS];
    uint32_t member; /* index */
    float ratio;     /* the member's time over the reference kernel's, for this shape */
    char key[HASH_HEX];
};

struct portfolio_set {
    struct portfolio_member *members; /* owned */
    struct portfolio_shape *shapes;   /* owned */
    size_t n_members, n_shapes;
};

struct portfolio {
    struct daemon *daemon;          /* borrowed */
    struct portfolio_set now, next; /* next: being fetched */
    double bound_percent;
    int64_t offset; /* of the page that is asked for */
    uint64_t began_ms, took_ms;
    bool asking;
    uv_timer_t timer;
};

void portfolio_init(struct portfolio *l, struct daemon *d);
/* Results have changed: it is fetched soon, and not more often than it is worth. */
void portfolio_changed(struct portfolio *l);
/* What is known of this key was taken back: it is no shape any more, at once. */
void portfolio_evicted(struct portfolio *l, const char *key);
void portfolio_close(struct portfolio *l); /* the timer; once */
void portfolio_deinit(struct portfolio *l);

/* Shapes whose members may do for a problem, nearest first, no member twice; at most max. Borrowed
 * until the loop turns. */
size_t portfolio_near(const struct portfolio *l, const struct problem *bucket, size_t max,
                      const struct portfolio_shape *out[]);
/* The member's config and stamp, as an answer that says nothing else. */
int portfolio_answer(const struct portfolio *l, const struct portfolio_shape *s, struct answer *a);

#endif
