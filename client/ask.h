/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A caller's query: gemmd_problem and gemmd_query. Reads the structs of any release's size, and
 * converts to the wire's map and to a struct problem (table.h converts for the answer table).
 * Checks only what the daemon cannot see (sizes of structs, NULL, enums). The daemon checks
 * everything else, because a daemon may know more ops than this library.
 */
#ifndef GEMMD_CLIENT_ASK_H
#define GEMMD_CLIENT_ASK_H

#include "client/gemmd.h"
#include "proto/request.h"
#include "proto/wire.h"

/* Size of struct gemmd_problem in the first release: callers' structs are at least this large. */
enum { ASK_PROBLEM_SIZE_MIN = offsetof(struct gemmd_problem, rows_per_expert) };

struct ask {
    struct gemmd_problem problem; /* a copy; the caller owns the texts */
    struct gemmd_query query;
};

/* ERROR_INVALID: a caller's struct is smaller than `min`; `name`: the struct's name after gemmd_.
 */
int ask_check_size(size_t size, size_t min, const char *name, struct error *err);
/* Copies a caller's struct over `ours`, which holds the defaults. ERROR_INVALID: the struct is
 * smaller than `min`, or a field that this release does not know is not 0. */
int ask_read_struct(void *ours, size_t size, const void *theirs, size_t their_size, size_t min,
                    const char *name, struct error *err);

/* Copy a caller's struct into `a`, and check it. ERROR_INVALID, ERROR_CONFLICT. q may be NULL: the
 * defaults. */
int ask_problem(struct ask *a, const struct gemmd_problem *p, struct error *err);
int ask_query(struct ask *a, const struct gemmd_query *q, struct error *err);

/* True when the query limits neither configs nor bucket nor (below 1e-2) tolerances. Its answer
 * then depends on the problem alone, so the table may answer it. */
bool ask_is_plain(const struct gemmd_query *q);
/* True when this query's answer answers the bare problem too: it was not verified more
 * loosely. The table may keep the answer. */
bool ask_is_bare(const struct gemmd_query *q);

/* Refuses query fields that `get_many` cannot send: without these fields the daemon would answer
 * another query. */
int ask_check_bare(const struct gemmd_query *q, struct error *err);

/* Packs the problem as {"op": ..., fields}. */
int ask_pack_problem(struct wire_buf *b, const struct gemmd_problem *p, struct error *err);
/* The protocol's word for a value that ask_query() has checked. */
const char *ask_wait_name(enum gemmd_wait wait);
/* Packs the params of get and tune. deadline_ms: for the daemon; 0: no deadline. */
int ask_pack(struct wire_buf *b, const struct ask *a, int64_t deadline_ms, struct error *err);
/* Registers the ops of this library. Call before reading a problem without ask_to_problem(). */
void ask_know_ops(void);
/* Makes a checked, canonical problem. */
int ask_to_problem(const struct gemmd_problem *p, struct problem *out, struct error *err);
/* Unpacks the whole ask as the daemon would, so that both refuse with the same errors. `out` must
 * be zeroed; the caller deinits `out`, also after an error. */
int ask_to_request(const struct ask *a, struct request *out, struct error *err);

#endif
