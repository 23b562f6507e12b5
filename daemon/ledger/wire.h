/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What changes a ledger, as messages: the params of the method `ledger`, by which the daemons of
 * one database speak to its keeper (docs/protocol.md, "Between daemons"):
 *
 *   {"verb": "publish", "row": {...}}               -> {"row": {...}, "saved": bool}
 *   {"verb": "restore", "row": {...}}               -> the same, under its number; nil: it is there
 *   {"verb": "unpin", "key": id}                    -> the same; row nil: nothing is left
 *   {"verb": "lease", "key":, "owner":, "ttl_ms":}  -> {"held": another has it}
 *   {"verb": "unlease", "key":, "owner":}           -> nil
 *   {"verb": "record", "row": a trial}              -> nil, when it is durable
 *   {"verb": "evict" | "unquarantine", "key":}      -> {"n": rows}
 *   {"verb": "run", "row":}                         -> {"n": its id}
 *   {"verb": "tell", "said": {...}}                 -> nil; to all daemons, as news
 *   {"verb": "status"}                              -> the fields of LEDGER_STATUS_FIELDS
 *   {"verb": "trial" | "module" | "quarantine" | "event" | "device" | "end_run", "row":} -> nil
 */
#ifndef GEMMD_DAEMON_LEDGER_WIRE_H
#define GEMMD_DAEMON_LEDGER_WIRE_H

#include "daemon/ledger/ledger.h"

/* err NULL: `result` holds one object. */
typedef void (*ledger_wire_cb)(void *ctx, const struct wire_buf *result, const struct error *err);

enum { LEDGER_WIRE_TAKEN = 1 };

/* Does what a message says. 0: the callback comes. LEDGER_WIRE_TAKEN: it does not, nobody is told
 * how this ends; the result is nil. ERROR_INVALID, or the ledger's fault: it does not either. */
int ledger_wire_apply(struct ledger *l, const struct wire_obj *params, ledger_wire_cb cb, void *ctx,
                      struct error *err);

/* Messages. `row` with its schema, or NULL; texts NULL: none. */
void ledger_wire_put(struct wire_buf *b, const char *verb, const struct schema *schema,
                     const void *row, const char *key, const char *owner, int64_t ttl_ms);

#endif
