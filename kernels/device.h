/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Devices: where kernels run, and how they are compiled. Each kind has one table of functions.
 *
 * Only gemmd-runner opens a device. A training job launches through kernels/launcher.h. All calls
 * on one device come from one thread. Compiling needs no device and is thread-safe.
 *
 * Faults of a candidate: a call returns ERROR_RESOURCE, ERROR_WRONG_RESULT ..., and the device goes
 * on. After ERROR_DEVICE_LOST this process can do nothing more, and the runner exits.
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
    struct module meta; /* id = hash128 of data; registers etc. where the compiler reports them */
    char log[2048];     /* the compiler's output, cut */
    /* after a failed compile, true when the variant is at fault, so that this compiler will fail
     * again. False after a full disk, a signal or lack of memory */
    bool refused;
};
void image_deinit(struct image *i);
/* The first three lines of the log that name an error, else its first line, joined to one line and
 * without the paths of `folder` (may be NULL). */
void image_log_excerpt(const char *log, const char *folder, char *out, size_t size);
/* Sets the fields that follow from a variant and its compiler; created_s only when it is 0. */
void module_describe(struct module *m, const struct variant *v, const char *compiler);
/* After a successful compile: sets the `meta` fields that do not come from the compiler's report,
 * and `registers` to -1 (unknown). */
void image_describe(struct image *i, const struct variant *v, const char *compiler,
                    double compile_ms);

struct tolerance {
    double atol, rtol; /* per element: |out - ref| <= atol + rtol * |ref| */
    double rel_norm;   /* per check row: ||out - ref|| / ||ref||; 0: the device sets the limit
                          by output dtype and length of the sums */
};

struct verdict {
    bool right;
    double max_error;  /* largest |out - ref| */
    double rel_norm;   /* largest over the check rows */
    int64_t unwritten; /* elements that the kernel has not written */
    char text[320];    /* when the result is wrong: the place and the size of the error */
};

struct timing {
    uint32_t warmup;
    uint32_t samples; /* number to take, <= SAMPLES_MAX */
    /* stop timing when the first sample is above this (0: never stop early) */
    double stop_after_us;
    /* idle time before each sample: launches without a pause reach a GPU's power limit and slow
     * down */
    double gap_ms;
};

/* Supplies the images of a device's own kernels (not of candidates), from the cache or the
 * compiler. `*out` is borrowed until the next call. */
struct device_supply {
    int (*image)(void *ctx, const struct variant *v, const struct image **out, struct error *err);
    void *ctx;
};
enum { DEVICE_HELPERS_MAX = 4 };

struct baseline {
    char library[32];  /* "cublas" */
    int version;       /* 130001 */
    uint32_t products; /* matrix products that were timed together */
    double max_error;  /* largest |out - ref|; NaN: the products compute other results than the op,
                          so they were not compared */
};

struct device_ops {
    const char *kind;
    size_t size; /* of the device's own struct */
    /* `d` is zero but for `ops`. Fills `info`. After an error, too, the caller frees `d` by
     * close(). Work that costs memory or time on the device may wait for the first load or prepare,
     * which then return its errors. */
    int (*open)(const char *spec, struct device *d, struct error *err);
    void (*close)(struct device *d); /* frees the struct, too; NULL: open() always fails */
    /* The variants that a device will want from its supply before it prepares a problem of the
     * target, so that compiling can begin earlier, also on hosts without the device. Returns their
     * number. NULL: no variants. */
    uint32_t (*helpers)(const struct device_info *info, const struct family_target *t,
                        struct variant out[DEVICE_HELPERS_MAX]);
    /* The device's state and its other users. NULL: unknown. */
    void (*health)(struct device *d, struct device_health *out);
    /* Loads an image and looks up the variant's entry. ERROR_RESOURCE, with a text like a
     * rejection's: a launch would not fit (too many registers, too much shared memory). */
    int (*load)(struct device *d, const struct image *image, const struct variant *v,
                struct kernel **out, struct rejection *why, struct error *err);
    void (*unload)(struct device *d, struct kernel *k);
    /* Called before any work on a problem, also before its lists of rows are drawn.
     * ERROR_NO_MEMORY: the problem surely needs more memory than prepare() allows, as far as this
     * is known without a context. NULL: the device allocates nothing. */
    int (*fits)(struct device *d, const struct family *f, const struct problem *p,
                struct error *err);
    /* Allocates and fills the buffers, and computes the expected results. ERROR_NO_MEMORY: the
     * buffers need more than device_memory_share(). */
    int (*prepare)(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                   struct prepared **out, struct error *err);
    void (*release)(struct device *d, struct prepared *w);
    /* Poisons the output, launches once, and compares with the expected results. Returns 0 also
     * when the result is wrong: `out` says so. */
    int (*verify)(struct device *d, struct prepared *w, struct kernel *k,
                  const struct record *config, const struct tolerance *tol, struct verdict *out,
                  struct error *err);
    /* Times up to timing->samples single launches, each with a cold L2, in microseconds. */
    int (*time)(struct device *d, struct prepared *w, struct kernel *k, const struct record *config,
                const struct timing *t, double *samples_us, uint32_t *n, struct error *err);
    /* True when the device can measure this config of the problem: a recorded device knows only
     * recorded configs. NULL: the device can measure every config. */
    bool (*knows)(const struct device *d, const struct problem *p, const struct record *config);
    /* For a device with knows(): the config that the recording used as reference kernel. The runner
     * uses it when the recording lacks the analytic default. Returns false, and leaves *config
     * alone, when the recording does not name a reference. NULL: never. */
    bool (*reference)(const struct device *d, const struct problem *p, struct record *config);
    /* The seed with which a recorded device's rows were distributed over the experts: the recorded
     * times hold for that distribution only. NULL: the seed given to prepare(). */
    uint64_t (*rows_seed)(const struct device *d, uint64_t asked);
    /* Times the same work, given by family->products, in a vendor's library: single launches of all
     * products together, as in time(). ERROR_NO_DEVICE: the library is missing, or the family has
     * no products. NULL: no device of this kind has a library. */
    int (*baseline)(struct device *d, struct prepared *w, const struct tolerance *tol,
                    const struct timing *t, struct baseline *out, double *samples_us, uint32_t *n,
                    struct error *err);
    /* A clock for budgets, milliseconds: monotonic time, or the virtual clock of replay. */
    double (*clock_ms)(struct device *d);
};

struct device { /* embedded first in each device's own struct */
    const struct device_ops *ops;
    struct device_info info;
    struct device_supply supply; /* set by the opener; empty: the device compiles for itself */
};

/* spec: "cuda:0" | "cuda:GPU-<uuid>" | "cuda" (= cuda:0) | "cpu" | "cpu:<threads>" |
 * "replay:<file>"; device_probe and compiler_open also take "cuda:sm_90a". The UUID follows
 * proto/device.h; a prefix that several GPUs share is ERROR_INVALID. */
int device_open(const char *spec, struct device **out, struct error *err);
/* Describes the device without a context on the GPU. gemmd calls this once, at start, through
 * `gemmd-runner --probe`. ERROR_NO_DEVICE names the missing part and the remedy. */
int device_probe(const char *spec, struct device_info *out, struct error *err);
/* The share of a device's free memory that tuning may use: $GEMMD_MEMORY_SHARE, or a half when the
 * variable is unset or invalid. The check returns ERROR_INVALID for an invalid value. */
double device_memory_share(void);
int device_memory_share_check(struct error *err);
/* The same share of the host's free memory, in bytes; ERROR_NO_MEMORY when `need` is more. */
int64_t device_host_limit(void);
int device_host_fits(double need, struct error *err);
/* Returns ERROR_NO_MEMORY: a problem needs `need` bytes, more than `limit`, the allowed share of
 * `memory` ("the free memory"). */
int device_too_much(double need, double limit, const char *memory, struct error *err);
/* Bytes of host memory for a problem's drawn lists of rows, on any device. */
double device_host_lists(const struct family *f, const struct problem *p);
/* Calls device_ops.helpers of the spec's kind, also without the device. 0: no variants. */
uint32_t device_helpers(const char *spec, const struct device_info *info,
                        const struct family_target *t, struct variant out[DEVICE_HELPERS_MAX]);

double device_clock_ms(struct device *d); /* monotonic; does not touch the device */
void device_sleep_ms(double ms);

/* Locks the clocks of "GPU-<uuid>" at `mhz` for all users of the GPU; 0 unlocks. The setting
 * outlives this process. ERROR_DENIED: only root may; ERROR_NO_DEVICE: not possible here. */
int device_set_clocks(const char *uuid, int64_t mhz, struct error *err);

/* ---- compiling ------------------------------------------------------------------------------ */

struct compiler;
struct compiler_ops {
    const char *suffix; /* "cubin" | "so" */
    /* the runner must compile in child processes (runner/compile/apart.h), because parallel
     * compiles in one process wait for one another (NVRTC), or because a killed runner would leave
     * the compiler's files (cpu) */
    bool apart;
    size_t size; /* of the compiler's own struct */
    /* As device_ops.open. ERROR_NO_COMPILER names the missing part and the remedy. `spec` is the
     * device's. */
    int (*open)(const char *spec, struct compiler *c, struct error *err);
    void (*close)(struct compiler *c);                /* frees the struct, too */
    const char *(*version)(const struct compiler *c); /* "nvrtc 13.0": part of the stamp */
    /* Thread-safe. ERROR_COMPILE with the first lines of the log; ERROR_RESOURCE when the log shows
     * that the variant cannot run well (spills, serialised wgmma). */
    int (*compile)(struct compiler *c, const struct variant *v, struct image *out,
                   struct error *err);
    /* Ends the running compile() of that variant early, which then returns soon. A compile() whose
     * C compiler has not started yet is not stopped. NULL: this compiler cannot be stopped. */
    void (*stop)(struct compiler *c, const struct variant *v);
    /* replay only: the recorded compile time. */
    double (*takes_ms)(struct compiler *c, const struct variant *v);
};
struct compiler {
    const struct compiler_ops *ops;
};
int compiler_open(const char *spec, struct compiler **out, struct error *err);

/* The kinds compiled in, which kernels/devices/devices.c lists. Without CUDA headers cuda_absent.c
 * defines the cuda tables, which return ERROR_NO_DEVICE with the reason. */
extern const struct device_ops cuda_device_ops, cpu_device_ops, replay_device_ops;
extern const struct compiler_ops cuda_compiler_ops, cpu_compiler_ops, replay_compiler_ops;
/* "sm_90a": an architecture without a device, with the limits that all its chips share and the size
 * of its usual chip (kernels/devices/archs.c). Enough to list spaces and compile variants.
 * ERROR_INVALID lists the known architectures. */
int arch_describe(const char *arch, struct device_info *out, struct error *err);

#endif
