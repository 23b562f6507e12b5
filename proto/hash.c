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

void hash128_texts(const char *const *texts, size_t n, char out[HASH_HEX])
{
    XXH3_state_t state;
    XXH3_128bits_reset(&state);
    for (size_t i = 0; i < n; i++) {
        XXH3_128bits_update(&state, texts[i], strlen(texts[i]) + 1);
    }
    to_hex(XXH3_128bits_digest(&state), out);
}
