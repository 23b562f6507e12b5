/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries form a ring, and are found by lists (chains), one for each hash value of a question. An
 * entry stores a struct gemmd_answer; a hit copies the struct without the unused ends of its long
 * texts.
 */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/table.h"
#include "proto/hash.h"

enum { TABLE_HEADS = 4 * TABLE_MAX };

/* An entry keeps an answer as three runs of bytes: up to the end of the text in `config`, up to the
 * end of the text in `note`, and the rest. It leaves out the unused ends of these two texts. A run
 * is copied in whole blocks, so the copy may be too long: the next run overwrites the excess, and
 * the last run ends exactly with the answer. */
enum { RUNS = 3, BLOCK = 64, LAST_BYTES = 3 * BLOCK };
#define MEMBER_AT(f) offsetof(struct gemmd_answer, f)
static const size_t run_at[RUNS] = {0, MEMBER_AT(module), sizeof(struct gemmd_answer) - LAST_BYTES};
_Static_assert(MEMBER_AT(target) >= sizeof(struct gemmd_answer) - LAST_BYTES &&
                   MEMBER_AT(note) < sizeof(struct gemmd_answer) - LAST_BYTES,
               "the last run is of all behind the note");

typedef _Atomic uint32_t table_link; /* number of a filled entry, from 1; 0: end of the chain */

struct table_entry {
    uint64_t words[QUESTION_WORDS];
    uint32_t head;        /* the chain that contains the entry: an index of table_memory.heads */
    table_link next;      /* the next entry of that chain */
    uint16_t bytes[RUNS]; /* stored bytes of each run (run_at) of an answer: whole BLOCKs */
    _Alignas(BLOCK) char answer[sizeof(struct gemmd_answer) + RUNS * BLOCK];
};

struct table_memory {
    table_link heads[TABLE_HEADS];
    struct table_entry entries[TABLE_MAX];
};

/* ---- questions ------------------------------------------------------------------------------- */

enum { QUESTION_FLAGS = 5, QUESTION_TEXTS, QUESTION_MORE = QUESTION_TEXTS + 4 };
/* The texts of which the words hold the first bytes only, and `quant`, of which they hold none. */
enum { QUESTION_RESTS = 5 };

/* The first eight bytes of a text, padded with zeros; *rest: the remaining text. */
static inline uint64_t question_read_word(const char *text, const char **rest)
{
    uint64_t word = 0;
    unsigned n = 0;
    for (; n < 8 && text[n]; n++) {
        word |= (uint64_t)(uint8_t)text[n] << 8 * n;
    }
    *rest = text + n;
    return word;
}

/* The first word of a caller's text or, when that is NULL, of its default `usual`. */
static inline uint64_t question_read_text(const char *text, const char *usual, const char **rest)
{
    return text ? question_read_word(text, rest) : question_read_word(usual, rest);
}

/* Combines both halves of the product a * b, so that every bit of a and b counts. */
static inline uint64_t question_fold_words(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t question_hash_words(const uint64_t words[QUESTION_WORDS])
{
    const uint64_t salt = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t hash = 0;
#pragma GCC unroll 6
    for (size_t i = 0; i < QUESTION_WORDS; i += 2) {
        hash ^= question_fold_words(words[i] ^ (i + 1) * salt, words[i + 1] ^ (i + 2) * salt);
    }
    return hash;
}

/* The caller's rows_per_expert, or NULL: the struct of an older caller lacks the field. */
static inline const int64_t *question_get_rows(const struct gemmd_problem *p)
{
    return p->size > offsetof(struct gemmd_problem, rows_per_expert) ? p->rows_per_expert : NULL;
}

static inline bool question_is_batch_invariant(const struct gemmd_problem *p)
{
    return p->size > offsetof(struct gemmd_problem, batch_invariant) && p->batch_invariant;
}

/* The caller's quant; "" without quantisation, also where an older caller lacks the field. */
static inline const char *question_get_quant(const struct gemmd_problem *p)
{
    const char *quant = p->size > offsetof(struct gemmd_problem, quant) ? p->quant : NULL;
    return quant && strcmp(quant, "none") != 0 ? quant : "";
}

/* Hashes the texts that exceed a word, and the rows. Not inlined, because most questions have
 * neither. */
__attribute__((noinline)) static void question_add_more(struct question *q,
                                                        const char *const rest[QUESTION_RESTS],
                                                        const int64_t *rows, size_t n_rows)
{
    for (size_t i = 0; i < QUESTION_RESTS; i++) {
        hash128_chain(&q->words[QUESTION_MORE], rest[i], strlen(rest[i]) + 1);
    }
    if (rows) {
        hash128_chain(&q->words[QUESTION_MORE], rows, n_rows * sizeof(*rows));
    }
}

void question_of(const struct gemmd_problem *p, struct question *q)
{
    const char *rest[QUESTION_RESTS] = {"", "", "", "", ""};
    const int64_t *rows = NULL;
    uint64_t *w = q->words;
    w[QUESTION_MORE] = w[QUESTION_MORE + 1] = 0;
    if (p->text) { /* all words 0; a problem given by fields differs: its word 3 is not 0 */
        memset(w, 0, sizeof(q->words));
        rest[0] = p->text;
    } else {
        rows = question_get_rows(p);
        w[0] = (uint64_t)p->m;
        w[1] = (uint64_t)p->n;
        w[2] = (uint64_t)p->k;
        w[3] = p->experts ? (uint64_t)p->experts : 1;
        w[4] = p->topk ? (uint64_t)p->topk : 1;
        w[QUESTION_FLAGS] = p->permute_x | (uint64_t)p->permute_y << 8 |
                            (uint64_t)p->fuse_mul_post << 16 | (uint64_t)p->accumulate << 24 |
                            (uint64_t)question_is_batch_invariant(p) << 32;
        w[QUESTION_TEXTS] = question_read_text(p->mode, "forward", &rest[0]);
        w[QUESTION_TEXTS + 1] = question_read_text(p->dtype_in, "bf16", &rest[1]);
        w[QUESTION_TEXTS + 2] = question_read_text(p->dtype_out, "", &rest[2]);
        /* with rows_per_expert, `routing` must be NULL; a question with both has no answer here */
        w[QUESTION_TEXTS + 3] = question_read_text(p->routing, rows ? "" : "uniform", &rest[3]);
        rest[4] = question_get_quant(p);
    }
    if (p->text || rows || *rest[0] || *rest[1] || *rest[2] || *rest[3] || *rest[4]) {
        question_add_more(q, rest, rows, p->experts > 0 ? (size_t)p->experts : 1);
    }
    q->hash = question_hash_words(w);
}

/* ---- life ------------------------------------------------------------------------------------ */

void table_init(struct table *t)
{
    memset(t, 0, sizeof(*t));
    pthread_mutex_init(&t->lock, NULL);
}

void table_deinit(struct table *t)
{
    free(atomic_load(&t->memory));
    pthread_mutex_destroy(&t->lock);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Finds the entry of a question. NULL: no entry. While a writer changes the table, the result may
 * be wrong, but never points outside the table's memory. */
static inline struct table_entry *table_find_entry(struct table_memory *m, const struct question *q)
{
    const table_link *link = m ? &m->heads[q->hash % TABLE_HEADS] : NULL;
    for (size_t tried = 0; link && tried < TABLE_MAX; tried++) {
        uint32_t at = atomic_load_explicit(link, memory_order_acquire);
        struct table_entry *e = at ? &m->entries[at - 1] : NULL;
        if (!e || memcmp(e->words, q->words, sizeof(q->words)) == 0) {
            return e;
        }
        link = &e->next;
    }
    return NULL;
}

static inline const char *table_copy_run(char *to, const char *from, size_t bytes)
{
    __extension__ typedef char half __attribute__((vector_size(BLOCK / 2), aligned(1), may_alias));
    for (; bytes > 0; bytes -= BLOCK, from += BLOCK, to += BLOCK) {
        const half one = ((const half *)from)[0], two = ((const half *)from)[1];
        ((half *)to)[0] = one;
        ((half *)to)[1] = two;
    }
    return from;
}

static inline void table_copy_runs(struct gemmd_answer *out, const struct table_entry *e)
{
    const char *from = table_copy_run((char *)out + run_at[0], e->answer, e->bytes[0]);
    from = table_copy_run((char *)out + run_at[1], from, e->bytes[1]);
    table_copy_run((char *)out + run_at[2], from, LAST_BYTES);
}

/* Copies with AVX registers: copying takes most of the time of a hit. */
#ifdef __x86_64__
__attribute__((target("avx"))) static void table_copy_wide(struct gemmd_answer *out,
                                                           const struct table_entry *e)
{
    table_copy_runs(out, e);
}

/* Copies an entry's answer into a struct of this library's size. */
static inline void table_copy_answer(struct gemmd_answer *out, const struct table_entry *e)
{
    if (__builtin_cpu_supports("avx")) {
        table_copy_wide(out, e);
    } else {
        table_copy_runs(out, e);
    }
}
#else
#define table_copy_answer table_copy_runs
#endif

/* The thread sanitizer does not support fences; in its builds readers take the lock. */
static inline void table_fence(void)
{
#ifndef __SANITIZE_THREAD__
    atomic_thread_fence(memory_order_acq_rel);
#endif
}

/* Looks without the lock. False: not found, or a writer has changed the table meanwhile. The thread
 * sanitizer does not understand this read, so its builds always take the lock. */
static inline bool table_get_unlocked(struct table *t, const struct question *q,
                                      struct gemmd_answer *out)
{
#ifdef __SANITIZE_THREAD__
    return false;
#endif
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_acquire);
    size_t size = out->size;
    if (before % 2 || size != sizeof(*out)) {
        return false;
    }
    struct table_memory *m = atomic_load_explicit(&t->memory, memory_order_acquire);
    const struct table_entry *e = table_find_entry(m, q);
    if (!e) {
        return false;
    }
    table_copy_answer(out, e);
    out->size = size;
    table_fence();
    return atomic_load_explicit(&t->sequence, memory_order_relaxed) == before;
}

static bool table_get_locked(struct table *t, const struct question *q, struct gemmd_answer *out)
{
    struct gemmd_answer a = answer_none();
    pthread_mutex_lock(&t->lock);
    const struct table_entry *e = table_find_entry(atomic_load(&t->memory), q);
    if (e) {
        table_copy_answer(&a, e);
    }
    pthread_mutex_unlock(&t->lock);
    if (e) {
        answer_give(&a, out);
    }
    return e != NULL;
}

bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out)
{
    return table_get_unlocked(t, q, out) || table_get_locked(t, q, out);
}

/* ---- changing, under the lock ---------------------------------------------------------------- */

static void table_unchain_entry(struct table_memory *m, const struct table_entry *e)
{
    table_link *link = &m->heads[e->head];
    while (&m->entries[*link - 1] != e) {
        link = &m->entries[*link - 1].next;
    }
    *link = e->next;
}

static void table_set_answer(struct table_entry *e, const struct gemmd_answer *given)
{
    struct gemmd_answer a = *given;
    a.size = sizeof(a);
    a.local = true;
    const char *const ends[RUNS] = {a.config + strlen(a.config), a.note + strlen(a.note),
                                    (const char *)&a + sizeof(a) - 1};
    char *to = e->answer;
    for (size_t i = 0; i < RUNS; i++) {
        const char *from = (const char *)&a + run_at[i];
        e->bytes[i] = (uint16_t)((ends[i] - from + BLOCK) / BLOCK * BLOCK);
        memcpy(to, from, e->bytes[i]);
        to += e->bytes[i];
    }
}

/* Fills the next entry of the ring, which may hold the oldest answer, and puts it at the head of
 * the question's chain. */
static void table_add_entry(struct table *t, struct table_memory *m, const struct question *q,
                            const struct gemmd_answer *a)
{
    uint32_t at = t->puts % TABLE_MAX;
    struct table_entry *e = &m->entries[at];
    if (t->puts >= TABLE_MAX) {
        table_unchain_entry(m, e);
    }
    t->puts = t->puts + 1 < 2 * TABLE_MAX ? t->puts + 1 : TABLE_MAX;
    memcpy(e->words, q->words, sizeof(e->words));
    table_set_answer(e, a);
    e->head = q->hash % TABLE_HEADS;
    e->next = m->heads[e->head];
    m->heads[e->head] = at + 1;
}

static void table_change_entry(struct table *t, struct table_memory *m, const struct question *q,
                               const struct gemmd_answer *a)
{
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_relaxed);
    atomic_store_explicit(&t->sequence, before + 1, memory_order_relaxed);
    table_fence();
    struct table_entry *e = table_find_entry(m, q);
    if (e) {
        table_set_answer(e, a);
    } else {
        table_add_entry(t, m, q, a);
    }
    atomic_store_explicit(&t->sequence, before + 2, memory_order_release);
}

void table_put(struct table *t, const struct question *q, const struct gemmd_answer *a)
{
    pthread_mutex_lock(&t->lock);
    struct table_memory *m = atomic_load(&t->memory);
    if (!m && (m = aligned_alloc(BLOCK, sizeof(*m)))) {
        memset(m->heads, 0, sizeof(m->heads));
        atomic_store_explicit(&t->memory, m, memory_order_release);
    }
    if (m) {
        table_change_entry(t, m, q, a);
    }
    pthread_mutex_unlock(&t->lock);
}
