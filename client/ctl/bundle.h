/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bundle: results of a host in one signed file, an archive (archive.h) of
 *
 *   manifest.json    generation, origin, stamps; name, size and SHA-256 of each file that follows
 *   manifest.sig     Ed25519 signature of manifest.json
 *   rows.json        an export (gemmctl import reads it)
 *   trials.json      the trials of these rows: evidence for people
 *   modules/<id>     compiled kernels (--modules)
 *
 * The signature covers the manifest, the manifest's hashes cover the other files, and the headers
 * and padding of the archive follow from names and sizes: a change of any byte is found.
 */
#ifndef GEMMD_CLIENT_CTL_BUNDLE_H
#define GEMMD_CLIENT_CTL_BUNDLE_H

#include "client/ctl/archive.h"
#include "client/ctl/formats.h"

enum { BUNDLE_VERSION = 1 };

struct bundle {
    unsigned char *data; /* owned: the file */
    size_t size;
    json_t *manifest; /* owned */
    char signer[SIGNER_HEX];
};

/* Reads a bundle and checks every byte. DONE, or FAILED after the error message. Call bundle_close
 * in both cases. */
int bundle_open(struct bundle *b, const char *path, const char *public_key);
void bundle_close(struct bundle *b);
/* The next file behind `a`, which begins as {0}: the manifest, the signature, the files. False: the
 * end. */
bool bundle_next(const struct bundle *b, struct archive *a, struct archive_file *out);
/* The JSON document of a file of the bundle, owned; NULL after the error message. */
json_t *bundle_read_json(const struct bundle *b, const char *name);

/* bundle_install.c */
int bundle_install(struct subject *s, const struct bundle *b);

#endif
