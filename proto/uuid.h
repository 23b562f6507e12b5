/* SPDX-License-Identifier: Apache-2.0 */
/*
 * UUIDs of GPUs as people write them. CUDA_VISIBLE_DEVICES takes a UUID in upper or lower case, and
 * shortened to a beginning that no other GPU has; so does gemmd wherever a UUID names a device.
 * Sockets have the canonical UUID in their name: whole, "GPU" or "MIG", and lower-case digits.
 */
#ifndef GEMMD_PROTO_UUID_H
#define GEMMD_PROTO_UUID_H

#include <stdbool.h>

enum { UUID_LENGTH = 40 }; /* of a canonical one: GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 */

/* The UUID that a device's spec names ("cuda:GPU-8932F937", "MIG-..."), in canonical case, whole or
 * shortened. False: the spec names a device by something else. */
bool uuid_of_spec(const char *spec, char out[UUID_LENGTH + 1]);
/* Whether both may be of one GPU: they are equal, or one is the beginning of the other. */
bool uuid_match(const char *a, const char *b);

#endif
