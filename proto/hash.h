/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes (xxHash): 64 bits for tables and row checksums, 128 bits as hex for content names. */
#ifndef GEMMD_PROTO_HASH_H
#define GEMMD_PROTO_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HASH_HEX = 33 }; /* 32 hex digits and a zero */

uint64_t hash64(const void *data, size_t n);
void hash128_hex(const void *data, size_t n, char out[HASH_HEX]);
/* The number in the first 16 digits of hash128_hex. */
uint64_t hash128_front(const void *data, size_t n);
/* Replaces `hash` by a hash of the former `hash` and the data, to hash several pieces. */
void hash128_chain(uint64_t hash[2], const void *data, size_t n);
bool hash_is_hex(const char *text); /* 32 lower-case hex digits */

/* Makes a 128-bit hash of several pieces. hash_new returns NULL without memory. With NULL, hash_add
 * does nothing, and hash_end_hex writes "", which is no hash. */
struct hash_state; /* heap */
struct hash_state *hash_new(void);
void hash_add(struct hash_state *h, const void *data, size_t n);
void hash_add_str(struct hash_state *h,
                  const char *text); /* hashes the final zero, too: "a","b" != "ab" */
void hash_end_hex(struct hash_state *h, char out[HASH_HEX]); /* frees h */

#endif
