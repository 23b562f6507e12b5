/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/trust.h"
#include "runner/base/stats.h"
#include "runner/compile/apart.h"
#include "runner/landscape/recorder.h"

enum { PREPARE_S = 120, SPARE_CORES = 2, TURN = 8 };
static const double GAP_LEAST_MS = 0.3, GAP_MOST_MS = 2, WARM_UP_MS = 500, AGREE = 0.005;

/* An idle device is slow until its clocks have risen: launches the reference in series until the
 * medians of two series agree. */
static int landscape_warm_up(struct landscape_recorder *s, struct error *err)
{
    const double began_ms = landscape_clock(s);
    double before_us = NAN;
    int r = 0;
    for (bool agree = false; r == 0 && !agree && landscape_clock(s) - began_ms < WARM_UP_MS;) {
        double us[TURN];
        uint32_t n = 0;
        r = landscape_time(s, s->yardstick, &s->reference, 0, TURN, 0, us, &n, err);
        double turn_us = r ? NAN : stats_median(us, n);
        agree = fabs(turn_us - before_us) <= AGREE * turn_us;
        before_us = turn_us;
    }
    return r;
}

/* Loads the reference kernel for the whole run and measures its time. The gap is as long as a
 * launch, so that the device idles half of the time and does not reach its power limit. */
static int open_yardstick(struct landscape_recorder *s, struct error *err)
{
    struct landscape_item it;
    struct rejection why;
    double us[SAMPLES_MAX];
    uint32_t n = 0;
    int r = landscape_want(s, NULL, &it, err);
    if (r) {
        return r;
    }
    r = landscape_load_item(s, &it, &s->yardstick, &why, err);
    if (r) {
        error_prefix(err, "the reference");
    }
    compile_pool_release(s->pool, it.build);
    r = r ? r : landscape_warm_up(s, err);
    r = r ? r : landscape_time(s, s->yardstick, &s->reference, 3, 15, 0, us, &n, err);
    s->reference_us = r ? NAN : stats_median(us, n);
    if (strcmp(s->device->info.kind, "cuda") == 0) {
        s->gap_ms = fmin(fmax(s->reference_us / 1e3, GAP_LEAST_MS), GAP_MOST_MS);
    }
    return r;
}

/* ---- the mode -------------------------------------------------------------------------------- */

static int find_problem(struct landscape_recorder *s, struct error *err)
{
    int r = problem_parse(&s->problem, s->order->problem, err);
    s->family = r ? NULL : family_of_problem(&s->problem);
    return r ? r
             : family_target_choose(s->family, &s->problem, &s->device->info, s->mode->target,
                                    &s->target, err);
}

static int open_all(struct landscape_recorder *s, struct error *err)
{
    const struct mode_order *o = s->mode;
    int r = mode_find_cache(o->cache_dir, s->cache_dir, err);
    r = r ? r : device_open(o->device, &s->device, err);
    r = r ? r : apart_open(o->device, &s->compiler, err);
    if (r) {
        return r;
    }
    const unsigned threads = mode_count_threads(o->threads);
    const bool spare = o->threads == 0 && threads > 2 * SPARE_CORES;
    s->threads = spare ? threads - SPARE_CORES : threads;
    const struct compile_pool_setup setup = {
        .compiler = s->compiler, .cache_dir = s->cache_dir, .threads = s->threads};
    r = compile_pool_new(&setup, &s->pool, err);
    r = r ? r : find_problem(s, err);
    if (r) {
        return r;
    }
    s->helpers = (struct helpers){.device = s->device,
                                  .compiler = s->compiler,
                                  .pool = s->pool,
                                  .wait = landscape_wait,
                                  .ctx = s};
    helpers_init(&s->helpers);
    return helpers_want(&s->helpers, s->target, err);
}

/* Opens and locks the unfinished file (".part"), so that two recordings cannot write into the same
 * file. Returns the descriptor. When another recording, which had the lock, has just renamed the
 * file to its final name, creates a new file. */
static int lock_part(const char *part, struct error *err)
{
    struct stat locked, named;
    for (;;) {
        int fd, r = trust_open(part, O_WRONLY | O_CREAT, 0644, &fd, err);
        if (r < 0) {
            return error_prefix(err, "cannot write");
        }
        if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            r = errno == EWOULDBLOCK
                    ? error_set(err, ERROR_BUSY,
                                "another recording is writing %s: wait for its end, or record "
                                "into another file",
                                part)
                    : error_set(err, ERROR_IO, "cannot lock %s: %s", part, strerror(errno));
            close(fd);
            return r;
        }
        if (fstat(fd, &locked) == 0 && stat(part, &named) == 0 && named.st_dev == locked.st_dev &&
            named.st_ino == locked.st_ino) {
            return fd;
        }
        close(fd);
    }
}

static int open_file(struct landscape_recorder *s, const char *part, struct error *err)
{
    struct stat st;
    if (stat(s->order->path, &st) == 0 &&
        !S_ISREG(st.st_mode)) { /* fail before anything is measured */
        return error_set(err, ERROR_INVALID, "cannot write %s: it is %s, not a file",
                         s->order->path, S_ISDIR(st.st_mode) ? "a folder" : "a device or a pipe");
    }
    int fd = lock_part(part, err);
    if (fd < 0) {
        return fd;
    }
    mode_scrap_file(part);
    s->file = ftruncate(fd, 0) == 0 ? fdopen(fd, "w") : NULL;
    return s->file ? 0 : error_set(err, ERROR_IO, "cannot write %s: %s", part, strerror(errno));
}

/* The file stays open, and so locked, until it has its final name. */
static int close_file(struct landscape_recorder *s, const char *part, struct error *err)
{
    if (fflush(s->file) != 0 || ferror(s->file) || fsync(fileno(s->file)) != 0 ||
        rename(part, s->order->path) != 0) {
        return error_set(err, ERROR_IO, "cannot write %s: %s", s->order->path, strerror(errno));
    }
    mode_scrap_file(NULL);
    fclose(s->file);
    s->file = NULL;
    return 0;
}

/* Runs the walk and the finals, which write their lines to the open file. */
static int landscape_measure_all(struct landscape_recorder *s, struct error *err)
{
    int r = landscape_write_header(s, err);
    s->began_ms = landscape_clock(s);
    s->best_us = INFINITY;
    mode_begin_line(&s->line, s->mode->quiet, s->began_ms);
    r = r ? r : landscape_walk(s, err);
    r = r ? r : landscape_finals(s, err);
    return r ? r : landscape_write_end(s, err);
}

static int landscape_all(struct landscape_recorder *s, struct error *err)
{
    static char part[PATHS_MAX]; /* static: a signal handler may use the name at any time */
    snprintf(part, sizeof(part), "%s.part", s->order->path);
    int r = open_all(s, err);
    r = r ? r : landscape_plan(s, err);
    /* the file is opened last, so that an invalid order leaves no file behind */
    r = r ? r : open_file(s, part, err);
    alarm(PREPARE_S);
    r = r ? r
          : s->device->ops->prepare(s->device, s->family, &s->problem, LANDSCAPE_SEED, &s->prepared,
                                    err);
    r = r ? r : open_yardstick(s, err);
    alarm(0);
    r = r ? r : landscape_measure_all(s, err);
    r = r ? r : close_file(s, part, err);
    if (r) {
        mode_remove_scrap();
    }
    return r;
}

static void landscape_print_summary(const struct landscape_recorder *s)
{
    const double seconds = (landscape_clock(s) - s->began_ms) / 1e3;
    char best[32] = "null";
    if (isfinite(s->best_us)) {
        snprintf(best, sizeof(best), "%.4f", s->best_us);
    }
    if (s->mode->json) {
        printf("{\"points\": %u, \"space\": %u, \"variants\": %u, \"space_variants\": %u, "
               "\"failed\": %u, \"best_us\": %s, \"reference_us\": %.4f, \"seconds\": %.3f}\n",
               s->points, s->space.n, s->done, s->n_variants, s->failed, best, s->reference_us,
               seconds);
        return;
    }
    printf("%s: %u points of %u in %u of %u variants, %u failed, best %.1f us, "
           "reference %.1f us, %.1f s\n",
           s->order->path, s->points, s->space.n, s->done, s->n_variants, s->failed, s->best_us,
           s->reference_us, seconds);
}

int landscape_run(const struct mode_order *mode, const struct landscape_order *o)
{
    static struct landscape_recorder s; /* the process records only one landscape */
    struct error err = ERROR_NULL;
    s.mode = mode;
    s.order = o;
    mode_watch_signals();
    int r = landscape_all(&s, &err);
    mode_end_line(&s.line);
    if (r) {
        mode_print_error(&err, mode->json);
    } else {
        landscape_print_summary(&s);
    }
    bool said = mode_flush_output();
    apart_quit();
    /* ends by _exit as in serve.c, because threads may be lost in a compiler */
    _exit(r || !said ? 1 : 0);
}
