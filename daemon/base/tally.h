/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tallies: how many answers each training job got from this daemon, since the counts were last sent
 * to the database (methods/served.c): after --jobs-s, at a clean stop, and before a list of jobs.
 *
 * A job is a user and a text. The client names the job in `hello`; the user comes from the kernel,
 * so no client counts for another user. A hit costs an increment and a store: each session has a
 * pointer to its tally. An answer of a lower tier also has a sum of its own, by key, tier and
 * config.
 *
 * Bounds. A user has at most TALLY_USER_JOBS jobs, all users together TALLY_JOBS; answers to
 * further jobs of the user are counted under the job "". A job has at most TALLY_SUMS sums; further
 * answers are counted under the key "". So the sums over all rows stay right. When the tallies are
 * half full (`is_crowded`), they are sent to the database within a minute, and are empty again. A
 * user's tallies take 8 MiB at most, usually some KiB.
 */
#ifndef GEMMD_DAEMON_BASE_TALLY_H
#define GEMMD_DAEMON_BASE_TALLY_H

#include <sys/types.h>

#include "daemon/base/list.h"
#include "proto/message.h"
#include "proto/wire.h"

enum {
    TALLY_JOBS = 128,
    TALLY_USER_JOBS = 32,
    TALLY_SUMS = 128,       /* of a job, besides the sums under the key "" */
    TALLY_SUM_BYTES = 2048, /* an answer with a larger problem is counted under the key "" */
    TALLY_PAGE_ROWS = 256,  /* rows of tallies_pack_page */
};

struct tally_sum;

/* Answers of one tier and config to a key. */
struct tally_answer {
    const char *key, *tier, *op;
    const struct record *problem, *config; /* NULL: none */
    int64_t answers, first_s, last_s;
};

struct tally {
    struct list link;
    uid_t uid;
    char job[SERVED_JOB_MAX];
    uint64_t exact;              /* answers of the tier exact */
    uint64_t began_ms, exact_ms; /* loop time of the beginning; of the last exact answer */
    size_t n;
    struct tally_sum **sums; /* owned; n */
};

struct tallies {
    struct list all;
    unsigned n;
    bool is_crowded;
    struct wire_buf scratch; /* owned */
};

void tallies_init(struct tallies *t);
void tallies_deinit(struct tallies *t);
/* Returns the tally of a job; it lives until tallies_pack_page. NULL: no memory. */
struct tally *tallies_find(struct tallies *t, uid_t uid, const char *job, uint64_t now_ms);
static inline void tally_count_exact(struct tally *x, uint64_t n, uint64_t now_ms)
{
    x->exact += n;
    x->exact_ms = now_ms;
}
/* Without memory the answers are not counted. */
void tally_count(struct tallies *t, struct tally *x, const struct tally_answer *a);
/* Appends up to TALLY_PAGE_ROWS rows, each a map of struct served_row, and forgets them. Returns
 * their number; 0: all tallies are empty and freed. From the first page to the last nobody may use
 * a tally. now_ms: loop time; now_s: the time. */
uint32_t tallies_pack_page(struct tallies *t, uint64_t now_ms, int64_t now_s,
                           struct wire_buf *page);

#endif
