/* SPDX-License-Identifier: Apache-2.0 */
/* Answers and rows, made from what is known. */
#ifndef GEMMD_DAEMON_CACHE_ANSWER_H
#define GEMMD_DAEMON_CACHE_ANSWER_H

#include "kernels/family.h"
#include "proto/message.h"

/* All times unknown, all text empty. */
void answer_init(struct answer *a);
/* Tier exact. */
void answer_of_best(struct answer *a, const struct best *b, bool saved);
/* The other way: the row that such an answer was made of, but for what is not in it: who asked, by
 * what trial and with which tolerances, and the module of what was imported. */
void best_of_answer(struct best *b, const struct answer *a, const struct problem *bucket,
                    const char *class_);
/* Flops, bytes and floor of the bucket on this device, as a best carries them. */
void best_work(struct best *b, const struct family *f, const struct problem *bucket,
               const struct device_info *device);
/* NaN for everything that was not measured. */
void trial_times_unknown(struct trial *t);
/* Cut at the field's size. */
void answer_note(struct answer *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
