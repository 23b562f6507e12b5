/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of other hosts are not trusted: gemmd-fleet checks the row's form and numbers, and that the
 * key follows from the problem. Before the row answers, a daemon compiles, verifies and times the
 * config.
 */
#ifndef GEMMD_FLEET_IMPORT_H
#define GEMMD_FLEET_IMPORT_H

#include "proto/message.h"

enum { IMPORT_BYTES_MAX = 64 * 1024 };

/* Reads the JSON of the row of this key. ERROR_INVALID with the reason: the row is not to be
 * used. */
int import_read_row(const char *json, const char *key, struct best *out, struct error *err);
/* Reads the JSON of an object of the schema. ERROR_INVALID, ERROR_NO_MEMORY. */
int import_decode(const struct schema *schema, const char *json, void *out, struct error *err);
/* Replaces control characters, which a terminal would obey, by '?'. */
void import_clean_text(char *text);
/* Writes a uuid's 32 digits without its dashes. False: no uuid. */
bool import_read_uuid(const char *text, char out[HASH_HEX]);

#endif
