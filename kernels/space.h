/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space of a problem: the legal configs of a target, as indices into the values of its
 * tunables.
 *
 *   space.c        walking it
 *   space_pack.c   as people see it
 */
#ifndef GEMMD_KERNELS_SPACE_H
#define GEMMD_KERNELS_SPACE_H

#include "kernels/family.h"
#include "proto/request.h"

struct space_point {
    uint8_t at[PARAMS_MAX]; /* index into each param's values */
};
struct space_setup { /* all borrowed, as long as the space is built */
    const struct family_target *target;
    const struct problem *problem;
    const struct device_info *info;
    bool (*allow)(const void *ctx, const struct record *config); /* NULL: all */
    const void *ctx;
};
struct space_rule {
    char rule[32];
    bool legal;       /* of worth(): what it drops is legal */
    uint64_t dropped; /* points that it was the first to drop */
    char text[320];   /* what it said of the first of them */
};
struct space {
    uint32_t n_params;
    struct param params[PARAMS_MAX]; /* run-time ones last: a variant's points stand together */
    uint32_t n;                      /* points: legal, and worth a place */
    struct space_point *points;      /* owned; these, in lexicographic order */
    uint64_t raw;                    /* points of the product before rules, so far */
    uint64_t unworthy;               /* legal ones that are not worth() a place */
    uint32_t variants;               /* compile-time parts among the points */
    uint32_t settings;               /* run-time settings of a variant, at most */
    uint32_t n_rules;
    struct space_rule rules[64];
    /* Of space_more: where it is. */
    struct space_setup setup;
    bool keep, ended, all;       /* `all`: whatever the target's worth() says */
    struct space_point at, last; /* the next point; the last legal one */
    uint32_t fixed;              /* leading params that are not walked over (space_build_on) */
    struct record config;        /* of `at` */
    uint32_t room, in_variant;
};
/* A whole space. `allow` (may be NULL) drops points before check() sees them (restrictions). Where
 * a restriction leaves only points that are not worth() it, they are the space. */
int space_build(struct space *s, const struct family_target *t, const struct problem *p,
                const struct device_info *info,
                bool (*allow)(const void *ctx, const struct record *config), const void *ctx,
                struct error *err);
/* The same on several threads, point for point; `allow` is called by
 * all. */
int space_build_on(unsigned threads, struct space *s, const struct space_setup *setup,
                   struct error *err);
/* The same in parts, for who must not be away for long: a space may have hundreds of thousands of
 * points, of a microsecond each. Without `keep` they are counted only. */
int space_begin(struct space *s, const struct space_setup *setup, bool keep, struct error *err);
/* Looks at up to `n` more points. 0: that was the last; SPACE_MORE; or ERROR_NO_MEMORY. */
enum { SPACE_MORE = 1 };
int space_more(struct space *s, uint32_t n, struct error *err);
void space_deinit(struct space *s);
void space_config(const struct space *s, uint32_t point, struct record *config);
/* Predicted times of all points of a kept space, in us[s->n]: by the target in one go, where it
 * can, else point by point. */
void space_predict(const struct space *s, const struct family_target *t, const struct problem *p,
                   const struct device_info *info, const struct workload *w, double us[]);
/* What people see of it, and of the other targets of the device: one map, docs/protocol.md says
 * which (kernels/space_pack.c). */
void space_pack(struct wire_buf *b, const struct space *s, const struct family *f);

/* Whether the names and types of what restricts a request are those of the target's tunables:
 * ERROR_UNKNOWN_FIELD names them, ERROR_INVALID. */
int space_check_request(const struct family_target *t, const struct request *r,
                        const struct device_info *info, struct error *err);

#endif
