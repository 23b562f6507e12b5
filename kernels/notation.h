/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short notation of a config, for people: "160x256 df s4 swap 2x1" instead of 17 fields. Each
 * target has its words (family_target.words), so the text means something only with a problem, and
 * with a target or the words of a single target.
 *
 *   160x256     the tile: rows, columns and length of the sum. The length is left out where the
 *               space has a single length
 *   swap, s4    words of the target
 *   name=value  a field without a word
 *   -name       the config lacks this parameter
 *
 * Fields with their usual value are left out: the value of an empty word, or the only value in the
 * space. Reading adds them. So reading gives exactly the config that was written.
 */
#ifndef GEMMD_KERNELS_NOTATION_H
#define GEMMD_KERNELS_NOTATION_H

#include "kernels/family.h"

enum { NOTATION_MAX = 1024 };

/* True when the text begins with a tile: a text with fields only is no short notation. */
bool notation_is_short(const char *text);
/* Writes a config in the target's notation. False when the config has no short notation that reads
 * back as the same config: `out` is undefined. */
bool notation_write(const struct family_target *t, const struct problem *p,
                    const struct record *config, char out[NOTATION_MAX]);
/* Reads a text in the notation of the family's target `label`; "" or NULL: of the only target whose
 * notation has the text. ERROR_INVALID: the text has a mistake, which the error message names, or
 * is a config of several targets. Does not check the config (family_target.check). */
int notation_read(const struct family *f, const char *label, const struct problem *p,
                  const char *text, struct record *out, struct error *err);

#endif
