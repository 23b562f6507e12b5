/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays gemmd-fleet for test_fleet.py: calls the functions of store/fleet.h, by commands on stdin.
 * Answers each command with a line: "0", another status, or what was asked for.
 *
 *   join MS | leave | asked | answer KEY STATE FENCE MS | status CURSOR | refused
 *   offer SEQ ORIGIN DATABASE KEY FACTOR COMPILER   the row of another database, with its time
 *       multiplied by FACTOR, and the compiler of its stamp replaced ("-": as it is; "source": the
 *       source's hash is another)
 *   quarantine VARIANT KEY DRIVER DEATHS   a variant in quarantine at another host, of the key's
 * class own KEY GENERATION SEQ | withdraw SEQ REASON | unpublished
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/fleet.h"
#include "store/store.h"

enum { ROWS = 512 };

static struct store *store;
static struct error err;

static int player_open(const char *path, unsigned flags, struct store **out)
{
    const struct store_options o = {.path = path, .flags = flags};
    return store_open(&o, out, &err);
}

static void player_print_asked(void)
{
    static struct store_lease_row rows[ROWS];
    uint32_t n;
    if (store_fleet_asked(store, rows, ROWS, &n, &err) < 0) {
        printf("%s\n", err.text);
        return;
    }
    for (uint32_t i = 0; i < n && i < ROWS; i++) {
        printf("%s:%s:%" PRId64 ":%d ", rows[i].key, rows[i].state, rows[i].fence, rows[i].gone);
    }
    printf("\n");
}

static int player_answer(const char *key, const char *state, int64_t fence, int64_t ms)
{
    struct store_lease_row row = {.fence = fence};
    snprintf(row.key, sizeof(row.key), "%s", key);
    snprintf(row.state, sizeof(row.state), "%s", strcmp(state, "free") == 0 ? "" : state);
    int r = store_fleet_answer(store, &row, 1, ms, &err);
    return r ? r : row.missed;
}

static int player_offer(int64_t seq, const char *origin, const char *database, const char *key,
                        double factor, const char *compiler)
{
    static struct best b;
    struct store *from;
    int r = player_open(database, STORE_READ_ONLY, &from);
    if (r) {
        return r;
    }
    r = store_best_of(from, key, &b, &err);
    store_close(from);
    b.time_us *= factor;
    char *at = strstr(b.stamp, "compiler=");
    if (strcmp(compiler, "source") == 0) {
        memcpy(b.stamp, "src=0", strlen("src=0"));
    } else if (at && strcmp(compiler, "-") != 0) {
        snprintf(at, sizeof(b.stamp) - (size_t)(at - b.stamp), "compiler=%s", compiler);
    }
    return r ? r : store_fleet_offer(store, &b, seq, origin, &err);
}

static int player_status(int64_t cursor)
{
    const struct store_fleet f = {.server = "db:5432/fleet",
                                  .state = "up",
                                  .since_s = 1,
                                  .text = "reads the feed",
                                  .epoch = "1",
                                  .cursor = cursor,
                                  .host = 1,
                                  .counters = "{}"};
    return store_fleet_status(store, &f, &err);
}

static int player_quarantine(const char *variant, const char *key, const char *driver,
                             int64_t deaths)
{
    static struct best b;
    struct quarantine q = {.deaths = deaths, .created_s = 1, .status = "crashed"};
    int r = store_best_of(store, key, &b, &err);
    snprintf(q.variant, sizeof(q.variant), "%s", variant);
    snprintf(q.key, sizeof(q.key), "%s", key);
    snprintf(q.driver, sizeof(q.driver), "%s", strcmp(driver, "-") == 0 ? "" : driver);
    snprintf(q.class, sizeof(q.class), "%s", b.class);
    snprintf(q.reason, sizeof(q.reason), "an illegal address");
    return r ? r : store_fleet_add_quarantine(store, &q, "host-b", &err);
}

static void player_print_refused(void)
{
    static struct store_fleet_row rows[ROWS];
    uint32_t n = 0;
    store_fleet_refused(store, rows, ROWS, &n, &err);
    for (uint32_t i = 0; i < n; i++) {
        printf("%" PRId64 ":%s ", rows[i].seq, rows[i].reason);
    }
    printf("\n");
}

static void player_print_unpublished(void)
{
    static struct best rows[8];
    uint32_t n = 0;
    store_fleet_unpublished(store, 0, rows, 8, &n, &err);
    for (uint32_t i = 0; i < n; i++) {
        printf("%s:%" PRId64 " ", rows[i].key, rows[i].generation);
    }
    printf("\n");
}

static int player_run(char *line)
{
    static char none[1];
    char *w[8];
    for (int i = 0; i < 8; i++) {
        w[i] = strtok(i ? NULL : line, " \n");
        w[i] = w[i] ? w[i] : none;
    }
    const int64_t first = strtoll(w[1], NULL, 10);
    return strcmp(w[0], "join") == 0    ? store_fleet_join(store, first, &err)
           : strcmp(w[0], "leave") == 0 ? store_fleet_leave(store, &err)
           : strcmp(w[0], "answer") == 0
               ? player_answer(w[1], w[2], strtoll(w[3], NULL, 10), strtoll(w[4], NULL, 10))
           : strcmp(w[0], "offer") == 0
               ? player_offer(first, w[2], w[3], w[4], strtod(w[5], NULL), w[6])
           : strcmp(w[0], "quarantine") == 0
               ? player_quarantine(w[1], w[2], w[3], strtoll(w[4], NULL, 10))
           : strcmp(w[0], "status") == 0 ? player_status(first)
           : strcmp(w[0], "own") == 0    ? store_fleet_own(store, w[1], strtoll(w[2], NULL, 10),
                                                           strtoll(w[3], NULL, 10), &err)
           : strcmp(w[0], "withdraw") == 0
               ? store_fleet_withdraw(store, first, w[2], &err)
               : error_set(&err, ERROR_INVALID, "there is no command %s", w[0]);
}

int main(int argc, char **argv)
{
    char line[1024];
    if (argc != 2 || player_open(argv[1], 0, &store) < 0) {
        fprintf(stderr, "%s\n", argc == 2 ? err.text : "usage: fleet-player DATABASE");
        return EXIT_FAILURE;
    }
    while (fgets(line, sizeof(line), stdin)) {
        if (strncmp(line, "asked", 5) == 0) {
            player_print_asked();
        } else if (strncmp(line, "refused", 7) == 0) {
            player_print_refused();
        } else if (strncmp(line, "unpublished", 11) == 0) {
            player_print_unpublished();
        } else {
            int r = player_run(line);
            printf("%d %s\n", r, r < 0 ? err.text : "");
        }
        fflush(stdout);
    }
    store_close(store);
    return EXIT_SUCCESS;
}
