/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: where kernels run, and how they are compiled. One table of functions each.
 *
 * Only gemmd-runner opens a device (and a training job, through kernels/launcher.h, its own). All
 * calls on one device come from one thread. Compiling needs no device and is thread-safe.
 *
 * Faults of a candidate: a call returns ERROR_RESOURCE, ERROR_WRONG_RESULT ... and the device goes
 * on; or ERROR_DEVICE_LOST: nothing more can be done in this process, the runner exits.
 */
#ifndef GEMMD_KERNELS_DEVICE_H
#define GEMMD_KERNELS_DEVICE_H

#include "kernels/family.h"

struct device;
struct kernel;   /* a loaded module, ready to launch one config's variant */
struct prepared; /* a workload with its buffers on the device, and the reference's result */

struct image {
    void *data; /* owned, malloc */
    size_t size;
    struct module meta; /* id = hash128 of data; registers etc. where the compiler says them */
    char log[2048];     /* what the compiler said, cut */
    bool refused;       /* of a compile that failed: it is the variant's fault, and this compiler
                           will say the same again. Not set by a full disk, a signal, no memory */
};
void image_deinit(struct image *i);
/* The first three lines of the log that name an error, else the first, on one line and without the
 * paths of `folder` (NULL: none). */
void image_log_excerpt(const char *log, const char *folder, char *out, size_t size);
/* Of a compile that went well: all of `meta` but what only a compiler can know, registers -1. */
void image_describe(struct image *i, const struct variant *v, const char *compiler,
                    double compile_ms);

struct tolerance {
    double atol, rtol; /* per element: |out - ref| <= atol + rtol * |ref| */
    double rel_norm;   /* per check row: ||out - ref|| / ||ref||; 0: by output dtype and the
                          length of the sums */
};

struct verdict {
    bool right;
    double max_error;  /* largest |out - ref| */
    double rel_norm;   /* largest over the check rows */
    int64_t unwritten; /* elements still poisoned */
    char text[320];    /* when not right: where and by how much */
};

struct timing {
    uint32_t warmup;
    uint32_t samples;     /* wanted, <= SAMPLES_MAX */
    double stop_after_us; /* give up when the first sample is above this (0: never) */
    double gap_ms; /* idle before each sample (back to back, a GPU's power limit slows it down) */
};

/* Whence a device has the images that it needs beside candidates: from a cache, compiled meanwhile.
 * `*out` is borrowed until the next call. */
struct device_supply {
    int (*image)(void *ctx, const struct variant *v, const struct image **out, struct error *err);
    void *ctx;
};
enum { DEVICE_HELPERS_MAX = 4 };

struct baseline {
    char library[32]; /* "cublas" */
    int version;      /* 130001 */
    uint32_t products;
    double max_error; /* NaN: it does not compute what the op does, and is not compared */
};

struct device_ops {
    const char *kind;
    /* Says what the device is. What costs memory or long on it may wait for the first load or
     * prepare, and its errors with it. */
    int (*open)(const char *spec, struct device **out, struct error *err);
    void (*close)(struct device *d);
    /* What such a device will ask its supply for before it prepares a problem of a target: so that
     * compiling it can begin earlier, also where no such device is. Returns how many. NULL:
     * nothing. */
    uint32_t (*helpers)(const struct device_info *info, const struct family_target *t,
                        struct variant out[DEVICE_HELPERS_MAX]);
    /* How it is, and who else uses it. NULL: nothing can be known. */
    void (*health)(struct device *d, struct device_health *out);
    /* Loads an image and looks up the variant's entry. ERROR_RESOURCE: launch would not fit (too
     * many registers or too much shared memory), with rejection-like text. */
    int (*load)(struct device *d, const struct image *image, const struct variant *v,
                struct kernel **out, struct rejection *why, struct error *err);
    void (*unload)(struct device *d, struct kernel *k);
    /* Before anything is worked out for a problem, its lists of rows included: ERROR_NO_MEMORY
     * where the least that it takes is more than prepare() will allow, as far as that is known
     * without a context. NULL: nothing is allocated. */
    int (*fits)(struct device *d, const struct family *f, const struct problem *p,
                struct error *err);
    /* Allocates (never more than a set share of free memory: ERROR_NO_MEMORY), fills, computes the
     * reference. */
    int (*prepare)(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                   struct prepared **out, struct error *err);
    void (*release)(struct device *d, struct prepared *w);
    /* Poisons the output, launches once, compares. 0 also when the result is wrong: see verdict. */
    int (*verify)(struct device *d, struct prepared *w, struct kernel *k,
                  const struct record *config, const struct tolerance *tol, struct verdict *out,
                  struct error *err);
    /* Writes up to timing->samples times of single launches, cold L2, in microseconds. */
    int (*time)(struct device *d, struct prepared *w, struct kernel *k, const struct record *config,
                const struct timing *t, double *samples_us, uint32_t *n, struct error *err);
    /* Whether it can measure a config of a problem at all: a recorded device knows only what was
     * recorded. NULL: any. */
    bool (*knows)(const struct device *d, const struct problem *p, const struct record *config);
    /* Of a device that has knows(): the config that a problem's others were compared with when it
     * was recorded, for a default that it does not know. False, and *config is as it was: that is
     * not said. NULL: never. */
    bool (*reference)(const struct device *d, const struct problem *p, struct record *config);
    /* The seed that spread the rows over the experts where times are of one spread only: a recorded
     * device's. NULL: of whichever prepare() is given. */
    uint64_t (*rows_seed)(const struct device *d, uint64_t asked);
    /* Times the same work by a vendor's library, as family->products says it: single launches as
     * time() has them, of all products together. ERROR_NO_DEVICE: the library is not here, or the
     * family has no such form. NULL: no device of this kind has one. */
    int (*baseline)(struct device *d, struct prepared *w, const struct tolerance *tol,
                    const struct timing *t, struct baseline *out, double *samples_us, uint32_t *n,
                    struct error *err);
    /* A clock for budgets, milliseconds: monotonic time, or the virtual clock of replay. */
    double (*clock_ms)(struct device *d);
};

struct device { /* embedded first in each device's own struct */
    const struct device_ops *ops;
    struct device_info info;
    struct device_supply supply; /* of who opened it; none: it compiles for itself */
};

/* spec: "cuda:0" | "cuda:GPU-<uuid>" | "cuda" (= cuda:0) | "cpu" | "cpu:<threads>" |
 * "replay:<file>"; for device_probe and compiler_open "cuda:sm_90a", too. The UUID as proto/uuid.h
 * has it; a beginning that several GPUs have is ERROR_INVALID. */
int device_open(const char *spec, struct device **out, struct error *err);
/* What the device is, without a context on it: gemmd asks its runner program for this
 * (`gemmd-runner --probe`), once, at start. ERROR_NO_DEVICE says what is missing and what to do. */
int device_probe(const char *spec, struct device_info *out, struct error *err);
/* Of a device's free memory, what a tuning may take: $GEMMD_MEMORY_SHARE; a half, where that is not
 * set or no share, of which the check says ERROR_INVALID. */
double device_memory_share(void);
int device_memory_share_check(struct error *err);
/* The same of the host's free memory, in bytes; and whether so many may be taken:
 * ERROR_NO_MEMORY. */
int64_t device_host_limit(void);
int device_host_fits(double need, struct error *err);
/* ERROR_NO_MEMORY: a problem needs more bytes than its share of `memory` ("the free memory"). */
int device_too_much(double need, double limit, const char *memory, struct error *err);
/* What is drawn for a problem (lists of rows), in bytes of the host's memory, on any device. */
double device_host_lists(const struct family *f, const struct problem *p);
/* device_ops.helpers of the kind that a spec names, for a device that need not be here; 0:
 * nothing. */
uint32_t device_helpers(const char *spec, const struct device_info *info,
                        const struct family_target *t, struct variant out[DEVICE_HELPERS_MAX]);

double device_clock_ms(struct device *d); /* monotonic; looks at no device */
void device_sleep_ms(double ms);

/* Locks the clocks of "GPU-<uuid>" at `mhz` for all who use it, or gives them back (0). They stay
 * so after this process. ERROR_DENIED: only root may; ERROR_NO_DEVICE: nobody can. */
int device_set_clocks(const char *uuid, int64_t mhz, struct error *err);

/* ---- compiling ------------------------------------------------------------------------------ */

struct compiler;
struct compiler_ops {
    const char *suffix; /* "cubin" | "so" */
    bool apart;         /* it compiles in processes of its own (runner/compile/apart.h): threads of
                           one would wait for one another in it, or it leaves files when the runner is
                           killed */
    /* ERROR_NO_COMPILER: what is missing and how to get it. `spec` is the device's. */
    int (*open)(const char *spec, struct compiler **out, struct error *err);
    void (*close)(struct compiler *c);
    const char *(*version)(const struct compiler *c); /* "nvrtc 13.0": part of the stamp */
    /* Thread-safe. ERROR_COMPILE with the first lines of the log; ERROR_RESOURCE when the log shows
     * that the variant cannot run well (spills, serialised wgmma). */
    int (*compile)(struct compiler *c, const struct variant *v, struct image *out,
                   struct error *err);
    /* Ends a compile() of that very variant that is given up; it returns soon, unless it has hardly
     * begun. NULL: that cannot be done. */
    void (*stop)(struct compiler *c, const struct variant *v);
    /* replay only: how long it took when it was recorded. */
    double (*takes_ms)(struct compiler *c, const struct variant *v);
};
struct compiler {
    const struct compiler_ops *ops;
};
int compiler_open(const char *spec, struct compiler **out, struct error *err);

/* The kinds compiled in (kernels/devices/devices.c lists them; without CUDA headers the cuda row
 * comes from cuda_absent.c and answers ERROR_NO_DEVICE with the reason). */
extern const struct device_ops cuda_device_ops, cpu_device_ops, replay_device_ops;
extern const struct compiler_ops cuda_compiler_ops, cpu_compiler_ops, replay_compiler_ops;
/* "sm_90a": no device but an architecture, with the limits that it has everywhere and the size of
 * its usual chip (kernels/devices/archs.c). Enough to list spaces and compile variants.
 * ERROR_INVALID names those that are known. */
int arch_describe(const char *arch, struct device_info *out, struct error *err);

#endif
