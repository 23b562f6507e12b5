/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An entry is words: the question's numbers, its texts, then the answer as the struct that the
 * caller gets, but without the unused ends of its long texts. So a hit compares and copies some
 * sixty words and looks at nothing else.
 *
 * Words are stored with release and loaded with acquire order, which costs nothing on x86: a reader
 * that sees a word of a change sees the odd sequence number, too.
 */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/table.h"

enum { WORD = sizeof(uint64_t), ENTRY_WORDS_MAX = 704, CACHE_LINE = 64, FETCH_LINES = 7 };

/* Of an entry in words; most answers fit into the first. */
static const size_t sizes[TABLE_SIZES] = {72, 128, ENTRY_WORDS_MAX};

typedef _Atomic uint64_t word;

struct table_entry {
    struct table_entry *newer, *older; /* under the lock; of spare ones: the next */
    uint64_t hash;                     /* under the lock */
    size_t size;                       /* index into `sizes`; never changes */
    word shape;                        /* struct shape */
    word words[];                      /* sizes[size] of them */
};

/* Where things are: texts and rows begin after the question's words, the answer's pieces follow. */
struct shape {
    uint64_t texts : 12; /* words of the texts */
    uint64_t rows : 12;  /* words of the rows */
    uint64_t head : 12;  /* words of the answer up to the end of `config` */
    uint64_t note : 12;  /* first word of the answer after the end of `note` */
    uint64_t stamp : 12; /* and after the end of `stamp`, its last text */
};
_Static_assert(sizeof(struct shape) == WORD, "a shape is read as one word");

/* Words of the answer, whole. */
enum {
    ANSWER_WORDS = sizeof(struct gemmd_answer) / WORD,
    MODULE_WORD = offsetof(struct gemmd_answer, module) / WORD,
    TARGET_WORD = offsetof(struct gemmd_answer, target) / WORD,
};
_Static_assert(sizeof(struct gemmd_answer) - offsetof(struct gemmd_answer, stamp) -
                       sizeof(((struct gemmd_answer *)0)->stamp) < WORD,
               "a field behind the stamp would not be copied");
_Static_assert(sizeof(struct gemmd_answer) % WORD == 0, "an answer is copied by words");

static uint64_t load(const word *w)
{
    return atomic_load_explicit(w, memory_order_acquire);
}

static void store(word *w, uint64_t v)
{
    atomic_store_explicit(w, v, memory_order_release);
}

static struct shape shape_of(const struct table_entry *e)
{
    uint64_t v = load(&e->shape);
    struct shape s;
    memcpy(&s, &v, sizeof(s));
    return s;
}

static size_t words_of(const struct shape *s)
{
    return (size_t)QUESTION_WORDS + s->texts + s->rows + s->head + s->note - MODULE_WORD +
           s->stamp - TARGET_WORD;
}

/* False: it is being changed, and says nothing. */
static bool fits(const struct shape *s, const struct table_entry *e)
{
    return s->head <= ANSWER_WORDS && s->note >= MODULE_WORD && s->note <= ANSWER_WORDS &&
           s->stamp >= TARGET_WORD && s->stamp <= ANSWER_WORDS && words_of(s) <= sizes[e->size];
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

/* The texts of a question lie one behind the other, each with its zero; their words are read one by
 * one. */
static bool same_texts(const word *at, size_t words, const struct question *q)
{
    size_t i = 0;
    const char *text = q->texts[0];
    for (size_t n = 0; n < words; n++) {
        uint64_t v = load(&at[n]);
        for (unsigned shift = 0; shift < 64; shift += 8) {
            char c = (char)(v >> shift);
            if (c != *text++) {
                return false;
            }
            if (!c && ++i == QUESTION_TEXTS) {
                return true;
            }
            text = c ? text : q->texts[i];
        }
    }
    return false;
}

static bool same(const struct table_entry *e, const struct question *q)
{
    const struct shape s = shape_of(e);
    uint64_t differ = s.rows ^ q->n_rows;
    for (size_t i = 0; i < QUESTION_WORDS; i++) {
        differ |= load(&e->words[i]) ^ q->words[i];
    }
    if (differ || !fits(&s, e) || !same_texts(&e->words[QUESTION_WORDS], s.texts, q)) {
        return false;
    }
    for (size_t i = 0; i < q->n_rows; i++) {
        differ |= load(&e->words[QUESTION_WORDS + s.texts + i]) ^ (uint64_t)q->rows[i];
    }
    return !differ;
}

static void fetch(const struct table_entry *e)
{
    for (int i = 0; i < FETCH_LINES; i++) {
        __builtin_prefetch((const char *)e + (ptrdiff_t)(i * CACHE_LINE));
    }
}

/* NULL: not there, or the table is being changed. */
static const struct table_entry *look(const struct table_slot *slots, uint64_t hash,
                                      const struct question *q)
{
    size_t at = hash % TABLE_SLOTS;
    for (size_t tried = 0; slots && tried < TABLE_SLOTS; tried++) {
        const struct table_entry *e =
            atomic_load_explicit(&slots[at].entry, memory_order_acquire);
        if (!e) {
            return NULL;
        }
        if (load(&slots[at].hash) == hash) {
            fetch(e);
            if (same(e, q)) {
                return e;
            }
        }
        at = (at + 1) % TABLE_SLOTS;
    }
    return NULL;
}

static const word *copy(uint64_t *out, const word *from, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++) {
        out[i] = load(from++);
    }
    return from;
}

/* Into a struct of this library's size. */
static void give(const struct table_entry *e, uint64_t out[ANSWER_WORDS])
{
    const struct shape s = shape_of(e);
    if (!fits(&s, e)) {
        return; /* whoever reads without the lock will notice */
    }
    const word *from = copy(out, &e->words[QUESTION_WORDS + s.texts + s.rows], 0, s.head);
    from = copy(out, from, MODULE_WORD, s.note);
    copy(out, from, TARGET_WORD, s.stamp);
}

static bool get_locked(struct table *t, uint64_t hash, const struct question *q,
                       struct gemmd_answer *out)
{
    struct gemmd_answer a = answer_none();
    pthread_mutex_lock(&t->lock);
    const struct table_entry *e = look(atomic_load(&t->slots), hash, q);
    if (e) {
        give(e, (uint64_t *)(void *)&a);
    }
    pthread_mutex_unlock(&t->lock);
    if (e) {
        answer_give(&a, out);
    }
    return e != NULL;
}

bool table_get(struct table *t, const struct question *q, struct gemmd_answer *out)
{
    uint64_t hash = question_hash(q);
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_acquire);
    size_t size = out->size;
    if (before % 2 == 0 && size == sizeof(*out)) {
        const struct table_slot *slots = atomic_load_explicit(&t->slots, memory_order_acquire);
        const struct table_entry *e = look(slots, hash, q);
        if (e) {
            give(e, (uint64_t *)(void *)out);
            if (atomic_load_explicit(&t->sequence, memory_order_acquire) == before) {
                return true;
            }
        }
        out->size = size;
    }
    return get_locked(t, hash, q, out);
}

/* ---- changing, under the lock ------------------------------------------------------------------ */

/* An entry of at least so many words that is in nobody's hands. */
static struct table_entry *entry_new(struct table *t, size_t words)
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
    e = aligned_alloc(CACHE_LINE, (sizeof(*e) + sizes[size] * WORD + CACHE_LINE - 1) / CACHE_LINE *
                                      CACHE_LINE);
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
        store(&e->words[at + i], v);
    }
    return at + words;
}

static size_t words_to(size_t bytes)
{
    return (bytes + WORD - 1) / WORD;
}

/* The question's texts in words, zeros at the end; 0: too long to be kept. */
static size_t join_texts(const struct question *q, char out[ENTRY_WORDS_MAX * WORD])
{
    size_t n = 0, max = (ENTRY_WORDS_MAX - QUESTION_WORDS - ANSWER_WORDS) * WORD;
    for (size_t i = 0; i < QUESTION_TEXTS; i++) {
        size_t length = strlen(q->texts[i]) + 1;
        if (length > max - n) {
            return 0;
        }
        memcpy(out + n, q->texts[i], length);
        n += length;
    }
    memset(out + n, 0, WORD);
    return words_to(n);
}

/* A new entry with a question and its answer; NULL: it is not kept. */
static struct table_entry *make(struct table *t, const struct question *q,
                                const struct gemmd_answer *given)
{
    char texts[ENTRY_WORDS_MAX * WORD];
    struct gemmd_answer a = *given;
    a.local = true;
    a.size = sizeof(a);
    struct shape s = {
        .texts = (uint16_t)join_texts(q, texts),
        .rows = (uint16_t)q->n_rows,
        .head = (uint16_t)words_to(offsetof(struct gemmd_answer, config) + strlen(a.config) + 1),
        .note = (uint16_t)words_to(offsetof(struct gemmd_answer, note) + strlen(a.note) + 1),
        .stamp = (uint16_t)words_to(offsetof(struct gemmd_answer, stamp) + strlen(a.stamp) + 1),
    };
    bool kept = s.texts && q->n_rows < ENTRY_WORDS_MAX && words_of(&s) <= ENTRY_WORDS_MAX;
    struct table_entry *e = kept ? entry_new(t, words_of(&s)) : NULL;
    if (!e) {
        return NULL;
    }
    uint64_t shape;
    memcpy(&shape, &s, sizeof(shape));
    store(&e->shape, shape);
    e->hash = question_hash(q);
    size_t at = put_words(e, 0, q->words, QUESTION_WORDS);
    at = put_words(e, at, texts, s.texts);
    at = put_words(e, at, q->rows, s.rows);
    at = put_words(e, at, &a, s.head);
    at = put_words(e, at, (const char *)&a + MODULE_WORD * WORD, s.note - (size_t)MODULE_WORD);
    put_words(e, at, (const char *)&a + TARGET_WORD * WORD, s.stamp - (size_t)TARGET_WORD);
    return e;
}

static void slot_set(struct table_slot *s, struct table_entry *e)
{
    store(&s->hash, e ? e->hash : 0);
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
        size_t home = entry_at(slots, j)->hash & MASK;
        if (((j - home) & MASK) >= ((j - i) & MASK)) { /* else it could not be reached any more */
            slot_set(&slots[i], entry_at(slots, j));
            i = j;
        }
    }
    slot_set(&slots[i], NULL);
}

static void take(struct table *t, struct table_slot *slots, struct table_entry *e)
{
    slots_take(slots, e);
    *(e->older ? &e->older->newer : &t->oldest) = e->newer;
    *(e->newer ? &e->newer->older : &t->newest) = e->older;
    e->newer = t->spare[e->size];
    t->spare[e->size] = e;
    t->n--;
}

static void insert(struct table *t, struct table_slot *slots, struct table_entry *e)
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

static void change(struct table *t, struct table_slot *slots, const struct question *q,
                   const struct gemmd_answer *a)
{
    unsigned before = atomic_load_explicit(&t->sequence, memory_order_relaxed);
    atomic_store_explicit(&t->sequence, before + 1, memory_order_relaxed);
    struct table_entry *old =
        (struct table_entry *)(void *)(uintptr_t)look(slots, question_hash(q), q);
    struct table_entry *e = make(t, q, a);
    if (old) { /* also when there is no memory for the new one: what it says is no longer so */
        take(t, slots, old);
    }
    if (e && t->n == TABLE_MAX) {
        take(t, slots, t->oldest);
    }
    if (e) {
        insert(t, slots, e);
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
        change(t, slots, q, a);
    }
    pthread_mutex_unlock(&t->lock);
}
