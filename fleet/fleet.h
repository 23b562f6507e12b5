/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemmd-fleet: links a host's database with the fleet's server.
 *
 *   daemons -- lease rows, bests --> database <-- gemmd-fleet --> PostgreSQL <-- other hosts
 *
 * A single thread does everything, one statement at a time (steps.c chooses the next):
 *
 *   file.c       the database: its lock, news of the daemons, the lease row that says "a fleet is
 *                there", the row of `fleet` for people
 *   steps.c      the order of statements; hello, and the ids of stamps and classes
 *   leases.c     keys that daemons ask for: want, renew, release
 *   publish.c    rows that were tuned here: publish; rows that failed here: complain
 *   feed.c       rows of other hosts: feed
 *   quarantine.c variants in quarantine: fleet1.bar, fleet1.unbar, fleet1.barred
 *   import.c     the check of such a row
 *   link.h       the connection
 *
 * Nothing that must last is held in memory: leases are rows of the database, and the ids of rows
 * follow from the rows.
 */
#ifndef GEMMD_FLEET_FLEET_H
#define GEMMD_FLEET_FLEET_H

#include <limits.h>

#include "fleet/link.h"
#include "store/fleet.h"

enum {
    FLEET_API = 1,
    FLEET_PAIRS_MAX = 64,
    FLEET_LEASES_MAX = 1024,
    FLEET_KEYS_MAX = 256, /* keys of a statement */
    FLEET_PAGE_MAX = 64,  /* rows of a publication */
    FLEET_WRONG_MAX = 64,
    FLEET_QUARANTINE_MAX = 256,
};

/* A device class with a stamp, and their numbers at the server. */
struct pair {
    char class[192], stamp[STAMP_MAX];
    int64_t class_id, stamp_id; /* 0: not known yet */
    bool runs;                  /* a daemon of this host has this class and stamp */
};

/* A lease at the server, of a key that is granted, or that a daemon holds. */
struct lease {
    char key[HASH_HEX];
    int64_t fence;
    bool here; /* the database has the row; else it is released, unless a row is published */
};

/* A variant that this host put into quarantine. */
struct quarantined {
    char variant[HASH_HEX], class[192], driver[32];
    bool there; /* scratch: the newest list has it */
};

struct counters {
    int64_t published, evidence, repeats, refused_there, received, bad_rows, distrusted, withdrawn,
        complaints, granted, elsewhere, connects;
};

enum { OPTIONS_EXIT_USAGE = 2, OPTIONS_EXIT_BUSY = 75 };

struct options {
    char database[PATH_MAX];
    char conninfo[1024];
    char name[80];    /* this database's name in the fleet */
    int64_t idle_ms;  /* time between reads of the feed while no search waits */
    int64_t fleet_ms; /* time after which daemons go on without an answer */
    int64_t pause_ms; /* the longest pause between two attempts to connect */
    bool force_network_fs;
};

struct fleet {
    struct options options;
    uv_loop_t loop;
    struct store *store; /* owned */
    int lock;            /* descriptor of <database>.fleet.lock */
    struct link link;
    uv_timer_t timer;    /* the next due step */
    uv_timer_t beat;     /* the heartbeat in the database */
    uv_timer_t patience; /* from the loss of the connection on, until the daemons go on alone; or
                            until the end */
    uv_fs_event_t watch;
    uv_signal_t signals[2];
    ino_t watched;
    int64_t seen; /* last change that was read */
    bool ending, attached;
    int exit_status;

    /* the server's answer to hello; valid while `greeted` */
    bool greeted;
    int64_t host, ttl_ms, poll_ms;
    char scheme[16]; /* of this database; "": not known yet */
    struct store_fleet status;
    char logged[LINK_TEXT_MAX]; /* the last reason why the server is away */
    int fault; /* the code of the last fault of the database; 0: it was written since */

    struct pair pairs[FLEET_PAIRS_MAX];
    unsigned n_pairs;
    struct lease leases[FLEET_LEASES_MAX];
    unsigned n_leases;
    struct store_lease_row rows[FLEET_LEASES_MAX]; /* keys that are asked for, granted or held */
    uint32_t n_rows;
    struct store_lease_row answers[FLEET_LEASES_MAX]; /* scratch */
    unsigned want_pair;                               /* the next pair for the statement want */
    struct best *page;                                /* owned: rows under publication */
    unsigned n_page;
    struct best other;               /* scratch */
    int64_t complaint;               /* number of the row that the complaint under way is about */
    char wrong[FLEET_WRONG_MAX][64]; /* hosts of which two rows failed here */
    uint32_t n_wrong;
    struct counters counters, counters_written; /* written: to the row of `fleet` */
    char scope[HASH_HEX]; /* a hash of the daemons' classes and stamps whose rows were read */

    /* times (uv_now) at which a step is due; 0: at once; UINT64_MAX: after news only */
    uint64_t feed_at, want_at, renew_at, publish_at, complain_at, bar_at, quarantine_at, retry_at;
    struct quarantined sent[FLEET_QUARANTINE_MAX]; /* to the server */
    unsigned n_sent;
    struct quarantine quarantine; /* the variant of the statement under way; scratch */
    unsigned taken_back;          /* index in `sent` of the variant that is being taken back */
    uint64_t beat_at;
    bool pairs_changed;
    bool pairs_grew; /* a pair runs since the last steps_read_pairs */
};

/* ---- options.c ------------------------------------------------------------------------------- */

/* Reads the command line. Exits with status 2 after a message when it is wrong. */
void options_read(struct options *o, int argc, char **argv);

/* ---- steps.c --------------------------------------------------------------------------------- */

/* Asks for the ids of a pair that has none. Returns whether a statement was started. */
bool steps_intern(struct fleet *f);
/* Starts the next due statement, or the timer until it. Call after every event. */
void steps_go_on(struct fleet *f);
/* For the callback of a statement that the server refused for now: tries again a little later.
 * Drops the connection when it refused what the statement brought. */
void steps_retry(struct fleet *f);
/* The same, but then this step waits until *due, and the others go on. */
void steps_put_off(struct fleet *f, uint64_t *due);
void steps_on_up(void *fleet);
void steps_on_down(void *fleet, const char *why, unsigned soon_ms);
/* Notes that a daemon of this host has the pair (NULL: none). */
void steps_note_runs(struct fleet *f, struct pair *p);
/* Finds, or adds, a pair. NULL: there are too many. */
struct pair *steps_find_pair(struct fleet *f, const char *class, const char *stamp);
bool steps_is_waiting(const struct fleet *f); /* a daemon waits for another host, or for a grant */

/* ---- leases.c, publish.c, feed.c: a step starts a statement and returns true, or returns false */

bool leases_release(struct fleet *f);
/* The last step: gives leases back that no daemon works on, and stops the loop at the answer. A
 * daemon's own search goes on, and so does its lease: the next gemmd-fleet finds it in the
 * database. */
bool leases_release_granted(struct fleet *f);
bool leases_want(struct fleet *f);
bool leases_renew(struct fleet *f);
/* Reads the rows of `lease`, and notes which leases have lost their row. */
void leases_read(struct fleet *f);
/* Says in the database that the server still answers. */
void leases_keep(struct fleet *f);
void leases_forget(struct fleet *f, const char *key);
int64_t leases_find_fence(struct fleet *f, const char *key); /* 0: no lease */
void feed_read_wrong(struct fleet *f);                       /* before rows are offered */
bool publish_send(struct fleet *f);
bool publish_complain(struct fleet *f);
bool feed_read(struct fleet *f);
bool quarantine_send(struct fleet *f);
bool quarantine_read(struct fleet *f);
/* Appends the numbers of the running daemons' classes as an array. False: no daemon runs. */
struct text;
bool feed_list_classes(const struct fleet *f, struct text *out);

/* Writes a row of another host. STORE_THERE: the database has it. ERROR_INVALID: the row is not to
 * be used, and is counted. */
int feed_offer(struct fleet *f, int64_t seq, const char *origin, const char *key, const char *json,
               struct error *err);

/* ---- file.c ---------------------------------------------------------------------------------- */

int file_open(struct fleet *f, struct error *err);
void file_close(struct fleet *f);
void file_read_news(struct fleet *f);
/* Writes the row of `fleet`. `state` NULL: as before. */
void file_write_status(struct fleet *f, const char *state, const char *text);
int file_put_status(struct fleet *f, struct error *err); /* the same, in an open transaction */
/* Logs a fault of the database. Ends the program when the database is damaged or replaced by a
 * newer one: systemd starts gemmd-fleet again. */
void file_fail(struct fleet *f, const char *what, const struct error *err);
void file_attach(struct fleet *f); /* the lease row `fleet`: the server answers */
void file_detach(struct fleet *f);
/* The classes and stamps of this database's daemons, as one hash. */
void file_hash_pairs(const struct fleet *f, char out[HASH_HEX]);

#endif
