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

bool quarantine_set_has(const struct quarantine_set *x, const char *variant, const char *key)
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0 && (!key || strcmp(x->all[i].key, key) == 0)) {
            return true;
        }
    }
    return false;
}

bool quarantine_set_add(struct quarantine_set *x, const char *variant, const char *key, bool saved)
{
    if (strlen(variant) != HASH_HEX - 1 || quarantine_set_has(x, variant, key[0] ? key : NULL)) {
        return false;
    }
    struct quarantined *more = realloc(x->all, (x->n + 1) * sizeof(*more));
    if (!more) {
        return false;
    }
    x->all = more;
    more[x->n] = (struct quarantined){.saved = saved};
    snprintf(more[x->n].variant, HASH_HEX, "%s", variant);
    snprintf(more[x->n].key, HASH_HEX, "%s", key);
    x->n++;
    return true;
}

bool quarantine_set_take(struct quarantine_set *x, const char *variant, char key[HASH_HEX])
{
    for (uint32_t i = 0; i < x->n; i++) {
        if (strcmp(x->all[i].variant, variant) == 0) {
            memcpy(key, x->all[i].key, HASH_HEX);
            x->all[i] = x->all[--x->n];
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
    return quarantine_set_has(x, hash, key);
}
