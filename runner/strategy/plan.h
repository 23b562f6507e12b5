/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configs of a job, by number: first the ranked ones (the legal space, less restrictions and
 * quarantined variants, in the order of the analytic model; or the given list as it stands), then
 * the extras (hints, the reference, what earlier runs measured) that are not among them.
 */
#ifndef GEMMD_RUNNER_STRATEGY_PLAN_H
#define GEMMD_RUNNER_STRATEGY_PLAN_H

#include "kernels/device.h"
#include "kernels/space.h"
#include "proto/request.h"
#include "runner/strategy/strategy.h"

#define PLAN_NONE UINT32_MAX
#define PLAN_ALL  UINT32_MAX
enum { BUDGET_DEFAULT = 96 };

struct plan_setup { /* all borrowed until plan_deinit */
    const struct family_target *target;
    const struct device_info *info;
    const struct device *device;     /* asked what it knows; NULL: one that knows everything */
    const struct workload *workload; /* for the model */
    const struct tune_order *order;
    const char *compiler;  /* version, for variant hashes */
    const char *cache_dir; /* looked into for compiled variants; NULL: nothing is there */
    unsigned threads;      /* to build the space on */
    unsigned compilers;    /* that a search of it will have */
};

struct plan {
    struct plan_setup setup;
    struct space space; /* owned; not built for a given list */
    uint32_t legal;     /* legal configs of what was asked for, quarantined ones included */
    uint32_t avoided;   /* of these, quarantined */
    bool avoids;        /* some variants are in quarantine, whether of this space or not */
    uint32_t variants;  /* compile-time parts of the legal ones */
    uint32_t n_ranked;
    uint32_t *point;   /* owned; by rank; NULL for a given list */
    double *predicted; /* owned; by rank */
    double *effort; /* owned; by rank: to compile, the mean of all variants is 1; NULL: all alike */
    bool *present;  /* owned; by rank: its variant was compiled at plan_init; NULL: none was */
    uint32_t n_extra, room;
    struct record *extra; /* owned */
};

/* ERROR_NO_CONFIG when the space is empty, with the rules that emptied it; ERROR_UNKNOWN_FIELD for
 * a restriction on something that is no tunable. A given list makes an empty plan: the caller adds
 * its configs by plan_add, after having looked at each (plan_check), then calls
 * plan_rank_extras. */
int plan_init(struct plan *p, const struct plan_setup *setup, struct error *err);
/* For a later order of the job that a plan was made for, which has trials: the ranked configs stay,
 * the extras are the new order's to add. False: variants in quarantine make it another plan. */
bool plan_go_on(struct plan *p, const struct plan_setup *setup);
void plan_deinit(struct plan *p);

uint32_t plan_count(const struct plan *p); /* ranked and extra */
/* How many configs a search of it may measure; PLAN_ALL: as many as there are. */
uint32_t plan_budget(const struct plan *p);
/* What a search of it hands to a strategy; what is left of the budget (0: all), and what is coming,
 * are for the caller to add. Its arrays are the plan's. */
struct strategy_setup plan_search(const struct plan *p);
void plan_config(const struct plan *p, uint32_t id, struct record *config);
double plan_predicted(const struct plan *p, uint32_t id);
/* The number of a config, which gets one when it has none. */
int plan_add(struct plan *p, const struct record *config, uint32_t *id, struct error *err);
/* Makes the extras so far the ranked ones. */
int plan_rank_extras(struct plan *p, struct error *err);
/* 0: may be measured. 1: may not, and why. Looks at validity and at the quarantine. */
int plan_check(const struct plan *p, const struct record *config, struct rejection *why);
int plan_variant(const struct plan *p, const struct record *config, struct variant *v,
                 char hash[HASH_HEX], struct error *err);
bool plan_avoids(const struct plan *p, const char *hash);
/* Whether a config may win: it obeys the restrictions, and is in the list where one was given. */
bool plan_eligible(const struct plan *p, const struct record *config);

/* ---- diverse.c ------------------------------------------------------------------------------- */

/*
 * The order of a search that can afford few measurements: good by the model first, but not many of
 * a kind before anything else has been tried.
 */

enum {
    DIVERSE_CHOICES = 128, /* places that are filled this way; the rest keeps its order */
    DIVERSE_FROM = 4096,   /* from so many of the first by prediction */
    DIVERSE_NEAR = 2,      /* points are alike that differ in no more parameters than this */
};

struct ranked {
    double predicted; /* microseconds */
    uint32_t point;   /* of the space */
};

/* Reorders what is sorted by prediction. The first stays the first, ties keep their order, and the
 * same input always makes the same order. ERROR_NO_MEMORY leaves it as it was. */
int diverse_order(const struct space_point points[], struct ranked *ranked, uint32_t n,
                  struct error *err);

#endif
