/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row that another host published is another host's word: gemmd-fleet checks its form, its
 * numbers, and that its key follows from its problem. The daemon checks whether its config exists,
 * compiles, verifies and times it before the row answers.
 */
#ifndef GEMMD_FLEET_IMPORT_H
#define GEMMD_FLEET_IMPORT_H

#include "proto/message.h"

enum { IMPORT_BYTES_MAX = 64 * 1024 };

/* Reads the JSON of the row of this key. ERROR_INVALID with the reason: the row is not to be
 * used. */
int import_read_row(const char *json, const char *key, struct best *out, struct error *err);
/* Writes a uuid's 32 digits without its dashes. False: no uuid. */
bool import_read_uuid(const char *text, char out[HASH_HEX]);

#endif
