/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay device plays recorded landscapes: trials measured on a real device, or made by a
 * seeded model. So search quality, scheduling, budgets and faults can be tested on any machine,
 * with the same result every time. Nothing is computed; only the virtual clock moves.
 *
 * A landscape is a text file of JSON lines:
 *
 *   {"gemmd_landscape": 2, "device": {the fields of DEVICE_INFO_FIELDS}, "compile_ms": 300,
 *    "gemmd": "<build>", "note": "recorded on ... | synthetic by ..."}                first line
 *   {"problem": "grouped_gemm K=2048 M=32768 ...", "reference_us": 812.0, ...}  then its lines:
 *   {"config": "BLOCK_SIZE_M=128 ...", "samples_us": [801.2, 799.9, ...]}
 *   {"config": "...", "status": "resource", "reason": "...", "resource": "shared_memory",
 *    "required": 245760, "limit": 232448}           any name of proto/error.h but not_found
 *   {"synthetic": {"seed": 7, "noise": 0.01, "spread": 0.15}}     any problem and config of the
 *                             target: the analytic model times a lognormal factor of sigma
 *                             `spread`, samples with sigma `noise`
 *   {"config": "BLOCK_SIZE_M=64", "fault": "crash", "stage": "verify", "ms": 0, "once": "/a/path"}
 *
 * `gemmd-runner --landscape` records whole spaces in a shorter form (table.c). The problem's line
 * has {"params": [{"name", "run_time", "values"}, ...], "reference": config, "stamp", "space":
 * number of points, "variants": number of variants, "seed": of the routing (1)}. A config is a list
 * of indices into values, a time is in hundredths of a microsecond:
 *
 *   {"variant": [2, 0, ...], "compile_ms": 312, "at_ms": 1840, "times": [[25012, 25100], ...]}
 *                             samples by run-time setting (the last varies fastest); null: not
 *                             recorded; or {"status", "reason", ...}. Without "times" the whole
 *                             variant failed: the line has "status", "reason" ...
 *   {"reference": [25300, 25280, 25310], "at_ms": 2000}       the reference, between variants
 *   {"final": [2, 0, ..., 1], "blocks": [[25012, ...], ...]}  measured again, all tunables' indices
 *   {"clocks": ...}, {"end": ...}                             for people; skipped
 *
 * Problems and configs are one-line texts or maps. Empty lines and lines that begin with '#' are
 * skipped.
 *
 * A fault hits every config that has all the named parameters (none: all configs). Compiling and
 * loading know compile-time parameters only: these stages ignore the others, so the fault hits all
 * configs of the variant. With `once` the fault happens only while that file does not exist, and
 * creates it. Faults may also be in a separate file, $GEMMD_REPLAY_FAULTS. Kinds and their stages
 * (the first is the default):
 *
 *   crash         SIGSEGV                 verify prepare compile load time
 *   hang          for ever                time prepare compile load verify
 *   device_lost   ERROR_DEVICE_LOST       time prepare load verify
 *   no_memory     ERROR_NO_MEMORY         prepare load verify time
 *   wrong         the verdict is wrong    verify
 *   resource      ERROR_RESOURCE          load
 *   compile       ERROR_COMPILE           compile
 *   slow_compile  takes `ms` longer       compile
 *
 * The device reports the recorded kind, so that the recorded family target's space and rules apply.
 * The uuid is "replay-<file name up to the first dot>"; class and compiler begin with "replay:" and
 * "replay ". So no answer from replay is taken for a real device's.
 *
 * Times are drawn from the recorded samples, seeded, in the order of the calls (noise.c). A
 * recorded device has only the recorded configs in its space. The clock counts the drawn times, the
 * gaps between them, and a little for all other work. Nothing sleeps, unless $GEMMD_REPLAY_SPEED
 * gives a speed as a multiple of real time (1: as fast as the recording).
 */
#ifndef GEMMD_KERNELS_DEVICES_REPLAY_H
#define GEMMD_KERNELS_DEVICES_REPLAY_H

#include "kernels/device.h"

struct landscape_entry {
    uint32_t problem; /* index of the problem */
    uint64_t config;  /* hash of its text */
    int status;       /* 0: measured; ERROR_* */
    double us;        /* time of a measured config */
    double walked_us; /* its time from the walk over the space, before `final` lines */
    bool sure;        /* the config was measured often, so its time is reliable */
    double at_ms;     /* milliseconds since the recording of the problem began */
    /* index and number of the entry's samples in the landscape's samples; n 0: replay draws from
     * other entries' samples */
    uint32_t first, n;
    /* samples that were timed one after the other, in one visit of the device: such a block keeps
     * its number of samples here; 0: all samples are a single block */
    uint32_t each;
    /* for a failure: replay_variant_hash of the variant that failed; 0: unknown */
    uint64_t variant;
    struct rejection why; /* why a failed entry failed */
};

struct landscape_variant {
    uint64_t hash; /* replay_variant_hash */
    double compile_ms;
};

/* The reference kernel, measured between variants: the effect of clocks and temperature. */
struct landscape_turn {
    double at_ms, slow; /* slow: the turn's time / the midmean of the reference's times */
};

struct landscape_problem {
    struct problem problem;
    struct record reference;      /* the recorded reference kernel's config; empty: not given */
    uint32_t first_turn, n_turns; /* index and number in landscape.turns, sorted by time */
};

enum fault_kind { FAULT_CRASH, FAULT_HANG, FAULT_WRONG, FAULT_SLOW_COMPILE, FAULT_ERROR };
enum fault_stage { STAGE_PREPARE, STAGE_COMPILE, STAGE_LOAD, STAGE_VERIFY, STAGE_TIME };

struct fault {
    enum fault_kind kind;
    enum fault_stage stage;
    int code;         /* of FAULT_ERROR */
    const char *text; /* borrowed, static: the error's text */
    int64_t ms;
    struct record pattern;
    char once[256]; /* path of a file: fails only while it does not exist, and makes it; "": always
                     */
};

struct landscape {
    struct device_info info;
    double compile_ms; /* compile time of variants that the landscape does not list */
    uint32_t n_problems;
    struct landscape_problem *problems; /* owned */
    uint32_t n_entries;
    struct landscape_entry *entries; /* owned; by problem, then config */
    uint32_t n_often;
    uint32_t *often; /* owned; indices of entries that were measured in blocks */
    uint32_t n_samples;
    double *samples; /* owned */
    uint32_t n_variants;
    struct landscape_variant *variants; /* owned; by hash */
    uint32_t n_turns;
    struct landscape_turn *turns; /* owned */
    uint64_t rows_seed; /* seed of the recorded rows' distribution over the experts; 0: not given */
    bool synthetic;
    uint64_t seed;
    double noise, spread;
    double speed; /* speed of the virtual clock, as a multiple of real time; 0: nothing sleeps */
    uint32_t n_faults;
    struct fault *faults; /* owned */
};

/* Loads the file of a spec "replay:<file>", and the faults of $GEMMD_REPLAY_FAULTS. */
int landscape_load(const char *spec, struct landscape **out, struct error *err);
struct landscape *landscape_free(struct landscape *l);
/* The index of a problem. ERROR_NOT_FOUND names the fields in which the nearest problem differs. A
 * synthetic landscape knows all problems: n_problems. */
int landscape_problem(const struct landscape *l, const struct problem *p, uint32_t *out,
                      struct error *err);
/* The turns of a problem; index n_problems has none. */
struct landscape_turn *landscape_turns(const struct landscape *l, uint32_t problem, uint32_t *n);
/* The entry of a config; NULL: the config was not recorded. */
const struct landscape_entry *landscape_entry(const struct landscape *l, uint32_t problem,
                                              const struct record *config);
/* A recorded failure of this status for a variant, or NULL. */
const struct landscape_entry *landscape_failure(const struct landscape *l, uint64_t variant,
                                                int status);
/* Sleeps for the real time of `ms` on the virtual clock. */
void landscape_sleep(const struct landscape *l, double ms);
double landscape_compile_ms(const struct landscape *l, uint64_t variant);
uint64_t replay_config_hash(const struct record *config);
uint64_t replay_variant_hash(const struct variant *v);

/* noise.c */
struct noise { /* of one call of time() */
    const struct landscape *landscape;
    /* the factor for the samples of `block`; without block: the time of a launch, microseconds */
    double scale;
    const double *block; /* borrowed: n recorded samples; NULL: none */
    uint32_t n;
};
/* The slowness at `at_ms`, interpolated between the n turns. */
double landscape_slow(const struct landscape_turn *turns, uint32_t n, double at_ms);
/* The slowness at a time of the virtual clock. A run's seed decides where in the recording the run
 * begins. */
double noise_drift(const struct landscape *l, uint32_t problem, uint64_t seed, double clock_ms);
void noise_visit(const struct landscape *l, const struct landscape_entry *e, uint64_t *state,
                 struct noise *out);
double noise_draw(const struct noise *v, uint64_t *state); /* microseconds */
double noise_gauss(uint64_t *state);

/* entries.c: reads a problem or config, which is given as a one-line text or a map. */
int replay_read_record(struct record *out, const struct wire_obj *given, struct error *err);

/* faults.c */
int fault_read(struct fault *f, const struct wire_obj *line, struct error *err);
/* The first fault that is due in this stage for the config; for the variant when `config` is NULL;
 * for anything when both are NULL. NULL: no fault. */
const struct fault *fault_find(const struct landscape *l, enum fault_stage stage,
                               const struct record *config, const struct variant *v);
/* Executes the fault (NULL: none): does not return from a crash or hang. 0, or the call's error.
 * FAULT_WRONG is left to the caller. */
int fault_happen(const struct fault *f, struct error *err);

#endif
