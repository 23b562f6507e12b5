/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the daemon: prepare, open the ledger, load the cache, listen, run, and end in order.
 * At the end: refuse connections, cancel jobs, kill the runner, drain the ledger, remove the
 * socket. */
#ifndef GEMMD_DAEMON_LIFE_H
#define GEMMD_DAEMON_LIFE_H

#include "daemon/base/config.h"
#include "daemon/base/http.h"
#include "daemon/methods/daemon_parts.h"

/* Runs the daemon until it is stopped. Returns the process's exit code. */
int daemon_run(struct config *c, struct config_sources *from);

/* ---- remeasure.c ----------------------------------------------------------------------------- */

/*
 * Tunes keys with low confidence (cache/confidence.c) again, by an ordinary background job, when
 * the device has been idle for --remeasure-s. One key at a time, each at most REMEASURE_TRIES times
 * in this life of gemmd. The result becomes the key's new row, whether it is better or not.
 *
 * An idle gemmd does not show that other programs are idle. So the job is `quiet` (tuning/job.h):
 * if other processes have a context on the GPU, or keep the GPU busy, the runner ends the job
 * before it makes a context. Such an attempt does not count towards REMEASURE_TRIES. It doubles the
 * idle time before the next attempt, at most PUT_OFF_MAX times. Connected clients do not keep the
 * device from being idle: a client that uses the device has a context there, and a client that only
 * watches gemmd disturbs no measurement.
 */

enum { REMEASURE_TRIES = 3, PUT_OFF_MAX = 5 };

struct remeasure {
    size_t at;        /* the slot of the cache at which the next look begins */
    uint64_t busy_ms; /* loop time at which gemmd last had work for the device; 0: not looked yet */
};

/* Called periodically. When the device has been idle for long enough, looks at some keys, and
 * queues a job for the first with low confidence. */
void remeasure_look(struct remeasure *x, struct daemon_parts *p);
/* Called when another daemon of the database has searched the key: if the confidence is still low,
 * this counts as a try here, too. */
void remeasure_heard(struct daemon_parts *p, const char *key);

/* ---- chores.c -------------------------------------------------------------------------------- */

/* Periodic work: sends counts of answers to the database, renews leases, fetches the portfolio,
 * tunes keys with low confidence again, ends an idle daemon, checks the socket's path, and feeds
 * systemd's watchdog. */

struct chores {
    struct daemon_parts *parts; /* borrowed */
    struct remeasure remeasure;
    uv_timer_t timer;
    bool counting; /* the ledger was asked for the number of unsaved rows, and has not answered */
    uv_timer_t watchdog;
};

void chores_init(struct chores *c, struct daemon_parts *p);
void chores_close(struct chores *c);

/* ---- exporter.c ------------------------------------------------------------------------------ */

/*
 * /metrics and /health for monitoring, on the address of --metrics-listen (base/http.h). The text
 * is made at most once a second, and all clients of that second get the same text. A ledger that
 * does not answer in time delays no client: the text then has the ledger's last figures and their
 * age.
 */

struct exporter {
    struct daemon_parts *parts; /* borrowed */
    struct http http;
    struct wire_buf pages[2]; /* owned: the text of Prometheus; OpenMetrics */
    uint64_t page_ms;         /* loop time of the pages; 0: none */
    struct ledger_status store;
    uint64_t store_ms; /* loop time of `store`; 0: none */
    bool asking;       /* the ledger was asked, and has not answered */
};

/* Listens. Does nothing without --metrics-listen. Errors: as http_start. */
int exporter_start(struct exporter *x, struct daemon_parts *p, struct error *err);
void exporter_close(struct exporter *x);

/* ---- orphans.c ------------------------------------------------------------------------------- */

/*
 * Waits for children that gemmd did not start. The first process of a container, or a child
 * subreaper, becomes the parent of processes that outlive their parents: for example a killed
 * runner's compilers. Without a wait each would stay a zombie for the life of gemmd. Any other
 * gemmd does nothing here.
 */

struct orphans {
    uv_signal_t ended; /* SIGCHLD */
    uv_timer_t again;
};

/* From now on gemmd may start processes only through libuv, or must wait for their end before the
 * loop goes on. */
void orphans_init(struct orphans *o, uv_loop_t *loop);
void orphans_close(struct orphans *o);
/* Waits for (reaps) children that have ended and are not libuv's. True: a child of libuv hides
 * others; call again once libuv has waited for it. */
bool orphans_reap(uv_loop_t *loop);

/* ---- restore.c ------------------------------------------------------------------------------- */

/* Puts the backup `copy` in the place of the database, and prints the names of both files. 0, or a
 * fault; ERROR_BUSY: a daemon or another program has the database open. */
int restore_run(struct config *c, struct config_sources *from, const char *copy, struct error *err);

/* ---- start.c --------------------------------------------------------------------------------- */

/* Steps before the loop exists. */

/* Fills in the settings without a fixed default: finds the runner, probes the device, chooses the
 * paths. Makes and opens no file. On failure the settings of the failed step and of later steps
 * stay as given. */
int start_settle(struct config *c, struct config_sources *from, struct device_info *device,
                 struct error *err);
/* Fills in the path of the database alone. */
int start_settle_database(struct config *c, struct config_sources *from, struct error *err);
/* Settles the settings, makes the folders, takes the locks. */
int start_prepare(struct daemon_parts *p, struct config *c, struct config_sources *from,
                  struct error *err);
/* Sets the limits of clients. Raises the limit of open files as far as the connections need; allows
 * fewer connections when the hard limit is too low, since a runner and the database need files,
 * too. A user's limit is the setting (--user-...), or three quarters of the daemon's own limit. */
void start_limits(const struct config *c, struct session_limits *out);

/* ---- wiring.c -------------------------------------------------------------------------------- */

/* The wiring connects the parts. A part includes only the parts below it (docs/architecture.md);
 * hooks lead to functions of the parts above. */

/* Initialises loader, restore, tiers, tuning and leases. Call when the loop and the cache exist. */
void wiring_init(struct daemon_parts *p);
/* Passes a change by a daemon of the database, also by this one, to all parts that need to know. */
void wiring_news(void *ctx, const struct ledger_news *n); /* ctx: the parts */

#endif
