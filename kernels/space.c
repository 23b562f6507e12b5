/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The legal configs of a problem on a device: the product of the target's tunables, in
 * lexicographic order (the last tunable varies fastest), less what a restriction or a rule drops.
 * Each rule is counted, so that people can see why a space is as small as it is.
 *
 * check() is asked for every point. It is pure arithmetic, about a microsecond, and spaces have
 * thousands of points: cheaper than being clever about which rules concern which tunables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/family.h"

enum { RULES_MAX = sizeof(((struct space *)0)->rules) / sizeof(((struct space *)0)->rules[0]) };

static void count_rule(struct space *s, const char *rule)
{
    for (uint32_t i = 0; i < s->n_rules; i++) {
        if (strcmp(s->rules[i].rule, rule) == 0) {
            s->rules[i].dropped++;
            return;
        }
    }
    /* More rules than rows: the last row collects the rest. */
    uint32_t at = s->n_rules < RULES_MAX ? s->n_rules++ : RULES_MAX - 1;
    if (s->rules[at].dropped) {
        rule = "others";
    }
    snprintf(s->rules[at].rule, sizeof(s->rules[at].rule), "%s", rule);
    s->rules[at].dropped++;
}

static int add_point(struct space *s, const struct space_point *at, uint32_t *room,
                     struct error *err)
{
    if (s->n == *room) {
        uint32_t more = *room ? *room * 2 : 256;
        struct space_point *points = realloc(s->points, more * sizeof(*points));
        if (!points) {
            return error_set(err, ERROR_NO_MEMORY, "no memory for a space of %u configs", more);
        }
        s->points = points;
        *room = more;
    }
    s->points[s->n++] = *at;
    return 0;
}

static int set_value(const struct space *s, uint32_t param, uint32_t at, struct record *config,
                     struct error *err)
{
    return record_set(config, s->params[param].name, s->params[param].values[at], err);
}

/* The next point, or false after the last. Only what changed is set in `config`. */
static bool step(const struct space *s, struct space_point *at, struct record *config)
{
    for (uint32_t i = s->n_params; i-- > 0;) {
        bool carry = ++at->at[i] == s->params[i].n;
        if (carry) {
            at->at[i] = 0;
        }
        set_value(s, i, at->at[i], config, NULL);
        if (!carry) {
            return true;
        }
    }
    return false;
}

int space_build(struct space *s, const struct family_target *t, const struct problem *p,
                const struct device_info *info,
                bool (*allow)(const void *ctx, const struct record *config), const void *ctx,
                struct error *err)
{
    *s = (struct space){0};
    s->n_params = t->params(p, info, s->params);
    struct record config;
    record_init(&config);
    struct space_point at = {0};
    for (uint32_t i = 0; i < s->n_params; i++) {
        int r = set_value(s, i, 0, &config, err);
        if (r) {
            return r;
        }
    }
    uint32_t room = 0;
    do {
        struct rejection why;
        s->raw++;
        if (allow && !allow(ctx, &config)) {
            count_rule(s, "restricted");
        } else if (t->check(p, &config, info, &why)) {
            count_rule(s, why.rule);
        } else {
            int r = add_point(s, &at, &room, err);
            if (r) {
                space_deinit(s);
                return r;
            }
        }
    } while (step(s, &at, &config));
    return 0;
}

void space_deinit(struct space *s)
{
    free(s->points);
    s->points = NULL;
    s->n = 0;
}

void space_config(const struct space *s, uint32_t point, struct record *config)
{
    record_init(config);
    for (uint32_t i = 0; i < s->n_params; i++) {
        set_value(s, i, s->points[point].at[i], config, NULL);
    }
}
