/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UUIDs of GPUs as users write them. CUDA_VISIBLE_DEVICES takes a UUID in upper or lower case, also
 * shortened to a unique beginning. gemmd does so wherever a UUID names a device. Names of sockets
 * have the canonical UUID: not shortened, with "GPU" or "MIG" and lower-case digits.
 */
#ifndef GEMMD_PROTO_UUID_H
#define GEMMD_PROTO_UUID_H

#include <stdbool.h>

enum {
    UUID_LENGTH = 40
}; /* length of a canonical UUID: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 */

/* The UUID in a device's spec ("cuda:GPU-8932F937", "MIG-..."), in canonical case, whole or
 * shortened. False: the spec has no UUID. */
bool uuid_of_spec(const char *spec, char out[UUID_LENGTH + 1]);
/* True when both may name one GPU: equal, or one begins with the other. */
bool uuid_match(const char *a, const char *b);

#endif
