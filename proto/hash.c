/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#define XXH_INLINE_ALL /* inlined, because every hit hashes its query */
#include <xxhash.h>

#include "proto/hash.h"

uint64_t hash64(const void *data, size_t n)
{
    return XXH3_64bits(data, n);
}

/* Writes the hash in the canonical, big-endian form: the same text on every machine. */
static void to_hex(XXH128_hash_t hash, char out[HASH_HEX])
{
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t bytes;
    XXH128_canonicalFromHash(&bytes, hash);
    for (size_t i = 0; i < sizeof(bytes.digest); i++) {
        out[2 * i] = digits[bytes.digest[i] >> 4];
        out[2 * i + 1] = digits[bytes.digest[i] & 15];
    }
    out[HASH_HEX - 1] = 0;
}

void hash128_hex(const void *data, size_t n, char out[HASH_HEX])
{
    to_hex(XXH3_128bits(data, n), out);
}

uint64_t hash128_front(const void *data, size_t n)
{
    return XXH3_128bits(data, n).high64;
}

void hash128_chain(uint64_t hash[2], const void *data, size_t n)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(data, n, hash[0]);
    hash[0] = h.low64;
    hash[1] = hash[1] * UINT64_C(0x9e3779b97f4a7c15) + h.high64;
}

bool hash_is_hex(const char *text)
{
    size_t n = strspn(text, "0123456789abcdef");
    return n == HASH_HEX - 1 && !text[n];
}

/* hash_state is XXH3's state under another name */
static XXH3_state_t *hash_get_state(struct hash_state *h)
{
    return (XXH3_state_t *)(void *)h;
}

struct hash_state *hash_new(void)
{
    XXH3_state_t *h = XXH3_createState();
    if (h) {
        XXH3_128bits_reset(h);
    }
    return (struct hash_state *)(void *)h;
}

void hash_add(struct hash_state *h, const void *data, size_t n)
{
    if (h && n > 0) {
        XXH3_128bits_update(hash_get_state(h), data, n);
    }
}

void hash_add_str(struct hash_state *h, const char *text)
{
    hash_add(h, text, strlen(text) + 1);
}

void hash_end_hex(struct hash_state *h, char out[HASH_HEX])
{
    if (!h) {
        out[0] = 0;
        return;
    }
    to_hex(XXH3_128bits_digest(hash_get_state(h)), out);
    XXH3_freeState(hash_get_state(h));
}
