/* SPDX-License-Identifier: Apache-2.0 */
/* Packs the order anew for each runner that gets it (tuning.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/answers/target.h"
#include "daemon/tuning/tuning.h"
#include "proto/limits.h"

enum { HINTS_MAX = 4 };

/* ---- finished trials ------------------------------------------------------------------------- */

bool tuning_worked(const struct trial *t)
{
    return strcmp(t->status, "ok") == 0 || strcmp(t->status, "aborted") == 0;
}

void tuning_remember(struct job *j, const struct trial *t)
{
    struct wire_buf *b = &j->done;
    size_t before = b->len;
    if (before > RUNNER_MESSAGE_BYTES_MAX) {
        return; /* an order would have no room for more trials */
    }
    schema_encode(b, &trial_schema, t);
    if (b->failed) { /* a trial that is not remembered is only measured again */
        b->failed = false;
        b->len = before;
    } else {
        j->n_done++;
        j->n_ok += strcmp(t->status, "ok") == 0;
    }
}

void tuning_record(struct tuning *x, struct job *j, struct trial *t)
{
    struct daemon *d = x->daemon;
    memcpy(t->key, j->key, sizeof(t->key));
    memcpy(t->stamp, j->trial_stamp, sizeof(t->stamp));
    t->created_s = time(NULL);
    ledger_add_trial(d->ledger, t);
    if (!tuning_worked(t)) {
        memcpy(j->failed_variant, t->variant, sizeof(j->failed_variant));
    } else {
        j->failed_variant[0] = 0;
    }
    t->samples_us.n = 0;
    tuning_remember(j, t);
}

void tuning_avoid(struct job *j, const char *variant)
{
    for (uint32_t i = 0; i < j->n_avoid; i++) {
        if (strcmp(j->avoid[i], variant) == 0) {
            return;
        }
    }
    char(*grown)[HASH_HEX] = realloc(j->avoid, (j->n_avoid + 1) * sizeof(*grown));
    if (grown) {
        j->avoid = grown;
        snprintf(j->avoid[j->n_avoid++], HASH_HEX, "%s", variant);
    }
}

bool tuning_forget(struct job *j)
{
    bool any = j->n_done > 0;
    wire_buf_deinit(&j->done);
    j->n_done = j->n_ok = 0;
    return any;
}

/* ---- the order ------------------------------------------------------------------------------- */

/* Unpacks the finished trials; the large structs exist only while the order is packed. */
static uint32_t order_unpack_done(const struct job *j, struct wire_doc *doc, struct trial **out)
{
    struct trial *trials = j->n_done ? malloc(j->n_done * sizeof(*trials)) : NULL;
    struct scan scan;
    size_t at = 0;
    uint32_t n = 0;
    scan_init(&scan, RUNNER_MESSAGE_BYTES_MAX);
    while (trials && n < j->n_done && at < j->done.len) {
        const struct wire_obj *map;
        size_t used = 0;
        if (scan_feed(&scan, j->done.data + at, j->done.len - at, &used, NULL) != SCAN_DONE ||
            wire_decode(doc, j->done.data + at, used, &map, NULL) < 0) {
            break;
        }
        n += schema_decode(&trial_schema, SCHEMA_LENIENT, map, &trials[n], NULL) == 0;
        at += used;
    }
    *out = trials;
    return n;
}

static bool was_ok(const struct tune_order *o, const struct record *config)
{
    for (uint32_t i = 0; i < o->n_done; i++) {
        if (strcmp(o->done[i].status, "ok") == 0 && record_equal(&o->done[i].config, config)) {
            return true;
        }
    }
    return false;
}

/* Allows no new candidates: a search gets a budget of 1, a list keeps only configs that worked. The
 * runner's finals verify and measure the winner, so the answer still rests on measurements. */
static void close_search(struct tune_order *o)
{
    struct request *r = &o->request;
    uint32_t n = 0;
    r->query.budget = 1;
    for (uint32_t i = 0; i < r->n_configs; i++) {
        if (was_ok(o, &r->configs[i])) {
            /* configs swap places, since the job's list must stay complete */
            struct record kept = r->configs[n];
            r->configs[n++] = r->configs[i];
            r->configs[i] = kept;
        }
    }
    r->n_configs = n;
}

/* Adds the measured best that answers the key now; a winner must beat it by a margin
 * (runner/gate.c). A best that was quarantined here is added too, and the winner's trial mentions
 * the replacement. Bests of another stamp and imported bests are only hints. Pins are never
 * replaced, and a restricted search replaces no best. */
static void add_former(struct daemon *d, const struct job *j, struct tune_order *o)
{
    struct answer *a = &d->scratch->answer;
    const struct cache_entry *e = cache_find_id(&d->cache, j->key, NULL);
    if (j->pin || j->restricted || !e || cache_answer(&d->cache, e, a, NULL) < 0 ||
        (strcmp(a->source, "tuned") != 0 && strcmp(a->source, "fleet") != 0)) {
        return;
    }
    if (e->rank < CACHE_SERVES && !target_is_quarantined(d, j->key, a, &j->request->problem)) {
        return;
    }
    record_copy(&o->former, &a->config);
    o->min_gain = d->config->min_gain;
}

static int order_pack_message(struct tuning *x, struct job *j, struct tune_order *o,
                              struct wire_buf *b, struct error *err)
{
    struct daemon *d = x->daemon;
    o->job = j->id;
    memcpy(o->key, j->key, sizeof(o->key));
    memcpy(o->stamp, j->trial_stamp, sizeof(o->stamp));
    o->request = *j->request; /* a copy of the struct: the lists in it still belong to the job */
    if (j->reverify) {
        snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "given");
        memcpy(o->request.query.target, j->known_target, sizeof(j->known_target));
        o->request.n_configs = 1;
        o->request.configs = j->known;
    } else {
        o->n_done = order_unpack_done(j, d->doc, &o->done);
        add_former(d, j, o);
        o->hints = malloc(HINTS_MAX * sizeof(*o->hints));
        if (o->hints) {
            struct key *k = &d->scratch->key;
            key_make(k, &j->request->problem, d->device.class, NULL);
            o->n_hints = (uint32_t)tiers_hints(x->tiers, &j->request->problem, k, j->target,
                                               HINTS_MAX, o->hints);
        }
    }
    if (j->closing) {
        close_search(o);
    } else if (j->deaths >= FAVOURITES_MAX && j->n_ok == 0 && j->request->n_configs == 0) {
        /* all configs that the model predicts fastest kill the runner: try random configs */
        snprintf(o->request.query.strategy, sizeof(o->request.query.strategy), "random");
    }
    o->spent_device_ms = j->spent_device_ms;
    o->spent_ms = j->spent_ms;
    o->quiet = j->quiet;
    o->in_pauses = pauses_bind_order(x, j);
    o->avoid = j->avoid;
    o->n_avoid = j->n_avoid;
    tune_order_pack(b, o);
    return b->failed ? error_set(err, ERROR_NO_MEMORY, "no memory for the order of a tuning") : 0;
}

static int pack_new(struct tuning *x, struct job *j, struct wire_buf *out, struct error *err)
{
    struct tune_order *o = calloc(1, sizeof(*o));
    if (!o) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for the order of a tuning");
    }
    int status = order_pack_message(x, j, o, out, err);
    free(o->done);
    free(o->hints);
    free(o);
    return status;
}

int tuning_order(struct tuning *x, struct job *j, struct wire_buf *out, struct error *err)
{
    int status = pack_new(x, j, out, err);
    if (status == 0 && out->len > RUNNER_MESSAGE_BYTES_MAX - 4096) {
        wire_buf_deinit(out);
        status = tuning_forget(j) ? tuning_order(x, j, out, err)
                                  : error_set(err, ERROR_INVALID,
                                              "the order of this tuning is too large: give fewer "
                                              "configs");
    }
    if (status < 0) {
        wire_buf_deinit(out);
    }
    return status;
}
