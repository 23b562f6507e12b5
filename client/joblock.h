/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock file of a job, $GEMMD_LOCK, which `gemmctl lock` writes. A handle with a lock file
 * answers gemmd_get and gemmd_get_many by the file alone: a problem that the file lacks is an
 * error, never another config. The kernel of such an answer is the file's module, byte for byte.
 *
 *   # a comment
 *   gemmd-lock 1 | <bucket scheme> | <device class> | <sum>
 *   <key> | <module> | <problem> | <config> | <stamp> | <sum>
 *
 * A problem is rounded by the bucket scheme, as in the database. <sum> is the first 16 digits of
 * hash128_hex over the line before " | <sum>": a line that a person edited is an error with its
 * number. Lines may be removed. Blank lines and comments are ignored.
 */
#ifndef GEMMD_CLIENT_JOBLOCK_H
#define GEMMD_CLIENT_JOBLOCK_H

#include "client/ask.h"
#include "client/gemmd.h"
#include "proto/device.h"

struct joblock;

#define JOBLOCK_SOURCE "locked" /* gemmd_answer.source */

/* Reads the file of $GEMMD_LOCK. *out NULL and 0: the variable is not set. ERROR_INVALID names the
 * file and the line. */
int joblock_open(struct joblock **out, struct error *err);
struct joblock *joblock_close(struct joblock *l); /* accepts NULL; returns NULL */

/* The answer of the file, for the device `info`. ERROR_NOT_FOUND: the file lacks the problem;
 * ERROR_CONFLICT: the file is for another device, or the query is one that no file answers. */
int joblock_answer(const struct joblock *l, const struct ask *a, const struct device_info *info,
                   struct gemmd_answer *out, struct error *err);
/* The error of a call that would search in spite of the lock file. */
int joblock_refuse(const struct joblock *l, const char *what, struct error *err);

#endif
