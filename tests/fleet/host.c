/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host DATABASE: plays a daemon for tests of gemmd-fleet. The program reads commands from stdin,
 * calls the functions of the store that a daemon calls, and prints a line for each command. M
 * chooses the problem.
 *
 *   join CLASS STAMP: begins as a daemon of this class and stamp.
 *   key M: prints the id of the key.
 *   ask M [FLEET_MS]: a search wants the key: leased, held, asked or alone.
 *   unlease M: gives the key back.
 *   tune M TIME [DOUBT]: writes a row that a whole search found.
 *   confirm M TIME: the fleet's row of the key is right.
 *   refuse M REASON: the fleet's row of the key is wrong.
 *   evict M: deletes the key's rows.
 *   event KIND TEXT: writes an event.
 *   quarantine M REASON: puts a variant into quarantine. unquarantine M: takes the variant out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/problem.h"
#include "store/fleet.h"

struct host {
    struct store *store;
    char class[192], stamp[STAMP_MAX];
};

static void host_make_best(const struct host *h, long m, double time_us, struct best *b)
{
    struct problem p = {.op_name = "grouped_gemm"};
    struct key k;
    memset(b, 0, sizeof(*b));
    record_init(&p.fields);
    record_put_int(&p.fields, "M", m);
    record_put_text(&p.fields, "mode", "forward");
    key_make(&k, &p, h->class, NULL);
    key_id(&k);
    snprintf(b->key, sizeof(b->key), "%s", k.id);
    snprintf(b->op, sizeof(b->op), "%s", p.op_name);
    snprintf(b->family, sizeof(b->family), "grouped_gemm");
    snprintf(b->class, sizeof(b->class), "%s", h->class);
    snprintf(b->stamp, sizeof(b->stamp), "%s", h->stamp);
    record_copy(&b->problem, &p.fields);
    record_init(&b->config);
    record_put_int(&b->config, "BLOCK_SIZE_M", 64);
    b->time_us = time_us;
    b->reference_us = 2 * time_us;
    b->measured = 10;
    b->created_s = time(NULL);
}

static int host_tune(const struct host *h, long m, char *rest, struct error *err)
{
    struct best b;
    char *end;
    host_make_best(h, m, strtod(rest, &end), &b);
    snprintf(b.source, sizeof(b.source), "tuned");
    snprintf(b.doubt, sizeof(b.doubt), "%s", *end ? end + 1 : "");
    return store_publish(h->store, &b, err);
}

/* Confirms the candidate of the key, as the daemon does: with a trial of its config. */
static int host_confirm(const struct host *h, long m, double time_us, struct error *err)
{
    static struct trial t;
    struct best b;
    host_make_best(h, m, time_us, &b);
    int r = store_best_of(h->store, b.key, &b, err);
    if (r) {
        return r;
    }
    memset(&t, 0, sizeof(t));
    snprintf(t.key, sizeof(t.key), "%s", b.key);
    snprintf(t.family, sizeof(t.family), "%s", b.family);
    snprintf(t.stamp, sizeof(t.stamp), "%s", b.stamp);
    snprintf(t.status, sizeof(t.status), "ok");
    record_copy(&t.config, &b.config);
    t.time_us = time_us;
    r = store_add_trial(h->store, &t, err);
    b.time_us = time_us;
    return r ? r : store_fleet_confirm(h->store, &b, err);
}

static int host_refuse(const struct host *h, long m, const char *reason, struct error *err)
{
    struct best b;
    host_make_best(h, m, 1, &b);
    int r = store_best_of(h->store, b.key, &b, err);
    return r ? r : store_fleet_refuse(h->store, b.key, b.generation, reason, err);
}

static int host_join(struct host *h, char *rest, struct error *err)
{
    const size_t n = strcspn(rest, " ");
    snprintf(h->class, sizeof(h->class), "%.*s", (int)n, rest);
    snprintf(h->stamp, sizeof(h->stamp), "%s", rest[n] ? rest + n + 1 : "");
    int r = store_join(h->store, err);
    return r ? r : store_announce(h->store, h->class, h->stamp, err);
}

static int host_ask(const struct host *h, const char *key, const char *rest, struct error *err)
{
    const struct store_share w = {.key = key,
                                  .ttl_ms = 600000,
                                  .class = h->class,
                                  .stamp = h->stamp,
                                  .fleet_ms = *rest ? strtol(rest, NULL, 10) : 3000};
    return store_lease_shared(h->store, &w, err);
}

static int host_quarantine(const struct host *h, long m, const char *reason, struct error *err)
{
    static struct quarantine q;
    memset(&q, 0, sizeof(q));
    snprintf(q.variant, sizeof(q.variant), "%032lx", m);
    snprintf(q.class, sizeof(q.class), "%s", h->class);
    snprintf(q.family, sizeof(q.family), "grouped_gemm");
    snprintf(q.driver, sizeof(q.driver), "580");
    snprintf(q.status, sizeof(q.status), "hung");
    snprintf(q.reason, sizeof(q.reason), "%s", reason);
    record_init(&q.config);
    record_put_int(&q.config, "BLOCK_SIZE_M", 64);
    q.deaths = 1;
    q.created_s = time(NULL);
    return store_add_quarantine(h->store, &q, err);
}

static int host_add_event(const struct host *h, const char *words, struct error *err)
{
    struct event e = {.id = 0};
    const size_t n = strcspn(words, " ");
    snprintf(e.kind, sizeof(e.kind), "%.*s", (int)n, words);
    snprintf(e.text, sizeof(e.text), "%s", words + n + (words[n] == ' '));
    return store_add_event(h->store, &e, err);
}

static const char *host_name_status(int status, const char *command)
{
    const bool asks = strcmp(command, "ask") == 0;
    switch (status) {
    case 0:
        return asks ? "leased" : "done";
    case STORE_MISS:
        return "miss";
    case STORE_HELD:
        return "held";
    case STORE_ASKED:
        return "asked";
    case STORE_ALONE:
        return "alone";
    default:
        return "fault";
    }
}

static void host_carry_out(struct host *h, const char *command, char *words)
{
    struct error err = ERROR_NULL;
    struct best b;
    char *rest;
    const long m = strtol(words, &rest, 10);
    int r = ERROR_INVALID;
    rest += *rest == ' ';
    host_make_best(h, m, 1, &b);
    if (strcmp(command, "join") == 0) {
        r = host_join(h, words, &err);
    } else if (strcmp(command, "key") == 0) {
        printf("%s\n", b.key);
        return;
    } else if (strcmp(command, "ask") == 0) {
        r = host_ask(h, b.key, rest, &err);
    } else if (strcmp(command, "unlease") == 0) {
        r = store_unlease(h->store, b.key, &err);
    } else if (strcmp(command, "tune") == 0) {
        r = host_tune(h, m, rest, &err);
    } else if (strcmp(command, "confirm") == 0) {
        r = host_confirm(h, m, strtod(rest, NULL), &err);
    } else if (strcmp(command, "refuse") == 0) {
        r = host_refuse(h, m, rest, &err);
    } else if (strcmp(command, "event") == 0) {
        r = host_add_event(h, words, &err);
    } else if (strcmp(command, "quarantine") == 0) {
        r = host_quarantine(h, m, rest, &err);
    } else if (strcmp(command, "unquarantine") == 0) {
        char variant[HASH_HEX];
        snprintf(variant, sizeof(variant), "%032lx", m);
        r = store_unquarantine(h->store, variant, NULL, &err);
    } else if (strcmp(command, "evict") == 0) {
        r = store_evict(h->store, b.key, NULL, &err);
    }
    printf("%s%s%s\n", host_name_status(r, command), r < 0 ? ": " : "", r < 0 ? err.text : "");
}

int main(int argc, char **argv)
{
    const struct store_options o = {.path = argc > 1 ? argv[1] : ""};
    struct host h = {.store = NULL};
    struct error err = ERROR_NULL;
    char line[2048];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (store_open(&o, &h.store, &err)) {
        fprintf(stderr, "host: %s\n", err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin)) {
        line[strcspn(line, "\n")] = '\0';
        char *words = line + strcspn(line, " ");
        if (*words) {
            *words++ = '\0';
        }
        host_carry_out(&h, line, words);
    }
    store_leave(h.store, &err);
    store_close(h.store);
    return 0;
}
