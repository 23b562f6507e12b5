/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The portfolio of what the store knows: for each group of shapes a small set of configs that
 * leaves none of them more than a bound behind its best (proto/cover.h). A group is what configs
 * can be shared in: device class, op, mode, types, and the stamp of the trials, since times of
 * other code say nothing about today's. Evidence are good trials, each relative to its run's
 * reference kernel; of a key and config the newest counts.
 *
 * Listed like a table, one row for each shape, in groups (docs/store.md, "portfolio"). It is made
 * anew when the database has changed since, and kept for the next page.
 */
#ifndef GEMMD_STORE_PORTFOLIO_H
#define GEMMD_STORE_PORTFOLIO_H

#include "proto/cover.h"
#include "store/inner.h"

/* A group, by all that its shapes have in common. */
struct group {
    char class[sizeof(((struct best *)0)->class)], op[sizeof(((struct best *)0)->op)];
    char mode[16], dtype_in[16], dtype_out[16], stamp[STAMP_MAX];
    uint32_t shapes, members; /* last: what follows does not tell groups apart */
};

struct packed {     /* a problem as MessagePack, a config as JSON */
    uint8_t *bytes; /* owned */
    size_t n;
};

struct shape {
    char key[HASH_HEX];
    uint32_t group, problem;
    struct cover_choice choice;
};

struct growing { /* a growing array */
    void *data;  /* owned */
    size_t n, room;
};

struct portfolio {
    double bound_percent;
    int64_t changes, version;                         /* of the database when it was made */
    struct growing groups, shapes, problems, configs; /* group, shape, packed, packed */
    struct growing pairs, trials;                     /* cover_pair, and the id of its trial */
    uint32_t *slots; /* owned: configs by hash, while gathering; + 1, 0 is free */
    size_t n_slots;
};

#define AT(l, type, i) (&((type *)(l).data)[i])

int portfolio_make(struct store *s, double bound_percent, struct portfolio **out,
                   struct error *err);
struct portfolio *portfolio_free(struct portfolio *p); /* NULL in, NULL out */

/* ---- portfolio_list.c ------------------------------------------------------------------------ */

/* As store_list; filter: class, op, mode, stamp (text), bound (percent, default 5), limit,
 * offset. */
int portfolio_list(struct store *s, const struct record *filter, size_t max_bytes,
                   struct wire_buf *out, int64_t *total, struct error *err);

#endif
