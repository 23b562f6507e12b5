/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder's shared structs and functions; landscape.h lists the parts. */
#ifndef GEMMD_RUNNER_LANDSCAPE_RECORDER_H
#define GEMMD_RUNNER_LANDSCAPE_RECORDER_H

#include <math.h>
#include <stdio.h>

#include "kernels/space.h"
#include "runner/compile/pool.h"
#include "runner/landscape/landscape.h"

enum {
    LANDSCAPE_SEED = 1,         /* draws the operands and the routing */
    LANDSCAPE_SHOTS_MAX = 4,    /* most samples of a point in the walk */
    LANDSCAPE_VARIANTS = 250,   /* variants that are recorded before the time limit counts */
    LANDSCAPE_LOOK_AHEAD = 256, /* most variants in the walk's compile queue */
};

/* Points of a variant, which are adjacent in the space. */
struct landscape_points {
    uint64_t order; /* hash of the compile-time config */
    uint32_t first, n;
};

struct landscape_item {                /* a variant on its way through the compilers */
    const struct landscape_points *of; /* NULL: the reference kernel's variant */
    struct variant variant;
    struct build *build; /* counted: the holder of the item releases the build */
};

struct landscape_recorder {
    const struct mode_order *mode;
    const struct landscape_order *order;
    struct problem problem;
    const struct family *family;
    const struct family_target *target;
    struct space space; /* owned */
    uint32_t n_variants;
    struct landscape_points *variants; /* owned; in the order of the walk */
    uint32_t n_settings;
    /* owned; for each run-time setting, true when the recording leaves the setting out */
    bool *skipped;
    double *us; /* owned: each point's time in the walk; NaN: failed, not measured, or in a lot */
    char cache_dir[PATHS_MAX];
    struct device *device;     /* owned */
    struct compiler *compiler; /* owned */
    struct compile_pool *pool; /* owned */
    unsigned threads;          /* of the pool */
    struct helpers helpers;
    struct prepared *prepared; /* owned by the device */
    struct record reference;   /* config of the reference kernel: the analytic default */
    struct kernel *yardstick;  /* owned by the device: the reference kernel, loaded */
    double reference_us, best_us;
    double gap_ms; /* idle time before a launch */
    /* ms on the device's clock: start of the walk; last measurement of the reference */
    double began_ms, looked_ms;
    uint32_t done, points, failed;
    double compile_ms;
    FILE *file; /* owned */
    struct line line;
};

/* plan.c */
int landscape_plan(struct landscape_recorder *s, struct error *err);
/* The number of a point's run-time setting, below n_settings. */
uint32_t landscape_setting(const struct landscape_recorder *s, uint32_t point);

static inline double landscape_clock(const struct landscape_recorder *s)
{
    return s->device->ops->clock_ms(s->device);
}

/* steps.c */
/* Gets the build of a variant from the compile pool; `of` NULL: the reference kernel's. */
int landscape_want(struct landscape_recorder *s, const struct landscape_points *of,
                   struct landscape_item *out, struct error *err);
/* Waits for an item's build and loads the kernel. After a failure *why has the reason, and callers
 * go on with other points unless the function returns ERROR_DEVICE_LOST. */
int landscape_load_item(struct landscape_recorder *s, const struct landscape_item *it,
                        struct kernel **out, struct rejection *why, struct error *err);
void landscape_reject_error(struct rejection *why, const struct error *e);
/* Sleeps until some build is done. */
void landscape_wait(void *recorder);
/* Appends up to `wanted` samples to us[*n]; stop_us: stops after a first sample above this time (0:
 * never). */
int landscape_time(struct landscape_recorder *s, struct kernel *k, const struct record *config,
                   uint32_t warmup, uint32_t wanted, double stop_us, double *us, uint32_t *n,
                   struct error *err);
/* Prints the progress line, when the next is due (mode.h). */
void landscape_say(struct landscape_recorder *s);
/* Measures the reference kernel, when half a second has passed since the last time. */
int landscape_look(struct landscape_recorder *s, struct error *err);

int landscape_walk(struct landscape_recorder *s, struct error *err);
int landscape_finals(struct landscape_recorder *s, struct error *err);

/* write.c */
struct landscape_shot { /* the samples or the failure of a point */
    uint32_t n;         /* samples; 0: not measured */
    double us[LANDSCAPE_SHOTS_MAX];
    struct rejection why; /* code != 0: the point failed */
};
int landscape_write_header(struct landscape_recorder *s, struct error *err);
int landscape_write_reference(struct landscape_recorder *s, const double *us, uint32_t n,
                              struct error *err);
/* Writes a variant's line. `shots`: one for each of the variant's points; NULL: all points
 * failed with `why`. */
int landscape_write_variant(struct landscape_recorder *s, const struct landscape_points *v,
                            double compile_ms, const struct landscape_shot *shots,
                            const struct rejection *why, struct error *err);
int landscape_write_final(struct landscape_recorder *s, uint32_t point, const double *us,
                          uint32_t blocks, uint32_t each, struct error *err);
int landscape_write_end(struct landscape_recorder *s, struct error *err);

#endif
