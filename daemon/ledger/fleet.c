/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger's calls about the fleet, and their work on the writer thread (inner.h). */
#include <stdlib.h>

#include "daemon/ledger/inner.h"
#include "store/fleet.h"

/* ---- on the writer thread -------------------------------------------------------------------- */

/* Leases the key text[0], of the class text[1] and the stamp text[2]; when nobody waits for the
 * answer, only asks the fleet. */
static int work_share(struct ledger *l, struct request *r, struct error *err)
{
    const struct store_share w = {.key = r->text[0],
                                  .ttl_ms = LEASE_LEDGER_MS,
                                  .class = r->text[1],
                                  .stamp = r->text[2],
                                  .fleet_ms = r->argument,
                                  .only_ask = !r->verb->answer};
    return store_lease_shared(l->store, &w, err);
}

/* Refuses the candidate, which may be withdrawn or replaced meanwhile, and reads what is left of
 * the key. */
static int work_refuse(struct ledger *l, struct request *r, struct error *err)
{
    int status = store_fleet_refuse(l->store, r->text[0], r->argument, r->text[1], err);
    status = status < 0 ? status : store_best_of(l->store, r->text[0], &l->object->best, err);
    return verbs_take_best(l, r, status, err);
}

static int work_announce(struct ledger *l, struct request *r, struct error *err)
{
    return store_announce(l->store, r->text[0], r->text[1], err);
}

static int work_fleet_find(struct ledger *l, struct request *r, struct error *err)
{
    struct best *b = &l->object->best;
    r->fleet_row = r->fleet_row ? r->fleet_row : malloc(sizeof(*r->fleet_row));
    if (!r->fleet_row) {
        return error_set(err, ERROR_NO_MEMORY, "no memory to read a row of the fleet");
    }
    int status = store_fleet_find(l->store, r->text[0], r->argument, b, r->fleet_row, err);
    return verbs_take_best(l, r, status, err);
}

static void fleet_answer_row(struct ledger *l, struct request *r)
{
    struct error err = ERROR_NULL;
    int status = verbs_decode_answered(l, r, &err);
    r->cb.fleet(r->ctx, status, status == 0 ? l->answered : NULL, r->fleet_row,
                status < 0 && !r->err ? &err : r->err);
}

static const struct verb verb_share = {VERB_GROUP, NULL, work_share, verbs_settle_lease,
                                       verbs_answer_done};
static const struct verb verb_ask = {VERB_GROUP, NULL, work_share, NULL, NULL};
static const struct verb verb_fleet_find = {VERB_READ, NULL, work_fleet_find, NULL,
                                            fleet_answer_row};
static const struct verb verb_refuse = {VERB_GROUP, NULL, work_refuse, NULL, verbs_answer_best};
static const struct verb verb_announce = {VERB_GROUP, NULL, work_announce, NULL, NULL};

/* ---- on the loop ----------------------------------------------------------------------------- */

int ledger_share(struct ledger *l, const struct ledger_share *w, ledger_done_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_share, TEXTS(w->key, w->class, w->stamp), NULL, w->fleet_ms,
                      ANSWER(done), ctx);
}

void ledger_ask_fleet(struct ledger *l, const struct ledger_share *w)
{
    ledger_ask(l, &verb_ask, TEXTS(w->key, w->class, w->stamp), NULL, w->fleet_ms, NOBODY, NULL);
}

int ledger_refuse(struct ledger *l, const char *key, int64_t generation, const char *reason,
                  ledger_best_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_refuse, TEXTS(key, reason), NULL, generation, ANSWER(best), ctx);
}

int ledger_fleet_find(struct ledger *l, const char *key, int64_t seq, ledger_fleet_cb cb, void *ctx)
{
    return ledger_ask(l, &verb_fleet_find, TEXTS(key), NULL, seq, ANSWER(fleet), ctx);
}

void ledger_announce(struct ledger *l, const char *class_, const char *stamps)
{
    ledger_ask(l, &verb_announce, TEXTS(class_, stamps), NULL, 0, NOBODY, NULL);
}
