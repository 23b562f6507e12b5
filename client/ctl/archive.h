/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Archives and signatures of bundles (bundle.c). An archive is a tar (ustar) in which each byte
 * follows from the names and contents of its files: archive_add writes a fixed header and zeros as
 * padding, and archive_next accepts no other bytes. So hashes of the contents cover the whole file.
 */
#ifndef GEMMD_CLIENT_CTL_ARCHIVE_H
#define GEMMD_CLIENT_CTL_ARCHIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "proto/error.h"

enum { ARCHIVE_NAME_MAX = 100 };

/* Write errors stay in `f`. */
void archive_add(FILE *f, const char *name, const void *data, size_t size);
void archive_end(FILE *f);

struct archive {
    const unsigned char *data; /* borrowed */
    size_t size, at;
};
struct archive_file {
    char name[ARCHIVE_NAME_MAX];
    const unsigned char *data; /* in the archive's data */
    size_t size;
};
/* Reads the next file; 0, ARCHIVE_END, or ERROR_INVALID: the archive is cut short or damaged. */
enum { ARCHIVE_END = 1 };
int archive_next(struct archive *a, struct archive_file *out, struct error *err);

/* ---- signing.c, or signing_none.c in a build without libcrypto --------------------------------
 */

/* Keys are PEM files of Ed25519: `openssl genpkey -algorithm ed25519`, `openssl pkey -pubout`. All
 * functions return 0, or ERROR_INVALID, ERROR_DENIED, ERROR_NO_MEMORY, and without libcrypto
 * ERROR_NOT_FOUND. */
enum { SIGNATURE_BYTES = 64, SIGNER_HEX = 17, SHA256_HEX = 65 };

/* `signer` gets a name of the key: the beginning of the public key's SHA-256. */
int signing_sign(const char *private_key, const void *data, size_t size,
                 unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                 struct error *err);
/* ERROR_DENIED: the key did not sign these bytes. */
int signing_verify(const char *public_key, const void *data, size_t size,
                   const unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                   struct error *err);
int signing_hash(const void *data, size_t size, char hex[SHA256_HEX], struct error *err);

#endif
