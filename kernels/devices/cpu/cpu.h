/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the cpu device. Kernels are C functions `void entry(const void *params, uint32_t block)`
 * in a shared object. A launch calls the function once for each thread block of its grid (here only
 * a number), in any order, on a pool of threads.
 *
 *   host.c      describes this machine; its memory and clock
 *   peaks.c     measures its peaks
 *   compiler.c  compiles variants to shared objects with the host's C compiler (spawn.c runs it)
 *   scratch.c   the compiler's folders
 *   pool.c      the threads
 *   load.c      loads shared objects; the launch backend
 *   device.c    the table of functions
 *   run.c       a prepared problem: memory, launches, comparing results
 */
#ifndef GEMMD_KERNELS_DEVICES_CPU_H
#define GEMMD_KERNELS_DEVICES_CPU_H

#include <limits.h>

#include "kernels/devices/prepared.h"
#include "kernels/launcher.h"

/* ---- pool.c ---------------------------------------------------------------------------------- */

struct pool;
struct pool *pool_new(uint32_t threads); /* NULL: no memory or no threads */
struct pool *pool_free(struct pool *p);  /* NULL in, NULL out */
/* To be called in a forked child, from the child handler of pthread_atfork. */
void pool_forked(struct pool *p);
/* Calls run(ctx, i) once for every i < n, on the pool's threads (never on the caller's, whose stack
 * may be small). Returns when all calls have ended. */
void pool_run(struct pool *p, void (*run)(void *ctx, uint32_t i), void *ctx, uint32_t n);

/* ---- host.c, peaks.c ------------------------------------------------------------------------- */

enum { CPU_THREADS_MAX = 1024 };
/* Returns the number of threads of a spec "cpu" or "cpu:<threads>", or ERROR_INVALID. */
int cpu_threads(const char *spec, struct error *err);
/* Fills everything but peaks and compiler; takes microseconds. */
int cpu_describe(const char *spec, struct device_info *out, struct error *err);
/* Measures peak_tflops (fp32 multiply-add; bf16 kernels compute in fp32) and peak_gbps (reads of 64
 * MiB), in about 60 ms. peak_gbps is the cache's rate where the last-level cache exceeds 64 MiB. */
void cpu_measure_peaks(struct device_info *info, struct pool *pool);
void cpu_model_name(char *out, size_t size);

/* ---- load.c ---------------------------------------------------------------------------------- */

struct cpu_module {
    void *dl;          /* owned: dlopen handle */
    struct pool *pool; /* borrowed: the device's pool, or the pool of all the backend's modules */
};
int cpu_module_open(const void *image, size_t size, struct cpu_module *m, struct error *err);
void cpu_module_close(struct cpu_module *m);
int cpu_module_launch(struct cpu_module *m, const struct launch *l, struct error *err);

/* ---- spawn.c --------------------------------------------------------------------------------- */

/* Runs argv[0] (an absolute path) with stdout and stderr into `log` (cut, terminated) and `tmp` as
 * TMPDIR (NULL: inherited). Kills the program and its children after limit_ms. *status is as from
 * waitpid. ERROR_HUNG at the limit, ERROR_CANCELLED by spawn_end(), ERROR_IO. */
int spawn_run(const char *const argv[], const char *tmp, int limit_ms, char *log, size_t log_size,
              int *status, const void *owner, struct error *err);
/* From another thread: kills this owner's running programs and their children. */
void spawn_end(const void *owner);

/* ---- scratch.c: folders that a C compiler works in ------------------------------------------- */

int scratch_make(char folder[PATH_MAX], struct error *err);
void scratch_remove(const char *folder);
/* Removes those of scratch_make's folders that our user owns and that are unchanged for `older_s`
 * seconds: killed processes left them. */
void scratch_sweep(int older_s);

/* ---- device.c, run.c, compiler.c ------------------------------------------------------------- */

struct cpu_device {
    struct device base; /* first member: its address is the struct's */
    struct pool *pool;  /* owned */
};

struct cpu_kernel {
    struct kernel base; /* first member: its address is the struct's */
    struct cpu_module module;
};

int cpu_fits(struct device *d, const struct family *f, const struct problem *p, struct error *err);
int cpu_prepare(struct device *d, const struct family *f, const struct problem *p, uint64_t seed,
                struct prepared **out, struct error *err);

/* The compiler's name and settings for device_info.compiler and stamps; "" without a compiler. */
void cpu_compiler_version(char *out, size_t size);
/* Checks for a compiler that may be run; err has the reason when there is none. Runs nothing. */
int cpu_compiler_find(struct error *err);

#endif
