/* SPDX-License-Identifier: Apache-2.0 */
/* A ledger on a loop, and the results of its last callbacks. */
#ifndef GEMMD_TESTS_UNIT_LEDGER_RIG_H
#define GEMMD_TESTS_UNIT_LEDGER_RIG_H

#include "daemon/ledger/inner.h"
#include "proto/limits.h"
#include "tests/unit/store/fixture.h"

struct bench {
    struct fixture *f;
    uv_loop_t loop;
    struct ledger *l;
    bool in_call;  /* true until a call returns: no callback may come meanwhile */
    int callbacks; /* number of calls that were answered */
    int notices;
    char kinds[512]; /* kinds of the notices, each with a space behind */
    bool stopped;

    /* results of the last callbacks */
    int status;
    char text[ERROR_TEXT_MAX];
    bool saved;
    int64_t generation, id;
    struct ledger_status counts;
    int loaded, pages;
    int64_t before; /* id of the last loaded row; 0: no row was loaded */
    uint32_t n_trials, n_avoid;
    int order[64];

    /* number of news of each kind; below, fields of the last news with a best (BEST, LOADED): */
    int news[NEWS_RELOADED_LOST + 1];
    int news_saved; /* number of NEWS_BEST with a saved row */
    int64_t news_generation;
    char news_key[256]; /* key of the last news that has a key */
};

extern struct bench *bench; /* the running bench */

#define CALL(b, op, ...)                                                                           \
    do {                                                                                           \
        (b)->in_call = true;                                                                       \
        ledger_##op((b)->l, __VA_ARGS__);                                                          \
        (b)->in_call = false;                                                                      \
    } while (0)
#define CALL_OK(b, op, ...)                                                                        \
    do {                                                                                           \
        (b)->in_call = true;                                                                       \
        assert_int_equal(ledger_##op((b)->l, __VA_ARGS__), 0);                                     \
        (b)->in_call = false;                                                                      \
    } while (0)

/* A callback has come. */
void note(int status, const struct error *err);
/* Starts a ledger on the fixture's file. Returns the result of the ledger's `start`. */
int begin(struct bench *b, struct fixture *f, struct error *err);
/* Stops the ledger, and asserts that all handles are closed. */
void end(struct bench *b);
/* The callback of a stop. ctx: the bench, whose `stopped` becomes true. */
void on_stopped(void *ctx);
/* Runs the loop until n callbacks have come. wait_for_news: until n news of this kind have come. */
void wait_for(struct bench *b, int n);
void wait_for_news(struct bench *b, enum ledger_news_kind kind, int n);
/* Opens a store as another daemon would. The ledger does not watch for the end of that daemon. */
struct store *open_other(struct fixture *f);
void on_done(void *ctx, int status, const struct error *err);
void on_id(void *ctx, int status, int64_t id, const struct error *err);
void on_best(void *ctx, int status, const struct best *b, bool saved, const struct error *err);
void on_status(void *ctx, const struct ledger_status *s);
void on_load(void *ctx, int status, const struct best *bests, size_t n, const struct error *err);
void on_history(void *ctx, int status, const struct trial *trials, uint32_t n,
                char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err);
void on_list(void *ctx, int status, const void *rows, size_t n, int64_t total,
             const struct error *err);
struct ledger_status counts(struct bench *b);

enum { MANY = 2000 }; /* number of rows: more than a page holds */
void fill_bests(struct fixture *f, int n);
void load_all(struct bench *b);

#endif
