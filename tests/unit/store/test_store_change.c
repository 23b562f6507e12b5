/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between the gemmds of a file: changes, leases, waiting searches. Several stores of a
 * process are several owners here. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/unit/store/fixture.h"

/* Owners of another process namespace: their process ids mean nothing here. */
#define FIRST  "11.1.1"
#define SECOND "12.1.1"
#define THIRD  "13.1.1"

static void publish(struct store *s, int key)
{
    struct error err = ERROR_NULL;
    struct best *b = calloc(1, sizeof(*b));
    fixture_best(b, key, 1);
    assert_ok(store_publish(s, b, &err));
    free(b);
}

static void execute(struct store *s, const char *sql)
{
    struct error err = ERROR_NULL;
    assert_ok(db_exec(&s->db, sql, &err));
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Reads all changes into a text: "kind name, kind name, ". */
static int read_changes(struct store *s, int64_t *after, uint32_t max, char out[1024])
{
    struct store_change page[64];
    struct error err = ERROR_NULL;
    uint32_t n = 0;
    int r;
    out[0] = 0;
    do {
        r = store_changes(s, after, page, max, &n, &err);
        assert_true(r >= 0);
        assert_in_range(n, 0, max);
        for (uint32_t i = 0; i < n; i++) {
            const size_t at = strlen(out);
            snprintf(out + at, 1024 - at, "%s %s, ", page[i].kind, page[i].name);
        }
    } while (r == 0 && n > 0);
    return r;
}

static void changes_of_other_stores_are_told_once_and_own_changes_never(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    struct quarantine q;
    const struct store_wanted w = {.key = "k", .class = "a class", .search = "s", .n = 1};
    char key[HASH_HEX], told[1024], expected[1024];
    int64_t at_a, at_b;
    fixture_key(1, key);
    publish(b, 1);
    assert_ok(store_changes_begin(a, &at_a, &err));
    assert_ok(store_changes_begin(b, &at_b, &err));
    /* changes before store_changes_begin are not read: the tables have them already */
    assert_true(at_a > 0 && at_a == at_b);
    assert_int_equal(read_changes(a, &at_a, 64, told), 0);
    assert_string_equal(told, "");

    publish(b, 1);
    publish(a, 2);
    fixture_quarantine(&q, 3);
    assert_ok(store_add_quarantine(b, &q, &err));
    /* a lease gives no change: other daemons must ask for it */
    assert_ok(store_lease(b, key, 60000, &err));
    assert_ok(store_unlease(b, key, &err));
    assert_ok(store_want(b, &w, &err));
    assert_ok(store_evict(b, key, NULL, &err));
    assert_ok(store_unquarantine(b, q.variant, NULL, &err));
    assert_ok(store_join(b, &err));
    assert_ok(store_leave(b, &err));
    snprintf(
        expected, sizeof(expected),
        "best %s, quarantine %s, lease %s, wanted a class, evicted %s, quarantine %s, daemon %s, "
        "lease , ",
        key, q.variant, key, key, q.variant, SECOND);
    assert_int_equal(read_changes(a, &at_a, 64, told), 0);
    assert_string_equal(told, expected);
    assert_int_equal(read_changes(a, &at_a, 64, told), 0);
    assert_string_equal(told, "");
    fixture_key(2, key);
    snprintf(expected, sizeof(expected), "best %s, ", key);
    assert_int_equal(read_changes(b, &at_b, 64, told), 0);
    assert_string_equal(told, expected);
    assert_int_equal(at_a, at_b);
    store_close(a);
    store_close(b);
}

/* Reads changes in pages, and writes changes between the pages: the pages still come to an end. */
static void changes_come_in_pages(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    char told[1024];
    int64_t at = 0;
    for (int i = 0; i < 5; i++) {
        publish(b, i);
        for (int k = 0; k < 6; k++) {
            publish(a, 100 + k);
        }
    }
    assert_int_equal(read_changes(a, &at, 2, told), 0);
    assert_int_equal(strlen(told), 5 * (strlen("best , ") + HASH_HEX - 1));
    assert_int_equal(at, 35);
    store_close(a);
    store_close(b);
}

static void what_was_undone_is_no_change(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    char told[1024];
    int64_t at;
    assert_ok(store_changes_begin(a, &at, &err));
    assert_ok(store_begin(b, &err));
    publish(b, 1);
    store_rollback(b);
    assert_int_equal(read_changes(a, &at, 64, told), 0);
    assert_string_equal(told, "");
    store_close(a);
    store_close(b);
}

/* The table keeps a limited number of changes: a store that missed more reads everything anew,
 * then goes on. */
static void a_store_that_missed_changes_is_told(void **state)
{
    enum { MANY = 9000, KEPT = 8192, GRAIN = 256 };
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    char key[HASH_HEX], told[1024];
    int64_t at = 0, n;
    publish(b, 1);
    assert_int_equal(read_changes(a, &at, 64, told), 0);
    fixture_key(1, key);
    assert_ok(store_begin(b, &err));
    for (int i = 0; i < MANY; i++) {
        assert_ok(store_evict(b, key, NULL, &err));
    }
    assert_ok(store_commit(b, &err));
    assert_in_range(fixture_count(a, "SELECT count(*) FROM change"), KEPT, KEPT + GRAIN);
    assert_int_equal(read_changes(a, &at, 64, told), STORE_MISSED);
    assert_int_equal(at, MANY + 1);
    assert_int_equal(read_changes(a, &at, 64, told), 0);
    publish(b, 1);
    assert_int_equal(read_changes(a, &at, 64, told), 0);
    assert_int_equal(strlen(told), strlen("best , ") + HASH_HEX - 1);

    execute(b, "DELETE FROM change"); /* a person or a rebuild may empty the table */
    /* store a has read all changes that were lost */
    assert_int_equal(read_changes(a, &at, 64, told), 0);
    publish(b, 1);
    n = at;
    execute(b, "DELETE FROM change");
    assert_int_equal(read_changes(a, &at, 64, told), STORE_MISSED);
    assert_int_equal(at, n + 1);
    at += 100; /* as if an older copy had replaced the file: the file lacks the last change read */
    assert_int_equal(read_changes(a, &at, 64, told), STORE_MISSED);
    assert_int_equal(at, n + 1);
    store_close(a);
    store_close(b);
}

static void the_newest_row_of_a_key_is_read(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    char key[HASH_HEX];
    fixture_key(1, key);
    assert_int_equal(store_best_of(a, key, best, &err), STORE_MISS);
    publish(b, 1);
    publish(b, 2);
    publish(b, 1);
    assert_ok(store_best_of(a, key, best, &err));
    assert_string_equal(best->key, key);
    assert_int_equal(best->generation, 3);
    assert_ok(store_evict(b, key, NULL, &err));
    assert_int_equal(store_best_of(a, key, best, &err), STORE_MISS);
    free(best);
    store_close(a);
    store_close(b);
}

/* Before a daemon brings back a missing row, it asks the store if the key has changed since. */
static void a_key_that_was_changed_since_is_known(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    char key[HASH_HEX], other[HASH_HEX];
    fixture_key(1, key);
    fixture_key(2, other);
    publish(a, 1);
    int64_t heard;
    assert_ok(store_changes_begin(a, &heard, &err));
    assert_int_equal(store_changed_since(a, key, heard, &err), 0);
    assert_int_equal(store_changed_since(a, key, heard - 1, &err), STORE_THERE);
    assert_ok(store_evict(b, key, NULL, &err));
    assert_int_equal(store_changed_since(a, key, heard, &err), STORE_THERE);
    assert_int_equal(store_changed_since(a, other, heard, &err), 0);
    assert_ok(store_unlease(b, other, &err));
    assert_int_equal(store_changed_since(a, other, heard, &err), 0); /* no row was changed */
    store_close(a);
    store_close(b);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static void a_key_has_one_holder(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    assert_ok(store_lease(a, "k", 60000, &err));
    assert_ok(store_lease(a, "k", 60000, &err));
    assert_int_equal(store_lease(b, "k", 60000, &err), STORE_HELD);
    assert_ok(store_lease(b, "other", 60000, &err));
    assert_ok(store_unlease(b, "k", &err)); /* has no effect: store b does not hold this lease */
    assert_int_equal(store_lease(b, "k", 60000, &err), STORE_HELD);
    assert_ok(store_begin(b, &err));
    assert_int_equal(store_lease(b, "k", 60000, &err), STORE_HELD);
    assert_ok(store_commit(b, &err));
    assert_ok(store_unlease(a, "k", &err));
    assert_ok(store_lease(b, "k", 60000, &err));
    assert_int_equal(store_lease(a, "k", 60000, &err), STORE_HELD);
    store_close(a);
    store_close(b);
    a = fixture_open_as(f, FIRST);
    assert_int_equal(store_lease(a, "k", 60000, &err), STORE_HELD);
    store_close(a);
}

static void a_lease_expires(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    assert_ok(store_lease(a, "k", 1, &err));
    usleep(5000);
    assert_ok(store_lease(b, "k", 60000, &err));
    assert_int_equal(store_lease(a, "k", 60000, &err), STORE_HELD);
    store_close(a);
    store_close(b);
}

static void a_lease_ends_with_the_boot_of_the_host(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    assert_ok(store_lease(a, "k", 60000, &err));
    strcpy(b->boot, "after a restart of the host");
    assert_ok(store_lease(b, "k", 60000, &err));
    store_close(a);
    store_close(b);
}

/* Starts a process that calls `work` with a store of its own, and lives until it is killed. */
static pid_t start_process(struct fixture *f, void (*work)(struct store *s))
{
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct store *s = fixture_open(f);
        work(s);
        if (write(fds[1], "x", 1) == 1) {
            for (;;) {
                pause();
            }
        }
        _exit(1);
    }
    assert_true(pid > 0);
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    close(fds[0]);
    return pid;
}

static void work_at_k(struct store *s)
{
    struct error err = ERROR_NULL;
    const struct store_wanted w = {
        .key = "wanted", .class = "c", .uid = 7, .search = "of a process", .n = 12};
    assert_ok(store_join(s, &err));
    assert_ok(store_lease(s, "k", 60000, &err));
    assert_ok(store_want(s, &w, &err));
}

/* The search with the least rank above *rank. */
static int ranked_wanted(struct store *s, const char *class, int64_t *rank, char out[64])
{
    struct error err = ERROR_NULL;
    WIRE_BUF_AUTO search = WIRE_BUF_NULL;
    int64_t uid = -1;
    int r = store_next_wanted(s, class, rank, &uid, &search, &err);
    if (r == 0) {
        snprintf(out, 64, "%lld %.*s", (long long)uid, (int)search.len, (const char *)search.data);
    } else {
        out[0] = 0;
        assert_int_equal(search.len, 0);
    }
    return r;
}

static int next_wanted(struct store *s, const char *class, char out[64])
{
    int64_t rank = 0;
    return ranked_wanted(s, class, &rank, out);
}

/* The leases of a killed process are free at once, even before its parent is told. */
static void a_process_that_died_holds_nothing(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    char wanted[64];
    int64_t n;
    /* the child must start before this process opens the file */
    pid_t pid = start_process(f, work_at_k);
    struct store *s = fixture_open_as(f, FIRST);
    assert_int_equal(store_lease(s, "k", 60000, &err), STORE_HELD);
    assert_int_equal(next_wanted(s, "c", wanted), 0);
    assert_string_equal(wanted, "7 of a process");
    assert_ok(store_daemons(s, &n, &err));
    assert_int_equal(n, 1);
    assert_ok(store_drop_gone(s, &err));
    assert_int_equal(store_lease(s, "k", 60000, &err), STORE_HELD);

    /* a stopped process keeps its lease: it may continue */
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    assert_int_equal(store_lease(s, "k", 60000, &err), STORE_HELD);

    siginfo_t died;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &died, WEXITED | WNOWAIT), 0);
    assert_ok(store_lease(s, "k", 60000, &err));
    assert_int_equal(next_wanted(s, "c", wanted), STORE_MISS);
    assert_ok(store_daemons(s, &n, &err));
    assert_int_equal(n, 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(next_wanted(s, "c", wanted), STORE_MISS);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM wanted"), 1);
    assert_ok(store_drop_gone(s, &err));
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM wanted"), 0);
    assert_int_equal(fixture_count(s, "SELECT count(*) FROM lease"), 1); /* our own lease stays */
    store_close(s);
}

static void work_at_own_number(struct store *s)
{
    struct error err = ERROR_NULL;
    char key[16];
    snprintf(key, sizeof(key), "%ld", (long)getpid());
    assert_ok(store_lease(s, key, 60000, &err));
}

/* A store keeps descriptors of some owners only. It notices the end of each owner, and a closed
 * store keeps no descriptor. */
static void any_number_of_owners_is_watched(void **state)
{
    enum { PROCESSES = 40 };
    struct fixture *f = *state;
    struct error err = ERROR_NULL;
    pid_t pids[PROCESSES];
    char keys[PROCESSES][16];
    const int free_before = dup(STDIN_FILENO);
    close(free_before);
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = start_process(f, work_at_own_number);
        snprintf(keys[i], sizeof(keys[i]), "%ld", (long)pids[i]);
    }
    struct store *s = fixture_open_as(f, FIRST);
    for (int i = 0; i < 2 * PROCESSES; i++) {
        assert_int_equal(store_lease(s, keys[i % PROCESSES], 60000, &err), STORE_HELD);
    }
    for (int i = 0; i < PROCESSES; i++) {
        siginfo_t died;
        assert_int_equal(kill(pids[i], SIGKILL), 0);
        assert_int_equal(waitid(P_PID, (id_t)pids[i], &died, WEXITED | WNOWAIT), 0);
        assert_ok(store_lease(s, keys[i], 60000, &err));
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
        if (i + 1 < PROCESSES) {
            assert_int_equal(store_lease(s, keys[i + 1], 60000, &err), STORE_HELD);
        }
    }
    store_close(s);
    const int free_after = dup(STDIN_FILENO);
    close(free_after);
    assert_int_equal(free_after, free_before);
}

/* Process ids are reused, and do not apply to another container. */
static void owners_are_judged_by_more_than_a_number(void **state)
{
    char self[STORE_OWNER_MAX], other[STORE_OWNER_MAX];
    unsigned long long began, space;
    long pid;
    (void)state;
    store_owner(self);
    assert_int_equal(sscanf(self, "%ld.%llu.%llu", &pid, &began, &space), 3);
    assert_int_equal(pid, getpid());
    assert_true(began > 0 && space > 0);
    assert_false(store_owner_is_lost(self));
    snprintf(other, sizeof(other), "%ld.%llu.%llu", pid, began + 1, space);
    assert_true(store_owner_is_lost(other));
    snprintf(other, sizeof(other), "%ld.%llu.%llu", pid, began + 1, space + 1);
    assert_false(store_owner_is_lost(other));
    snprintf(other, sizeof(other), "999999999.1.%llu", space);
    assert_true(store_owner_is_lost(other));
    snprintf(other, sizeof(other), "999999999.1.%llu", space + 1);
    assert_false(store_owner_is_lost(other));
    static const char *const odd[] = {"", "x", "1", "1.1", "-1.1.1", "0.1.1"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        assert_true(store_owner_is_lost(odd[i]));
    }
}

/* A process of another namespace, of which /proc shows nothing: its locked byte tells. */
static void the_end_of_a_process_in_another_container_is_seen(void **state)
{
    struct fixture *f = *state;
    struct store *s = fixture_open_as(f, FIRST);
    struct error err = ERROR_NULL;
    int64_t n;
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_ok(store_join(s, &err));
    const pid_t child = fork();
    if (child == 0) {
        struct store *mine = fixture_open_as(f, "77.1.1.lock");
        const bool joined = store_join(mine, &err) == 0 && store_lease(mine, "k", 60000, &err) == 0;
        if (write(ready[1], joined ? "j" : "-", 1) == 1) {
            pause();
        }
        _exit(1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 'j');
    assert_ok(store_daemons(s, &n, &err));
    assert_int_equal(n, 2);
    assert_int_equal(store_lease(s, "k", 1000, &err), STORE_HELD);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_ok(store_daemons(s, &n, &err));
    assert_int_equal(n, 1);
    assert_ok(store_lease(s, "k", 1000, &err));
    close(ready[0]);
    close(ready[1]);
    store_close(s);
}

static void a_store_that_leaves_gives_everything_back(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    const struct store_wanted w = {.key = "w", .class = "c", .search = "s", .n = 1};
    char told[1024];
    int64_t at;
    assert_ok(store_lease(a, "1", 60000, &err));
    assert_ok(store_lease(a, "2", 60000, &err));
    assert_ok(store_lease(b, "3", 60000, &err));
    assert_ok(store_want(a, &w, &err));
    assert_ok(store_changes_begin(b, &at, &err));
    assert_ok(store_leave(a, &err));
    assert_int_equal(read_changes(b, &at, 64, told), 0);
    assert_string_equal(told, "lease , ");
    assert_ok(store_lease(b, "1", 60000, &err));
    assert_ok(store_lease(b, "2", 60000, &err));
    assert_int_equal(store_lease(a, "3", 60000, &err), STORE_HELD);
    assert_int_equal(fixture_count(b, "SELECT count(*) FROM wanted"), 0);
    assert_ok(store_leave(a, &err)); /* a had no lease and no wish: no news */
    assert_int_equal(read_changes(b, &at, 64, told), 0);
    assert_string_equal(told, "");
    store_close(a);
    store_close(b);
}

static void daemons_are_counted(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    struct store_stats stats;
    int64_t n;
    assert_ok(store_daemons(a, &n, &err));
    assert_int_equal(n, 0);
    assert_ok(store_join(a, &err));
    assert_ok(store_join(b, &err));
    assert_ok(store_join(b, &err)); /* a second join does not count */
    assert_ok(store_lease(a, "dawn", 60000, &err));
    assert_ok(store_lease(a, "daemonic", 60000, &err));
    assert_ok(store_daemons(a, &n, &err));
    assert_int_equal(n, 2);
    assert_ok(store_stats(b, &stats, &err));
    assert_int_equal(stats.daemons, 2);
    assert_ok(store_leave(b, &err));
    assert_ok(store_daemons(a, &n, &err));
    assert_int_equal(n, 1);
    strcpy(b->boot, "after a restart of the host");
    assert_ok(store_daemons(b, &n, &err));
    assert_int_equal(n, 0);
    store_close(a);
    store_close(b);
}

/* ---- searches that wait ---------------------------------------------------------------------- */

static void want(struct store *s, const char *key, const char *class)
{
    struct error err = ERROR_NULL;
    const struct store_wanted w = {
        .key = key, .class = class, .uid = 1000, .search = key, .n = strlen(key)};
    assert_ok(store_want(s, &w, &err));
}

static void the_oldest_search_of_another_daemon_is_next(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND),
                 *c = fixture_open_as(f, THIRD);
    struct error err = ERROR_NULL;
    char wanted[64];
    int64_t rank = 0;
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    want(b, "later", "c");
    want(b, "first", "c");
    want(c, "of-c", "c");
    want(a, "own", "c");
    want(c, "elsewhere", "other class");
    want(b, "first", "c"); /* again: keeps its place */
    execute(b, "UPDATE wanted SET since_s = since_s - 10 WHERE key = 'first'");
    assert_int_equal(fixture_count(b, "SELECT count(*) FROM wanted"), 5);
    static const char *const order[] = {"1000 first", "1000 later", "1000 of-c"};
    static const char *const keys[] = {"first", "later", "of-c"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_wanted(a, "c", wanted), 0);
        assert_string_equal(wanted, order[i]);
        /* a daemon that takes over a waiting search leases its key */
        assert_ok(store_lease(a, keys[i], 60000, &err));
    }
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    assert_int_equal(next_wanted(a, "other class", wanted), 0);
    assert_string_equal(wanted, "1000 elsewhere");
    assert_int_equal(next_wanted(b, "c", wanted), 0);
    assert_string_equal(wanted, "1000 own");
    for (int i = 0; i < 3; i++) {
        assert_ok(store_unlease(a, keys[i], &err));
        assert_int_equal(ranked_wanted(a, "c", &rank, wanted), 0);
        assert_string_equal(wanted, order[i]); /* although nobody carries out those before */
    }
    assert_int_equal(ranked_wanted(a, "c", &rank, wanted), STORE_MISS);
    store_close(a);
    store_close(b);
    store_close(c);
}

static void a_leased_search_is_not_next(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND),
                 *c = fixture_open_as(f, THIRD);
    struct error err = ERROR_NULL;
    char wanted[64];
    want(b, "k", "c");
    assert_ok(store_lease(c, "k", 60000, &err));
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    assert_ok(store_unlease(c, "k", &err));
    assert_int_equal(next_wanted(a, "c", wanted), 0);
    assert_ok(store_lease(c, "k", 1, &err));
    usleep(5000);
    assert_int_equal(next_wanted(a, "c", wanted), 0); /* that lease is over */
    assert_ok(store_unwant(a, "k", &err));            /* not a's wish */
    assert_int_equal(next_wanted(a, "c", wanted), 0);
    assert_ok(store_unwant(b, "k", &err));
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    store_close(a);
    store_close(b);
    store_close(c);
}

/* A best that is older than a waiting search does not answer it; a newer best does. */
static void a_search_that_has_ended_is_not_next(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    struct best *best = calloc(1, sizeof(*best));
    char key[HASH_HEX], wanted[64];
    fixture_key(1, key);
    fixture_best(best, 1, 1);
    best->created_s -= 1000;
    assert_ok(store_publish(b, best, &err));
    want(b, key, "c");
    assert_int_equal(next_wanted(a, "c", wanted), 0);
    fixture_best(best, 1, 2);
    best->created_s = fixture_count(a, "SELECT max(since_s) FROM wanted");
    assert_ok(store_publish(b, best, &err));
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    free(best);
    store_close(a);
    store_close(b);
}

static void a_search_of_another_boot_is_not_next(void **state)
{
    struct fixture *f = *state;
    struct store *a = fixture_open_as(f, FIRST), *b = fixture_open_as(f, SECOND);
    struct error err = ERROR_NULL;
    char wanted[64];
    want(b, "1", "c");
    strcpy(a->boot, "after a restart of the host");
    assert_int_equal(next_wanted(a, "c", wanted), STORE_MISS);
    assert_ok(store_drop_gone(a, &err));
    assert_int_equal(fixture_count(a, "SELECT count(*) FROM wanted"), 0);
    store_close(a);
    store_close(b);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(changes_of_other_stores_are_told_once_and_own_changes_never),
        T(changes_come_in_pages),
        T(what_was_undone_is_no_change),
        T(a_store_that_missed_changes_is_told),
        T(the_newest_row_of_a_key_is_read),
        T(a_key_that_was_changed_since_is_known),
        T(a_key_has_one_holder),
        T(a_lease_expires),
        T(a_lease_ends_with_the_boot_of_the_host),
        T(a_process_that_died_holds_nothing),
        T(any_number_of_owners_is_watched),
        T(owners_are_judged_by_more_than_a_number),
        T(the_end_of_a_process_in_another_container_is_seen),
        T(a_store_that_leaves_gives_everything_back),
        T(daemons_are_counted),
        T(the_oldest_search_of_another_daemon_is_next),
        T(a_leased_search_is_not_next),
        T(a_search_that_has_ended_is_not_next),
        T(a_search_of_another_boot_is_not_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
