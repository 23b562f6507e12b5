/* SPDX-License-Identifier: Apache-2.0 */
/* Direct-mapped: a newer question takes the slot of an older one (memo.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/memo.h"
#include "proto/hash.h"

void memo_deinit(struct memo *m)
{
    for (size_t i = 0; m->slots && i < MEMO_SLOTS; i++) {
        free(m->slots[i].bytes);
    }
    free(m->slots);
    m->slots = NULL;
}

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

const struct cache_entry *memo_find(const struct memo *m, const struct cache *c,
                                    const uint8_t *tail, size_t n)
{
    if (!m->slots || n > MEMO_BYTES_MAX) {
        return NULL;
    }
    uint64_t hash = hash64(tail, n);
    const struct memo_slot *s = &m->slots[hash % MEMO_SLOTS];
    bool same = s->hash == hash && s->version == c->version && s->len == n &&
                memcmp(s->bytes, tail, n) == 0;
    return same ? s->entry : NULL;
}

void memo_put(struct memo *m, const struct cache *c, const uint8_t *tail, size_t n,
              const struct cache_entry *e)
{
    if (n > MEMO_BYTES_MAX) {
        return;
    }
    m->slots = m->slots ? m->slots : calloc(MEMO_SLOTS, sizeof(*m->slots));
    if (!m->slots) {
        return;
    }
    uint64_t hash = hash64(tail, n);
    struct memo_slot *s = &m->slots[hash % MEMO_SLOTS];
    uint8_t *bytes = s->bytes && s->len >= n ? s->bytes : realloc(s->bytes, n);
    if (bytes) {
        memcpy(bytes, tail, n);
        *s = (struct memo_slot){.hash = hash, .version = c->version, .len = (uint32_t)n,
                                .bytes = bytes, .entry = e};
    }
}
