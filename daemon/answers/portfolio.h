/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio (store/portfolio.c) of this device class in memory, for the tier `portfolio`. The
 * store makes the portfolio from all trials; the daemon fetches it again some time after new
 * results. Rows measured with other kernels or another compiler (whose stamp is not today's) are
 * left out: their times say nothing about today's kernels.
 *
 * A problem gets the member that is best for the nearest known shape of the same op, mode and
 * types. Unlike the tier `near`, the shape's permutes and fusions may differ from the problem's:
 * the caller must check that the config is valid for the problem.
 */
#ifndef GEMMD_DAEMON_ANSWERS_PORTFOLIO_H
#define GEMMD_DAEMON_ANSWERS_PORTFOLIO_H

#include "daemon/answers/learn.h"
#include "daemon/cache/cache.h"

struct daemon;

struct portfolio_member {
    uint64_t group;
    int64_t place;   /* the member's number in its group, from 1 */
    uint8_t *config; /* owned: packed */
    size_t len;
    char stamp[STAMP_MAX];
};

struct portfolio_shape { /* a shape with a best of its own */
    uint64_t group;
    float dims[CACHE_DIMS];
    uint32_t member; /* index in `members` */
    float ratio;     /* time of the member / time of the reference kernel */
    char key[HASH_HEX];
};

struct portfolio_set {
    struct portfolio_member *members; /* owned */
    struct portfolio_shape *shapes;   /* owned */
    size_t n_members, n_shapes;
};

struct portfolio {
    struct daemon *daemon; /* borrowed */
    struct learn_pages pages;
    struct portfolio_set now, next; /* `next` is being fetched */
    double bound_percent;
    uint64_t began_ms, took_ms;
    bool asking;
};

void portfolio_init(struct portfolio *l, struct daemon *d);
/* Called periodically: fetches the portfolio when results have changed (daemon.learned) and the
 * last fetch is WAIT_FACTOR times its own duration ago. */
void portfolio_tick(struct portfolio *l);
/* Drops the key's shape at once: the key's results were removed. */
void portfolio_evicted(struct portfolio *l, const char *key);
void portfolio_deinit(struct portfolio *l);

/* Finds at most `max` shapes for a problem, nearest first, each member once. The shapes may be
 * freed once the caller returns to the loop. */
size_t portfolio_near(const struct portfolio *l, const struct problem *bucket, size_t max,
                      const struct portfolio_shape *out[]);
/* Fills an answer with only the member's config and stamp. */
int portfolio_answer(const struct portfolio *l, const struct portfolio_shape *s, struct answer *a);

#endif
