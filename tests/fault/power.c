/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss of power at any write, truncation or sync of SQLite. Afterwards acknowledged rows exist,
 * acknowledged removals hold, and the file is sound. The disk is that of power_vfs.h, which keeps
 * only synced data for certain.
 *
 *   power [--cuts 300] [--seed 1]
 *
 * To prove that this disk loses data, the same work runs without syncs (synchronous=OFF) and with
 * fewer syncs (NORMAL): both must lose rows.
 */
#include <stdio.h>
#include <unistd.h>

#include "store/inner.h"
#include "tests/fault/power_vfs.h"
#include "tests/unit/store/fixture.h"

enum {
    ROWS_MAX = 1 << 16, /* more than the generations, and the trials, in the life of a file */
    LIFE = 12, /* power cuts per file; then a new file begins, so that its creation is interrupted,
                  too */
    OPERATIONS = 600, /* the power fails within this many operations of the disk */
    KEYS = 20,
};

enum fate { UNTOLD, SAVED, REMOVED }; /* what the store acknowledged about a generation */

struct life {
    struct fixture *f;
    const char *settings; /* SQL for each connection; NULL: the store's own settings */
    enum fate fate[ROWS_MAX];
    int serial[ROWS_MAX], key[ROWS_MAX];
    bool trial[ROWS_MAX]; /* [id]: the store has acknowledged the trial with this id */
    int64_t top;          /* highest generation used */
    struct best *b;       /* owned: scratch */
    struct trial *t;      /* owned: scratch */
    int n;
};

struct outcome {
    int cuts, in_work, opens, acknowledged, lost, back, unsound;
    long dropped;
};

static long cuts = 40;
static uint64_t seed = 20261121;

/* ---- work, until the power goes -------------------------------------------------------------- */

static int open_store(struct life *x, struct store **s)
{
    struct store_options o = fixture_options(x->f);
    struct error err = ERROR_NULL;
    *s = NULL;
    int r = store_open(&o, s, &err);
    if (r == 0 && x->settings && db_exec(&(*s)->db, x->settings, &err)) {
        *s = store_close(*s);
        return -1;
    }
    return r;
}

/* Publishes one best with its trial, or two to four bests with their trials in one transaction. */
static void publish(struct life *x, struct store *s)
{
    struct error err;
    int64_t generations[4], trials[4];
    int n = power_below(3) ? 1 : 2 + (int)power_below(3), done = 0;
    bool group = n > 1;
    if (group && store_begin(s, &err)) {
        return;
    }
    for (; done < n; done++) {
        int key = (int)power_below(KEYS), serial = x->n++;
        fixture_trial(x->t, 0, key, serial);
        fixture_best(x->b, key, serial);
        int r = store_add_trial(s, x->t, &err);
        if (r) {
            break;
        }
        r = store_publish(s, x->b, &err);
        /* a failed publish returns no generation, but may have written its row with the last id */
        generations[done] = r ? s->next_id[TABLE_BEST] - 1 : x->b->generation;
        trials[done] = x->t->id;
        assert_in_range(generations[done], 0, ROWS_MAX - 1);
        x->serial[generations[done]] = serial; /* also for a failed publish */
        x->key[generations[done]] = key;
        x->fate[generations[done]] = UNTOLD;
        x->top = generations[done] > x->top ? generations[done] : x->top;
        if (r) {
            break;
        }
    }
    if (group && done < n) {
        store_rollback(s);
        return;
    }
    if (group && store_commit(s, &err)) {
        return;
    }
    for (int i = 0; i < done; i++) {
        x->fate[generations[i]] = SAVED;
        x->trial[trials[i]] = true;
    }
}

static void evict(struct life *x, struct store *s)
{
    struct error err;
    char id[HASH_HEX];
    int key = (int)power_below(KEYS);
    fixture_key(key, id);
    bool done = store_evict(s, id, NULL, &err) == 0;
    for (int64_t g = 1; g <= x->top; g++) {
        if (x->fate[g] == SAVED && x->key[g] == key) {
            x->fate[g] = done ? REMOVED : UNTOLD; /* not acknowledged: both are possible */
        }
    }
    /* An evict also removes the key's trials, and does not name them: any trial may be missing. */
    memset(x->trial, 0, sizeof(x->trial));
}

static void work(struct life *x)
{
    struct store *s;
    if (open_store(x, &s)) {
        return;
    }
    while (s && !power_is_off()) {
        uint64_t what = power_below(100);
        if (what < 80) {
            publish(x, s);
        } else if (what < 88) {
            evict(x, s);
        } else if (what < 95) { /* a checkpoint, as when the log is full */
            sqlite3_wal_checkpoint_v2(s->db.h, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
        } else {
            s = store_close(s);
            if (what == 99 || open_store(x, &s)) {
                break;
            }
        }
    }
    store_close(s);
}

/* ---- after the cut --------------------------------------------------------------------------- */

static void look_at_best(struct life *x, struct store *s, int64_t g, struct outcome *o)
{
    struct error err;
    int r = rows_first(s, TABLE_BEST, x->b, &err, NULL, "WHERE generation = ?1", "i", g);
    bool there = r == 0;
    o->acknowledged += x->fate[g] == SAVED;
    o->lost += x->fate[g] == SAVED && !there;
    o->back += x->fate[g] == REMOVED && there;
    if (there && record_int(&x->b->config, "serial", -1) != x->serial[g]) {
        o->unsound++;
    }
    x->fate[g] = there ? SAVED : REMOVED; /* the outcome: it must not change any more */
}

static void look_at_trial(struct life *x, struct store *s, int64_t id, struct outcome *o)
{
    struct error err;
    if (x->trial[id]) {
        o->lost += rows_first(s, TABLE_TRIAL, x->t, &err, NULL, "WHERE id = ?1", "i", id) != 0;
        x->trial[id] = false;
    }
}

/* Receives the store's notices. Notes those of damage: a wrong checksum, a file set aside. The
 * notice that the store finished the interrupted creation of a file is none of them. */
static void note_damage(void *noted, const char *kind, const char *text)
{
    (void)text;
    *(bool *)noted |= strncmp(kind, "corrupt", 7) == 0;
}

static void verify(struct life *x, struct outcome *o)
{
    struct error err = ERROR_NULL;
    struct store *s = NULL;
    int64_t bad = 0;
    bool damage = false;
    struct store_options options = {.path = x->f->path, .notice = note_damage, .ctx = &damage};
    int r = store_open(&options, &s, &err);
    r = r ? r : store_check(s, &bad, &err);
    o->unsound += r || bad || damage;
    for (int64_t g = 1; s && g <= x->top; g++) {
        look_at_best(x, s, g, o);
        look_at_trial(x, s, g, o);
    }
    store_close(s);
}

static void begin_life(struct life *x)
{
    static const char *const parts[] = {"", "-wal", "-shm", "-journal"};
    char path[128];
    for (int i = 0; i < 4; i++) {
        fixture_path(x->f, parts[i], path);
        unlink(path);
    }
    memset(x->fate, 0, sizeof(x->fate));
    memset(x->trial, 0, sizeof(x->trial));
    x->top = 0;
}

static struct outcome cut_power(struct fixture *f, const char *settings, int n)
{
    struct life *x = calloc(1, sizeof(*x));
    struct outcome o = {0};
    *x = (struct life){.f = f, .settings = settings};
    x->b = calloc(1, sizeof(*x->b));
    x->t = calloc(1, sizeof(*x->t));
    for (int i = 0; i < n; i++) {
        if (i % LIFE == 0) {
            begin_life(x);
        }
        /* Creating a file takes few operations: for a new file the power fails sooner. */
        uint64_t most = i % LIFE == 0 ? OPERATIONS / 6 : OPERATIONS;
        power_on(seed + (uint64_t)i, 0);
        power_on(power_random(), (long)power_below(most));
        work(x);
        o.in_work += power_is_off();
        power_cut();
        o.dropped += power_dropped();
        o.cuts++;
        verify(x, &o);
    }
    free(x->t);
    free(x->b);
    free(x);
    return o;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void say(const char *what, const struct outcome *o)
{
    print_message("%s: %d cuts (%d at work), %ld writes dropped or torn; %d bests acknowledged, "
                  "%d rows lost, %d removed ones back, %d times unsound\n",
                  what, o->cuts, o->in_work, o->dropped, o->acknowledged, o->lost, o->back,
                  o->unsound);
}

static void what_was_acknowledged_survives(void **state)
{
    struct outcome o = cut_power(*state, NULL, (int)cuts);
    say("synchronous=FULL", &o);
    assert_true(o.in_work > o.cuts / 2);
    assert_true(o.acknowledged > o.cuts && o.dropped > o.cuts);
    assert_int_equal(o.lost, 0);
    assert_int_equal(o.back, 0);
    assert_int_equal(o.unsound, 0);
}

static void without_syncs_it_does_not(void **state)
{
    struct outcome o = cut_power(*state, "PRAGMA synchronous=OFF", 3 * LIFE);
    say("synchronous=OFF", &o);
    assert_true(o.lost > 0 && o.unsound > 0);
}

static void nor_with_fewer(void **state)
{
    struct outcome o = cut_power(*state, "PRAGMA synchronous=NORMAL", 3 * LIFE);
    say("synchronous=NORMAL", &o);
    assert_true(o.lost > 0);
}

int main(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--cuts") == 0) {
            cuts = strtol(argv[i + 1], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[i + 1], NULL, 10);
        }
    }
    power_install();
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {T(what_was_acknowledged_survives),
                                       T(without_syncs_it_does_not), T(nor_with_fewer)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
