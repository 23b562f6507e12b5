/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the hot cache: made, read back, freed. It is compact, since it is what an idle daemon
 * holds: ten thousand keys in a few MiB. An entry is one allocation of the key's bytes (without the
 * device class that ends each of them) and of the packed fields of its answer that are its own;
 * fields that most entries share (family, source, stamp ...) are interned.
 *
 * An entry either *serves* (it is the exact answer for the key), or is a hint: a restricted
 * search's winner, an imported row that has not been measured here, a row of another stamp.
 */
#ifndef GEMMD_DAEMON_CACHE_ENTRY_H
#define GEMMD_DAEMON_CACHE_ENTRY_H

#include "proto/hash.h"
#include "proto/message.h"
#include "proto/problem.h"
#include "proto/wire.h"

enum { CACHE_DIMS = 8 };

enum { CACHE_NOBODY = UINT32_MAX };

enum cache_rank { /* which of two rows of one key is kept */
                  CACHE_HINT = 0,
                  CACHE_SERVES = 1,
                  CACHE_PINNED = 2,
};

/* The lists that a serving entry is in, by what all entries of a list have in common: `near` and
 * `why` look through a few lists and not through all entries. */
enum cache_list {
    LIST_GROUP, /* all but integer fields, and texts that have a place: `near` looks here */
    LIST_SHAPE, /* of a group: the integer fields, too, but for the rows (op->rows) */
    LIST_SIZES, /* op and integer fields: keys that differ in a type or a flag */
    CACHE_LISTS
};

struct cache_entry;
struct cache_link {
    uint64_t of; /* a hash of what the list's entries have in common */
    struct cache_entry *before, *after;
};

/* A key's id as two numbers: its first 16 digits, which are the key's hash, and the last 16. */
struct id {
    uint64_t front, back;
};
struct id id_read(const char hex[HASH_HEX]);

struct shared; /* an interned piece of answers */
struct memo_record;

struct cache_entry {
    struct id id; /* of the key */
    struct cache_link in[CACHE_LISTS];
    int64_t generation;
    struct memo_record *asked; /* the questions that it answered lately (memo.h) */
    double atol, rtol;         /* verified with */
    float dims[CACHE_DIMS];    /* log2 of the integer fields, and op->place of texts, in order */
    uint8_t rank;              /* enum cache_rank */
    bool manual : 1;  /* a person's pin; below CACHE_PINNED: of another stamp, not verified now */
    bool brought : 1; /* not measured here: `uid` put it */
    bool low : 1;     /* tuned, and the confidence is low: to be measured again */
    bool saved : 1;
    bool met : 1;      /* put, or met in the database, since cache_unmeet */
    bool restored : 1; /* written again to a database that has lost rows (answers/restore.c) */
    uint8_t tries;     /* how often it was measured again for that */
    uint32_t uid;      /* who asked for the row, pinned it or put it; CACHE_NOBODY: not known */
    /* What a repeated question needs: */
    struct shared *shared; /* counted */
    uint32_t own_len, key_len;
    uint8_t bytes[]; /* own; then the key */
};

/* What all entries of a cache are made of. */
struct entries {
    size_t class_len;        /* packed bytes of the device class at a key's end */
    struct shared *shared;   /* owned list */
    struct wire_doc *doc;    /* owned: for reading entries back */
    struct wire_buf scratch; /* owned */
};

int entries_init(struct entries *x, const char *device_class, struct error *err);
void entries_free_all(struct entries *x); /* after all entries are freed */

static inline const uint8_t *entry_key(const struct cache_entry *e)
{
    return e->bytes + e->own_len;
}

/* ERROR_NO_MEMORY: NULL. */
struct cache_entry *entry_make(struct entries *x, const struct key *k, const struct problem *bucket,
                               const struct answer *a, struct error *err);
/* NULL. Its questions must be forgotten (memo.h). */
struct cache_entry *entry_free(struct entries *x, struct cache_entry *e);
/* Which lists it belongs to, and where it stands otherwise. */
void entry_lists(const struct problem *bucket, uint64_t of[CACHE_LISTS], float dims[CACHE_DIMS]);
/* Of these, LIST_GROUP. */
uint64_t entry_group(const struct problem *bucket, float dims[CACHE_DIMS]);
/* How far apart two of a group are: 1 is a factor of two in one of the integer fields. */
double entry_distance(const float a[CACHE_DIMS], const float b[CACHE_DIMS]);

/* The answer as one MessagePack map, from the bytes kept. */
void cache_reply(const struct cache_entry *e, struct wire_buf *out);
void cache_entry_id(const struct cache_entry *e, char out[HASH_HEX]);
/* Whether it was verified with tolerances at least this tight. */
bool cache_verified(const struct cache_entry *e, double atol, double rtol);

#endif
