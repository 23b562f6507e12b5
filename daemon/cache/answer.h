/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between answers (struct answer) and rows (struct best). */
#ifndef GEMMD_DAEMON_CACHE_ANSWER_H
#define GEMMD_DAEMON_CACHE_ANSWER_H

#include "kernels/family.h"
#include "proto/device.h"
#include "proto/message.h"

/* Sets all times to NaN (unknown) and all texts to "". */
void answer_init(struct answer *a);
/* Makes the answer of a row that serves its key (tier `exact`). */
void answer_of_best(struct answer *a, const struct best *b, bool saved);
/* Makes the row from which answer_of_best made the answer. An answer lacks the row's user, trial
 * and tolerances, and an imported row's module: these stay empty. */
void best_of_answer(struct best *b, const struct answer *a, const struct problem *bucket,
                    const char *class_);
/* Sets a best's flops, bytes and floor, for its bucket on this device. */
void best_work(struct best *b, const struct family *f, const struct problem *bucket,
               const struct device_info *device);
/* Sets all measurements to NaN. */
void trial_times_unknown(struct trial *t);
/* Sets the answer's note. Text beyond the field's size is cut off. */
void answer_note(struct answer *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- confidence.c ---------------------------------------------------------------------------- */

/*
 * The confidence in an answer, derived from the evidence behind the answer.
 *
 *   high     measured for this very key, verified, no doubt.
 *   medium   the same with one doubt.
 *   low      several doubts, widely spread samples, or measured for another key.
 *   none     not measured.
 *
 * When a row's own measurement makes the confidence low, its `doubt` begins with CONFIDENCE_LOW.
 * The notes of its answers, and lists, then show the doubt.
 */

enum { DOUBTS_MAX = 8, DOUBT_MAX = 160 };

struct confidence {
    const char *level; /* static text: one of the words above */
    bool grave;        /* one of the doubts alone is enough for `low` */
    unsigned n;
    char doubts[DOUBTS_MAX][DOUBT_MAX];
};

/* The evidence behind an answer; a pointer is NULL when its row is missing or was deleted. */
struct evidence {
    const struct answer *answer;
    const struct best *best;
    const struct trial *trial;
    const struct run *run;
    const struct device_info *device;
    bool kept_only;   /* the op is a custom op */
    bool quarantined; /* the variant crashed or hung at another key */
    bool doubted;     /* only another host of the fleet has the variant in quarantine */
    int64_t now_s;
};

#define CONFIDENCE_LOW "confidence low: "

/* True when the row's own measurement makes the confidence low. `says` receives the text for the
 * row's `doubt` and the note of its answers, or "". */
bool confidence_is_low(const struct best *b, char says[DOUBT_MAX]);
void confidence_judge(struct confidence *c, const struct evidence *e);

#endif
