/* SPDX-License-Identifier: Apache-2.0 */
/* Keys with whole recorded landscapes: their true times, and the results of searches. */
#ifndef GEMMD_TESTS_SEARCH_KEYS_H
#define GEMMD_TESTS_SEARCH_KEYS_H

#include "kernels/devices/replay/replay.h"
#include "tests/model/learn.h"

enum { KEYS_MAX = 128, SEEDS_MAX = 10, STRATEGIES = 4 };
enum { RANKED, RANDOM, GENETIC, EXHAUSTIVE };
extern const char *const strategies[STRATEGIES];

struct search_run {
    bool done;
    double us,
        regret; /* us: the true time of the winner; regret 0.01: one per cent above the best */
    uint64_t config;
    double device_ms, compile_ms;
    double wall_ms; /* milliseconds of the search on the recorded host, which measures while it
                       compiles */
    uint32_t measured, variants;
};

/* A key and the results of its searches, in memory that the processes of a test share. */
struct mapped_key {
    char path[512], name[96], problem[1024];
    double best_us;
    uint32_t points, variants;                     /* recorded ones of today's space */
    struct search_run runs[STRATEGIES][SEEDS_MAX]; /* before each run nothing was compiled */
    struct search_run
        warm[SEEDS_MAX]; /* the strategy `ranked`, when everything was compiled before */
    struct search_run
        again[SEEDS_MAX]; /* `ranked` after an earlier search, whose images are compiled */
};

/* A winner within this time of the best is the best, in launches shorter than 20 us; 0 at first. */
extern double key_tick_us;

/* Reads a file and finds the best recorded config, if possible among configs measured often. False:
 * unreadable, with an error on stderr. */
bool key_open(struct mapped_key *k, const char *path);
/* The true time of a config; NAN: not recorded. */
double key_truth(const struct landscape *l, const struct record *config);

/* From now on the time model uses constants that were fitted without the problems of the key's
 * language model, from a file of model_eval --leave-out --write. From the landscapes `l` the time
 * model also learns corrections, except from those of the key's language model. False: the file
 * lacks constants for the key. */
bool key_use_constants(const struct mapped_key *k, const char *path, const struct lectures *l);
/* Searches a key by a strategy, once for each seed; by `exhaustive` once. With `warm` also by
 * `ranked` with everything compiled, and by `ranked` again after each search by `ranked`, with
 * other noise. */
void key_search(struct mapped_key *k, int strategy, uint32_t seeds, bool warm);

#endif
