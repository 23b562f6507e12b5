/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of every accepted record and problem. Written as text, JSON or MessagePack, and decoded
 * again, it has the same fields. A problem's bucket is a legal problem that rounds to itself. The
 * bucket's key is canonical. Call families_register() first.
 */
#ifndef GEMMD_TESTS_FUZZ_CHECKS_H
#define GEMMD_TESTS_FUZZ_CHECKS_H

#include "proto/problem.h"
#include "proto/request.h"
#include "tests/fuzz/fuzz.h"

void check_record(const struct record *r);
void check_problem(const struct problem *p);

bool same_bytes(const struct wire_buf *a, const struct wire_buf *b);
/* Scans and decodes a packed message. The result is valid until the next call. */
const struct wire_obj *decode_again(const struct wire_buf *b);

#endif
