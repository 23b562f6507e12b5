/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of store and ledger: a temporary folder, rows to put in. */
#ifndef GEMMD_TESTS_STORE_FIXTURE_H
#define GEMMD_TESTS_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/store.h"

struct fixture {
    char dir[64];
    char path[96]; /* path of a database that no call has made yet */
    int notices;
    char kind[32];  /* kind of the last notice */
    char text[512]; /* text of the last notice */
};

int fixture_setup(void **state); /* *state: a struct fixture */
int fixture_teardown(void **state);
void fixture_notice(void *fixture, const char *kind, const char *text);

/* Opens f->path with the fixture's notice; fails the test on an error. */
struct store *fixture_open(struct fixture *f);
/* The same as the process `owner`, as store_owner writes its name. */
struct store *fixture_open_as(struct fixture *f, const char *owner);
struct store_options fixture_options(struct fixture *f);
int64_t fixture_count(struct store *s, const char *sql); /* the number that a query gives */
/* Returns n: tests let every nth call fail. From GEMMD_TEST_APART, by default 1. */
long fixture_apart(void);
void fixture_path(const struct fixture *f, const char *suffix,
                  char out[128]); /* f->path + suffix */

/* Rows that are plausible, complete, and differ by i. NaN where a time is not known. */
void fixture_key(int i, char out[HASH_HEX]);
void fixture_device(struct device_info *d);
void fixture_run(struct run *r);
void fixture_trial(struct trial *t, int64_t run, int key, int i);
void fixture_failed_trial(struct trial *t, int64_t run, int key, int i);
void fixture_best(struct best *b, int key, int i);
void fixture_module(struct module *m, int i);
void fixture_quarantine(struct quarantine *q, int i);
void fixture_event(struct event *e, int i);
void fixture_served(struct served_row *row, int i);          /* 0: of the tier exact */
int fixture_fill_served(struct store *s, struct error *err); /* adds rows 0 to 2 */
/* Puts some rows of each kind, as after a day of use. */
void fixture_fill(struct store *s);

/* Loads all current bests; a callback's return != 0 stops. */
int fixture_each_best(struct store *s, int (*row)(void *ctx, const struct best *b), void *ctx,
                      struct error *err);
/* Finds the best that serves a key. Returns 0, or STORE_MISS. */
int fixture_find_best(struct store *s, int key, struct best *out);

/* True: all fields are equal (NaN to NaN). */
bool fixture_equal(const struct schema *s, const void *a, const void *b);

#define assert_ok(call)                                                                            \
    do {                                                                                           \
        int status_ = (call);                                                                      \
        if (status_ != 0) {                                                                        \
            fail_msg("%s: %d (%s)", #call, status_, err.text);                                     \
        }                                                                                          \
    } while (0)
#define assert_says(err, part)                                                                     \
    do {                                                                                           \
        if (!strstr((err).text, (part))) {                                                         \
            fail_msg("'%s' is not in '%s'", (part), (err).text);                                   \
        }                                                                                          \
    } while (0)

#endif
