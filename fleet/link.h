/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to the fleet's server: libpq without blocking calls, on libuv's loop. A link
 * connects by itself, again after each loss, at growing intervals. A link carries out a statement
 * at a time. Each connection attempt and each statement has a deadline, since a stopped server or a
 * silent proxy never answers.
 */
#ifndef GEMMD_FLEET_LINK_H
#define GEMMD_FLEET_LINK_H

#include <libpq-fe.h>
#include <uv.h>

#include "proto/error.h"

enum {
    LINK_TEXT_MAX = 320,
    LINK_HOSTS_MAX = 8,
    LINK_PARAMS_MAX = 8,
};

struct link_host {
    char name[256]; /* as in the conninfo; begins with '/' for a Unix socket; "": libpq's default */
    char address[64]; /* hostaddr of the conninfo; "": resolve the name */
    char port[8];
};

struct link_poll;

struct link {
    uv_loop_t *loop;      /* borrowed */
    const char *conninfo; /* borrowed; never logged */
    char name[80];        /* application_name */
    unsigned pause_ms;    /* the longest pause between two attempts */
    char server[256];     /* host:port/database, for people */
    struct link_host hosts[LINK_HOSTS_MAX];
    unsigned n_hosts, host; /* host: the host that is tried now */
    struct addrinfo *found; /* owned: addresses of the host */
    struct addrinfo *next;  /* the address that is tried next */
    uv_getaddrinfo_t resolving;
    bool is_resolving, up, ending;
    PGconn *connection;     /* owned; NULL: not connected */
    struct link_poll *poll; /* owned until its close callback */
    uv_timer_t deadline;    /* of the attempt or the statement */
    uv_timer_t again;       /* until the next attempt */
    unsigned failures;      /* since the last statement that succeeded */
    char why[LINK_TEXT_MAX];

    bool busy;           /* a statement is under way */
    uint64_t statements; /* that were sent */
    PGresult *result;    /* owned: the last result of the statement under way */
    /* why the server refused what the last statement brought; "": it did not, or only for now (a
     * lock, a time limit) */
    char refusal[LINK_TEXT_MAX];
    /* Called when the statement has ended. `r` NULL: the server refused the statement, and the
     * connection stays. Not called when the connection was lost. */
    void (*done)(void *ctx, const PGresult *r);

    void (*on_up)(void *ctx);
    /* The connection is lost, or was not made. `soon_ms`: time until the next attempt. */
    void (*on_down)(void *ctx, const char *why, unsigned soon_ms);
    void *ctx;
};

/* Reads the conninfo (hosts, service file). The caller has set conninfo, name,
 * pause_ms and hooks.
 * ERROR_INVALID. */
int link_init(struct link *l, uv_loop_t *loop, struct error *err);
void link_start(struct link *l); /* begins to connect */
/* Starts a statement. The link must be up and not busy. */
void link_query(struct link *l, const char *sql, int n, const char *const *values,
                void (*done)(void *ctx, const PGresult *r));
/* Drops the connection, for a reason that the caller found, and tries again after a pause. */
void link_drop(struct link *l, const char *why);
void link_end(struct link *l); /* closes the connection and all handles */

/* Columns of a result as values; a NULL is "" and 0. */
const char *link_text(const PGresult *r, int row, int column);
int64_t link_int(const PGresult *r, int row, int column);

#endif
