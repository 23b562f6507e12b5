/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/quarantine_set.h"

void quarantine_set_deinit(struct quarantine_set *x)
{
    free(x->all);
    *x = (struct quarantine_set){0};
}

static bool quarantine_set_has_variant(const struct quarantine_set *x, const char *variant,
                                       const char *key)
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0 && (!key || strcmp(x->all[i].key, key) == 0)) {
            return true;
        }
    }
    return false;
}

/* Where it is known of a key, it is known at all. */
static void quarantine_set_meet_variant(struct quarantine_set *x, const char *variant,
                                        const char *key)
{
    for (uint32_t i = 0; i < x->n; i++) {
        struct quarantined *one = &x->all[i];
        if (strcmp(one->variant, variant) == 0 &&
            (!key[0] || !one->key[0] || strcmp(one->key, key) == 0)) {
            one->saved = one->met = true;
        }
    }
}

bool quarantine_set_add(struct quarantine_set *x, const char *variant, const char *key, bool row)
{
    if (row) {
        quarantine_set_meet_variant(x, variant, key);
    }
    if (strlen(variant) != HASH_HEX - 1 ||
        quarantine_set_has_variant(x, variant, key[0] ? key : NULL)) {
        return false;
    }
    struct quarantined *more = realloc(x->all, (x->n + 1) * sizeof(*more));
    if (!more) {
        return false;
    }
    x->all = more;
    more[x->n] = (struct quarantined){.saved = row, .met = row};
    snprintf(more[x->n].variant, HASH_HEX, "%s", variant);
    snprintf(more[x->n].key, HASH_HEX, "%s", key);
    x->n++;
    return true;
}

static void quarantine_set_remove_at(struct quarantine_set *x, uint32_t i, char key[HASH_HEX])
{
    memcpy(key, x->all[i].key, HASH_HEX);
    x->all[i] = x->all[--x->n];
}

bool quarantine_set_take(struct quarantine_set *x, const char *variant, char key[HASH_HEX])
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0) {
            quarantine_set_remove_at(x, i, key);
            return true;
        }
    }
    return false;
}

void quarantine_set_unmeet(struct quarantine_set *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        x->all[i].met = false;
    }
}

bool quarantine_set_sweep(struct quarantine_set *x, char key[HASH_HEX])
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->all[i].saved && !x->all[i].met) {
            quarantine_set_remove_at(x, i, key);
            return true;
        }
    }
    return false;
}

bool quarantine_set_has_config(const struct quarantine_set *x, const char *key,
                               const struct family_target *t, const struct problem *p,
                               const struct record *config, const struct device_info *info)
{
    struct variant v;
    char hash[HASH_HEX];
    if (x->n == 0 || t->variant(p, config, info->arch, &v, NULL) < 0) {
        return false;
    }
    variant_hash(&v, info->compiler, hash);
    return quarantine_set_has_variant(x, hash, key);
}
