/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fleet: gemmd-fleet's state, and the fleet's server. gemmctl does not connect with the server: it
 * prints SQL for psql. So it links no libpq, and an admin's password for the server is on no host
 * that tunes.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/ctl.h"

extern const char fleet_sql[]; /* fleet/sql/fleet1.sql */

/* ---- status --------------------------------------------------------------------------------- */

static void fleet_print_counters(const json_t *row)
{
    OBJECT_EACH(name, value, json_object_get(row, "counters")) {
        if (json_is_integer(value) && json_integer_value(value)) {
            printf("%-12s %lld\n", name, json_integer_value(value));
        }
    }
}

static int fleet_show_status(struct subject *s)
{
    int code = ctl_connect(&s->ctl);
    json_auto_t *rows = code ? NULL : ctl_list(&s->ctl, "fleet", json_object(), &code);
    const json_t *row = json_array_get(rows, 0);
    if (!row) {
        return rows ? ctl_failed("this database belongs to no fleet: no gemmd-fleet has run on it")
                    : code;
    }
    if (s->ctl.json) {
        return ctl_print_json(json_incref(rows));
    }
    TEXT_AUTO *text = text_visible(text_copy(field_text(row, "text"))),
              *server = text_visible(text_copy(field_text(row, "server")));
    printf("%-12s %s\n%-12s %s, for %lld s: %s\n%-12s %lld\n", "server", server, "state",
           field_text(row, "state"), (long long)time(NULL) - field_int(row, "since_s"), text,
           "number", field_int(row, "cursor"));
    fleet_print_counters(row);
    return DONE;
}

/* ---- SQL ------------------------------------------------------------------------------------ */

/* Prints a text as an SQL string. */
static void fleet_print_string(const char *text)
{
    putchar('\'');
    for (; *text; text++) {
        printf(*text == '\'' ? "''" : "%c", *text);
    }
    putchar('\'');
}

static int fleet_print_call(const char *function, const char *number, const char *name,
                            const char *note)
{
    printf("SELECT fleet1.%s(", function);
    if (number) {
        printf("%s", number);
    }
    if (name) {
        fleet_print_string(name);
    }
    if (note) {
        printf(", ");
        fleet_print_string(note);
    }
    puts(");");
    return DONE;
}

static bool fleet_is_number(const char *text)
{
    const size_t n = strlen(text);
    return n > 0 && n < 19 && strspn(text, "0123456789") == n;
}

struct fleet_call {
    const char *word;
    enum { TAKES_NOTHING, TAKES_NUMBER, TAKES_NAME } takes;
    bool has_note;
};

static int fleet_print_sql(const struct subject *s, const struct fleet_call *call)
{
    const char *arg = s->n_paths > 1 ? s->paths[1] : NULL;
    const char *note = s->given[OWN_NOTE] ? s->given[OWN_NOTE] : "";
    if (call->takes == TAKES_NOTHING ? arg != NULL : s->n_paths != 2) {
        return ctl_usage("gemmctl fleet %s takes %s", call->word,
                         call->takes == TAKES_NOTHING  ? "no argument"
                         : call->takes == TAKES_NUMBER ? "a row's number, the column seq of "
                                                         "`gemmctl list --what fleet_rows`"
                                                       : "a host's name in the fleet");
    }
    if (call->takes == TAKES_NUMBER && !fleet_is_number(arg)) {
        return ctl_usage("\"%s\" is no row's number", arg);
    }
    return fleet_print_call(call->word, call->takes == TAKES_NUMBER ? arg : NULL,
                            call->takes == TAKES_NAME ? arg : NULL, call->has_note ? note : NULL);
}

static const struct fleet_call fleet_calls[] = {
    {"pin", TAKES_NUMBER, false},    {"withdraw", TAKES_NUMBER, true},
    {"distrust", TAKES_NAME, true},  {"trust", TAKES_NAME, false},
    {"prune", TAKES_NOTHING, false}, {"renew_epoch", TAKES_NOTHING, false},
};

static int fleet_run(struct subject *s)
{
    const char *word = s->n_paths ? s->paths[0] : "status";
    if (list_has("status,sql", word) && s->n_paths > 1) {
        return ctl_usage("\"%s\" is too much", s->paths[1]);
    }
    if (strcmp(word, "status") == 0) {
        return fleet_show_status(s);
    }
    if (s->ctl.json) {
        return ctl_usage("--json is for gemmctl fleet status; the others print SQL");
    }
    if (strcmp(word, "sql") == 0) {
        fputs(fleet_sql, stdout);
        return DONE;
    }
    for (size_t i = 0; i < COUNT(fleet_calls); i++) {
        if (strcmp(word, fleet_calls[i].word) == 0) {
            return fleet_print_sql(s, &fleet_calls[i]);
        }
    }
    return ctl_usage("gemmctl fleet takes status, sql, pin, withdraw, distrust, trust, prune or "
                     "renew_epoch, not \"%s\"",
                     word);
}

static const struct argp_option fleet_options[] = {
    {"note", OWN_KEY + OWN_NOTE, "TEXT", 0, "withdraw, distrust: the reason", 3},
    {0},
};

const struct command command_fleet = {
    .name = "fleet",
    .help = "the fleet: hosts that share results",
    .run = fleet_run,
    .args_doc = "[status|sql|pin SEQ|withdraw SEQ|distrust HOST|trust HOST|prune|renew_epoch]",
    .doc =
        "status: how this host's gemmd-fleet is. The others print SQL for an admin of the server, "
        "to be piped into psql. sql: the fleet's tables and functions, for a new server. pin: an "
        "old row answers its key. withdraw: all hosts drop a row. distrust: all hosts drop the "
        "rows of a host. prune: deletes rows that answer nothing. docs/fleet.md tells more.",
    .options = fleet_options,
    .parts = {&words_argp, &ctl_argp},
};
