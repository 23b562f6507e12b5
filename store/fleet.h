/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What gemmd-fleet and the daemons of a file write for each other (docs/store.md, "The fleet").
 * gemmd-fleet opens the file with store_open, as a daemon does. Its process owns the lease
 * STORE_FLEET_KEY while the fleet's server answers. lease.c has the states of a key's lease.
 *
 * A row of the fleet has a number there, `seq`, and becomes a row of `best` with source `fleet`.
 * Until a daemon has confirmed it (verified its config, and timed it beside the default), its
 * `trial` is NULL, and it is a candidate.
 */
#ifndef GEMMD_STORE_FLEET_H
#define GEMMD_STORE_FLEET_H

#include "store/store.h"

/* ---- gemmd-fleet ----------------------------------------------------------------------------- */

/* join: this process is gemmd-fleet, for the next ttl_ms; call again before they are over. Deletes
 * questions of daemons that nobody answers any more. STORE_HELD: another gemmd-fleet is attached.
 * leave: the server does not answer. All keys that were asked for are free at once. */
int store_fleet_join(struct store *s, int64_t ttl_ms, struct error *err);
int store_fleet_leave(struct store *s, struct error *err);

struct store_lease_row {
    char key[HASH_HEX], class[192], stamp[STAMP_MAX];
    char state[12]; /* asked | elsewhere | granted | held; in an answer "": the key is free */
    int64_t fence;  /* number of the grant; 0: not granted by the fleet */
    int64_t left_ms;
    bool gone;   /* the daemon that asked for the key, or holds it, has ended */
    bool missed; /* set by store_fleet_answer: the row was withdrawn, or a daemon holds the key */
};
/* Reads all keys that are asked, elsewhere or granted, and held keys with a fence, ordered by
 * key. *n: their number, which may exceed max. */
int store_fleet_asked(struct store *s, struct store_lease_row *out, uint32_t max, uint32_t *n,
                      struct error *err);
/* Sets state and fence of keys that are asked, elsewhere or granted, for the next ttl_ms. Held keys
 * stay. The daemons learn of keys that are granted, or free again. */
int store_fleet_answer(struct store *s, struct store_lease_row *rows, uint32_t n, int64_t ttl_ms,
                       struct error *err);

/* The device class and a stamp of a daemon that runs: rows of other stamps are not for it. */
struct store_fleet_stamp {
    char class[192], stamp[STAMP_MAX];
};
int store_fleet_stamps(struct store *s, struct store_fleet_stamp *out, uint32_t max, uint32_t *n,
                       struct error *err);

/* Writes the fleet's row `seq`, measured at host `origin`. Sets b's source, trial, module, doubt
 * and generation. A better row of the key (store_fleet_outranks) stays the key's newest row: it is
 * written again above b. Frees the key unless a daemon holds it. STORE_THERE: the number is known
 * already. */
int store_fleet_offer(struct store *s, struct best *b, int64_t seq, const char *origin,
                      struct error *err);
/* Notes that the fleet has this host's row `generation`, as `seq`. seq 0: the row is evidence
 * there, and another row answers the key. */
int store_fleet_own(struct store *s, const char *key, int64_t generation, int64_t seq,
                    struct error *err);
/* The fleet took row `seq` back. Deletes the row here, unless it was measured by this host. Also
 * before the row has come: then it never does. */
int store_fleet_withdraw(struct store *s, int64_t seq, const char *reason, struct error *err);

struct store_fleet_row {
    int64_t seq, generation;
    char key[HASH_HEX], origin[64], state[12], reason[320];
};
/* Reads the rows that were refused here and are not reported to the server yet. reported: the
 * server knows of `seq`. */
int store_fleet_refused(struct store *s, struct store_fleet_row *out, uint32_t max, uint32_t *n,
                        struct error *err);
int store_fleet_reported(struct store *s, int64_t seq, struct error *err);
/* Reads keys whose newest row is from a whole search (tuned), has no doubt, is newer than
 * `after`, and is not noted by store_fleet_own; oldest first. */
int store_fleet_unpublished(struct store *s, int64_t after, struct best *out, uint32_t max,
                            uint32_t *n, struct error *err);

/* Another host, `origin`, has put a variant into quarantine. q->deaths 0: only that host says so,
 * which is a doubt here, and the variant may run; above 0: several hosts, or an admin. A row of
 * this host stays. unquarantine: the hosts take it back. */
int store_fleet_add_quarantine(struct store *s, struct quarantine *q, const char *origin,
                               struct error *err);
int store_fleet_unquarantine(struct store *s, const struct quarantine *q, struct error *err);
/* Reads variants that this host, or the others, put into quarantine, with ids above `after`. */
int store_fleet_list_quarantine(struct store *s, bool of_others, int64_t after,
                                struct quarantine *out, uint32_t max, uint32_t *n,
                                struct error *err);

/* gemmd-fleet's own state, for people and for its next start. */
struct store_fleet {
    char server[256]; /* host:port/database, without secrets */
    char state[8];    /* up | down */
    int64_t since_s;  /* time of the last change of `state` */
    char text[320];   /* a sentence: why it is down, or what it does */
    char epoch[64];
    int64_t cursor;      /* the fleet's rows up to this number are in the file */
    int64_t host;        /* this host's number there */
    char counters[1024]; /* JSON */
};
/* In the transaction of the rows up to `cursor`, so that the cursor is never ahead of them. */
int store_fleet_status(struct store *s, const struct store_fleet *f, struct error *err);
int store_fleet_read(struct store *s, struct store_fleet *out, struct error *err); /* STORE_MISS */

/* Forgets numbers of the fleet: all numbers (another fleet), or the numbers of this host's
 * rows (the server may have lost rows). This host's rows then count as not published. */
int store_fleet_forget(struct store *s, bool own_only, struct error *err);
/* Reads the hosts of which at least `least` rows failed here. */
int store_fleet_list_wrong(struct store *s, int64_t least, char (*out)[64], uint32_t max,
                           uint32_t *n, struct error *err);

/* ---- daemons --------------------------------------------------------------------------------- */

/* Decides if `now`, a key's newest row, stays before a row `b` of the fleet: a pin does. So does a
 * row that was measured here, or is trusted, unless no running daemon of the class has its stamp.
 * 1, 0, or a fault. */
int store_fleet_outranks(struct store *s, const struct best *now, const struct best *b,
                         struct error *err);
/* Writes a key's row once more, with a new generation, which is then the row of its number in the
 * fleet, if it has one. Part of a transaction. */
int store_fleet_renumber(struct store *s, struct best *b, struct error *err);
/* Writes a confirmed row b (source fleet), whose candidate has the generation b->generation.
 * *b becomes the key's newest row: b, or the row that outranks b. ERROR_CONFLICT: the candidate was
 * withdrawn or evicted, or the trial of b is lost. */
int store_fleet_confirm(struct store *s, struct best *b, struct error *err);
/* The candidate `generation` failed here: deletes it. STORE_MISS: there is no such candidate. */
int store_fleet_refuse(struct store *s, const char *key, int64_t generation, const char *reason,
                       struct error *err);
/* Reads the row that answers the key at the fleet's number `seq`: the row of the key with the
 * highest number up to `seq`. `row` says which, and its state (new: not confirmed). STORE_MISS:
 * there is none, or it was evicted (row->seq 0: none). */
int store_fleet_find(struct store *s, const char *key, int64_t seq, struct best *out,
                     struct store_fleet_row *row, struct error *err);

#endif
