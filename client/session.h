/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with a gemmd: finds the daemon, sends `hello`, sends requests and waits for
 * answers, and connects again after a restart of the daemon. One request at a time; not thread-safe
 * (client/handle.c holds the lock).
 */
#ifndef GEMMD_CLIENT_SESSION_H
#define GEMMD_CLIENT_SESSION_H

#include <pthread.h>

#include "client/clock.h"
#include "client/find.h"
#include "client/gemmd.h"
#include "client/link.h"
#include "proto/message.h"

/* A request: the caller fills in the first part, and keeps the struct in place until the end. */
struct session_request {
    const char *method;
    const struct wire_buf *params; /* one packed map; NULL: none */
    int64_t deadline;              /* CLOCK_NEVER: as long as the daemon lives */
    void (*progress)(void *ctx, const struct gemmd_progress *p); /* texts: until the next message */
    void *ctx;
    /* Packs `params` again, with the remaining time as deadline_ms: while gemmd answers `busy` (its
     * queue has no room), the session repeats the request until the point in time `patience`. NULL:
     * the session does not repeat the request. */
    int (*pack)(void *pack_ctx, struct error *err);
    void *pack_ctx;
    int64_t patience;

    struct pull result; /* undecoded, valid until the next call of the session */
    bool unreached;     /* the call failed because no connection could be made */

    /* of session.c */
    uint32_t id;
    bool under_way; /* sent, or failed with `fault`; false: session_finish connects and sends */
    bool again;     /* the request was sent a second time, on a new connection: not a third time */
    bool sent;      /* the kernel took the whole request */
    struct error fault;        /* why sending failed */
    struct progress seen;      /* the last progress */
    int64_t began, last_heard; /* when the wait began (0: not yet), and the last message arrived */
    /* a message has arrived since the wait began; `hello` was sent because of silence, and no
     * message has come since */
    bool heard, probed;
    struct pause pause; /* the wait before the request is repeated, after `busy` */
};

/* Connecting, perhaps in several steps: open a socket, perhaps start a daemon, await `hello`. */
struct session_way {
    int64_t deadline; /* limit for all steps of connecting; 0: not connecting */
    int64_t began;
    bool starts;        /* a daemon is being started, which may take long */
    struct pause pause; /* the wait before another attempt, when the daemon had no room */
    struct start start;
    char spec[80]; /* the text of start.device, when the options name no device */
    bool greeting; /* `hello` was sent */
    struct session_request hello;
};

struct session {
    struct link link;
    struct session_way way;
    struct wire_doc *doc; /* owned: the last received message */
    struct wire_buf tx;   /* the request being sent */
    uint32_t next_id;
    int64_t until; /* end of the current step: calls return CLOCK_PASSED at this time; CLOCK_NEVER:
                      no steps. A request's `progress` function may set it, to end the step */

    char *socket, *device; /* owned copies of the options; may be NULL */
    int64_t default_ms;    /* deadline of calls without a deadline */
    bool autostart;
    /* pin each connection to `generation`, with `at_number` to this number of the fleet */
    bool wants_generation, at_number;
    int64_t generation;       /* -1: the newest generation at the first connection */
    char job[SERVED_JOB_MAX]; /* name of the job (jobname.h); "": gemmd finds a name */
    bool subscribed;          /* this connection gets improvements */

    struct places places;           /* where sockets may be; n 0: not looked for yet */
    uint32_t place;                 /* index in `places` of the current or last connection */
    bool known;                     /* a daemon has answered `hello` before */
    pthread_mutex_t device_lock;    /* for the fields below, which other threads read */
    struct device_info device_info; /* the daemon's device, from `hello`; kind "": not known */
    struct device_info own_info;    /* the device to use without a daemon; kind "": not known */
    int own_index;                  /* the current CUDA device that own_info is for */
    int64_t retry_at; /* a caller with a fallback does not try to connect before this time */
};

int session_init(struct session *s, const struct gemmd_options *o, struct error *err);
void session_deinit(struct session *s);

/* The next functions return CLOCK_PASSED when session.until has passed: call again to continue.
 * Connects and sends `hello`, unless connected. */
int session_connect(struct session *s, int64_t deadline, struct error *err);
/* Connects when needed, and gets q->result. Returns the daemon's own errors unchanged. */
int session_call(struct session *s, struct session_request *q, struct error *err);
/* session_call in two steps, so that the caller can do other work while the daemon works. The
 * previous result stays valid until session_finish, which also reports faults of session_start. */
void session_start(struct session *s, struct session_request *q);
int session_finish(struct session *s, struct session_request *q, struct error *err);
/* Decodes the result; *out is valid as long as the result. */
int session_decode(struct session *s, const struct session_request *q, const struct wire_obj **out,
                   struct error *err);
/* Stops waiting for the answer, or for a connection. Cancels a `get` or `tune`. For any other
 * method, closes the connection, so that the daemon drops later effects (a lease). */
void session_abandon(struct session *s, const struct session_request *q);
/* Stops connecting; without effect when not connecting. */
void session_stop_connecting(struct session *s);

/* The device of the daemon that answered `hello` last, else the device to use without a daemon
 * (find.h). May be called from any thread, also while another thread uses the handle. */
int session_device(struct session *s, struct device_info *out, struct error *err);

/* True for some time after an attempt to connect that no daemon answered: a caller with a fallback
 * should not try again now. */
bool session_is_cold(const struct session *s);

#endif
