/* SPDX-License-Identifier: Apache-2.0 */
/* How a question is made, for who makes one in every call: question.c, and table.c, where what is
 * made is looked up by the same function. */
#ifndef GEMMD_CLIENT_QUESTION_INNER_H
#define GEMMD_CLIENT_QUESTION_INNER_H

#include <string.h>

#include "client/table.h"

/* The problem's four flags are taken as they lie: a byte each, 0 or 1. Between them are others. */
enum {
    IN_WORDS = 1 << 4,      /* the problem is in the words, not in its text */
    ROUTING_TWICE = 1 << 5, /* by text and by rows: a mistake, of which no answer is ever kept */
};
#define FLAG_AT(f) offsetof(struct gemmd_problem, f)
_Static_assert(sizeof(bool) == 1 && FLAG_AT(permute_y) == FLAG_AT(permute_x) + 1 &&
                   FLAG_AT(fuse_mul_post) == FLAG_AT(permute_x) + 2 &&
                   FLAG_AT(accumulate) == FLAG_AT(permute_x) + 3,
               "the flags are four bytes in a row");

static inline uint64_t question_pack_flags(const struct gemmd_problem *p)
{
    uint32_t flags;
    memcpy(&flags, (const char *)p + FLAG_AT(permute_x), sizeof(flags));
    return flags;
}

/* Of a caller compiled before there was rows_per_expert the struct ends before it. */
static inline const int64_t *question_get_rows(const struct gemmd_problem *p)
{
    return p->size > offsetof(struct gemmd_problem, rows_per_expert) ? p->rows_per_expert : NULL;
}

/* The first eight bytes of a text, zeros behind its end; *rest: where the others begin. Every text
 * takes the same steps, so that no branch has to be guessed.
 *
 * *front, the first two, is what the hash has of a text: "forward", "dX" and "dW" differ here, and
 * so do "bf16", "fp16" and "fp32". A whole word is there some nanoseconds later, and the table
 * waits for the hash. */
static inline uint64_t text_word(const char *text, const char **rest, uint64_t *front)
{
    uint64_t word = 0;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        uint64_t c = (uint8_t)*text;
        word |= c << shift;
        text += c != 0;
        *front = shift == 8 ? word : *front;
    }
    *rest = text;
    return word;
}

/* Both halves of a product: every bit of a and b counts. */
static inline uint64_t question_fold_words(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t question_hash_words(const uint64_t w[QUESTION_WORDS], uint64_t fronts)
{
    return question_fold_words(w[0] ^ w[3] << 40 ^ UINT64_C(0xa0761d6478bd642f),
                               w[1] ^ w[4] << 40 ^ UINT64_C(0xe7037ed1a0b428db)) ^
           question_fold_words(w[2] ^ w[5] << 32 ^ UINT64_C(0x8ebc6af09c88c6e3),
                               fronts ^ UINT64_C(0xeb44accab455d165));
}

/* A text of the caller's, or what its absence means. Its front. */
static inline uint64_t question_add_text(struct question *q, size_t i, const char *text,
                                         const char *usual)
{
    uint64_t front = 0;
    q->words[QUESTION_NUMBERS + i] =
        text ? text_word(text, &q->rest[i], &front) : text_word(usual, &q->rest[i], &front);
    return front;
}

/* Both return the fronts of all texts. */
static inline uint64_t take_fields(struct question *q, const struct gemmd_problem *p)
{
    q->words[0] = (uint64_t)p->m;
    q->words[1] = (uint64_t)p->n;
    q->words[2] = (uint64_t)p->k;
    q->words[3] = p->experts ? (uint64_t)p->experts : 1;
    q->words[4] = p->topk ? (uint64_t)p->topk : 1;
    q->rows = question_get_rows(p);
    q->n_rows = !q->rows ? 0 : p->experts > 0 ? (size_t)p->experts : 1;
    q->words[QUESTION_FLAGS] =
        question_pack_flags(p) | IN_WORDS | (q->rows && p->routing ? ROUTING_TWICE : 0u);
    return question_add_text(q, 0, p->mode, "forward") << 48 |
           question_add_text(q, 1, p->dtype_in, "bf16") << 32 |
           question_add_text(q, 2, p->dtype_out, "") << 16 |
           question_add_text(q, 3, p->routing, "uniform");
}

/* A problem of numbers, flags and a mode, as most are: false, when it has anything else. What
 * stands beside the words is not filled in: there is nothing. */
static inline bool question_is_plain(const struct gemmd_problem *p, struct question *q)
{
    if (p->text || p->dtype_in || p->dtype_out || p->routing || question_get_rows(p)) {
        return false;
    }
    uint64_t fronts = take_fields(q, p);
    q->hash = question_hash_words(q->words, fronts);
    return !*q->rest[0];
}

#endif
