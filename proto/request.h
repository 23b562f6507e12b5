/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole query: the params of `get` and `tune`, and the main part of the `tune` request to the
 * runner.
 *
 *   {"problem": {"op": "grouped_gemm", "mode": "forward", ...},
 *    <the fields of QUERY_FIELDS, all optional>,
 *    "restrict": {"BLOCK_SIZE_M": [64, 128], "num_stages": 3},     values allowed, per parameter
 *    "configs": [{...}, "BLOCK_SIZE_M=64 ...", ...]}               strategy given: only these
 */
#ifndef GEMMD_PROTO_REQUEST_H
#define GEMMD_PROTO_REQUEST_H

#include "proto/message.h"
#include "proto/problem.h"

enum { RESTRICT_MAX = 32, RESTRICT_VALUES_MAX = 64, REQUEST_CONFIGS_MAX = 512 };

struct restriction {
    char name[RECORD_NAME_MAX];
    uint32_t n;
    struct value values[RESTRICT_VALUES_MAX]; /* texts: owned by the request */
};

struct request {
    struct problem problem;
    struct query query;
    uint32_t n_restrict;
    struct restriction *restrict_; /* owned, n_restrict of them */
    uint32_t n_configs;
    struct record *configs; /* owned */
    char *text;             /* owned: text values of the restrictions */
};

void request_deinit(struct request *r); /* may be called twice, and for a zeroed struct */
/* Reads params (STRICT: unknown names are refused) and fills in the defaults of QUERY_FIELDS except
 * budget, budget_ms, iters and warmup, which the runner chooses. Checks wait, strategy, atol, rtol,
 * and ranges of the numbers. */
int request_unpack(struct request *r, const struct wire_obj *params, struct error *err);
/* request_unpack that accepts the names in `others` (NULL-terminated) beside the query's. */
int request_unpack_beside(struct request *r, const struct wire_obj *params,
                          const char *const *others, struct error *err);
/* Fills in the query's defaults, as request_unpack() does for params with only a problem. */
int request_default(struct request *r, struct error *err);
void request_pack(struct wire_buf *b, const struct request *r);
bool request_is_restricted(const struct request *r); /* its winner is `partial` */
/* True when a config obeys the restrictions (parameters without a restriction are free). */
bool request_allows(const struct request *r, const struct record *config);
bool restriction_allows(const struct restriction *t, const struct value *v);

/* ---- inside proto/ -------------------------------------------------------------------------- */

/* The nested arguments of a request: `restrict` (allowed values) and `configs` (configs to try).
 * Both functions leave their allocations in the request, also on failure. */

int restrict_unpack(struct request *r, const struct wire_obj *map, struct error *err);
int configs_unpack(struct request *r, const struct wire_obj *array, struct error *err);
/* Reads a config: a map, or one-line text. */
int config_unpack(struct record *r, const struct wire_obj *o, struct error *err);

/* ---- order.c -------------------------------------------------------------------------------- */

/* gemmd -> runner, request `tune`: these fields, and
 *   "request": the client's request, with the bucket as its problem, and budgets filled in
 *   "done":    [trial, ...]   finished trials of this key and stamp, not to be measured again
 *   "hints":   [config, ...]  bests of near keys or earlier stamps, to be tried first
 *   "avoid":   [hash, ...]    of quarantined variants */
#define TUNE_ORDER_FIELDS(X, T)                                                                    \
    X(T, INT, job, 0)                                                                              \
    X(T, TEXT, key, HASH_HEX)                                                                      \
    X(T, TEXT, stamp, STAMP_MAX)                                                                   \
    X(T, RECORD, former, 0)        /* the measured best that answers the key now; empty: none */   \
    X(T, REAL, min_gain, 0)        /* per cent of time that a winner must save over `former` */    \
    X(T, REAL, spent_device_ms, 0) /* this tuning's earlier orders: ms on the device */            \
    X(T, REAL, spent_ms, 0)        /* this tuning's earlier orders: ms in all */                   \
    X(T, FLAG, quiet, 0)           /* do nothing if another process uses the device */             \
    X(T, FLAG, in_pauses, 0)       /* use the device only in pauses that gemmd announces */

struct tune_order {
    TUNE_ORDER_FIELDS(SCHEMA_MEMBER, tune_order)
    struct request request;
    uint32_t n_done, n_hints, n_avoid;
    struct trial *done;      /* owned */
    struct record *hints;    /* owned */
    char (*avoid)[HASH_HEX]; /* owned */
};
void tune_order_deinit(struct tune_order *o);
int tune_order_unpack(struct tune_order *o, const struct wire_obj *params, struct error *err);
void tune_order_pack(struct wire_buf *b, const struct tune_order *o);

#endif
