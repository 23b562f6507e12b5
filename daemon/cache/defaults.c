/* SPDX-License-Identifier: Apache-2.0 */
/* A table with a single slot for each problem, which the id of the problem's key chooses: a default
 * replaces the slot's former default (defaults.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/defaults.h"

void defaults_init(struct defaults *x, const struct device_info *device,
                   const struct quarantine_set *quarantine_set, struct wire_doc *doc)
{
    *x = (struct defaults){.device = device, .quarantine_set = quarantine_set, .doc = doc};
}

void defaults_forget(struct defaults *x)
{
    for (size_t i = 0; x->slots && i < DEFAULTS_SLOTS; i++) {
        free(x->slots[i].config);
    }
    free(x->slots);
    x->slots = NULL;
}

static bool defaults_recall_config(const struct defaults *x, const struct defaults_slot *s,
                                   const struct key *k, struct record *config)
{
    const struct wire_obj *map;
    return s->config && memcmp(s->key, k->id, sizeof(s->key)) == 0 &&
           wire_decode(x->doc, s->config, s->len, &map, NULL) == 0 &&
           record_unpack(config, map, NULL) == 0;
}

static void defaults_remember_config(struct defaults_slot *s, const struct key *k,
                                     const struct record *config)
{
    struct wire_buf b = WIRE_BUF_NULL;
    record_pack(&b, config);
    if (b.failed) {
        wire_buf_deinit(&b);
        return;
    }
    free(s->config);
    memcpy(s->key, k->id, sizeof(s->key));
    s->config = b.data; /* the slot owns the bytes now */
    s->len = (uint32_t)b.len;
    s->us = 0;
}

/* ---- a replacement --------------------------------------------------------------------------- */

struct choosing {
    struct defaults *defaults;
    const struct family_target *target;
    const struct problem *problem;
    struct record best;
    double best_us;
};

static void defaults_consider_config(struct choosing *c, const struct record *config)
{
    const struct device_info *device = c->defaults->device;
    struct rejection why;
    if (c->target->check(c->problem, config, device, &why) ||
        (c->target->worth && c->target->worth(c->problem, config, device, &why))) {
        return;
    }
    double us = c->target->predict(c->problem, config, device, NULL);
    if (us < c->best_us && !quarantine_set_has_config(c->defaults->quarantine_set, NULL, c->target,
                                                      c->problem, config, device)) {
        c->best_us = us;
        record_copy(&c->best, config);
    }
}

static void choose_other(struct defaults *x, const struct family_target *t, const struct problem *p,
                         struct record *config)
{
    struct choosing c = {.defaults = x, .target = t, .problem = p, .best_us = INFINITY};
    struct param params[PARAMS_MAX];
    uint32_t n = t->params(p, x->device, params);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < params[i].n && !params[i].run_time; k++) {
            struct record other;
            record_copy(&other, config);
            if (record_set(&other, params[i].name, params[i].values[k], NULL) == 0) {
                defaults_consider_config(&c, &other);
            }
        }
    }
    if (isfinite(c.best_us)) {
        record_copy(config, &c.best);
    }
}

static int defaults_choose_config(struct defaults *x, const struct family_target *t,
                                  const struct problem *p, struct record *config, struct error *err)
{
    int status = t->choose(p, x->device, config, err);
    if (status == 0 &&
        quarantine_set_has_config(x->quarantine_set, NULL, t, p, config, x->device)) {
        choose_other(x, t, p, config);
    }
    return status;
}

/* ---- remembered ------------------------------------------------------------------------------ */

int defaults_choose(struct defaults *x, const struct family_target *t, const struct problem *p,
                    struct record *config, double *us, struct error *err)
{
    struct key *k = &x->key;
    x->slots = x->slots ? x->slots : calloc(DEFAULTS_SLOTS, sizeof(*x->slots));
    struct defaults_slot none = {.us = 0}, *s = &none;
    if (x->slots && key_make(k, p, t->label, NULL) == 0) {
        key_id(k);
        s = &x->slots[k->hash % DEFAULTS_SLOTS];
    }
    if (!defaults_recall_config(x, s, k, config)) {
        int status = defaults_choose_config(x, t, p, config, err);
        if (status < 0) {
            return status;
        }
        if (s != &none) {
            defaults_remember_config(s, k, config);
        }
    }
    if (us) {
        s->us = s->us != 0 ? s->us : t->predict(p, config, x->device, NULL);
        *us = s->us;
    }
    return 0;
}
