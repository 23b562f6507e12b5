/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a caller asks: gemmd_problem and gemmd_query, read from structs of any release's size,
 * checked for what only this library can know, and put into their other forms: the wire's map, and
 * a struct problem (table.h has that of the answer table). Everything else is the daemon's to
 * check, which may know more ops than we do.
 */
#ifndef GEMMD_CLIENT_ASK_H
#define GEMMD_CLIENT_ASK_H

#include "client/gemmd.h"
#include "proto/request.h"
#include "proto/wire.h"

/* The struct as it was in the first release: callers' structs are at least this large. */
enum { ASK_PROBLEM_SIZE_MIN = offsetof(struct gemmd_problem, rows_per_expert) };

struct ask {
    struct gemmd_problem problem; /* texts are the caller's */
    struct gemmd_query query;
};

/* Copies a caller's struct over ours, which holds the defaults; `name` is what comes behind gemmd_.
 * ERROR_INVALID: it is smaller than `min`, or of a newer caller who uses a field that we lack. */
int ask_read_struct(void *ours, size_t size, const void *theirs, size_t their_size, size_t min,
                    const char *name, struct error *err);

/* ERROR_INVALID. query may be NULL. */
int ask_check_problem_size(const struct gemmd_problem *p, struct error *err);
int ask_problem(struct ask *a, const struct gemmd_problem *p, struct error *err);
int ask_query(struct ask *a, const struct gemmd_query *q, struct error *err);

/* Whether an answer to the bare problem is an answer to this query too, and may be kept as one. */
bool ask_is_plain(const struct gemmd_query *q);

/* What `get_many` has no place for is refused: an answer to another question would be wrong. */
int ask_check_bare(const struct gemmd_query *q, struct error *err);

/* {"op": ..., fields} */
int ask_pack_problem(struct wire_buf *b, const struct gemmd_problem *p, struct error *err);
/* The params of get and tune. deadline_ms: what the daemon is told; 0: none. */
int ask_pack(struct wire_buf *b, const struct ask *a, int64_t deadline_ms, struct error *err);
/* Checked and canonical; registers the families of this library. */
void ask_know_ops(void); /* before problems are read by anything else than these */
int ask_to_problem(const struct gemmd_problem *p, struct problem *out, struct error *err);
/* The whole ask as the daemon would read it, so that it is refused for the same reasons. `out` is
 * the caller's to deinit, also after a fault, and begins zeroed. */
int ask_to_request(const struct ask *a, struct wire_doc *doc, struct request *out,
                   struct error *err);

#endif
