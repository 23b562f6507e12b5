/* SPDX-License-Identifier: Apache-2.0 */
/* gemmd's part, for tests: starts the runner in a forked child, gives orders, and keeps all
 * messages. Both ends use channel.c; the tests check messages by decoding them with proto/. */
#ifndef GEMMD_TESTS_RUNNER_HARNESS_H
#define GEMMD_TESTS_RUNNER_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/types.h>
#include <cmocka.h>

#include "proto/request.h"
#include "runner/base/channel.h"

enum { SEEN_MAX = 2048 };

struct child {
    pid_t pid;
    struct channel channel;
    /* The received messages, in order. */
    uint32_t n_trials, n_modules, n_attempts, n_progress;
    struct trial *trials;     /* owned, SEEN_MAX */
    struct module *modules;   /* owned, SEEN_MAX */
    struct attempt last;      /* the last attempt message */
    bool attempted[5];        /* indexed by stage: prepare, compile, load, verify, time */
    struct progress progress; /* the last progress message */
    struct runner_hello hello;
    struct device_info device;
    bool has_hello, has_device, bye;
    bool last_trial_only;         /* keep the last trial only: for more than SEEN_MAX trials */
    uint32_t module_before_trial; /* number of trials whose module was sent before the trial */
    /* The response to the order: */
    bool answered;
    struct error error; /* code 0: `result` is valid */
    struct tune_result result;
};

char *folder_make(void);
void folder_remove(char *path);
/* Writes a file into the folder; the path is static until the next call. */
const char *folder_file(const char *folder, const char *name, const char *content);

/* args: NULL-terminated, more options of the runner; may be NULL. */
void child_start(struct child *c, const char *device, const char *cache, const char *const args[]);
/* Reads one message; false at the end of the stream. Fails the test after 60 s. */
bool child_read(struct child *c);
/* Reads until the response, or the end. */
void child_wait(struct child *c);
void child_forget(struct child *c); /* forgets all messages but hello and device */
/* Closes the socket and waits for the runner's end. Returns the wait status. */
int child_end(struct child *c);
/* Waits until the runner ends by itself; the socket stays open. */
int child_ended(struct child *c);
void child_send_cancel(struct child *c, int64_t job);
void child_send_ping(struct child *c, uint32_t id);
/* Sends an order like child_send_order, and in the same write the message that other jobs wait for
 * the device. */
void child_send_contended(struct child *c, const struct tune_order *o);
void child_send_raw(struct child *c, const void *bytes, size_t n);

struct tune_order *order_new(const char *problem);
void order_free(struct tune_order *o);
void order_restrict(struct tune_order *o, const char *name, int64_t value);
void order_given(struct tune_order *o, const char *config);
void order_hint(struct tune_order *o, const char *config);
void order_avoid(struct tune_order *o, const char *variant);
void order_done(struct tune_order *o, const struct trial *trials, uint32_t n);
/* Sends an order (request id 7) and waits for the response. */
void child_send_order(struct child *c, const struct tune_order *o);
void child_tune(struct child *c, const struct tune_order *o);

const struct trial *find_trial(const struct child *c, const struct record *config,
                               const char *stage);
uint32_t count_trials(const struct child *c, const char *stage, const char *status);

#endif
