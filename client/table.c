/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry is words: the question's, the answer as the struct that the caller gets, but without
 * the unused ends of its long texts, and what else the question has. So a hit compares ten words,
 * copies some seventy, and looks at nothing else.
 *
 * Words are stored with release and loaded with acquire order, which costs nothing on x86: a reader
 * that sees a word of a change sees the odd sequence number, too. Answers are read two words at a
 * time where the processor can (load_two), or four (copy_wide): copying is a third of a hit's time.
 */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/question_inner.h"
#include "client/table.h"

enum { WORD = sizeof(uint64_t), ENTRY_WORDS_MAX = 705, CACHE_LINE = 64 };

/* Of an entry in words; most answers fit into the first. */
static const size_t sizes[TABLE_SIZES] = {82, 154, ENTRY_WORDS_MAX};

typedef _Atomic uint64_t word;

struct table_entry {
    struct table_entry *newer, *older; /* under the lock; of spare ones: the next */
    uint64_t hash;                     /* under the lock */
    size_t size;                       /* index into `sizes`; never changes */
    uint64_t unused;                   /* the answer begins with a line of the cache */
    word shape;                        /* struct shape */
    word words[];                      /* sizes[size] of them */
};

/* Of an answer three runs are kept: all but the unused ends of `config`, `note` and `stamp`. They
 * begin at words that are known to the compiler, and are copied in blocks of words, so that how
 * long the texts are changes little; the last run begins so that its blocks end where the answer
 * does. */
enum {
    BLOCK = 8, /* a line of the cache */
    RUNS = 3,
    ANSWER_WORDS = sizeof(struct gemmd_answer) / WORD
};
#define MEMBER_AT(f) offsetof(struct gemmd_answer, f)
static const size_t run_at[RUNS] = {
    0, MEMBER_AT(module) / WORD,
    ANSWER_WORDS - ((ANSWER_WORDS - MEMBER_AT(target) / WORD + BLOCK - 1) & ~(size_t)(BLOCK - 1))};
_Static_assert(sizeof(struct gemmd_answer) % WORD == 0, "an answer is copied by words");
_Static_assert(sizeof(struct gemmd_answer) - MEMBER_AT(stamp) -
                       sizeof(((struct gemmd_answer *)0)->stamp) <
                   WORD,
               "a field behind the stamp would not be copied");
_Static_assert(MEMBER_AT(target) + BLOCK * WORD < sizeof(struct gemmd_answer),
               "the runs before the last end within the answer");

/* What is where behind the question's words. It is read as one word, and whatever an entry has ever
 * had fits into it: a reader without the lock stays within. */
struct shape {
    uint8_t blocks[RUNS]; /* of the answer's runs, which come first */
    uint8_t unused;
    uint16_t texts; /* then so many words of texts */
    uint16_t rows;  /* and of rows */
};
_Static_assert(sizeof(struct shape) == WORD && ANSWER_WORDS / BLOCK < UINT8_MAX,
               "a shape is one word");

static uint64_t table_load_word(const word *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}

static void table_store_word(word *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static struct shape table_get_shape(const struct table_entry *e)
{
    uint64_t v = table_load_word(&e->shape);
    struct shape s;
    memcpy(&s, &v, sizeof(s));
    return s;
}

/* Where the words of texts begin. */
static size_t texts_at(const struct shape *s)
{
    return QUESTION_WORDS + (size_t)(s->blocks[0] + s->blocks[1] + s->blocks[2]) * BLOCK;
}

static size_t words_of(const struct shape *s)
{
    return texts_at(s) + s->texts + s->rows;
}

/* ---- life ------------------------------------------------------------------------------------ */

void table_init(struct table *t)
{
    memset(t, 0, sizeof(*t));
    pthread_mutex_init(&t->lock, NULL);
}

static void free_all(struct table_entry *e)
{
    for (struct table_entry *next; e; e = next) {
        next = e->newer;
        free(e);
    }
}

void table_deinit(struct table *t)
{
    free_all(t->oldest);
    for (size_t i = 0; i < TABLE_SIZES; i++) {
        free_all(t->spare[i]);
    }
    free(atomic_load(&t->slots));
    pthread_mutex_destroy(&t->lock);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* The texts' rests lie one behind the other, each with its zero; their words are read one by
 * one. */
static bool same_texts(const word *at, size_t words, const struct question *q)
{
    size_t i = 0;
    const char *text = q->rest[0];
    for (size_t n = 0; n < words; n++) {
        uint64_t v = table_load_word(&at[n]);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            char c = (char)(v >> shift);
            if (c != *text++) {
                return false;
            }
            if (!c && ++i == QUESTION_TEXTS) {
                return true;
            }
            text = c ? text : q->rest[i];
        }
    }
    return false;
}

static bool same_rest(const struct table_entry *e, const struct question *q)
{
    const struct shape s = table_get_shape(e);
    const word *at = &e->words[texts_at(&s)];
    if (s.rows != q->n_rows || !same_texts(at, s.texts, q)) {
        return false;
    }
    uint64_t differ = 0;
    for (size_t i = 0; i < q->n_rows; i++) {
        differ |= table_load_word(&at[s.texts + i]) ^ (uint64_t)q->rows[i];
    }
    return !differ;
}

static inline bool same_words(const struct table_entry *e, const struct question *q)
{
    uint64_t differ = 0;
#pragma GCC unroll 10
    for (size_t i = 0; i < QUESTION_WORDS; i++) {
        differ |= table_load_word(&e->words[i]) ^ q->words[i];
    }
    return !differ;
}

/* plain: there is nothing beside its words. NULL: not there, or the table is being changed. */
static inline const struct table_entry *table_find_entry(const struct table_slot *slots,
                                                         const struct question *q, bool plain)
{
    size_t at = q->hash % TABLE_SLOTS;
    for (size_t tried = 0; slots && tried < TABLE_SLOTS; tried++) {
        const struct table_entry *e = atomic_load_explicit(&slots[at].entry, memory_order_acquire);
        if (!e) {
            return NULL;
        }
        if (table_load_word(&slots[at].hash) == q->hash && same_words(e, q) &&
            (plain || !(q->words[QUESTION_FLAGS] & QUESTION_HAS_MORE) || same_rest(e, q))) {
            return e;
        }
        at = (at + 1) % TABLE_SLOTS;
    }
    return NULL;
}

/* C has no atomic load of two words that need not be of one time. What comes of a change in between
 * is thrown away like any other; that the sequence number is read after them is end_copy's to see
 * to. The thread sanitizer sees plain loads of words. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
static inline void load_two(const word *from, uint64_t to[2])
{
    __extension__ typedef uint64_t two __attribute__((vector_size(2 * WORD)));
    two v;
    __asm__ volatile("movdqu %1, %0" : "=x"(v) : "m"(*(const char(*)[2 * WORD])(const void *)from));
    memcpy(to, &v, sizeof(v));
}

/* The plain loads before it are not later than what comes behind it. */
static inline void end_copy(void)
{
    atomic_thread_fence(memory_order_acquire);
}
#else
static inline void end_copy(void)
{
}

static inline void load_two(const word *from, uint64_t to[2])
{
    to[0] = table_load_word(from);
    to[1] = table_load_word(from + 1);
}
#endif

static inline const word *copy_two(const word *from, size_t blocks, uint64_t *to)
{
    for (size_t n = blocks; n > 0; n--, from += BLOCK, to += BLOCK) {
        for (size_t i = 0; i < BLOCK; i += 2) {
            load_two(from + i, to + i);
        }
    }
    return from;
}

/* Half a block at a time, as load_two has it. Only where may_copy_wide() says so. */
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
static inline bool may_copy_wide(void)
{
    return __builtin_cpu_supports("avx");
}

static inline const word *copy_wide(const word *from, size_t blocks, uint64_t *to)
{
    for (size_t n = blocks; n > 0; n--, from += BLOCK, to += BLOCK) {
        __asm__ volatile("vmovdqu (%1), %%ymm0\n\tvmovdqu 32(%1), %%ymm1\n\t"
                         "vmovdqu %%ymm0, (%2)\n\tvmovdqu %%ymm1, 32(%2)"
                         : "=m"(*(char(*)[BLOCK * WORD]) to)
                         : "r"(from), "r"(to), "m"(*(const char(*)[BLOCK * WORD])(const void *)from)
                         : "xmm0", "xmm1");
    }
    return from;
}

static inline void end_copy_wide(void)
{
    __asm__ volatile("vzeroupper" ::
                         : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                           "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}
#else
static inline bool may_copy_wide(void)
{
    return false;
}

static inline const word *copy_wide(const word *from, size_t blocks, uint64_t *to)
{
    return copy_two(from, blocks, to);
}

static inline void end_copy_wide(void)
{
}
#endif

/* Into a struct of this library's size. */
static inline void table_copy_answer(const struct table_entry *e, uint64_t out[ANSWER_WORDS])
{
    const struct shape s = table_get_shape(e);
    const word *from = &e->words[QUESTION_WORDS];
    if (may_copy_wide()) {
        from = copy_wide(from, s.blocks[0], out + run_at[0]);
        from = copy_wide(from, s.blocks[1], out + run_at[1]);
        copy_wide(from, s.blocks[2], out + run_at[2]);
        end_copy_wide();
    } else {
        from = copy_two(from, s.blocks[0], out + run_at[0]);
        from = copy_two(from, s.blocks[1], out + run_at[1]);
        copy_two(from, s.blocks[2], out + run_at[2]);
    }
    end_copy();
}

static bool get_locked(struct table *t, const struct question *q, struct gemmd_answer *out)
{
    struct gemmd_answer a = answer_none();
    pthread_mutex_lock(&t->lock);
    const struct table_entry *e = table_find_entry(atomic_load(&t->slots), q, false);
    if (e) {
        table_copy_answer(e, (uint64_t *)(void *)&a);
    }
    pthread_mutex_unlock(&t->lock);
    if (e) {
        answer_give(&a, out);
    }
    return e != NULL;
}

/* Without the lock. False: it is not there, or the table was changed meanwhile. */
static inline bool table_get_unlocked(struct table *t, const struct question *q, bool plain,
                                      struct gemmd_answer *out)
{
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_acquire);
    size_t size = out->size;
    if (before % 2 == 0 && size == sizeof(*out)) {
        const struct table_slot *slots = atomic_load_explicit(&t->slots, memory_order_acquire);
        const struct table_entry *e = table_find_entry(slots, q, plain);
        if (e) {
            table_copy_answer(e, (uint64_t *)(void *)out);
            if (atomic_load_explicit(&t->sequence, memory_order_acquire) == before) {
                return true;
            }
        }
        out->size = size;
    }
    return false;
}

bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out)
{
    return table_get_unlocked(t, q, false, out) || get_locked(t, q, out);
}

/* Apart, with a question of its own, so that the one of table_ask need not be in memory. */
__attribute__((noinline)) static bool
table_ask_in_memory(struct table *t, const struct gemmd_problem *p, struct gemmd_answer *out)
{
    struct question q;
    question_of(p, &q);
    return table_get(t, &q, out);
}

bool table_ask(struct table *t, const struct gemmd_problem *p, struct gemmd_answer *out)
{
    struct question q;
    return (question_is_plain(p, &q) && table_get_unlocked(t, &q, true, out)) ||
           table_ask_in_memory(t, p, out);
}

/* ---- changing, under the lock ---------------------------------------------------------------- */

/* An entry of at least so many words that is in nobody's hands. */
static struct table_entry *table_new_entry(struct table *t, size_t words)
{
    size_t size = 0;
    while (sizes[size] < words) {
        size++;
    }
    struct table_entry *e = t->spare[size];
    if (e) {
        t->spare[size] = e->newer;
        return e;
    }
    e = aligned_alloc(CACHE_LINE,
                      (sizeof(*e) + sizes[size] * WORD + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (e) {
        memset(e, 0, sizeof(*e) + sizes[size] * WORD);
        e->size = size;
    }
    return e;
}

static size_t put_words(struct table_entry *e, size_t at, const void *data, size_t words)
{
    for (size_t i = 0; i < words; i++) {
        uint64_t v;
        memcpy(&v, (const char *)data + i * WORD, sizeof(v));
        table_store_word(&e->words[at + i], v);
    }
    return at + words;
}

static size_t words_to(size_t bytes)
{
    return (bytes + WORD - 1) / WORD;
}

/* The texts' rests in words, zeros at the end; 0: too long to be kept. */
static size_t join_texts(const struct question *q, char out[ENTRY_WORDS_MAX * WORD])
{
    size_t n = 0, max = (ENTRY_WORDS_MAX - QUESTION_WORDS - ANSWER_WORDS) * WORD;
    for (size_t i = 0; i < QUESTION_TEXTS; i++) {
        size_t length = strlen(q->rest[i]) + 1;
        if (length > max - n) {
            return 0;
        }
        memcpy(out + n, q->rest[i], length);
        n += length;
    }
    memset(out + n, 0, WORD);
    return words_to(n);
}

/* The blocks of a run up to the end of a text. */
static uint8_t blocks_to(size_t run, size_t field, const char *text)
{
    size_t bytes = field + strlen(text) + 1 - run_at[run] * WORD;
    return (uint8_t)((bytes + BLOCK * WORD - 1) / (BLOCK * WORD));
}

static size_t table_put_answer(struct table_entry *e, size_t at, const struct gemmd_answer *a,
                               const uint8_t blocks[RUNS])
{
    for (size_t i = 0; i < RUNS; i++) {
        at = put_words(e, at, (const char *)a + run_at[i] * WORD, (size_t)blocks[i] * BLOCK);
    }
    return at;
}

/* A new entry with a question and its answer; NULL: it is not kept. */
static struct table_entry *table_make_entry(struct table *t, const struct question *q,
                                            const struct gemmd_answer *given)
{
    char texts[ENTRY_WORDS_MAX * WORD];
    struct gemmd_answer a = *given;
    a.local = true;
    a.size = sizeof(a);
    bool more = q->words[QUESTION_FLAGS] & QUESTION_HAS_MORE;
    struct shape s = {.blocks = {blocks_to(0, MEMBER_AT(config), a.config),
                                 blocks_to(1, MEMBER_AT(note), a.note),
                                 blocks_to(2, MEMBER_AT(stamp), a.stamp)},
                      .texts = more ? (uint16_t)join_texts(q, texts) : 0,
                      .rows = (uint16_t)q->n_rows};
    bool kept =
        (!more || s.texts) && q->n_rows < ENTRY_WORDS_MAX && words_of(&s) <= ENTRY_WORDS_MAX;
    struct table_entry *e = kept ? table_new_entry(t, words_of(&s)) : NULL;
    if (!e) {
        return NULL;
    }
    uint64_t shape;
    memcpy(&shape, &s, sizeof(shape));
    table_store_word(&e->shape, shape);
    e->hash = q->hash;
    size_t at = put_words(e, 0, q->words, QUESTION_WORDS);
    at = table_put_answer(e, at, &a, s.blocks);
    at = put_words(e, at, texts, s.texts);
    put_words(e, at, q->rows, s.rows);
    return e;
}

static void slot_set(struct table_slot *s, struct table_entry *e)
{
    table_store_word(&s->hash, e ? e->hash : 0);
    atomic_store_explicit(&s->entry, e, memory_order_release);
}

static struct table_entry *entry_at(const struct table_slot *slots, size_t i)
{
    return atomic_load_explicit(&slots[i].entry, memory_order_relaxed);
}

static void slots_take(struct table_slot *slots, const struct table_entry *e)
{
    enum { MASK = TABLE_SLOTS - 1 };
    size_t i = e->hash & MASK;
    while (entry_at(slots, i) != e) {
        i = (i + 1) & MASK;
    }
    for (size_t j = (i + 1) & MASK; entry_at(slots, j); j = (j + 1) & MASK) {
        size_t home = table_load_word(&slots[j].hash) & MASK;
        if (((j - home) & MASK) >= ((j - i) & MASK)) { /* else it could not be reached any more */
            slot_set(&slots[i], entry_at(slots, j));
            i = j;
        }
    }
    slot_set(&slots[i], NULL);
}

static void table_remove_entry(struct table *t, struct table_slot *slots, struct table_entry *e)
{
    slots_take(slots, e);
    *(e->older ? &e->older->newer : &t->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &t->newest) = e->older;
    e->newer = t->spare[e->size];
    t->spare[e->size] = e;
    t->n--;
}

static void table_insert_entry(struct table *t, struct table_slot *slots, struct table_entry *e)
{
    size_t i = e->hash % TABLE_SLOTS;
    while (entry_at(slots, i)) {
        i = (i + 1) % TABLE_SLOTS;
    }
    e->older = t->newest;
    e->newer = NULL;
    *(t->newest ? &t->newest->newer : &t->oldest) = e;
    t->newest = e;
    t->n++;
    slot_set(&slots[i], e);
}

static void table_change_entry(struct table *t, struct table_slot *slots, const struct question *q,
                               const struct gemmd_answer *a)
{
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_relaxed);
    atomic_store_explicit(&t->sequence, before + 1, memory_order_relaxed);
    struct table_entry *old =
        (struct table_entry *)(void *)(uintptr_t)table_find_entry(slots, q, false);
    struct table_entry *e = table_make_entry(t, q, a);
    if (old) { /* also when there is no memory for the new one: what it says is no longer so */
        table_remove_entry(t, slots, old);
    }
    if (e && t->n == TABLE_MAX) {
        table_remove_entry(t, slots, t->oldest);
    }
    if (e) {
        table_insert_entry(t, slots, e);
    }
    atomic_store_explicit(&t->sequence, before + 2, memory_order_release);
}

void table_put(struct table *t, const struct question *q, const struct gemmd_answer *a)
{
    pthread_mutex_lock(&t->lock);
    struct table_slot *slots = atomic_load(&t->slots);
    if (!slots && (slots = calloc(TABLE_SLOTS, sizeof(*slots)))) {
        atomic_store_explicit(&t->slots, slots, memory_order_release);
    }
    if (slots) {
        table_change_entry(t, slots, q, a);
    }
    pthread_mutex_unlock(&t->lock);
}
