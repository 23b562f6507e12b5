/* SPDX-License-Identifier: Apache-2.0 */
/* The hash need not be more than good: whoever finds an entry by it compares all. */
#include <string.h>

#include "client/question.h"
#include "proto/hash.h"

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

static inline uint64_t flags_of(const struct gemmd_problem *p)
{
    uint32_t flags;
    memcpy(&flags, (const char *)p + FLAG_AT(permute_x), sizeof(flags));
    return flags;
}

/* Of a caller compiled before there was rows_per_expert the struct ends before it. */
static const int64_t *rows_of(const struct gemmd_problem *p)
{
    return p->size > offsetof(struct gemmd_problem, rows_per_expert) ? p->rows_per_expert : NULL;
}

/* The first eight bytes of a text, zeros behind its end; *rest: where the others begin. Every text
 * takes the same steps, so that no branch has to be guessed. */
static inline uint64_t text_word(const char *text, const char **rest)
{
    uint64_t word = 0;
    for (unsigned shift = 0; shift < 64; shift += 8) {
        uint64_t c = (uint8_t)*text;
        word |= c << shift;
        text += c != 0;
    }
    *rest = text;
    return word;
}

/* Both halves of a product: every bit of a and b counts. */
static uint64_t fold(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* What the hash has of a text: "forward", "dX" and "dW" differ here, and so do "bf16", "fp16" and
 * "fp32". A whole word is there some nanoseconds later, and the table waits for the hash. */
static inline uint64_t front(const char *text)
{
    return (uint64_t)(uint8_t)text[0] << 8 | (uint8_t)text[text[0] != 0];
}

static inline uint64_t hash(const uint64_t w[QUESTION_WORDS], uint64_t fronts)
{
    return fold(w[0] ^ UINT64_C(0xa0761d6478bd642f), w[1] ^ UINT64_C(0xe7037ed1a0b428db)) ^
           fold(w[2] ^ UINT64_C(0x8ebc6af09c88c6e3), w[3] ^ UINT64_C(0x589965cc75374cc3)) ^
           fold(w[4] ^ w[5] << 32 ^ UINT64_C(0x1d8e4e27c47d124f),
                fronts ^ UINT64_C(0xeb44accab455d165));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A text of the caller's, or what its absence means. Its front. */
static inline uint64_t take_text(struct question *q, size_t i, const char *text, const char *usual)
{
    q->words[QUESTION_NUMBERS + i] =
        text ? text_word(text, &q->rest[i]) : text_word(usual, &q->rest[i]);
    return front(text ? text : usual);
}

/* Both return the fronts of all texts. */
static inline uint64_t take_fields(struct question *q, const struct gemmd_problem *p)
{
    q->words[0] = (uint64_t)p->m;
    q->words[1] = (uint64_t)p->n;
    q->words[2] = (uint64_t)p->k;
    q->words[3] = p->experts ? (uint64_t)p->experts : 1;
    q->words[4] = p->topk ? (uint64_t)p->topk : 1;
    q->rows = rows_of(p);
    q->n_rows = !q->rows ? 0 : p->experts > 0 ? (size_t)p->experts : 1;
    q->words[QUESTION_FLAGS] =
        flags_of(p) | IN_WORDS | (q->rows && p->routing ? ROUTING_TWICE : 0u);
    return take_text(q, 0, p->mode, "forward") << 48 | take_text(q, 1, p->dtype_in, "bf16") << 32 |
           take_text(q, 2, p->dtype_out, "") << 16 | take_text(q, 3, p->routing, "uniform");
}

static uint64_t take_whole(struct question *q, const char *text)
{
    memset(q, 0, sizeof(*q));
    for (size_t i = 1; i < QUESTION_TEXTS; i++) {
        q->rest[i] = "";
    }
    return take_text(q, 0, text, "");
}

/* Apart, since most questions have no more. */
__attribute__((noinline)) static void add_more(struct question *q)
{
    q->words[QUESTION_FLAGS] |= QUESTION_HAS_MORE;
    for (size_t i = 0; i < QUESTION_TEXTS; i++) {
        q->hash = fold(q->hash, hash64(q->rest[i], strlen(q->rest[i])));
    }
    q->hash ^= q->n_rows ? hash64(q->rows, q->n_rows * sizeof(*q->rows)) : 0;
}

void question_of(const struct gemmd_problem *p, struct question *q)
{
    uint64_t fronts = p->text ? take_whole(q, p->text) : take_fields(q, p);
    q->hash = hash(q->words, fronts);
    if (q->rows || *q->rest[0] || *q->rest[1] || *q->rest[2] || *q->rest[3]) {
        add_more(q);
    }
}
