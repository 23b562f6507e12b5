/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between answers (struct answer) and rows (struct best). */
#ifndef GEMMD_DAEMON_CACHE_ANSWER_H
#define GEMMD_DAEMON_CACHE_ANSWER_H

#include "kernels/family.h"
#include "proto/message.h"

/* Unknown times (NaN), empty texts. */
void answer_init(struct answer *a);
/* Tier exact. */
void answer_of_best(struct answer *a, const struct best *b, bool saved);
/* Does the reverse: makes the row of an answer. An answer does not tell the user, the trial, the
 * tolerances, or an imported row's module: these stay empty. */
void best_of_answer(struct best *b, const struct answer *a, const struct problem *bucket,
                    const char *class_);
/* Sets a best's flops, bytes and floor, for its bucket on this device. */
void best_work(struct best *b, const struct family *f, const struct problem *bucket,
               const struct device_info *device);
/* Sets all measurements to NaN. */
void trial_times_unknown(struct trial *t);
/* Text beyond the field's size is cut off. */
void answer_note(struct answer *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
