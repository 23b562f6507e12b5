/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers for connections pinned to a number of the fleet (`hello` with `fleet`), by the rules of
 * docs/protocol.md ("Numbers of the fleet"). A key's answer is the fleet's row with the highest
 * number up to the pinned number, so all hosts agree. gemmd confirms that row first. A key without
 * such a row, or whose row failed here, is an error: another row would differ from the other hosts'
 * answers.
 *
 * session.pinned of such a connection is FLEET_PIN + the number.
 */
#ifndef GEMMD_DAEMON_METHODS_FLEET_PINS_H
#define GEMMD_DAEMON_METHODS_FLEET_PINS_H

#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/methods.h"

enum {
    FLEET_HELLO_MS = 4000,     /* `hello` waits so long for gemmd-fleet to read up to the number */
    FLEET_CONFIRM_MS = 600000, /* a query without a deadline waits so long for a confirmation */
};

/* Reads the param `fleet` of hello. Answers the call with put_hello, now or when gemmd-fleet has
 * read so far. Returns 0: `s` is pinned, and the caller answers; METHOD_LATER; or an error. */
int fleet_pins_hello(struct call *c, const struct wire_obj *number,
                     void (*put_hello)(struct wire_buf *b, const struct daemon *d,
                                       const struct session *s),
                     struct error *err);
/* Answers the query in scratch->request and scratch->key: ASK_ANSWERED, ASK_READS, or an error. */
int fleet_pins_answer(const struct ask *a, struct error *err);
/* As generations_park, for a connection pinned to a number of the fleet. */
int fleet_pins_park(struct call *c, char (*keys)[HASH_HEX], size_t n, struct error *err);

/* Call when a key's rows have changed; every second; when gemmd-fleet has read further; at the
 * end, after the sessions. */
void fleet_pins_changed(struct daemon_parts *p, const char *key);
void fleet_pins_tick(struct daemon_parts *p);
void fleet_pins_read_on(struct daemon_parts *p);
void fleet_pins_close(struct daemon_parts *p);

#endif
