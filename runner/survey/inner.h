/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder inside: what its parts share (survey.h says what each does). */
#ifndef GEMMD_RUNNER_SURVEY_INNER_H
#define GEMMD_RUNNER_SURVEY_INNER_H

#include <math.h>
#include <stdio.h>

#include "kernels/space.h"
#include "proto/paths.h"
#include "runner/base/line.h"
#include "runner/compile/helpers.h"
#include "runner/survey/survey.h"

enum {
    SURVEY_SEED = 1,         /* of inputs and routing */
    SURVEY_SHOTS_MAX = 4,    /* samples of a point */
    SURVEY_VARIANTS = 250,   /* at least, before the time counts */
    SURVEY_LOOK_AHEAD = 256, /* variants that compile or wait */
};

/* Points of one variant: they stand together in the space. */
struct survey_variant {
    uint64_t order; /* hash of the compile-time config */
    uint32_t first, n;
};

struct survey_item { /* on its way through the compilers */
    const struct survey_variant *of;
    struct variant variant;
    struct build *build; /* held */
};

struct survey {
    const struct survey_order *order;
    struct problem problem;
    const struct family *family;
    const struct family_target *target;
    struct space space; /* owned */
    uint32_t n_variants;
    struct survey_variant *variants; /* owned; in the order of the walk */
    uint32_t n_settings;
    bool *skipped; /* owned; by run-time setting: left out */
    double *us;    /* owned, by point; NaN: failed, or not measured, or measured again */
    char cache_dir[PATHS_MAX];
    struct device *device;     /* owned */
    struct compiler *compiler; /* owned */
    struct builds *builds;     /* owned */
    unsigned threads;          /* of them */
    struct helpers helpers;
    struct prepared *prepared; /* of the device */
    struct record reference;   /* the analytic default */
    struct kernel *yardstick;  /* of the device: the reference's */
    double reference_us, best_us;
    double gap_ms;              /* before a launch */
    double began_ms, looked_ms; /* of the device's clock: the walk; the reference's last turn */
    uint32_t done, points, failed;
    double compile_ms;
    FILE *file; /* owned */
    struct line line;
};

/* plan.c */
int survey_plan(struct survey *s, struct error *err);
/* The number of a point's run-time setting, below n_settings. */
uint32_t survey_setting(const struct survey *s, uint32_t point);

static inline double survey_clock(const struct survey *s)
{
    return s->device->ops->clock_ms(s->device);
}

/* steps.c */
int survey_want_config(struct survey *s, const struct record *config, struct survey_item *out,
                       struct error *err);
int survey_want(struct survey *s, const struct survey_variant *v, struct survey_item *out,
                struct error *err);
/* Sleeps until some build is done. */
void survey_wait(struct survey *s);
/* Up to `wanted` samples; stop_us: no more after a first one above it (0: never). */
int survey_time(struct survey *s, struct kernel *k, const struct record *config, uint32_t warmup,
                uint32_t wanted, double stop_us, double *us, uint32_t *n, struct error *err);
/* The progress line, when it is due. */
void survey_say(struct survey *s);
/* Gives the reference its turn when it is due. */
int survey_look(struct survey *s, struct error *err);

int survey_walk(struct survey *s, struct error *err);
int survey_finals(struct survey *s, struct error *err);

/* write.c */
struct survey_shot { /* what came of a point */
    uint32_t n;      /* samples; 0: not measured */
    double us[SURVEY_SHOTS_MAX];
    struct rejection why; /* code: it failed */
};
int survey_write_header(struct survey *s, struct error *err);
int survey_write_reference(struct survey *s, const double *us, uint32_t n, struct error *err);
/* `shots`: of the variant's points; NULL: all failed as `why` says. */
int survey_write_variant(struct survey *s, const struct survey_variant *v, double compile_ms,
                         const struct survey_shot *shots, const struct rejection *why,
                         struct error *err);
/* blocks of `each` samples. */
int survey_write_final(struct survey *s, uint32_t point, const double *us, uint32_t blocks,
                       uint32_t each, struct error *err);
int survey_write_end(struct survey *s, struct error *err);

#endif
