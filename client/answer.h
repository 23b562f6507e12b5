/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: from the wire, and into the caller's struct, whichever gemmd.h that was compiled with.
 */
#ifndef GEMMD_CLIENT_ANSWER_H
#define GEMMD_CLIENT_ANSWER_H

#include "client/gemmd.h"
#include "proto/error.h"
#include "proto/record.h"
#include "proto/wire.h"

/* The struct as it was in the first release: callers' structs are at least this large. */
enum { ANSWER_SIZE_MIN = offsetof(struct gemmd_answer, target) };

int answer_check_size(const struct gemmd_answer *out, struct error *err);
/* An empty one of this library's size: nothing is known. */
struct gemmd_answer answer_none(void);
int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err);
int answer_set_config(struct gemmd_answer *a, const struct record *config, struct error *err);
/* Copies what out->size has room for and keeps out->size; what the caller knows more than this
 * library becomes zero. */
void answer_give(const struct gemmd_answer *a, struct gemmd_answer *out);
/* Measured and final: may be kept for the life of the process. */
bool answer_is_final(const struct gemmd_answer *a);

#endif
