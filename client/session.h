/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with a gemmd: finds it, greets it, asks and waits, and begins anew when the
 * daemon was restarted. One request at a time; not thread-safe (client/handle.c holds the lock).
 */
#ifndef GEMMD_CLIENT_SESSION_H
#define GEMMD_CLIENT_SESSION_H

#include <pthread.h>

#include "client/clock.h"
#include "client/find.h"
#include "client/gemmd.h"
#include "client/link.h"
#include "client/start.h"
#include "proto/message.h"

/* What a gemmd says of itself. */
#define WELCOME_FIELDS(X, T)                                                                       \
    X(T, INT, version, 0)                                                                          \
    X(T, TEXT, build, 64)                                                                          \
    X(T, TEXT, bucket_scheme, 16)                                                                  \
    X(T, INT, generation, 0)                                                                       \
    X(T, TEXT, stamp, STAMP_MAX)
SCHEMA_STRUCT(welcome, WELCOME_FIELDS);

/* A request on its way. */
struct session_sent {
    uint32_t id;
    bool under_way; /* false: there was no connection, session_finish makes one */
    bool again;     /* it was sent a second time: there is no third */
    bool sent;      /* all of it left */
    bool unreached; /* the fault is that no connection could be made for it */
    struct error fault;
    int64_t began, last_heard; /* when it was waited for first (0: not yet), and heard from last */
    bool heard, probed;
};

/* The way to a connection, which may take several steps: to somebody who listens, a daemon that is
 * started perhaps, and to the answer to `hello`. */
struct session_way {
    int64_t deadline; /* of all of it; 0: we are not on it */
    int64_t began;
    bool starts;         /* a daemon is being started: that may take its time */
    struct pause pause;  /* there was no room for one more connection */
    struct start *start; /* owned: a daemon that is being started, or NULL */
    bool greeting;       /* `hello` was sent */
    struct session_sent hello;
};

struct session {
    struct link link;
    struct session_way way;
    struct wire_doc *doc; /* owned: the message received last */
    struct wire_buf tx;   /* the request being sent */
    uint32_t next_id;

    char *socket, *device; /* owned copies of the options; may be NULL */
    int64_t default_ms;    /* deadline of what has none of its own */
    bool autostart;
    bool wants_generation; /* each connection is pinned to `generation` */
    int64_t generation;    /* -1: to what is newest when the first one is made */
    bool subscribed;       /* this connection hears of improvements */

    struct places places; /* found at the first connect */
    bool found;           /* places are filled in */
    uint32_t place;       /* of them: where the connection goes, or went last */
    bool known;           /* a daemon was greeted once: welcome is filled in */
    struct welcome welcome;
    pthread_mutex_t device_lock;    /* of these: another thread may read them meanwhile */
    bool has_device;                /* device_info is filled in */
    struct device_info device_info; /* the daemon's, from hello */
    bool has_own;                   /* own_info is, and of which current CUDA device */
    int own_index;
    struct device_info own_info; /* what is used without a daemon */
    int64_t retry_at; /* while no daemon answers: do not try again before (if one need not) */
};

int session_init(struct session *s, const struct gemmd_options *o, struct error *err);
void session_deinit(struct session *s);

struct session_request {
    const char *method;
    const struct wire_buf *params; /* one packed map; NULL: none */
    int64_t deadline;              /* CLOCK_NEVER: as long as the daemon lives */
    bool repeatable;               /* asking twice does no harm */
    struct pull *packed; /* the result as it came, *result is then NULL; NULL: as a tree */
    int64_t until; /* session_finish is back then, answer or no; 0: not before there is one. May be
                      set by `progress` */
    void (*progress)(void *ctx, const struct gemmd_progress *p);
    void *ctx;
};

/* Connects and greets when needed. *result stays valid until the next call. The daemon's own errors
 * come through as they are. */
int session_call(struct session *s, const struct session_request *q, const struct wire_obj **result,
                 struct error *err);

/* The same in two steps, to do something else while the daemon works: the result that came before
 * stays valid until session_finish, which also says what went wrong in session_start. q stays as it
 * is until the end. */
void session_start(struct session *s, const struct session_request *q, struct session_sent *p);
/* SESSION_WAITING: `until` (CLOCK_NEVER: none) has passed, maybe on the way to a connection: called
 * again it goes on. */
enum { SESSION_WAITING = 1 };
int session_connect(struct session *s, int64_t deadline, int64_t until, struct error *err);
int session_finish(struct session *s, const struct session_request *q, struct session_sent *p,
                   const struct wire_obj **result, struct error *err);
/* Neither its answer nor a connection for it is waited for any more. A `get` or `tune` is
 * cancelled; of anything else that may still come of it (a lease), the daemon is freed by the end
 * of the connection. */
void session_abandon(struct session *s, const struct session_request *q,
                     const struct session_sent *p);
/* Leaves the way to a connection, if it is on one. */
void session_stop_connecting(struct session *s);

/* Hears the notifications `improved` until the first ones have come, or the deadline. *n: how
 * many. */
int session_await_news(struct session *s, int64_t deadline,
                       void (*heard)(void *ctx, const struct wire_obj *params), void *ctx, int *n,
                       struct error *err);

/* The device of the daemon that was greeted last, or else the one that is used without (find.h).
 * From any thread, also while another one has the handle. */
int session_device(struct session *s, struct device_info *out, struct error *err);

/* No daemon has answered a moment ago: whoever has another way need not try now. */
bool session_is_cold(const struct session *s);

#endif
