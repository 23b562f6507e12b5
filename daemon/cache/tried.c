/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "daemon/cache/cache.h"

void tried_deinit(struct tried *x)
{
    for (size_t i = 0; i < x->keys.capacity; i++) {
        free(x->keys.slots[i]);
    }
    hash_table_deinit(&x->keys);
    holdings_deinit(&x->held);
}

static bool tried_is_key(const void *object, const void *id)
{
    return ((const struct tried_key *)object)->id.back == ((const struct id *)id)->back;
}

/* Returns NULL when the key is not counted here. */
static struct tried_key *tried_find_key(const struct tried *x, const char *id)
{
    const struct id wanted = id_read(id);
    return hash_table_find(&x->keys, wanted.front, tried_is_key, &wanted);
}

bool tried_has(const struct tried *x, const char *id)
{
    return tried_find_key(x, id) != NULL;
}

bool tried_is_of(const struct tried *x, const char *id, uint32_t uid)
{
    const struct tried_key *key = tried_find_key(x, id);
    return key && key->uid == uid;
}

static int tried_add_key(struct tried *x, const char *id, uint32_t uid, struct error *err)
{
    int status = hash_table_reserve(&x->keys, x->keys.n + 1, err);
    struct tried_key *key = status ? NULL : malloc(sizeof(*key));
    if (!key || !holdings_add(&x->held, uid)) {
        free(key);
        return error_set(err, ERROR_NO_MEMORY, "no memory to count one more key");
    }
    *key = (struct tried_key){.id = id_read(id), .uid = uid, .asked = 1};
    hash_table_put(&x->keys, key);
    return 0;
}

int tried_ask(struct tried *x, const char *id, uint32_t uid, struct error *err)
{
    struct tried_key *key = tried_find_key(x, id);
    if (!key) {
        return tried_add_key(x, id, uid, err);
    }
    key->asked++;
    return 0;
}

static void tried_drop_unused(struct tried *x, struct tried_key *key)
{
    if (key->asked == 0 && !key->kept) {
        holdings_remove(&x->held, key->uid);
        hash_table_remove(&x->keys, key);
        free(key);
    }
}

void tried_answered(struct tried *x, const char *id, bool kept)
{
    struct tried_key *key = tried_find_key(x, id);
    if (key) {
        key->asked--;
        key->kept |= kept;
        tried_drop_unused(x, key);
    }
}

void tried_remove(struct tried *x, const char *id)
{
    struct tried_key *key = tried_find_key(x, id);
    if (key) {
        key->kept = false;
        tried_drop_unused(x, key);
    }
}
