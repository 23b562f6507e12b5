/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of the hot cache. Entries are compact, since an idle daemon holds them: ten thousand keys
 * in a few MiB. An entry is one allocation with the key's bytes (without the device class at the
 * end) and the packed fields of its own answer. Fields that most entries share (family, source,
 * stamp ...) are interned.
 *
 * An entry either *serves* (it is the exact answer for the key), or is a hint: a restricted
 * search's winner, an imported row that has not been measured on this device, a row of another
 * stamp.
 */
#ifndef GEMMD_DAEMON_CACHE_ENTRY_H
#define GEMMD_DAEMON_CACHE_ENTRY_H

#include "proto/hash.h"
#include "proto/message.h"
#include "proto/problem.h"
#include "proto/wire.h"

enum { CACHE_DIMS = 8 };

enum { CACHE_NOBODY = UINT32_MAX };

enum cache_rank { /* decides between two rows of one key: the higher rank is kept */
                  CACHE_HINT = 0,
                  CACHE_SERVES = 1,
                  CACHE_PINNED = 2,
};

/* The lists of serving entries, by the fields that all entries of a list share. `near` and `why`
 * search a few lists instead of all entries. */
enum cache_list {
    /* for `near`: equal in all but integer fields and texts that have a place (op->place) */
    LIST_GROUP,
    LIST_SHAPE, /* also equal in the integer fields, except the number of rows (op->rows) */
    LIST_SIZES, /* equal in op and integer fields; the keys differ in a type or a flag */
    CACHE_LISTS
};

struct cache_entry;
struct cache_link {
    uint64_t of; /* a hash of the fields that the list's entries share */
    struct cache_entry *before, *after;
};

/* A key's id of 32 hex digits as two numbers: its first 16 digits (the key's hash) and its last
 * 16. */
struct id {
    uint64_t front, back;
};
struct id id_read(const char hex[HASH_HEX]);

struct shared; /* interned: one copy of the fields that many answers share */
struct memo_record;

struct cache_entry {
    struct id id; /* id of the key */
    struct cache_link in[CACHE_LISTS];
    int64_t generation;
    struct memo_record *asked; /* latest queries that this entry answered (memo.h) */
    double atol, rtol;         /* tolerances of the row's verification */
    /* coordinates for entry_distance: log2 of each integer field, op->place of texts */
    float dims[CACHE_DIMS];
    uint8_t rank; /* enum cache_rank */
    /* a person's pin; with a rank below CACHE_PINNED it does not serve, since it was verified with
     * other kernels or is quarantined */
    bool manual : 1;
    bool brought : 1;     /* brought by `uid` (`put`, `import`), not measured here */
    bool candidate : 1;   /* a row of the fleet that is not confirmed here */
    bool precompiled : 1; /* a candidate whose variants a process of compiling ahead got */
    bool low : 1;         /* tuned with low confidence: to be measured again */
    bool saved : 1;
    bool met : 1;      /* put, or found in the database (cache_meet), since cache_unmeet */
    bool restored : 1; /* written again after the database lost rows (answers/restore.c) */
    uint8_t tries;     /* how often the key was measured again because of low confidence */
    uint32_t uid;      /* the user of the row's query, pin or put; CACHE_NOBODY: unknown */
    /* A query that the memo has reads only the members from here on: */
    uint32_t saved_ns;     /* ns that the best saves, against the reference kernel in its run */
    struct shared *shared; /* owned by all entries that point to it; it counts them */
    uint32_t own_len, key_len;
    uint8_t bytes[]; /* own fields, then the key */
};

/* The parts that all entries of a cache share. */
struct entries {
    struct wire_buf class_;  /* owned: the packed device class, which ends each key */
    struct shared *shared;   /* owned list */
    struct wire_doc *doc;    /* owned: decodes entries */
    struct wire_buf scratch; /* owned */
};

int entries_init(struct entries *x, const char *device_class, struct error *err);
void entries_free_all(struct entries *x); /* call after all entries are freed */

static inline const uint8_t *entry_key(const struct cache_entry *e)
{
    return e->bytes + e->own_len;
}

/* Makes an entry of the answer. NULL: ERROR_NO_MEMORY. */
struct cache_entry *entry_make(struct entries *x, const struct key *k, const struct problem *bucket,
                               const struct answer *a, struct error *err);
/* Frees the entry and returns NULL. Call memo_forget before. */
struct cache_entry *entry_free(struct entries *x, struct cache_entry *e);
/* Computes for a bucket the hash `of` of each of its lists (struct cache_link), and its `dims`. */
void entry_lists(const struct problem *bucket, uint64_t of[CACHE_LISTS], float dims[CACHE_DIMS]);
/* Like entry_lists, but returns only the hash of LIST_GROUP. */
uint64_t entry_group(const struct problem *bucket, float dims[CACHE_DIMS]);
/* Distance of two entries of a group: 1 is a factor of two in an integer field. */
double entry_distance(const float a[CACHE_DIMS], const float b[CACHE_DIMS]);

/* Appends the stored answer as one MessagePack map. */
void cache_reply(const struct cache_entry *e, struct wire_buf *out);
void cache_entry_id(const struct cache_entry *e, char out[HASH_HEX]);
/* True when the entry's row was verified with these tolerances or tighter ones. */
bool cache_verified(const struct cache_entry *e, double atol, double rtol);

#endif
