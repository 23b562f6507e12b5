/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes (xxHash): 64 bits for hash tables and for checksums of database rows, 128 bits as hex for
 * names of contents (keys, variants, modules). */
#ifndef GEMMD_PROTO_HASH_H
#define GEMMD_PROTO_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HASH_HEX = 33 }; /* 32 hex digits and a zero */

uint64_t hash64(const void *data, size_t n);
void hash128_hex(const void *data, size_t n, char out[HASH_HEX]);
/* The hash of n texts with their final zeros: "a", "b" and "ab" differ. */
void hash128_texts(const char *const *texts, size_t n, char out[HASH_HEX]);
/* The number in the first 16 digits of hash128_hex. */
uint64_t hash128_front(const void *data, size_t n);
/* Replaces `hash` by a hash of its former value and the data: called once for each piece. */
void hash128_chain(uint64_t hash[2], const void *data, size_t n);
bool hash_is_hex(const char *text); /* 32 lower-case hex digits */

#endif
