/* SPDX-License-Identifier: Apache-2.0 */
/* Reads answers from the wire, and copies answers into callers' structs of any release's size. */
#ifndef GEMMD_CLIENT_ANSWER_H
#define GEMMD_CLIENT_ANSWER_H

#include "client/gemmd.h"
#include "proto/pull.h"

/* Size of struct gemmd_answer in the first release: callers' structs are at least this large. */
enum { ANSWER_SIZE_MIN = offsetof(struct gemmd_answer, target) };

int answer_check_size(const struct gemmd_answer *out, struct error *err);
/* An empty answer of this library's size, with all fields marked as not known. */
struct gemmd_answer answer_none(void);
/* Parts of the answer read before, which the next answer mostly repeats: reading them again would
 * cost more than a comparison. */
struct answer_order {
    struct answer_name {
        uint8_t n;                      /* length of the name; 0: no name */
        char text[RECORD_NAME_MAX + 1]; /* " name=" */
    } names[RECORD_FIELDS_MAX];         /* parameters of that answer's config, checked and sorted */
    char stamp[160], target[16];        /* stamp of that answer, and the target that it names */
};

void answer_order_init(struct answer_order *order);
/* Fast path: reads an answer from its bytes into a struct of this library's size, and writes only
 * the used part of each text. False: an unusual answer (long, non-ASCII or unsorted texts, an
 * error). The caller then decodes the item and calls answer_unpack, which gives the same outcome
 * for every answer that this function accepts. */
bool answer_pull(struct pull *p, struct gemmd_answer *out, struct answer_order *order);
/* Reads the next item by answer_pull, or decodes into doc and calls answer_unpack. An item that is
 * an error gives that error. */
int answer_read(struct pull *p, struct wire_doc *doc, struct gemmd_answer *out,
                struct answer_order *order, struct error *err);
int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err);
int answer_set_config(struct gemmd_answer *a, const struct record *config, struct error *err);
/* Copies an answer into a caller's struct: the fields that fit into out->size. Keeps out->size, and
 * zeroes the fields of a newer release's struct that this library does not know. */
void answer_give(const struct gemmd_answer *a, struct gemmd_answer *out);
/* True for an answer that the table (table.h) may keep: tier exact, tuned or pinned. */
bool answer_is_final(const struct gemmd_answer *a);

#endif
