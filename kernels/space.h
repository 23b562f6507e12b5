/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of a problem: the legal configs of a target, as indices into the values of its
 * tunables.
 *
 *   space.c        walks the space
 *   space_pack.c   encodes the space for users
 *   allowed.c      checks and changes single configs
 */
#ifndef GEMMD_KERNELS_SPACE_H
#define GEMMD_KERNELS_SPACE_H

#include "kernels/family.h"
#include "proto/request.h"

struct space_point {
    uint8_t at[PARAMS_MAX]; /* index into each param's values */
};
struct space_setup { /* all borrowed until the space is built */
    const struct family_target *target;
    const struct problem *problem;
    const struct device_info *info;
    const struct request *request; /* has the restrictions; NULL: none */
};
struct space_rule {
    char rule[32];
    bool legal;       /* true for a rule of worth(): the dropped points are legal */
    uint64_t dropped; /* points that this rule was the first to drop */
    char text[320];   /* the rule's text for the first of these points */
};
struct space {
    uint32_t n_params;
    struct param params[PARAMS_MAX]; /* run-time params last: a variant's points are adjacent */
    uint32_t n;                      /* points that are legal and worth a place */
    struct space_point *points;      /* owned; in lexicographic order */
    uint64_t raw;                    /* combinations of values looked at so far, legal or not */
    uint64_t unworthy;               /* legal points that are not worth() a place */
    uint32_t variants;               /* number of different compile-time parts of the points */
    uint32_t settings;               /* largest number of run-time settings of a variant */
    uint32_t n_rules;
    struct space_rule rules[64];
    /* State of space_more. */
    struct space_setup setup;
    uint32_t allowed[PARAMS_MAX]; /* by param: a bit for each value that the request allows */
    bool keep, ended, all;        /* `all`: ignore the target's worth() */
    struct space_point at, last;  /* the next point; the last legal point */
    struct record config;         /* the config of `at` */
    uint32_t room, in_variant;
};
/* Builds a whole space, for the restrictions of a request (may be NULL), which space_check_request
 * must accept. When a restriction leaves only points that are not worth() a place, these points are
 * the space. */
int space_build(struct space *s, const struct family_target *t, const struct problem *p,
                const struct device_info *info, const struct request *request, struct error *err);
/* Builds the space a few points at a time, for callers that must not block for long: a space may
 * have hundreds of thousands of points, at a microsecond each. Without `keep` the points are
 * only counted. Call space_deinit also after an error. */
int space_begin(struct space *s, const struct space_setup *setup, bool keep, struct error *err);
/* Looks at up to `n` more points. 0: the space is complete; SPACE_MORE; or ERROR_NO_MEMORY. */
enum { SPACE_MORE = 1 };
int space_more(struct space *s, uint32_t n, struct error *err);
void space_deinit(struct space *s);
void space_config(const struct space *s, uint32_t point, struct record *config);
/* Predicted times of a kept space's points in us[s->n]; by predict_space(), else point by point. */
void space_predict(const struct space *s, const struct family_target *t, const struct problem *p,
                   const struct device_info *info, const struct workload *w, double us[]);
/* Encodes the space and the device's other targets as one map, specified in docs/protocol.md. */
void space_pack(struct wire_buf *b, const struct space *s, const struct family *f);

/* Checks that the names and types in a request's restrictions are those of the target's tunables.
 * ERROR_UNKNOWN_FIELD lists the tunables; ERROR_INVALID: wrong type. */
int space_check_request(const struct family_target *t, const struct request *r,
                        const struct device_info *info, struct error *err);

/* ---- allowed.c ------------------------------------------------------------------------------- */

/* The configs that a request allows, by its restrictions and its list of configs. The daemon and
 * the library move an analytic default to an allowed config in the same way. */

struct allowed_place { /* all borrowed */
    const struct problem *problem;
    const struct family_target *target;
    const struct device_info *info;
    bool (*is_quarantined)(const void *ctx, const struct record *config);
    const void *ctx;
};

/* True when the restrictions allow the config, and the list, if any, has it: in a search, such a
 * config may win. */
bool allowed_config(const struct request *r, const struct record *config);
/* Changes a legal config into a legal and allowed config. Takes the first legal config of the
 * request's list; without a list, changes one parameter after the other. Skips configs for which
 * `is_quarantined` (may be NULL) is true. Returns false, and leaves `config` alone, when none is
 * found. */
bool allowed_within(const struct request *r, const struct allowed_place *at, struct record *config);

#endif
