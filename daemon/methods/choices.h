/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configs that a caller of `acquire` chooses among, and what is known of each. Once all are
 * known the best of them is the answer; until then, whoever works the key out is told which need
 * not be measured again.
 */
#ifndef GEMMD_DAEMON_METHODS_CHOICES_H
#define GEMMD_DAEMON_METHODS_CHOICES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/record.h"
#include "proto/wire.h"

struct choice {
    uint64_t hash; /* of the config's canonical bytes */
    bool known;
};

struct choices { /* begins as zeros */
    size_t n, n_known;
    struct choice *all;    /* owned, [n]; NULL: none were named */
    struct wire_buf known; /* owned: a map for each that is known, one after the other */
    bool any;              /* one of them works: the best is in these three */
    double best_us;        /* NaN: its time is not known, nor that of any other that works */
    int64_t best_s;
    struct wire_buf best; /* owned: a packed record */
};

/* From params' "configs", without those named twice; NULL: none. Nothing is known of them yet. */
int choices_read(struct choices *c, const struct wire_obj *list, struct record *scratch,
                 struct error *err);
void choices_deinit(struct choices *c);
size_t choices_bytes(const struct choices *c); /* what it holds */

/* Of one that is not among them nothing is kept, and the first word on one counts: tell the newest
 * first. `time_us`: NaN or 0 where it is not known, also of what is "ok". */
void choices_learn(struct choices *c, const struct record *config, const char *status,
                   double time_us, const char *reason, int64_t created_s);
void choices_forget(struct choices *c); /* what was learned */

/* By which configs are compared; 0: no memory. */
uint64_t choices_hash(struct wire_buf *scratch, const struct record *config);

/* When `any`: whether this is the best of them; and the best itself. */
bool choices_best_is(const struct choices *c, const struct record *config);
int choices_best(const struct choices *c, struct wire_doc *doc, struct record *out,
                 struct error *err);

#endif
