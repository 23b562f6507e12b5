/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "client/answer.h"
#include "client/table.h"
#include "proto/hash.h"

struct table_entry {
    struct gemmd_answer answer;
    size_t n;
    uint8_t key[]; /* n bytes */
};

void table_init(struct table *t)
{
    pthread_mutex_init(&t->lock, NULL);
    t->sets = NULL;
}

void table_deinit(struct table *t)
{
    for (size_t i = 0; t->sets && i < TABLE_SETS; i++) {
        for (size_t j = 0; j < TABLE_WAYS; j++) {
            free(t->sets[i].entry[j]);
        }
    }
    free(t->sets);
    t->sets = NULL;
    pthread_mutex_destroy(&t->lock);
}

/* The way that holds the key; TABLE_WAYS: none does. */
static size_t find(const struct table_set *s, uint64_t hash, const void *key, size_t n)
{
    for (size_t i = 0; i < TABLE_WAYS; i++) {
        const struct table_entry *e = s->entry[i];
        if (s->hash[i] == hash && e && e->n == n && memcmp(e->key, key, n) == 0) {
            return i;
        }
    }
    return TABLE_WAYS;
}

bool table_get(struct table *t, const void *key, size_t n, struct gemmd_answer *out)
{
    uint64_t hash = hash64(key, n);
    pthread_mutex_lock(&t->lock);
    const struct table_set *s = t->sets ? &t->sets[hash % TABLE_SETS] : NULL;
    size_t way = s ? find(s, hash, key, n) : TABLE_WAYS;
    if (way < TABLE_WAYS) {
        answer_give(&s->entry[way]->answer, out);
    }
    pthread_mutex_unlock(&t->lock);
    return way < TABLE_WAYS;
}

static struct table_entry *entry_new(const void *key, size_t n, const struct gemmd_answer *a)
{
    struct table_entry *e = malloc(sizeof(*e) + n);
    if (e) {
        e->answer = *a;
        e->answer.local = true;
        e->n = n;
        memcpy(e->key, key, n);
    }
    return e;
}

void table_put(struct table *t, const void *key, size_t n, const struct gemmd_answer *a)
{
    struct table_entry *e = entry_new(key, n, a);
    uint64_t hash = hash64(key, n);
    pthread_mutex_lock(&t->lock);
    if (e && !t->sets) {
        t->sets = calloc(TABLE_SETS, sizeof(*t->sets));
    }
    if (e && t->sets) {
        struct table_set *s = &t->sets[hash % TABLE_SETS];
        size_t way = find(s, hash, key, n);
        if (way == TABLE_WAYS) {
            way = s->next;
            s->next = (s->next + 1) % TABLE_WAYS;
        }
        struct table_entry *old = s->entry[way];
        s->entry[way] = e;
        s->hash[way] = hash;
        e = old;
    }
    pthread_mutex_unlock(&t->lock);
    free(e);
}
