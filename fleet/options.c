/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the command line. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fleet/fleet.h"
#include "proto/build.h"
#include "proto/hash.h"
#include "proto/paths.h"
#include "proto/text.h"

__attribute__((visibility("default"))) const char *argp_program_version =
    "gemmd-fleet " GEMMD_VERSION;

enum {
    KEY_DATABASE = 'd',
    KEY_CONNINFO = 'c',
    KEY_NAME = 'n',
    KEY_IDLE = 1000,
    KEY_FLEET_MS,
    KEY_PAUSE,
    KEY_FORCE
};

static const struct argp_option options_list[] = {
    {"conninfo", KEY_CONNINFO, "TEXT", 0,
     "The server, as libpq names it: \"service=gemmd\" (default), or \"host=db.example "
     "dbname=gemmd_fleet user=... sslmode=verify-full\"; $GEMMD_FLEET_CONNINFO",
     0},
    {"database", KEY_DATABASE, "FILE", 0,
     "Database of this host's gemmd (default: <state dir>/gemmd.db)", 0},
    {"name", KEY_NAME, "NAME", 0,
     "Name of this database in the fleet, different from all others (default: the host's name and "
     "a "
     "hash of the database's path)",
     0},
    {"idle-ms", KEY_IDLE, "MS", 0,
     "Time between two looks for new rows while no search waits (60000)", 0},
    {"fleet-ms", KEY_FLEET_MS, "MS", 0,
     "Time after which the daemons go on alone when the server does not answer (3000)", 0},
    {"pause-ms", KEY_PAUSE, "MS", 0, "Longest pause between two attempts to connect (30000)", 0},
    {"force-network-fs", KEY_FORCE, NULL, 0,
     "Open a database on a network file system all the same", 0},
    {0}};

static void options_copy(const struct argp_state *state, char *out, size_t size, const char *arg,
                         const char *what)
{
    if (!*arg || strlen(arg) >= size) {
        argp_error(state, "%s must have 1 to %zu bytes", what, size - 1);
    }
    snprintf(out, size, "%s", arg);
}

static int64_t options_read_ms(const struct argp_state *state, const char *arg, int64_t least)
{
    int64_t ms = 0;
    double real;
    if (text_number(arg, strlen(arg), &ms, &real) != TEXT_INT || ms < least || ms > 3600000) {
        argp_error(state, "\"%s\" is no number of milliseconds from %" PRId64 " to 3600000", arg,
                   least);
    }
    return ms;
}

static error_t options_take(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case KEY_CONNINFO:
        options_copy(state, o->conninfo, sizeof(o->conninfo), arg, "--conninfo");
        return 0;
    case KEY_DATABASE:
        options_copy(state, o->database, sizeof(o->database), arg, "--database");
        return 0;
    case KEY_NAME:
        options_copy(state, o->name, sizeof(o->name), arg, "--name");
        return 0;
    case KEY_IDLE:
        o->idle_ms = options_read_ms(state, arg, 100);
        return 0;
    case KEY_FLEET_MS:
        o->fleet_ms = options_read_ms(state, arg, 500);
        return 0;
    case KEY_PAUSE:
        o->pause_ms = options_read_ms(state, arg, 100);
        return 0;
    case KEY_FORCE:
        o->force_network_fs = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected argument '%s'", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void options_fill(struct options *o)
{
    struct error err = ERROR_NULL;
    char folder[PATHS_MAX], host[64] = "host", hash[HASH_HEX];
    const char *conninfo = getenv("GEMMD_FLEET_CONNINFO");
    if (!o->conninfo[0]) {
        snprintf(o->conninfo, sizeof(o->conninfo), "%s",
                 conninfo && *conninfo ? conninfo : "service=gemmd");
    }
    if (!o->database[0] && paths_state_dir(folder, &err)) {
        fprintf(stderr, "gemmd-fleet: %s\n", err.text);
        exit(OPTIONS_EXIT_USAGE);
    } else if (!o->database[0]) {
        snprintf(o->database, sizeof(o->database), "%s/gemmd.db", folder);
    }
    if (!o->name[0]) {
        gethostname(host, sizeof(host) - 1);
        hash128_hex(o->database, strlen(o->database), hash);
        snprintf(o->name, sizeof(o->name), "%.60s/%.8s", host, hash);
    }
}

void options_read(struct options *o, int argc, char **argv)
{
    const struct argp argp = {
        options_list,
        options_take,
        NULL,
        "Shares the results of this host's gemmd with other hosts, through a PostgreSQL server: a "
        "key "
        "is tuned once in the whole fleet. While the server is away, this host goes on alone.\v"
        "docs/fleet.md tells how to set up the server. A password belongs in a passfile "
        "(~/.pgpass), "
        "not in the conninfo. Exit status: 2 wrong usage, 75 another gemmd-fleet has the database.",
        NULL,
        NULL,
        NULL};
    *o = (struct options){.idle_ms = 60000, .fleet_ms = 3000, .pause_ms = 30000};
    argp_err_exit_status = OPTIONS_EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, o);
    options_fill(o);
}
