/* SPDX-License-Identifier: Apache-2.0 */
/* The configs of a job, by number. First the ranked configs: the legal space, less restrictions and
 * quarantined variants, in the order of the analytic model; or the given list in its own order.
 * Then the extras that are not ranked: hints, the reference, configs that earlier runs measured. */
#ifndef GEMMD_RUNNER_STRATEGY_PLAN_H
#define GEMMD_RUNNER_STRATEGY_PLAN_H

#include "kernels/device.h"
#include "proto/request.h"
#include "runner/strategy/strategy.h"

#define PLAN_NONE GRID_NONE
#define PLAN_ALL  UINT32_MAX
enum { BUDGET_DEFAULT = 96 };

struct plan_setup { /* all borrowed until plan_deinit */
    const struct family_target *target;
    const struct device_info *info;
    const struct device *device;     /* restricts the space to recorded configs; NULL: all */
    const struct workload *workload; /* rows of each expert, from which the model predicts times */
    const struct tune_order *order;
    const char *compiler;  /* the compiler's version, a part of variant hashes */
    const char *cache_dir; /* searched for compiled variants; NULL: act as if there were none */
    unsigned compilers;    /* number of compilers that work in parallel for a search of the plan */
};

struct plan {
    struct plan_setup setup;
    struct space space; /* owned; not built for a given list */
    uint32_t legal;     /* legal configs of the request, quarantined configs included */
    uint32_t avoided;   /* number of the legal configs in quarantine */
    /* true when the order names quarantined variants, of this space or not */
    bool avoids;
    uint32_t n_ranked;
    struct grid grid;  /* owned; of the ranked configs; not built for a given list */
    uint32_t *point;   /* owned; by rank; NULL for a given list */
    double *predicted; /* owned; by rank */
    double *effort;    /* owned; by rank: strategy_setup.effort */
    bool *present;     /* owned; by rank: strategy_setup.present, as plan_init() found the cache */
    uint32_t n_extra, room;
    struct record *extra; /* owned */
};

/* ERROR_NO_CONFIG when the space is empty; the error's text names the rules that emptied it.
 * ERROR_UNKNOWN_FIELD for a restriction on an unknown tunable. A given list may leave an empty
 * plan. After an error, too, the caller calls plan_deinit. */
int plan_init(struct plan *p, const struct plan_setup *setup, struct error *err);
void plan_deinit(struct plan *p);

uint32_t plan_count(const struct plan *p); /* ranked and extra */
/* How many configs a search of the plan may measure; PLAN_ALL: all of them. */
uint32_t plan_budget(const struct plan *p);
/* Opens the query's strategy over the ranked configs. The caller sets budget (PLAN_ALL: all),
 * coming and begun in *rest; the plan adds the other fields. */
int plan_open_strategy(const struct plan *p, const struct strategy_setup *rest,
                       struct strategy **out, struct error *err);
void plan_config(const struct plan *p, uint32_t id, struct record *config);
double plan_predicted(const struct plan *p, uint32_t id);
/* Sets *id to the number of a config; a config that is new to the plan gets the next number. */
int plan_add(struct plan *p, const struct record *config, uint32_t *id, struct error *err);
/* 0: the config may be measured. 1: not, and *why has the reason: the config is invalid for the
 * problem and device, or its variant is in quarantine. */
int plan_check(const struct plan *p, const struct record *config, struct rejection *why);
/* The same for a config of the given list, which the request's restrictions may exclude too. */
int plan_check_listed(const struct plan *p, const struct record *config, struct rejection *why);
int plan_variant(const struct plan *p, const struct record *config, struct variant *v,
                 char hash[HASH_HEX], struct error *err);
bool plan_avoids(const struct plan *p, const char *hash);

/* ---- diverse.c ------------------------------------------------------------------------------- */

/* The order of a search with few measurements: best predictions first, but not many similar configs
 * before other kinds of config have been tried. */

enum {
    DIVERSE_CHOICES = 128, /* places at the front that are chosen; behind them the order stays */
    DIVERSE_FROM = 4096,   /* configs to choose from: the first so many by prediction */
    DIVERSE_NEAR = 2,      /* configs that differ in at most so many parameters are similar */
};

struct ranked {
    double predicted; /* microseconds */
    uint32_t point;   /* place in space.points */
};

/* Reorders configs that are sorted by prediction. The first stays the first, ties keep their order,
 * and the same input always makes the same order. ERROR_NO_MEMORY leaves the order unchanged. */
int diverse_order(const struct space_point points[], struct ranked *ranked, uint32_t n,
                  struct error *err);

#endif
