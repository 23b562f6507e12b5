/* SPDX-License-Identifier: Apache-2.0 */
/* An array used as a ring; it is searched by hash, and only after a miss of the cache (cache.h). */
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/cache.h"

struct partial {
    char key[HASH_HEX];
    size_t search_len, answer_len;
    uint8_t bytes[]; /* the search, then the answer */
};

void partials_deinit(struct partials *x)
{
    for (unsigned i = 0; i < PARTIALS_MAX; i++) {
        free(x->slots[i]);
    }
    *x = (struct partials){0};
}

/* Returns the slot of the search, or PARTIALS_MAX when no slot has it. */
static unsigned partials_find_search(const struct partials *x, const struct wire_buf *search,
                                     uint64_t hash)
{
    unsigned i = 0;
    for (; i < PARTIALS_MAX; i++) {
        const struct partial *p = x->hashes[i] == hash ? x->slots[i] : NULL;
        if (p && p->search_len == search->len && memcmp(p->bytes, search->data, search->len) == 0) {
            break;
        }
    }
    return i;
}

void partials_put(struct partials *x, const char key[HASH_HEX], const struct wire_buf *search,
                  const struct wire_buf *answer)
{
    uint64_t hash = hash64(search->data, search->len);
    unsigned at = partials_find_search(x, search, hash);
    if (at == PARTIALS_MAX) {
        at = x->next;
        x->next = (x->next + 1) % PARTIALS_MAX;
    }
    free(x->slots[at]);
    x->slots[at] = NULL;
    if (search->failed || answer->failed || search->len + answer->len > PARTIAL_BYTES_MAX) {
        return;
    }
    struct partial *p = malloc(sizeof(*p) + search->len + answer->len);
    if (!p) {
        return;
    }
    memcpy(p->key, key, sizeof(p->key));
    p->search_len = search->len;
    p->answer_len = answer->len;
    memcpy(p->bytes, search->data, search->len);
    memcpy(p->bytes + search->len, answer->data, answer->len);
    x->slots[at] = p;
    x->hashes[at] = hash;
}

bool partials_reply(const struct partials *x, const struct wire_buf *search, struct wire_buf *out)
{
    unsigned at = partials_find_search(x, search, hash64(search->data, search->len));
    if (at == PARTIALS_MAX) {
        return false;
    }
    const struct partial *p = x->slots[at];
    wire_put_raw(out, p->bytes + p->search_len, p->answer_len);
    return true;
}

void partials_forget(struct partials *x, const char key[HASH_HEX])
{
    for (unsigned i = 0; i < PARTIALS_MAX; i++) {
        if (x->slots[i] && strcmp(x->slots[i]->key, key) == 0) {
            free(x->slots[i]);
            x->slots[i] = NULL;
        }
    }
}
