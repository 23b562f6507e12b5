/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the Hopper bench (explained in main.c). Set once, before any fork. */
#ifndef GEMMD_TESTS_GPU_HOPPER_OPTIONS_H
#define GEMMD_TESTS_GPU_HOPPER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { FREE_SHAPES_MAX = 64 };

enum command { RUN, COMPILE, COMPILE_SPACE };

struct options {
    enum command command;
    const char *cubins;  /* folder */
    const char *out;     /* a copy of the output goes to this file */
    const char *json;    /* file with a record for each measured time */
    const char *journal; /* file with a line per variant's verdict; a later run skips these */
    const char *stages;  /* names of stages, with commas between */
    const char *shapes_file;
    const char *free_shapes[FREE_SHAPES_MAX];
    int n_free_shapes;
    const char *kind, *tile; /* names of kinds and tiles (cases.c), commas between; NULL: all */
    const char *variants;    /* pattern for names of the space's kinds; NULL: all kinds */
    const char *with;        /* stage time: fields added to each config; NULL: none */
    int shard, shards;
    uint64_t seed;
    int soak;    /* number of launches of a variant in stage soak */
    int sample;  /* number of variants in stage sample */
    int samples; /* stage time: number of samples of a config */
    int jobs;    /* number of processes that compile */
    int tokens;  /* stage time: only layers of so many tokens; 0: all layers */
    double seconds, limit, gap_ms;
    double silence; /* seconds without a finished step after which a child counts as hung */
    bool fork;
    bool splits; /* stage sample: one variant of four splits its sums */
};
extern struct options options;

void options_read(int argc, char **argv); /* exits with an error on bad options */
/* Exits with an error unless each name of the list is known (NULL: an empty list). */
void options_require(const char *option, const char *list, bool (*known)(const char *name));
bool options_stage(const char *name); /* among --stages */
bool options_kind(const char *name);  /* among --kind */
bool options_tile(const char *name);  /* among --tile */

#endif
