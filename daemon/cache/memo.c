/* SPDX-License-Identifier: Apache-2.0 */
/* An open-addressing table of records, one for each query (memo.h). Each record is also in the list
 * of the cache entry that answers the query. */
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/entry.h"
#include "daemon/cache/memo.h"
#include "proto/hash.h"

enum { FIRST_CAPACITY = 1024, CACHE_LINE = 64, ENTRY_LINES = 7 };

struct memo_record {
    struct memo_record *next;  /* the next older record of the same entry */
    struct cache_entry *entry; /* borrowed: the entry calls memo_forget before it is freed */
    uint64_t hash;
    uint32_t len;
    uint8_t bytes[];
};

size_t memo_split(const uint8_t *data, size_t n, uint32_t *id)
{
    if (n < 8 || data[0] != 0x94 || data[1] != 0) {
        return 0;
    }
    size_t width = data[2] < 0x80 ? 0 : data[2] == 0xcc ? 1 : data[2] == 0xcd ? 2 : 4;
    if (width == 4 && data[2] != 0xce) {
        return 0;
    }
    *id = width ? 0 : data[2];
    for (size_t i = 0; i < width; i++) {
        *id = *id << 8 | data[3 + i];
    }
    return 3 + width;
}

/* ---- the table ------------------------------------------------------------------------------- */

/* Prefetches the cache lines of memory that a hit will read: mostly they are not in the processor's
 * cache. */
static void memo_prefetch_slot(const struct memo_slot *s)
{
    __builtin_prefetch(s->record);
    __builtin_prefetch((const char *)s->record + CACHE_LINE);
    for (int i = 0; i < ENTRY_LINES; i++) {
        __builtin_prefetch((const char *)&s->entry->shared + (ptrdiff_t)(i * CACHE_LINE));
    }
}

/* Returns the slot with the query's bytes, or the free slot for them. The table is never full. */
static struct memo_slot *memo_probe_slot(const struct memo *m, uint64_t hash,
                                         const uint8_t *question, size_t n)
{
    size_t mask = m->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct memo_slot *s = &m->slots[i];
        if (!s->record) {
            return s;
        }
        if (s->hash == hash) {
            memo_prefetch_slot(s);
            if (s->record->len == n && memcmp(s->record->bytes, question, n) == 0) {
                return s;
            }
        }
    }
}

const struct cache_entry *memo_find(const struct memo *m, const uint8_t *question, size_t n)
{
    return memo_find_hashed(m, hash64(question, n), question, n);
}

uint64_t memo_hash(const struct memo *m, const uint8_t *question, size_t n)
{
    uint64_t hash = hash64(question, n);
    if (m->capacity) {
        __builtin_prefetch(&m->slots[hash & (m->capacity - 1)]);
    }
    return hash;
}

void memo_prefetch(const struct memo *m, uint64_t hash)
{
    const struct memo_slot *s = m->capacity ? &m->slots[hash & (m->capacity - 1)] : NULL;
    if (s && s->hash == hash) { /* a query is mostly at its home slot */
        memo_prefetch_slot(s);
    }
}

const struct cache_entry *memo_find_hashed(const struct memo *m, uint64_t hash,
                                           const uint8_t *question, size_t n)
{
    return m->capacity && n <= MEMO_QUESTION_MAX ? memo_probe_slot(m, hash, question, n)->entry
                                                 : NULL;
}

static void memo_insert_record(struct memo *m, struct memo_record *r)
{
    size_t mask = m->capacity - 1, i = r->hash & mask;
    while (m->slots[i].record) {
        i = (i + 1) & mask;
    }
    m->slots[i] = (struct memo_slot){.hash = r->hash, .record = r, .entry = r->entry};
}

static int memo_grow_table(struct memo *m)
{
    struct memo grown = {.capacity = m->capacity ? 2 * m->capacity : FIRST_CAPACITY};
    grown.slots = calloc(grown.capacity, sizeof(*grown.slots));
    if (!grown.slots) {
        return -1;
    }
    for (size_t i = 0; i < m->capacity; i++) {
        if (m->slots[i].record) {
            memo_insert_record(&grown, m->slots[i].record);
        }
    }
    free(m->slots);
    m->slots = grown.slots;
    m->capacity = grown.capacity;
    return 0;
}

/* Empties a record's slot. A search stops at an empty slot, so each later record that the search
 * would no longer reach moves forward. */
static void memo_take_out(struct memo *m, const struct memo_record *r)
{
    size_t mask = m->capacity - 1, i = r->hash & mask;
    while (m->slots[i].record != r) {
        i = (i + 1) & mask;
    }
    for (size_t j = (i + 1) & mask; m->slots[j].record; j = (j + 1) & mask) {
        size_t home = m->slots[j].hash & mask;
        if (((j - home) & mask) >= ((j - i) & mask)) {
            m->slots[i] = m->slots[j];
            i = j;
        }
    }
    m->slots[i] = (struct memo_slot){0};
    m->n--;
}

/* ---- records --------------------------------------------------------------------------------- */

static size_t memo_size_of(const struct memo_record *r)
{
    return sizeof(*r) + r->len;
}

static void memo_drop_record(struct memo *m, struct memo_record *r)
{
    memo_take_out(m, r);
    m->bytes -= memo_size_of(r);
    free(r);
}

void memo_forget(struct memo *m, struct cache_entry *e)
{
    for (struct memo_record *next, *r = e->asked; r; r = next) {
        next = r->next;
        memo_drop_record(m, r);
    }
    e->asked = NULL;
}

static void memo_forget_all(struct memo *m)
{
    for (size_t i = 0; i < m->capacity; i++) {
        if (m->slots[i].record) {
            m->slots[i].record->entry->asked = NULL;
            free(m->slots[i].record);
        }
    }
    memset(m->slots, 0, m->capacity * sizeof(*m->slots));
    m->n = m->bytes = 0;
}

void memo_deinit(struct memo *m)
{
    free(m->slots);
    *m = (struct memo){0};
}

/* Drops an entry's oldest record when the entry has more than MEMO_PER_ENTRY records. */
static void memo_limit_entry(struct memo *m, struct cache_entry *e)
{
    struct memo_record **at = &e->asked;
    for (int i = 0; i < MEMO_PER_ENTRY && *at; i++) {
        at = &(*at)->next;
    }
    if (*at) {
        memo_drop_record(m, *at);
        *at = NULL;
    }
}

void memo_put(struct memo *m, const uint8_t *question, size_t n, struct cache_entry *e)
{
    struct memo_record *r;
    if (n > MEMO_QUESTION_MAX || memo_find(m, question, n)) {
        return;
    }
    if (m->bytes >= MEMO_BYTES_MAX) {
        memo_forget_all(m);
    }
    if ((2 * m->n >= m->capacity && memo_grow_table(m)) || !(r = malloc(sizeof(*r) + n))) {
        return;
    }
    *r = (struct memo_record){
        .next = e->asked, .entry = e, .hash = hash64(question, n), .len = (uint32_t)n};
    memcpy(r->bytes, question, n);
    memo_insert_record(m, r);
    m->n++;
    m->bytes += memo_size_of(r);
    e->asked = r;
    memo_limit_entry(m, e);
}
