/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay device plays recorded landscapes: trials measured on a real device, or made by a
 * seeded model, so that search quality, scheduling, budgets and faults can be tested on any
 * machine, the same way every time. Nothing is computed; only its clock moves.
 *
 * A landscape is a text file of JSON lines:
 *
 *   {"gemmd_landscape": 2, "device": {the fields of DEVICE_INFO_FIELDS}, "compile_ms": 300,
 *    "gemmd": "<build>", "note": "recorded on ... | synthetic by ..."}                first line
 *   {"problem": "grouped_gemm K=2048 M=32768 ...", "reference_us": 812.0, ...}  what follows: of it
 *   {"config": "BLOCK_SIZE_M=128 ...", "samples_us": [801.2, 799.9, ...]}
 *   {"config": "...", "status": "resource", "reason": "...", "resource": "shared_memory",
 *    "required": 245760, "limit": 232448}           any name of proto/error.h but not_found
 *   {"synthetic": {"seed": 7, "noise": 0.01, "spread": 0.15}}     any problem and config of the
 *                             target: the analytic model times a lognormal factor of sigma
 *                             `spread`, samples with sigma `noise`
 *   {"config": "BLOCK_SIZE_M=64", "fault": "crash", "stage": "verify", "ms": 0, "once": "/a/path"}
 *
 * Whole spaces, as `gemmd-runner --landscape` records them, are written shorter (table.c): the
 * problem's line holds {"params": [{"name", "run_time", "values"}, ...], "reference": config,
 * "stamp", "space": points there are, "variants": of them, "seed": of routing (1)}, a config is a
 * list of indices into values, a time is in hundredths of a microsecond:
 *
 *   {"variant": [2, 0, ...], "compile_ms": 312, "at_ms": 1840, "times": [[25012, 25100], ...]}
 *                             its samples by run-time setting (the last varies fastest); null: not
 *                             recorded; or {"status", "reason", ...}. Without "times" the whole
 *                             variant failed: "status", "reason" ... stand beside
 *   {"reference": [25300, 25280, 25310], "at_ms": 2000}       its turn between the others
 *   {"final": [2, 0, ..., 1], "blocks": [[25012, ...], ...]}  measured again, all tunables' indices
 *   {"clocks": ...}, {"end": ...}                             for people, and passed over
 *
 * Problems and configs are one-line texts or maps. Empty lines and lines that begin with '#' are
 * passed over.
 *
 * A fault hits every config that has all the parameters named (none: all configs). While compiling
 * and loading only compile-time parameters are known: the others are passed over there, so that
 * such a fault hits all configs of the variant. `once`: it happens only while that file does not
 * exist, and makes it. Faults may also stand in a file of their own, $GEMMD_REPLAY_FAULTS. Kinds,
 * and their stages (the first is the default):
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
 * The device says that it is of the recorded kind, so that the recorded family target's space and
 * rules hold; its uuid is "replay-<file name up to its first dot>", its class begins with
 * "replay:", its compiler with "replay ", so that nothing it says is ever taken for a real
 * device's.
 *
 * Times are drawn from the recorded samples, seeded, in the order of the calls (noise.c). A device
 * that was recorded knows the recorded configs only: there is no other in its space. The clock
 * counts them, the gaps between them, and a little for everything else; nothing sleeps, unless
 * $GEMMD_REPLAY_SPEED says how many times faster than real time it should run (1: as long as it
 * really took).
 */
#ifndef GEMMD_KERNELS_DEVICES_REPLAY_H
#define GEMMD_KERNELS_DEVICES_REPLAY_H

#include "kernels/device.h"

struct landscape_entry {
    uint32_t problem;     /* index */
    uint64_t config;      /* hash of its text */
    int status;           /* 0: measured; ERROR_* */
    double us;            /* when measured */
    double walked_us;     /* before it was measured again */
    bool sure;            /* measured often: its time can be relied on */
    double at_ms;         /* when, since its recording began */
    uint32_t first, n;    /* into samples; n 0: it varies as others do */
    uint32_t each;        /* samples of a block; 0: all are one */
    uint64_t variant;     /* of a failure: replay_variant_hash; 0: not known */
    struct rejection why; /* of a failure */
};

struct landscape_variant {
    uint64_t hash; /* replay_variant_hash */
    double compile_ms;
};

/* The reference kernel's turn between others: what clocks and temperature did. */
struct landscape_turn {
    double at_ms, slow; /* slow: its time over the median of its times */
};

struct landscape_problem {
    struct problem problem;
    struct record reference;      /* the recorded reference kernel's config; empty: not said */
    uint32_t first_turn, n_turns; /* into turns, which are by time */
};

enum fault_kind { FAULT_CRASH, FAULT_HANG, FAULT_WRONG, FAULT_SLOW_COMPILE, FAULT_ERROR };
enum fault_stage { STAGE_PREPARE, STAGE_COMPILE, STAGE_LOAD, STAGE_VERIFY, STAGE_TIME };

struct fault {
    enum fault_kind kind;
    enum fault_stage stage;
    int code;         /* of FAULT_ERROR */
    const char *text; /* borrowed, static: of FAULT_ERROR */
    int64_t ms;
    struct record pattern;
    char once[256]; /* path; "": always */
};

struct landscape {
    struct device_info info;
    double compile_ms; /* of variants that are not listed */
    uint32_t n_problems;
    struct landscape_problem *problems; /* owned */
    uint32_t n_entries;
    struct landscape_entry *entries; /* owned; by problem, then config */
    uint32_t n_often;
    uint32_t *often; /* owned; the entries that were measured in blocks */
    uint32_t n_samples;
    double *samples; /* owned */
    uint32_t n_variants;
    struct landscape_variant *variants; /* owned; by hash */
    uint32_t n_turns;
    struct landscape_turn *turns; /* owned */
    uint64_t rows_seed;           /* that spread the recorded rows over the experts; 0: not said */
    bool synthetic;
    uint64_t seed;
    double noise, spread;
    double speed; /* of the clock; 0: nothing sleeps */
    uint32_t n_faults;
    struct fault *faults; /* owned */
    /* growth */
    uint32_t room_problems, room_entries, room_samples, room_faults, room_variants, room_turns;
};

/* Loads the file of a spec "replay:<file>", and the faults beside it. */
int landscape_load(const char *spec, struct landscape **out, struct error *err);
struct landscape *landscape_free(struct landscape *l);
/* The index of a problem; ERROR_NOT_FOUND says in what the nearest differs. A synthetic landscape
 * knows all: n_problems. */
int landscape_problem(const struct landscape *l, const struct problem *p, uint32_t *out,
                      struct error *err);
/* Those of a problem; n_problems has none. */
struct landscape_turn *landscape_turns(const struct landscape *l, uint32_t problem, uint32_t *n);
/* NULL: not recorded. */
const struct landscape_entry *landscape_entry(const struct landscape *l, uint32_t problem,
                                              const struct record *config);
/* A recorded failure of this status for a variant, or NULL. */
const struct landscape_entry *landscape_failure(const struct landscape *l, uint64_t variant,
                                                int status);
/* As long as this takes on the virtual clock. */
void landscape_sleep(const struct landscape *l, double ms);
/* Milliseconds that compiling a variant took. */
double landscape_compile_ms(const struct landscape *l, uint64_t variant);
uint64_t replay_config_hash(const struct record *config);
uint64_t replay_variant_hash(const struct variant *v);

/* noise.c */
struct noise { /* of one call */
    const struct landscape *landscape;
    double scale;        /* times a sample of the block; or the time itself */
    const double *block; /* borrowed */
    uint32_t n;
};
/* How slow the n turns say that things were. */
double landscape_slow(const struct landscape_turn *turns, uint32_t n, double at_ms);
/* The same for the virtual clock of a run. */
double noise_drift(const struct landscape *l, uint32_t problem, uint64_t seed, double clock_ms);
void noise_visit(const struct landscape *l, const struct landscape_entry *e, uint64_t *state,
                 struct noise *out);
double noise_draw(const struct noise *v, uint64_t *state); /* microseconds */
double noise_gauss(uint64_t *state);

/* entries.c: of a text, or of a map. */
int replay_read_record(struct record *out, const struct wire_obj *given, struct error *err);

/* faults.c */
int fault_read(struct fault *f, const struct wire_obj *line, struct error *err);
/* The first fault that hits this config (or, when it is NULL, this variant; or, when both are,
 * anything) in this stage, and that is due now; NULL: none. */
const struct fault *fault_find(const struct landscape *l, enum fault_stage stage,
                               const struct record *config, const struct variant *v);
/* Does what it says: does not return from a crash or hang. 0, or the error that the call returns.
 * FAULT_WRONG is left to the caller. */
int fault_happen(const struct fault *f, struct error *err);

#endif
