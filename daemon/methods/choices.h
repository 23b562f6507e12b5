/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configs that a caller of `acquire` chooses among, with the known results. Once all configs
 * are known, the fastest is the answer. Before, the lease holder learns which configs to leave out.
 */
#ifndef GEMMD_DAEMON_METHODS_CHOICES_H
#define GEMMD_DAEMON_METHODS_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/record.h"
#include "proto/wire.h"

struct choice {
    uint64_t hash; /* the hash of the config's canonical bytes */
    bool known;
};

struct choices { /* initialise with zeros */
    size_t n, n_known;
    struct choice *all;    /* owned, [n]; NULL when the caller named no configs */
    struct wire_buf known; /* owned: one map per known config, concatenated */
    bool any;              /* a config works: the three best_* members describe the fastest */
    double best_us;        /* NaN when no working config has a known time */
    int64_t best_s;
    struct wire_buf best; /* owned: a packed record */
};

/* Reads params' "configs" without duplicates; NULL leaves `c` empty. All configs begin unknown. */
int choices_read(struct choices *c, const struct wire_obj *list, struct record *scratch,
                 struct error *err);
void choices_deinit(struct choices *c);
size_t choices_bytes(const struct choices *c); /* bytes held */

/* Learns a config's result; ignores a config outside the list, and a second result for a config. So
 * report the newest result first. `time_us`: NaN or 0 when unknown, also with status "ok". */
void choices_learn(struct choices *c, const struct record *config, const char *status,
                   double time_us, const char *reason, int64_t created_s);
void choices_forget(struct choices *c); /* forgets all results */

/* Returns the hash by which configs are compared; 0 when out of memory. */
uint64_t choices_hash(struct wire_buf *scratch, const struct record *config);

/* Call these two only when c->any is true. choices_best_is: true when `config` is the fastest
 * config. choices_best: returns the fastest config. */
bool choices_best_is(const struct choices *c, const struct record *config);
int choices_best(const struct choices *c, struct wire_doc *doc, struct record *out,
                 struct error *err);

#endif
