/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a query gets the answer it gets: what is known in memory, without the ledger. methods/why.c
 * adds the rows behind it.
 *
 * A verdict is one word for programs, with a sentence for people, and with what to do about it:
 *
 *   verdict      the key's own row                                        action
 *   tuned        answers                                                  none; tune, when
 *                                                                         confidence is low
 *   pinned       answers, chosen by a person                              none
 *   kept         answers, of an op that gemmd only keeps                  none
 *   tolerance    was verified less tightly than asked                     get
 *   quarantined  is a config that has crashed or hung a runner            tune; get, of a pin
 *   stamp        was measured by other code or another compiler           tune
 *   pin_stamp    a pin of which the same is true                          get
 *   imported     comes from elsewhere, not measured here                  tune
 *   partial      won a restricted search only                             tune
 *   target       is of other kernels than those asked for                 tune
 *   restricted   is not what answers: this very search was made before    none
 *   unknown      there is none                                            tune
 */
#ifndef GEMMD_DAEMON_ANSWERS_WHY_H
#define GEMMD_DAEMON_ANSWERS_WHY_H

#include "daemon/daemon.h"
#include "daemon/answers/tiers.h"

enum { BECAUSE_MAX = 400, WHY_NO_ROW = -1 };

struct why {
    struct problem problem, bucket;
    struct answer answer; /* what `get` with wait=cached gives, when has_answer */
    struct answer own;    /* the key's own row, when has_own */
    struct answer close;  /* the closest key's, when has_close */
    struct problem close_problem;
    bool has_answer, has_own, has_close;
    char key[HASH_HEX];
    char origin[HASH_HEX]; /* the key whose row the answer is from; "": from no row */
    int64_t row; /* the generation of the row that is the answer; 0: the newest of `origin`; or
                    WHY_NO_ROW */
    char stamp[STAMP_MAX]; /* that a row of this problem would have today; "": of no kernels */
    const char *verdict, *action;
    char because[BECAUSE_MAX];
};

/* For user `uid`, of the request in the daemon's scratch: problem, query (the usual one but for
 * target, atol, rtol), bucket, key with id. `searched`: what this very search came to before, when
 * it is a restricted one; NULL: it is none, or nothing is known. */
int why_make(struct why *w, struct tiers *t, int64_t uid, const struct answer *searched,
             struct error *err);

/* Fields of `why`'s result. */
enum { WHY_FIELDS = 12 };
/* `tuning`: "on", or why nothing is tuned. */
void why_put(struct wire_buf *b, const struct why *w, const struct daemon *d, const char *tuning);

#endif
