/* SPDX-License-Identifier: Apache-2.0 */
/* Answers: from the wire, and into the caller's struct, whichever gemmd.h that was compiled
 * with. */
#ifndef GEMMD_CLIENT_ANSWER_H
#define GEMMD_CLIENT_ANSWER_H

#include "client/gemmd.h"
#include "proto/pull.h"

/* The struct as it was in the first release: callers' structs are at least this large. */
enum { ANSWER_SIZE_MIN = offsetof(struct gemmd_answer, target) };

int answer_check_size(const struct gemmd_answer *out, struct error *err);
/* An empty one of this library's size: nothing is known. */
struct gemmd_answer answer_none(void);
/* What answers of one daemon have in common, kept from one to the next. */
struct answer_order {
    struct answer_name {
        uint8_t n;                      /* of the name */
        char text[RECORD_NAME_MAX + 1]; /* " name=" */
    } names[RECORD_FIELDS_MAX];         /* of the config's parameters, as far as they were good */
    char stamp[160], target[16];        /* of the last answer */
};

void answer_order_init(struct answer_order *order);
/* One of the usual kind, straight from its bytes, into a struct of this library's size: of its
 * texts only what they need is written. False: it is of another kind, or no answer: decoded as a
 * tree, it is for answer_unpack, which has the same outcome for all that this one takes. */
bool answer_pull(struct pull *p, struct gemmd_answer *out, struct answer_order *order);
/* The next item, by one or the other; doc is for the other. */
int answer_read(struct pull *p, struct wire_doc *doc, struct gemmd_answer *out, struct error *err);
int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err);
int answer_set_config(struct gemmd_answer *a, const struct record *config, struct error *err);
/* Copies what out->size has room for and keeps out->size; what the caller knows more than this
 * library becomes zero. */
void answer_give(const struct gemmd_answer *a, struct gemmd_answer *out);
/* Measured and final: may be kept for the life of the process. */
bool answer_is_final(const struct gemmd_answer *a);

#endif
