/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The method `acquire` answers with the result for a user's own kernel, or grants the lease to work
 * the result out (methods/leases.h). record.c and put.c handle the lease holder's later messages.
 *
 * The caller may name the configs that it chooses among. A hit is then the fastest of these
 * configs, once all are known. With a lease, the caller learns which configs need no measurement,
 * so a config added to a kernel's list costs one measurement. The ledger reads all trials of the
 * key for a call that names configs. So the user is charged for many requests while the ledger
 * reads, and for the call's memory while the call waits for a lease (base/account.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/answer.h"
#include "daemon/methods/methods.h"
#include "daemon/methods/daemon_parts.h"
#include "daemon/methods/pending.h"
#include "proto/hash.h"
#include "proto/request.h"

/* While the ledger reads trials, an acquire counts as all pending requests that a client may have:
 * the ledger may read thousands of trials (20 ms). */
enum { ASKED_AS = PENDING_MAX };

/* ---- the caller's configs -------------------------------------------------------------------- */

struct choice {
    uint64_t hash; /* the hash of the config's canonical bytes */
    bool known;
};

/* The configs that a caller chooses among, with the results of those that were tried before. */
struct choices {
    size_t n, n_known;
    struct choice *all;    /* owned, [n]; NULL when the caller named no configs */
    struct wire_buf known; /* owned: one map per config with a known result, concatenated */
    bool any;              /* a config works: the members below describe the fastest */
    double best_us;        /* NaN when no working config has a known time */
    int64_t best_s;
    size_t best_at, best_n; /* the fastest config's bytes in `known` */
};

static uint64_t choices_hash(const struct record *config)
{
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    record_pack(&packed, config);
    return packed.failed ? 0 : hash64(packed.data, packed.len);
}

static struct choice *choices_find_config(const struct choices *c, uint64_t hash)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->all[i].hash == hash) {
            return &c->all[i];
        }
    }
    return NULL;
}

/* Reads params' "configs" without duplicates. All configs begin unknown. */
static int choices_read(struct choices *c, const struct wire_obj *list, struct record *scratch,
                        struct error *err)
{
    if (!list) {
        return 0;
    }
    if (wire_type_of(list) != WIRE_ARRAY || wire_count(list) > REQUEST_CONFIGS_MAX) {
        return error_set(err, ERROR_INVALID, "'configs' must be a list of at most %d configs",
                         REQUEST_CONFIGS_MAX);
    }
    c->all = calloc(wire_count(list) + 1, sizeof(*c->all));
    if (!c->all) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for a list of configs");
    }
    for (size_t i = 0; i < wire_count(list); i++) {
        int status = call_read_config(wire_at(list, i), scratch, err);
        if (status < 0) {
            return error_prefix(err, "configs[%zu]", i);
        }
        uint64_t hash = choices_hash(scratch);
        if (!choices_find_config(c, hash)) {
            c->all[c->n++] = (struct choice){.hash = hash};
        }
    }
    return 0;
}

/* Notes a config's result. Ignores a config outside the caller's list, and a second result of a
 * config: so call this with the newest result first. `time_us`: NaN or 0 when unknown, also with
 * status "ok". */
static void choices_learn(struct choices *c, const struct record *config, const char *status,
                          double time_us, const char *reason, int64_t created_s)
{
    struct wire_buf *b = &c->known;
    struct choice *one = choices_find_config(c, choices_hash(config));
    time_us = time_us > 0 ? time_us : NAN;
    if (!one || one->known) {
        return;
    }
    one->known = true;
    c->n_known++;
    wire_put_map(b, 4);
    wire_put_str(b, "config");
    const size_t at = b->len;
    record_pack(b, config);
    const size_t n = b->len - at;
    wire_put_kv_str(b, "status", status);
    wire_put_str(b, "time_us");
    if (isfinite(time_us)) {
        wire_put_real(b, time_us);
    } else {
        wire_put_nil(b);
    }
    wire_put_kv_str(b, "reason", reason);
    const bool first_time = isnan(c->best_us) && time_us > 0;
    if (strcmp(status, "ok") == 0 && (!c->any || first_time || time_us < c->best_us)) {
        c->any = true;
        c->best_us = time_us;
        c->best_s = created_s;
        c->best_at = at;
        c->best_n = n;
    }
}

static void choices_forget(struct choices *c)
{
    c->n_known = 0;
    c->any = false;
    wire_buf_clear(&c->known);
    for (size_t i = 0; i < c->n; i++) {
        c->all[i].known = false;
    }
}

/* ---- the request ------------------------------------------------------------------------------
 */

struct acquiring {
    struct wanter wanter; /* first member; charged as ASKED_AS while the ledger reads trials */
    struct lease *lease;  /* set during the caller's turn */
    size_t waiting;       /* bytes charged while the caller waits for a lease; else 0 */
    bool mine;            /* the caller's session holds the key */
    bool reads_shared;    /* the ledger reads the trials of the shared key (the key of all users) */
    struct choices choices;
};

static void acquire_evaluate_known(struct acquiring *a);

static void end_waiting(struct acquiring *a)
{
    if (a->waiting) {
        account_end_waiting(a->wanter.pending.asked.account, a->waiting);
    }
    a->waiting = 0;
}

/* Frees what the request holds. The caller ends the pending request next. */
static struct pending *acquire_release(struct acquiring *a)
{
    end_waiting(a);
    free(a->choices.all);
    wire_buf_deinit(&a->choices.known);
    return &a->wanter.pending;
}

static void acquire_client_gone(struct ticket *t)
{
    struct acquiring *a = LIST_OF(t, struct acquiring, wanter.pending.ticket);
    leases_drop(&a->wanter);
    if (!a->wanter.pending.asked.charged) {
        /* no read of the ledger will call back with this struct */
        pending_drop(acquire_release(a));
    }
}

static void acquire_fail_request(struct acquiring *a, const struct error *e)
{
    pending_fail(acquire_release(a), e);
}

/* ---- known results --------------------------------------------------------------------------- */

static const struct cache_entry *acquire_entry_of(const struct acquiring *a)
{
    struct cache *c = &a->wanter.pending.d->cache;
    const char *shared = a->wanter.shared;
    const struct cache_entry *e = cache_find_id(c, a->wanter.key, NULL);
    return e || !shared[0] ? e : cache_find_id(c, shared, NULL);
}

/* Notes the key's answer as a config's result: an answer of `put` or `import` has no trial. */
static void learn_answer(struct acquiring *a, const struct answer *answer)
{
    choices_learn(&a->choices, &answer->config, "ok", answer->time_us, "", answer->created_s);
}

static const struct answer *answer_known(const struct acquiring *a)
{
    struct answer *x = &a->wanter.pending.d->scratch->hint;
    const struct cache_entry *e = acquire_entry_of(a);
    return e && cache_answer(&a->wanter.pending.d->cache, e, x, NULL) == 0 ? x : NULL;
}

/* ---- answering ------------------------------------------------------------------------------- */

/* Writes the answer of the fastest known config. False when no config is known to work. */
static bool best_answer(struct acquiring *a, struct answer *out)
{
    struct daemon *d = a->wanter.pending.d;
    const struct choices *c = &a->choices;
    const struct cache_entry *e = acquire_entry_of(a);
    bool kept = e && cache_answer(&d->cache, e, out, NULL) == 0;
    if (c->n == 0 || !c->any) {
        return c->n == 0 && kept;
    }
    const uint8_t *best = c->known.data + c->best_at;
    if (kept && choices_hash(&out->config) == hash64(best, c->best_n)) {
        return true;
    }
    answer_init(out);
    snprintf(out->key, sizeof(out->key), "%s", a->wanter.key);
    snprintf(out->tier, sizeof(out->tier), "exact");
    snprintf(out->source, sizeof(out->source), "imported");
    out->time_us = c->best_us;
    out->created_s = c->best_s;
    out->saved = true;
    const struct wire_obj *config;
    return wire_decode(d->cache.entries.doc, best, c->best_n, &config, NULL) == 0 &&
           record_unpack(&out->config, config, NULL) == 0;
}

static void answer_acquire(struct acquiring *a, const char *outcome, int64_t uid, int64_t pid)
{
    struct answer *x = &a->wanter.pending.d->scratch->answer;
    struct wire_buf *b = pending_result(&a->wanter.pending);
    wire_put_map(b, 5);
    wire_put_kv_str(b, "outcome", outcome);
    wire_put_str(b, "answer");
    schema_encode(b, &answer_schema, best_answer(a, x) ? x : NULL);
    wire_put_str(b, "known");
    wire_put_array(b, a->choices.n_known);
    wire_put_raw(b, a->choices.known.data, a->choices.known.len);
    wire_put_kv_int(b, "lease_ms", strcmp(outcome, "lease") == 0 ? a->wanter.lease_ms : 0);
    wire_put_str(b, "holder");
    if (pid) {
        wire_put_map(b, 2);
        wire_put_kv_int(b, "uid", uid);
        wire_put_kv_int(b, "pid", pid);
    } else {
        wire_put_nil(b);
    }
    pending_drop(acquire_release(a));
}

static void answer_lease(struct acquiring *a)
{
    const struct session *s = a->wanter.pending.ticket.session;
    answer_acquire(a, "lease", s->uid, s->pid);
}

static void answer_hit(struct acquiring *a)
{
    struct error e = ERROR_NULL;
    if (a->choices.n == 0 || a->choices.any) {
        a->wanter.pending.d->hits++;
        session_count_exact(a->wanter.pending.ticket.session, 1);
        answer_acquire(a, "hit", 0, 0);
        return;
    }
    error_set(&e, ERROR_NO_CONFIG,
              "all %zu configs of key %.12s failed before (`gemmctl trials %s` says how); add "
              "others, or `evict` the key",
              a->choices.n, a->wanter.key, a->wanter.key);
    acquire_fail_request(a, &e);
}

static bool is_hit(struct acquiring *a)
{
    const struct choices *c = &a->choices;
    return c->n ? c->n_known == c->n : acquire_entry_of(a) != NULL;
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* Queues the caller. A session that holds the key renews its lease without waiting. */
static int wait_in_line(struct acquiring *a, struct error *err)
{
    struct leases *l = &a->wanter.pending.parts->leases;
    if (!leases_of(l, a->wanter.pending.ticket.session, a->wanter.key)) {
        const struct choices *c = &a->choices;
        size_t bytes = sizeof(*a) + c->n * sizeof(*c->all) + c->known.cap;
        int status = account_add_waiting(a->wanter.pending.asked.account, bytes, err);
        if (status < 0) {
            return status;
        }
        a->waiting = bytes;
    }
    return leases_want(l, &a->wanter, err);
}

static void acquire_on_evaluated(struct acquiring *a)
{
    struct lease *l = a->lease;
    struct error err = ERROR_NULL;
    bool mine = a->mine;
    a->lease = NULL;
    a->mine = false;
    if (!a->wanter.pending.ticket.session) {
        pending_drop(acquire_release(a));
    } else if (is_hit(a)) {
        leases_renew(&a->wanter.pending.parts->leases, &a->wanter);
        answer_hit(a);
    } else if (mine) {
        answer_lease(a);
    } else if (custom_check_room(a->wanter.pending.d, a->wanter.key, a->wanter.pending.uid, &err)) {
        /* the user may add no further key, so the key's trials and answer would be refused */
        acquire_fail_request(a, &err);
    } else if (l) {
        if (lease_hold(l, &a->wanter, &err) < 0) {
            acquire_fail_request(a, &err);
        } else {
            answer_lease(a);
        }
        return;
    } else if (wait_in_line(a, &err) < 0) {
        acquire_fail_request(a, &err);
    }
    if (l) {
        lease_pass(l);
    }
}

static void on_turn(struct wanter *w, struct lease *l)
{
    struct acquiring *a = LIST_OF(w, struct acquiring, wanter);
    a->lease = l;
    a->mine = l == NULL;
    end_waiting(a);
    acquire_evaluate_known(a);
}

/* True when the key has an answer, and the wanter named no configs. For configs the ledger must
 * read trials, which happens in the caller's turn. */
static bool acquire_is_known(const struct wanter *w)
{
    const struct acquiring *a = (const struct acquiring *)w;
    return a->choices.n == 0 && acquire_entry_of(a);
}

static void on_other(struct wanter *w, int64_t uid, int64_t pid, const struct error *e)
{
    struct acquiring *a = LIST_OF(w, struct acquiring, wanter);
    if (e) {
        acquire_fail_request(a, e);
    } else {
        answer_acquire(a, "held", uid, pid);
    }
}

/* ---- reading known trials -------------------------------------------------------------------- */

static void acquire_answer_known(struct acquiring *a)
{
    struct session *s = a->wanter.pending.ticket.session;
    asked_as(&a->wanter.pending.asked, s, 0);
    if (s) {
        session_poke(s); /* the session may read its next requests */
    }
    const struct answer *answer = answer_known(a);
    if (answer) {
        learn_answer(a, answer);
    }
    acquire_on_evaluated(a);
}

static void acquire_on_trials(void *ctx, int status, const struct trial *t, uint32_t n,
                              char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err);

/* Configs without readable trials count as unknown: the caller measures them. */
static void acquire_read_trials(struct acquiring *a, const char *key)
{
    struct daemon *d = a->wanter.pending.d;
    if (!d->ledger || ledger_history(d->ledger, key, "", d->device.class, d->device.driver,
                                     acquire_on_trials, a) < 0) {
        acquire_answer_known(a);
    }
}

/* Notes the trials of the user's own key, then those of the shared key, newest first. A config
 * whose trial failed works after all if a later answer of the key names it. An answer that is only
 * a hint, not measured on this device, proves nothing. */
static void acquire_on_trials(void *ctx, int status, const struct trial *t, uint32_t n,
                              char (*avoid)[HASH_HEX], uint32_t n_avoid, const struct error *err)
{
    struct acquiring *a = ctx;
    const struct cache_entry *e = acquire_entry_of(a);
    const struct answer *answer = e && e->rank >= CACHE_SERVES ? answer_known(a) : NULL;
    for (uint32_t i = n; status == 0 && i > 0; i--) {
        const struct trial *one = &t[i - 1];
        if (answer && strcmp(one->status, "ok") != 0 && answer->created_s >= one->created_s &&
            record_equal(&one->config, &answer->config)) {
            learn_answer(a, answer);
        }
        choices_learn(&a->choices, &one->config, one->status, one->time_us, one->reason,
                      one->created_s);
    }
    const char *shared = a->wanter.shared;
    if (!a->reads_shared && shared[0] && cache_find_id(&a->wanter.pending.d->cache, shared, NULL)) {
        a->reads_shared = true;
        acquire_read_trials(a, shared);
    } else {
        acquire_answer_known(a);
    }
}

/* Reads the known results, then acquire_on_evaluated decides. */
static void acquire_evaluate_known(struct acquiring *a)
{
    choices_forget(&a->choices);
    if (a->choices.n == 0) {
        acquire_on_evaluated(a);
        return;
    }
    asked_as(&a->wanter.pending.asked, a->wanter.pending.ticket.session, ASKED_AS);
    a->reads_shared = false;
    acquire_read_trials(a, a->wanter.key);
}

/* ---- acquire --------------------------------------------------------------------------------- */

static int read_ms(struct call *c, const char *name, int64_t fallback, int64_t max, int64_t *out,
                   struct error *err)
{
    const struct wire_obj *o = wire_find(c->params, name);
    *out = fallback;
    if (!o || wire_type_of(o) == WIRE_NIL) {
        return 0;
    }
    if (!wire_get_int(o, out) || *out < 0 || *out > max) {
        return error_set(err, ERROR_INVALID, "'%s' must be milliseconds, from 0 to %lld", name,
                         (long long)max);
    }
    *out = *out ? *out : fallback;
    return 0;
}

static int read_acquire(struct call *c, struct acquiring *a, struct error *err)
{
    enum { DEADLINE_MS_MAX = 24 * 3600 * 1000 };
    int64_t deadline_ms;
    char wait[16] = "tuned";
    const struct wire_obj *word = wire_find(c->params, "wait");
    int status = read_ms(c, "lease_ms", LEASE_MS_USUAL, LEASE_MS_MAX, &a->wanter.lease_ms, err);
    status = status ? status : read_ms(c, "deadline_ms", 0, DEADLINE_MS_MAX, &deadline_ms, err);
    if (status < 0) {
        return status;
    }
    if (word && (!wire_copy_str(word, wait, sizeof(wait)) ||
                 (strcmp(wait, "tuned") != 0 && strcmp(wait, "now") != 0))) {
        return error_set(err, ERROR_INVALID, "'wait' of acquire takes tuned or now");
    }
    a->wanter.now = strcmp(wait, "now") == 0;
    a->wanter.deadline_ms = deadline_ms ? uv_now(&c->d->loop) + (uint64_t)deadline_ms : 0;
    return choices_read(&a->choices, wire_find(c->params, "configs"), &c->d->scratch->config, err);
}

/* Sets wanter.key to the user's own key, for which the caller works, and wanter.shared to the key
 * of all users, which may also answer. */
static int read_keys(struct call *c, struct acquiring *a, struct error *err)
{
    struct scratch *x = c->d->scratch;
    memcpy(a->wanter.key, x->key.id, sizeof(a->wanter.key));
    if (!custom_share(&x->request.problem)) {
        return 0;
    }
    int status = daemon_key(c->d, err);
    if (status == 0) {
        key_id(&x->key);
        memcpy(a->wanter.shared, x->key.id, sizeof(a->wanter.shared));
    }
    return status;
}

int method_acquire(struct call *c, struct error *err)
{
    int status = call_custom_problem(c, "acquire", err);
    struct acquiring *a = status ? NULL : call_later(c, sizeof(*a), err);
    if (!a) {
        return err->code;
    }
    a->wanter.turn = on_turn;
    a->wanter.is_known = acquire_is_known;
    a->wanter.other = on_other;
    a->wanter.pending.ticket.gone = acquire_client_gone;
    asked_as(&a->wanter.pending.asked, c->s, 0);
    status = read_keys(c, a, err);
    status = status ? status : read_acquire(c, a, err);
    if (status < 0) {
        pending_drop(acquire_release(a));
        return status;
    }
    acquire_evaluate_known(a);
    return METHOD_LATER;
}
