/* SPDX-License-Identifier: Apache-2.0 */
/* What gemmd-fleet and the daemons of a file write for each other. Several stores of a process are
 * several owners here. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/fleet.h"
#include "store/inner.h"
#include "tests/unit/store/fixture.h"

/* Owners of another process namespace: their process ids mean nothing here. */
#define FLEET  "10.1.1"
#define FIRST  "11.1.1"
#define SECOND "12.1.1"
#define CLASS  "a class"
#define STAMP  "src=1 target=t compiler=c"

enum { LONG_MS = 60000, ROWS = 8 };

static void execute(struct store *s, const char *sql)
{
    struct error err = ERROR_NULL;
    assert_ok(db_exec(&s->db, sql, &err));
}

static int ask(struct store *s, const char *key, bool only_ask)
{
    struct error err = ERROR_NULL;
    const struct store_share w = {.key = key,
                                  .ttl_ms = LONG_MS,
                                  .class = CLASS,
                                  .stamp = STAMP,
                                  .fleet_ms = LONG_MS,
                                  .only_ask = only_ask};
    int r = store_lease_shared(s, &w, &err);
    assert_true(r >= 0);
    return r;
}

static void answer(struct store *s, const char *key, const char *state, int64_t fence,
                   int64_t ttl_ms, bool missed)
{
    struct error err = ERROR_NULL;
    struct store_lease_row row = {.fence = fence};
    snprintf(row.key, sizeof(row.key), "%s", key);
    snprintf(row.state, sizeof(row.state), "%s", state);
    assert_ok(store_fleet_answer(s, &row, 1, ttl_ms, &err));
    assert_int_equal(row.missed, missed);
}

/* Returns the rows that gemmd-fleet sees, as text: "key state fence, ", and "!" for gone ones. */
static const char *asked(struct store *s)
{
    static char text[512];
    struct store_lease_row rows[ROWS];
    struct error err = ERROR_NULL;
    uint32_t n;
    size_t at = 0;
    text[0] = 0;
    assert_ok(store_fleet_asked(s, rows, ROWS, &n, &err));
    for (uint32_t i = 0; i < n; i++) {
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s %s %d, ", rows[i].key,
                               rows[i].gone ? "!" : "", rows[i].state, (int)rows[i].fence);
        assert_true(!strcmp(rows[i].state, "held") || !strcmp(rows[i].class, CLASS));
    }
    return text;
}

/* Reads the changes since *at as text: "kind name, ". */
static const char *changes(struct store *s, int64_t *at)
{
    static char text[1024];
    struct store_change page[64];
    struct error err = ERROR_NULL;
    uint32_t n = 0;
    size_t end = 0;
    text[0] = 0;
    assert_ok(store_changes(s, at, page, 64, &n, &err));
    for (uint32_t i = 0; i < n; i++) {
        end += (size_t)snprintf(text + end, sizeof(text) - end, "%s %.4s, ", page[i].kind,
                                page[i].name);
    }
    return text;
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void without_a_fleet_a_shared_lease_is_a_lease(void **state)
{
    struct store *a = fixture_open_as(*state, FIRST), *b = fixture_open_as(*state, SECOND);
    assert_int_equal(ask(a, "k", true), 0); /* nothing to ask, and nothing is written */
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM lease"), 0);
    assert_int_equal(ask(a, "k", false), 0);
    assert_int_equal(ask(a, "k", false), 0);
    assert_int_equal(ask(b, "k", false), STORE_HELD);
    assert_string_equal(asked(a), "");
    store_close(a);
    store_close(b);
}

static void the_fleet_grants_a_key_to_the_daemon_that_comes_first(void **state)
{
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST),
                 *b = fixture_open_as(*state, SECOND);
    struct error err = ERROR_NULL;
    int64_t at;
    assert_ok(store_fleet_join(fleet, LONG_MS, &err));
    assert_int_equal(store_fleet_join(b, LONG_MS, &err), STORE_HELD);
    assert_ok(store_changes_begin(a, &at, &err));
    assert_int_equal(ask(a, "k", false), STORE_ASKED);
    assert_int_equal(ask(a, "k", false), STORE_HELD);
    assert_int_equal(ask(b, "k", false), STORE_HELD);
    assert_int_equal(ask(b, "l", true), STORE_ASKED);
    assert_string_equal(asked(fleet), "k asked 0, l asked 0, ");
    answer(fleet, "l", "elsewhere", 0, LONG_MS, false);
    assert_string_equal(changes(a, &at),
                        "asked l, "); /* nobody wakes for a key that is elsewhere */
    answer(fleet, "k", "granted", 7, LONG_MS, false);
    answer(fleet, "l", "elsewhere", 0, LONG_MS, false);
    assert_string_equal(changes(a, &at), "lease k, ");
    answer(fleet, "k", "granted", 7, LONG_MS, false);
    assert_string_equal(changes(a, &at), "");
    assert_int_equal(ask(a, "l", false), STORE_HELD);
    assert_int_equal(ask(b, "k", false), 0);
    assert_int_equal(ask(a, "k", false), STORE_HELD);
    assert_ok(store_lease(b, "k", LONG_MS, &err)); /* renewed: the fence stays */
    assert_string_equal(asked(fleet), "k held 7, l elsewhere 0, ");
    answer(fleet, "k", "granted", 8, LONG_MS, true);
    answer(fleet, "l", "", 0, LONG_MS, false);
    answer(fleet, "l", "elsewhere", 0, LONG_MS, true);
    assert_string_equal(changes(a, &at), "lease l, ");
    assert_ok(store_unlease(b, "k", &err));
    assert_string_equal(asked(fleet), "");
    store_close(fleet);
    store_close(a);
    store_close(b);
}

static void a_fleet_that_hangs_is_asked_no_second_time(void **state)
{
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST);
    struct error err = ERROR_NULL;
    assert_ok(store_fleet_join(fleet, LONG_MS, &err));
    assert_int_equal(ask(a, "k", false), STORE_ASKED);
    assert_int_equal(ask(a, "l", false), STORE_ASKED);
    answer(fleet, "l", "elsewhere", 0, LONG_MS, false);
    execute(a, "UPDATE lease SET until_ms = 1 WHERE key = 'k'");
    assert_int_equal(ask(a, "m", false), 0); /* nobody answers, so nobody is asked */
    assert_int_equal(ask(a, "k", false), STORE_ALONE);
    assert_int_equal(ask(a, "n", false), STORE_ASKED);
    execute(a, "UPDATE lease SET until_ms = 1 WHERE key IN ('l', 'n')");
    assert_int_equal(ask(a, "l", false), STORE_ALONE);
    assert_ok(store_fleet_join(fleet, LONG_MS, &err)); /* it lives again: old questions go */
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM lease WHERE key = 'n'"), 0);
    assert_int_equal(ask(a, "n", false), STORE_ASKED);
    store_close(fleet);
    store_close(a);
}

static void when_the_fleet_leaves_or_dies_its_keys_are_free(void **state)
{
    struct fixture *f = *state;
    struct store *fleet = fixture_open_as(f, FLEET), *a = fixture_open_as(f, FIRST);
    struct error err = ERROR_NULL;
    int64_t at;
    assert_ok(store_fleet_join(fleet, LONG_MS, &err));
    assert_int_equal(ask(a, "k", false), STORE_ASKED);
    assert_int_equal(ask(a, "l", false), STORE_ASKED);
    answer(fleet, "l", "granted", 3, LONG_MS, false);
    assert_int_equal(ask(a, "l", false), 0);
    assert_ok(store_changes_begin(a, &at, &err));
    assert_ok(store_fleet_leave(fleet, &err));
    assert_string_equal(changes(a, &at), "lease , fleet , ");
    assert_int_equal(ask(a, "k", false), 0);
    assert_string_equal(asked(a), "l held 3, "); /* granted and held: the daemon goes on */
    store_close(fleet);
    pid_t child = fork();
    if (child == 0) { /* a gemmd-fleet that dies at once */
        struct store *dies = fixture_open_as(f, NULL);
        _exit(store_fleet_join(dies, LONG_MS, &err) || ask(a, "m", false) != STORE_ASKED);
    }
    int how = -1;
    waitpid(child, &how, 0);
    assert_int_equal(how, 0);
    assert_int_equal(ask(a, "m", false), STORE_ALONE);
    assert_int_equal(ask(a, "n", false), 0);
    store_close(a);
}

static void a_daemon_takes_its_questions_back(void **state)
{
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST),
                 *b = fixture_open_as(*state, SECOND);
    struct error err = ERROR_NULL;
    assert_ok(store_fleet_join(fleet, LONG_MS, &err));
    assert_int_equal(ask(a, "k", false), STORE_ASKED);
    assert_int_equal(ask(a, "l", false), STORE_ASKED);
    answer(fleet, "k", "granted", 3, LONG_MS, false);
    assert_ok(store_unlease(b, "k", &err)); /* another daemon's question */
    assert_string_equal(asked(fleet), "k granted 3, l asked 0, ");
    assert_ok(store_unlease(a, "k", &err));
    assert_string_equal(asked(fleet), "l asked 0, ");
    assert_ok(store_leave(a, &err));
    assert_string_equal(asked(fleet), "");
    assert_int_equal(ask(b, "k", false), STORE_ASKED);
    /* a lease for this host alone does not wait for the fleet */
    assert_ok(store_lease(a, "k", LONG_MS, &err));
    assert_string_equal(asked(fleet), "");
    store_close(fleet);
    store_close(a);
    store_close(b);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void offer(struct store *s, struct best *b, int key, int i, int64_t seq, int expected)
{
    struct error err = ERROR_NULL;
    fixture_best(b, key, i);
    assert_int_equal(store_fleet_offer(s, b, seq, "host-b", &err), expected);
}

static void publish(struct store *s, struct best *b, int key, int i, const char *source)
{
    struct error err = ERROR_NULL;
    fixture_best(b, key, i);
    snprintf(b->source, sizeof(b->source), "%s", source);
    assert_ok(store_publish(s, b, &err));
}

/* The source of the key's newest row; "": no row. */
static const char *source_of(struct store *s, int key, struct best *b)
{
    struct error err = ERROR_NULL;
    char id[HASH_HEX];
    fixture_key(key, id);
    b->source[0] = 0;
    assert_true(store_best_of(s, id, b, &err) >= 0);
    return b->source;
}

static void a_row_of_the_fleet_is_a_candidate_until_it_is_confirmed(void **state)
{
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST);
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    struct trial *t = calloc(1, sizeof(*t));
    struct store_fleet_row row;
    char key[HASH_HEX];
    fixture_key(1, key);
    assert_ok(store_fleet_join(fleet, LONG_MS, &err));
    assert_int_equal(ask(a, key, false), STORE_ASKED);
    offer(fleet, b, 1, 1, 5, 0);
    assert_string_equal(asked(fleet), ""); /* the key's job comes back, to confirm the row */
    offer(fleet, b, 1, 2, 5, STORE_THERE);
    assert_string_equal(source_of(a, 1, b), "fleet");
    assert_int_equal(b->trial, 0);
    assert_non_null(strstr(b->doubt, "host-b"));
    assert_ok(store_fleet_find(a, key, 9, b, &row, &err));
    assert_string_equal(row.state, "new");
    assert_int_equal(store_fleet_find(a, key, 4, b, &row, &err), STORE_MISS);
    assert_int_equal(row.seq, 0);

    const int64_t candidate = b->generation;
    b->doubt[0] = 0;
    assert_int_equal(store_offer(a, b, &err), ERROR_CONFLICT);
    assert_says(err, "was not saved");
    assert_int_equal(b->generation, candidate);
    fixture_trial(t, 0, 1, 1);
    t->config = b->config;
    snprintf(t->stamp, sizeof(t->stamp), "%s", b->stamp);
    assert_ok(store_add_trial(a, t, &err));
    assert_ok(store_offer(a, b, &err));
    assert_int_equal(b->trial, t->id);
    assert_ok(store_fleet_find(a, key, 5, b, &row, &err));
    assert_string_equal(row.state, "confirmed");
    assert_true(b->generation > candidate && b->trial == t->id);
    b->generation = candidate; /* a second confirmation comes too late */
    assert_int_equal(store_offer(a, b, &err), ERROR_CONFLICT);
    assert_int_equal(store_fleet_unpublished(a, 0, b, 1, &(uint32_t){0}, &err), 0);
    free(b);
    free(t);
    store_close(fleet);
    store_close(a);
}

static void a_better_row_of_this_host_stays_the_answer(void **state)
{
    static const char *const better[] = {"tuned", "manual", "trusted"}, *const worse[] = {
                                                                            "imported", "partial"};
    struct store *s = fixture_open_as(*state, FLEET);
    struct best *b = calloc(1, sizeof(*b));
    struct error err = ERROR_NULL;
    struct store_fleet_row row;
    char key[HASH_HEX];
    int64_t seq = 1;
    for (int i = 0; i < 3; i++, seq++) {
        publish(s, b, i, 1, better[i]);
        const int64_t before = b->generation;
        offer(s, b, i, 2, seq, 0);
        assert_string_equal(source_of(s, i, b), better[i]);
        assert_true(b->generation > before);
        fixture_key(i, key);
        assert_ok(
            store_fleet_find(s, key, seq, b, &row, &err)); /* the fleet's number has its row */
        assert_string_equal(b->source, "fleet");
    }
    for (int i = 0; i < 2; i++, seq++) {
        publish(s, b, 10 + i, 1, worse[i]);
        offer(s, b, 10 + i, 2, seq, 0);
        assert_string_equal(source_of(s, 10 + i, b), "fleet");
    }
    /* the stamps of the daemons that run tell which kernels are of today */
    publish(s, b, 20, 1, "tuned");
    struct store *a = fixture_open_as(*state, FIRST);
    assert_ok(store_join(a, &err));
    assert_ok(store_announce(a, b->class, "src=new target=t", &err));
    offer(s, b, 20, 2, seq, 0);
    assert_string_equal(source_of(s, 20, b), "tuned"); /* equal stamps: measured here is better */
    fixture_best(b, 20, 3);
    snprintf(b->stamp, sizeof(b->stamp), "src=new target=t");
    assert_ok(store_fleet_offer(s, b, ++seq, "host-b", &err));
    assert_string_equal(source_of(s, 20, b), "fleet");
    struct store_fleet_stamp stamps[2];
    uint32_t n;
    assert_ok(store_fleet_stamps(s, stamps, 2, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(stamps[0].stamp, "src=new target=t");
    free(b);
    store_close(a);
    store_close(s);
}

static void refused_withdrawn_and_evicted_rows_do_not_come_back(void **state)
{
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST);
    struct best *b = calloc(1, sizeof(*b));
    struct error err = ERROR_NULL;
    struct store_fleet_row rows[ROWS], row;
    char key[HASH_HEX];
    int64_t at, n = 0;
    uint32_t refused;
    offer(fleet, b, 1, 1, 1, 0);
    assert_ok(store_changes_begin(fleet, &at, &err));
    assert_int_equal(store_fleet_refuse(a, b->key, b->generation + 1, "no", &err), STORE_MISS);
    assert_ok(store_fleet_refuse(a, b->key, b->generation, "12 % slower", &err));
    fixture_key(1, key);
    char told[64];
    snprintf(told, sizeof(told), "best %.4s, refused %.4s, ", key, key);
    assert_string_equal(changes(fleet, &at), told);
    assert_string_equal(source_of(a, 1, b), "");
    assert_ok(store_fleet_refused(fleet, rows, ROWS, &refused, &err));
    assert_int_equal(refused, 1);
    assert_string_equal(rows[0].reason, "12 % slower");
    assert_string_equal(rows[0].origin, "host-b");
    assert_ok(store_fleet_reported(fleet, 1, &err));
    assert_ok(store_fleet_refused(fleet, rows, ROWS, &refused, &err));
    assert_int_equal(refused, 0);

    offer(fleet, b, 2, 1, 2, 0);
    assert_ok(store_evict(a, b->key, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(store_fleet_find(a, b->key, 9, b, &row, &err), STORE_MISS);
    assert_string_equal(row.state, "evicted");

    publish(a, b, 3, 1, "tuned");
    offer(fleet, b, 3, 2, 3, 0);
    assert_ok(store_fleet_withdraw(fleet, 3, "host-b is distrusted", &err));
    assert_string_equal(source_of(a, 3, b), "tuned");
    assert_ok(store_fleet_withdraw(fleet, 4, "before it came", &err));
    for (int i = 1; i <= 4; i++) {
        offer(fleet, b, i, 5, i, STORE_THERE);
        assert_string_equal(source_of(a, i, b), i == 3 ? "tuned" : "");
    }
    /* an older row answers again, above the withdrawn row, whose number daemons have heard */
    publish(a, b, 5, 1, "imported");
    offer(fleet, b, 5, 2, 6, 0);
    const int64_t withdrawn = b->generation;
    assert_ok(store_fleet_withdraw(fleet, 6, "host-b is distrusted", &err));
    assert_string_equal(source_of(a, 5, b), "imported");
    assert_true(b->generation > withdrawn);
    /* of two candidates the older one answers again, until it goes, too */
    offer(fleet, b, 6, 2, 7, 0);
    offer(fleet, b, 6, 3, 8, 0);
    assert_ok(store_fleet_withdraw(fleet, 8, "host-b is distrusted", &err));
    assert_string_equal(source_of(a, 6, b), "fleet");
    assert_ok(store_fleet_withdraw(fleet, 7, "host-b is distrusted", &err));
    assert_string_equal(source_of(a, 6, b), "");
    free(b);
    store_close(fleet);
    store_close(a);
}

static void rows_of_whole_searches_are_published_once(void **state)
{
    static const char *const sources[] = {"tuned", "manual", "partial", "imported", "trusted"};
    struct store *fleet = fixture_open_as(*state, FLEET), *a = fixture_open_as(*state, FIRST);
    struct best *b = calloc(ROWS, sizeof(*b));
    struct error err = ERROR_NULL;
    struct store_fleet_row row;
    uint32_t n;
    for (int i = 0; i < 5; i++) {
        publish(a, b, i, 1, sources[i]);
    }
    fixture_best(b, 6, 1);
    snprintf(b->doubt, sizeof(b->doubt), "other processes");
    assert_ok(store_publish(a, b, &err));
    assert_ok(store_fleet_unpublished(fleet, 0, b, ROWS, &n, &err));
    assert_int_equal(n, 1);
    assert_ok(store_fleet_own(fleet, b->key, b->generation, 4, &err));
    assert_ok(store_fleet_own(fleet, b->key, b->generation, 4, &err));
    struct best *other = calloc(1, sizeof(*other));
    offer(fleet, other, 0, 2, 6, 0); /* the own row is written again, and stays published */
    assert_ok(store_fleet_unpublished(fleet, 0, b, ROWS, &n, &err));
    assert_int_equal(n, 0);
    assert_ok(store_fleet_find(fleet, other->key, 5, b, &row, &err));
    assert_string_equal(row.state, "own");
    assert_string_equal(b->source, "tuned");
    publish(a, b, 7, 1, "tuned");
    assert_ok(store_fleet_own(fleet, b->key, b->generation, 0, &err)); /* evidence */
    assert_ok(store_fleet_unpublished(fleet, 0, b, ROWS, &n, &err));
    assert_int_equal(n, 0);
    assert_int_equal(store_fleet_find(fleet, b->key, 99, b, &row, &err), STORE_MISS);
    free(other);
    free(b);
    store_close(fleet);
    store_close(a);
}

static void quarantine_of_other_hosts_is_a_doubt_until_it_is_a_fact(void **state)
{
    struct store *s = fixture_open_as(*state, FLEET);
    struct quarantine q, own[ROWS];
    struct error err = ERROR_NULL;
    char(*avoid)[HASH_HEX];
    uint32_t n;
    for (int deaths = 0; deaths < 3; deaths += 2) {
        fixture_quarantine(&q, 1);
        q.deaths = deaths;
        assert_ok(store_fleet_add_quarantine(s, &q, "host-b", &err));
        assert_ok(store_avoid(s, q.class, q.driver, &avoid, &n, &err));
        assert_int_equal(n, deaths > 0);
        free(avoid);
    }
    assert_ok(store_fleet_list_quarantine(s, false, 0, own, ROWS, &n, &err));
    assert_int_equal(n, 0); /* not this host's word */
    assert_ok(store_fleet_unquarantine(s, &q, &err));
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM quarantine"), 0);
    /* a death here is a fact, with this host's reason, and the fleet takes no row of it back */
    fixture_quarantine(&q, 1);
    q.deaths = 0;
    q.created_s += 1000; /* the other host's clock is ahead */
    assert_ok(store_fleet_add_quarantine(s, &q, "host-b", &err));
    fixture_quarantine(&q, 1);
    q.deaths = 1;
    assert_ok(store_add_quarantine(s, &q, &err));
    assert_ok(store_fleet_add_quarantine(s, &q, "host-b", &err));
    assert_ok(store_fleet_unquarantine(s, &q, &err));
    assert_ok(store_fleet_list_quarantine(s, false, 0, own, ROWS, &n, &err));
    assert_int_equal(n, 1);
    assert_int_equal(own[0].deaths, 1);
    store_close(s);
}

static void the_fleets_state_survives_and_is_listed(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FLEET);
    struct store_fleet fleet = {.server = "db:5432/fleet",
                                .state = "up",
                                .since_s = 77,
                                .text = "reads the feed",
                                .epoch = "e1",
                                .cursor = 42,
                                .host = 3,
                                .counters = "{\"published\": 1}"},
                       now;
    struct store *a = fixture_open_as(f, FIRST);
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO rows = WIRE_BUF_NULL;
    int64_t at, total;
    assert_int_equal(store_fleet_read(s, &now, &err), STORE_MISS);
    assert_ok(store_changes_begin(a, &at, &err));
    assert_ok(store_fleet_status(s, &fleet, &err));
    assert_string_equal(changes(a, &at), "fleet 42, ");
    snprintf(fleet.counters, sizeof(fleet.counters), "{}");
    assert_ok(store_fleet_status(s, &fleet, &err)); /* counters are no news */
    assert_string_equal(changes(a, &at), "");
    store_close(s);
    assert_ok(store_fleet_read(a, &now, &err));
    assert_string_equal(now.text, "reads the feed");
    assert_string_equal(now.counters, "{}");
    assert_true(now.cursor == 42 && now.host == 3 && now.since_s == 77);
    for (int i = 0; i < 2; i++) {
        assert_ok(store_list(a, i ? "fleet_rows" : "fleet", NULL, 4096, &rows, &total, &err));
        assert_int_equal(total, !i);
    }
    store_close(a);
}

static void a_rebuilt_file_keeps_the_numbers_of_the_rows_that_it_has(void **state)
{
    const struct store_fleet fleet = {.server = "db", .state = "up", .cursor = 9, .counters = "{}"};
    struct store *s = fixture_open_as(*state, FLEET);
    struct best *b = calloc(1, sizeof(*b));
    struct error err = ERROR_NULL;
    struct store_fleet now;
    for (int i = 1; i <= 3; i++) {
        offer(s, b, i, 1, i, 0);
    }
    execute(s, "DELETE FROM best WHERE generation = 3"); /* a lost row */
    fixture_key(2, b->key);
    assert_ok(store_evict(s, b->key, NULL, &err));
    assert_ok(store_fleet_status(s, &fleet, &err));
    s->db.damaged = true;
    assert_ok(store_repair(s, &err));
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM fleet_row"), 2);
    assert_int_equal(fixture_count(s, "SELECT seq FROM fleet_row WHERE state = 'new'"), 1);
    assert_int_equal(store_fleet_read(s, &now, &err), STORE_MISS); /* all rows are read again */
    offer(s, b, 1, 1, 1, STORE_THERE);
    offer(s, b, 2, 1, 2, STORE_THERE);
    offer(s, b, 3, 1, 3, 0);
    free(b);
    store_close(s);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(without_a_fleet_a_shared_lease_is_a_lease),
        T(the_fleet_grants_a_key_to_the_daemon_that_comes_first),
        T(a_fleet_that_hangs_is_asked_no_second_time),
        T(when_the_fleet_leaves_or_dies_its_keys_are_free),
        T(a_daemon_takes_its_questions_back),
        T(a_row_of_the_fleet_is_a_candidate_until_it_is_confirmed),
        T(a_better_row_of_this_host_stays_the_answer),
        T(refused_withdrawn_and_evicted_rows_do_not_come_back),
        T(rows_of_whole_searches_are_published_once),
        T(quarantine_of_other_hosts_is_a_doubt_until_it_is_a_fact),
        T(the_fleets_state_survives_and_is_listed),
        T(a_rebuilt_file_keeps_the_numbers_of_the_rows_that_it_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
