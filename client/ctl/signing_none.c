/* SPDX-License-Identifier: Apache-2.0 */
/* In place of signing.c in a build without OpenSSL's libcrypto. */
#include "client/ctl/archive.h"

static int signing_refuse(struct error *err)
{
    return error_set(err, ERROR_NOT_FOUND,
                     "this gemmctl was built without OpenSSL's libcrypto, which signs bundles: "
                     "install libssl-dev (scripts/deps) and build again; or move results by "
                     "`gemmctl export` and `gemmctl import`");
}

int signing_sign(const char *private_key, const void *data, size_t size,
                 unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                 struct error *err)
{
    return signing_refuse(err);
}

int signing_verify(const char *public_key, const void *data, size_t size,
                   const unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                   struct error *err)
{
    return signing_refuse(err);
}

int signing_hash(const void *data, size_t size, char hex[SHA256_HEX], struct error *err)
{
    return signing_refuse(err);
}
