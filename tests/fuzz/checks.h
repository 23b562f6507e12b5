/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must hold of records and problems that were accepted, wherever they came from: they go round
 * in every form (text, JSON, MessagePack), a problem's bucket is a legal problem that rounds to
 * itself, its key is canonical. families_register() must have been called.
 */
#ifndef GEMMD_TESTS_FUZZ_CHECKS_H
#define GEMMD_TESTS_FUZZ_CHECKS_H

#include "proto/problem.h"
#include "proto/request.h"
#include "tests/fuzz/fuzz.h"

void check_record(const struct record *r);
void check_problem(const struct problem *p);

bool same_bytes(const struct wire_buf *a, const struct wire_buf *b);
/* What we have packed, past the scan and decoded; good until the next call. */
const struct wire_obj *decode_again(const struct wire_buf *b);

#endif
