/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far an answer can be relied on, and what speaks against it: read off the evidence behind it.
 *
 *   high     measured for this very key, verified, and nothing speaks against it
 *   medium   so too, with one doubt
 *   low      more than one doubt, or samples that spread widely, or measured for another key
 *   none     not measured at all
 *
 * A row whose own measurement makes the confidence low says so in `doubt`, which begins with
 * CONFIDENCE_LOW, and by that in the notes of answers and in lists.
 */
#ifndef GEMMD_DAEMON_CACHE_CONFIDENCE_H
#define GEMMD_DAEMON_CACHE_CONFIDENCE_H

#include "proto/device.h"
#include "proto/message.h"

enum { DOUBTS_MAX = 8, DOUBT_MAX = 160 };

struct confidence {
    const char *level; /* static */
    bool grave;        /* one of the doubts is enough for `low` */
    unsigned n;
    char doubts[DOUBTS_MAX][DOUBT_MAX];
};

/* What an answer was made from; NULL: it is not there (any more). */
struct evidence {
    const struct answer *answer;
    const struct best *best;
    const struct trial *trial;
    const struct run *run;
    const struct device_info *device;
    bool kept_only;   /* an op that gemmd does not understand */
    bool quarantined; /* its variant is in quarantine, for what it did at another key */
    int64_t now_s;
};

#define CONFIDENCE_LOW "confidence low: "

/* Whether the doubts about how a row was measured alone leave a low confidence; and what the row's
 * `doubt` and the notes of its answers say: "" when nothing is to be said. */
bool confidence_is_low(const struct best *b, char says[DOUBT_MAX]);
void confidence_judge(struct confidence *c, const struct evidence *e);

#endif
