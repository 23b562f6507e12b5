/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/barred.h"

void barred_deinit(struct barred *x)
{
    free(x->all);
    *x = (struct barred){0};
}

static bool has(const struct barred *x, const char *variant, const char *key)
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0 && (!key || strcmp(x->all[i].key, key) == 0)) {
            return true;
        }
    }
    return false;
}

/* Where it is known of a key, it is known at all. */
static void meet(struct barred *x, const char *variant, const char *key)
{
    for (uint32_t i = 0; i < x->n; i++) {
        struct barred_one *one = &x->all[i];
        if (strcmp(one->variant, variant) == 0 &&
            (!key[0] || !one->key[0] || strcmp(one->key, key) == 0)) {
            one->saved = one->met = true;
        }
    }
}

bool barred_add(struct barred *x, const char *variant, const char *key, bool row)
{
    if (row) {
        meet(x, variant, key);
    }
    if (strlen(variant) != HASH_HEX - 1 || has(x, variant, key[0] ? key : NULL)) {
        return false;
    }
    struct barred_one *more = realloc(x->all, (x->n + 1) * sizeof(*more));
    if (!more) {
        return false;
    }
    x->all = more;
    more[x->n] = (struct barred_one){.saved = row, .met = row};
    snprintf(more[x->n].variant, HASH_HEX, "%s", variant);
    snprintf(more[x->n].key, HASH_HEX, "%s", key);
    x->n++;
    return true;
}

static void remove_at(struct barred *x, uint32_t i, char key[HASH_HEX])
{
    memcpy(key, x->all[i].key, HASH_HEX);
    x->all[i] = x->all[--x->n];
}

bool barred_take(struct barred *x, const char *variant, char key[HASH_HEX])
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0) {
            remove_at(x, i, key);
            return true;
        }
    }
    return false;
}

void barred_unmeet(struct barred *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        x->all[i].met = false;
    }
}

bool barred_sweep(struct barred *x, char key[HASH_HEX])
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (x->all[i].saved && !x->all[i].met) {
            remove_at(x, i, key);
            return true;
        }
    }
    return false;
}

bool barred_config(const struct barred *x, const char *key, const struct family_target *t,
                   const struct problem *p, const struct record *config,
                   const struct device_info *info)
{
    struct variant v;
    char hash[HASH_HEX];
    if (x->n == 0 || t->variant(p, config, info->arch, &v, NULL) < 0) {
        return false;
    }
    variant_hash(&v, info->compiler, hash);
    return has(x, hash, key);
}
