/* SPDX-License-Identifier: Apache-2.0 */
/* The hash need not be more than good: whoever finds an entry by it compares all. */
#include "client/question_inner.h"
#include "proto/hash.h"

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t question_set_text(struct question *q, const char *text)
{
    memset(q, 0, sizeof(*q));
    for (size_t i = 1; i < QUESTION_TEXTS; i++) {
        q->rest[i] = "";
    }
    return question_add_text(q, 0, text, "");
}

/* Apart, since most questions have no more. */
__attribute__((noinline)) static void add_more(struct question *q)
{
    q->words[QUESTION_FLAGS] |= QUESTION_HAS_MORE;
    for (size_t i = 0; i < QUESTION_TEXTS; i++) {
        q->hash = question_fold_words(q->hash, hash64(q->rest[i], strlen(q->rest[i])));
    }
    q->hash ^= q->n_rows ? hash64(q->rows, q->n_rows * sizeof(*q->rows)) : 0;
}

void question_of(const struct gemmd_problem *p, struct question *q)
{
    uint64_t fronts = p->text ? question_set_text(q, p->text) : take_fields(q, p);
    q->hash = question_hash_words(q->words, fronts);
    if (q->rows || *q->rest[0] || *q->rest[1] || *q->rest[2] || *q->rest[3]) {
        add_more(q);
    }
}
