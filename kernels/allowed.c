/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/space.h"

bool allowed_config(const struct request *r, const struct record *config)
{
    bool listed = r->n_configs == 0;
    if (!request_allows(r, config)) {
        return false;
    }
    for (uint32_t i = 0; i < r->n_configs && !listed; i++) {
        listed = record_equal(&r->configs[i], config);
    }
    return listed;
}

static bool allowed_is_legal(const struct allowed_place *at, const struct record *config)
{
    struct rejection why;
    return at->target->check(at->problem, config, at->info, &why) == 0 &&
           !(at->is_quarantined && at->is_quarantined(at->ctx, config));
}

/* Sets the first allowed value with which the config is legal; false when no value is legal. */
static bool set_allowed(const struct allowed_place *at, const struct restriction *t,
                        struct record *config)
{
    for (uint32_t i = 0; i < t->n; i++) {
        struct record other;
        record_copy(&other, config);
        if (record_set(&other, t->name, t->values[i], NULL) == 0 && allowed_is_legal(at, &other)) {
            record_copy(config, &other);
            return true;
        }
    }
    return false;
}

static bool first_given(const struct allowed_place *at, const struct request *r,
                        struct record *config)
{
    for (uint32_t i = 0; i < r->n_configs; i++) {
        if (request_allows(r, &r->configs[i]) && allowed_is_legal(at, &r->configs[i])) {
            record_copy(config, &r->configs[i]);
            return true;
        }
    }
    return false;
}

bool allowed_within(const struct request *r, const struct allowed_place *at, struct record *config)
{
    struct record other;
    if (allowed_config(r, config)) {
        return true;
    }
    if (r->n_configs > 0) {
        return first_given(at, r, config);
    }
    record_copy(&other, config);
    for (uint32_t i = 0; i < r->n_restrict; i++) {
        const struct request one = {.n_restrict = 1, .restrict_ = &r->restrict_[i]};
        if (!request_allows(&one, &other) && !set_allowed(at, &r->restrict_[i], &other)) {
            return false;
        }
    }
    record_copy(config, &other);
    return true;
}
