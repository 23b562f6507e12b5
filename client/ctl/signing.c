/* SPDX-License-Identifier: Apache-2.0 */
/* Signatures and hashes by OpenSSL's libcrypto. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "client/ctl/archive.h"

enum { PUBLIC_BYTES = 32, SHA256_BYTES = 32 };

static int signing_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "libcrypto failed: no memory");
}

static void signing_write_hex(const unsigned char *bytes, size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

int signing_hash(const void *data, size_t size, char hex[SHA256_HEX], struct error *err)
{
    unsigned char hash[SHA256_BYTES];
    if (!EVP_Digest(data, size, hash, NULL, EVP_sha256(), NULL)) {
        return signing_no_memory(err);
    }
    signing_write_hex(hash, sizeof(hash), hex);
    return 0;
}

static int signing_name_key(EVP_PKEY *key, char signer[SIGNER_HEX], struct error *err)
{
    unsigned char public[PUBLIC_BYTES];
    size_t n = sizeof(public);
    char hex[SHA256_HEX];
    if (!EVP_PKEY_get_raw_public_key(key, public, &n)) {
        return signing_no_memory(err);
    }
    int r = signing_hash(public, n, hex, err);
    snprintf(signer, SIGNER_HEX, "%.16s", r ? "" : hex);
    return r;
}

/* Reads a key file of the kind `is_private`. */
static int signing_read_key(const char *path, bool is_private, EVP_PKEY **out, struct error *err)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    if (!f || fstat(fileno(f), &st)) {
        return error_set(err, ERROR_INVALID, "cannot read the key %s: %s", path, strerror(errno));
    }
    const bool is_open = is_private && S_ISREG(st.st_mode) && st.st_mode & 077;
    *out = is_open      ? NULL
           : is_private ? PEM_read_PrivateKey(f, NULL, NULL, NULL)
                        : PEM_read_PUBKEY(f, NULL, NULL, NULL);
    fclose(f);
    if (is_open) {
        return error_set(err, ERROR_INVALID,
                         "other users may read the private key %s: make a new key, or chmod 600",
                         path);
    }
    if (!*out || EVP_PKEY_id(*out) != EVP_PKEY_ED25519) {
        EVP_PKEY_free(*out);
        return error_set(err, ERROR_INVALID, "%s is no %s key of Ed25519 (%s)", path,
                         is_private ? "private" : "public",
                         is_private ? "openssl genpkey -algorithm ed25519"
                                    : "openssl pkey -in PRIVATE-KEY -pubout");
    }
    return 0;
}

int signing_sign(const char *private_key, const void *data, size_t size,
                 unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                 struct error *err)
{
    EVP_PKEY *key;
    size_t n = SIGNATURE_BYTES;
    int r = signing_read_key(private_key, true, &key, err);
    if (r) {
        return r;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool made = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, key) == 1 &&
                EVP_DigestSign(ctx, signature, &n, data, size) == 1;
    r = made ? signing_name_key(key, signer, err) : signing_no_memory(err);
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return r;
}

int signing_verify(const char *public_key, const void *data, size_t size,
                   const unsigned char signature[SIGNATURE_BYTES], char signer[SIGNER_HEX],
                   struct error *err)
{
    EVP_PKEY *key;
    int r = signing_read_key(public_key, false, &key, err);
    if (r) {
        return r;
    }
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool begun = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, key) == 1;
    bool valid = begun && EVP_DigestVerify(ctx, signature, SIGNATURE_BYTES, data, size) == 1;
    r = signing_name_key(key, signer, err);
    if (r == 0 && !begun) {
        r = signing_no_memory(err);
    } else if (r == 0 && !valid) {
        r = error_set(err, ERROR_DENIED,
                      "the signature is not that of the key %s (%s): the file is damaged, was "
                      "changed, or another key signed it",
                      signer, public_key);
    }
    EVP_MD_CTX_free(ctx);
    EVP_PKEY_free(key);
    return r;
}
