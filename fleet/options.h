/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of gemmd-fleet. */
#ifndef GEMMD_FLEET_OPTIONS_H
#define GEMMD_FLEET_OPTIONS_H

#include <limits.h>
#include <stdbool.h>

#include "proto/error.h"

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

/* Reads the command line. Exits with status 2 after a message when it is wrong. */
void options_read(struct options *o, int argc, char **argv);

#endif
