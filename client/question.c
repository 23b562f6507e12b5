/* SPDX-License-Identifier: Apache-2.0 */
/* The hash reads of the usual texts (a mode, dtypes) what tells them apart, their first bytes; of
 * long ones everything. It need not be more than good: whoever finds an entry by it compares all. */
#include <string.h>

#include "client/question.h"
#include "proto/hash.h"

static const char forward[] = "forward", bf16[] = "bf16", uniform[] = "uniform", none[] = "";

enum { IN_WORDS = 1 << 4 }; /* flag: the problem is in the words, not in its text */

/* Of a caller compiled before there was rows_per_expert the struct ends before it. */
static const int64_t *rows_of(const struct gemmd_problem *p)
{
    return p->size > offsetof(struct gemmd_problem, rows_per_expert) ? p->rows_per_expert : NULL;
}

struct question question_of(const struct gemmd_problem *p)
{
    if (p->text) {
        return (struct question){.texts = {p->text, none, none, none}};
    }
    const int64_t *rows = rows_of(p);
    int64_t experts = p->experts > 0 ? p->experts : 1;
    uint64_t flags = (uint64_t)(p->permute_x | p->permute_y << 1 | p->fuse_mul_post << 2 |
                                p->accumulate << 3 | IN_WORDS);
    return (struct question){
        .words = {(uint64_t)p->m, (uint64_t)p->n, (uint64_t)p->k,
                  p->experts ? (uint64_t)p->experts : 1, p->topk ? (uint64_t)p->topk : 1, flags},
        .texts = {p->mode ? p->mode : forward, p->dtype_in ? p->dtype_in : bf16,
                  p->dtype_out ? p->dtype_out : none, p->routing ? p->routing : uniform},
        .rows = rows,
        .n_rows = rows ? (size_t)experts : 0};
}

/* Both halves of a product: every bit of a and b counts. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* "forward", "dX" and "dW" differ here, and so do "bf16", "fp16" and "fp32". */
static uint64_t front(const char *text)
{
    return (uint64_t)(uint8_t)text[0] << 8 | (text[0] ? (uint8_t)text[1] : 0);
}

uint64_t question_hash(const struct question *q)
{
    uint64_t texts;
    if (q->words[QUESTION_WORDS - 1] & IN_WORDS) {
        texts = front(q->texts[0]) << 48 | front(q->texts[1]) << 32 | front(q->texts[2]) << 16;
        texts ^= q->n_rows ? hash64(q->rows, q->n_rows * sizeof(*q->rows)) : 0;
        texts ^= q->texts[3] == uniform ? 0 : hash64(q->texts[3], strlen(q->texts[3]));
    } else {
        texts = hash64(q->texts[0], strlen(q->texts[0]));
    }
    const uint64_t *w = q->words;
    return fold(w[0] ^ UINT64_C(0xa0761d6478bd642f), w[1] ^ UINT64_C(0xe7037ed1a0b428db)) ^
           fold(w[2] ^ UINT64_C(0x8ebc6af09c88c6e3), w[3] ^ UINT64_C(0x589965cc75374cc3)) ^
           fold(w[4] ^ w[5] << 32 ^ UINT64_C(0x1d8e4e27c47d124f), texts ^ UINT64_C(0xeb44accab455d165));
}
