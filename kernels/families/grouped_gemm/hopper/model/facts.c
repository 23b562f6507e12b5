/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of a problem on a device for the analytic model of the target "hopper". They are counted
 * once, so that a config costs no walk over the experts.
 */
#include "kernels/families/grouped_gemm/hopper/model/model.h"

#include <math.h>
#include <stdlib.h>

#include "kernels/space.h"

/* The H200 for which constants.h was fitted. Other devices' SMs are as fast, relative to its SMs,
 * as their shares of the peak FLOP rate. */
static const double H200_SMS = 132, H200_TFLOPS = 788, H200_GBPS = 4300;
static const double H200_L2_BYTES = 60 << 20;

static void set_machine(struct hopper_facts *f, const struct device_info *info)
{
    f->sms = info->sm_count > 0 ? (double)info->sm_count : H200_SMS;
    f->speed = info->peak_tflops > 0 ? info->peak_tflops / f->sms / (H200_TFLOPS / H200_SMS) : 1;
    f->bytes_us = (info->peak_gbps > 0 ? info->peak_gbps : H200_GBPS) * 1e3;
    f->l2_bytes = info->l2_bytes > 0 ? (double)info->l2_bytes : H200_L2_BYTES;
}

static int by_size(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void count_tiles(struct hopper_facts *f, const int64_t rows[])
{
    for (int h = 0; h < HOPPER_HEIGHTS; h++) {
        const int64_t tile = 64 * (h + 1);
        for (int64_t e = 0; e < f->v.experts; e++) {
            f->height[h].whole += (double)(rows[e] / tile);
            f->height[h].cut[(rows[e] % tile + 15) / 16]++;
            f->height[h].beside += rows[e] > tile && rows[e] % tile > 0;
        }
        f->height[h].cut[0] = 0; /* experts without rows beyond whole tiles have no cut tile */
    }
}

/* Counts the tiles into which place_swapped() (hopper/scheduler.cu) divides experts' rows. Both
 * tiles of a pair count as the wider tile, for which the other waits. */
static void count_swapped(struct hopper_facts *f, int together, int grain, const int64_t rows[])
{
    const int64_t units = grain / 8;
    for (int h = 0; h < HOPPER_HEIGHTS * 4; h++) {
        double *count = f->swapped[together - 1][h];
        const int64_t most = HOPPER_GRAIN * (h + 1) * together;
        for (int64_t e = 0; e < f->v.experts; e++) {
            const int64_t tiles = (rows[e] + most - 1) / most * together;
            const int64_t grains = (rows[e] + grain - 1) / grain;
            if (tiles) {
                const int64_t each = grains / tiles,
                              more = (grains % tiles + together - 1) / together * together;
                count[each * units] += (double)(tiles - more);
                count[(each + (more > 0)) * units] += (double)more;
            }
        }
    }
}

/* Puts experts with about the same number of rows into a common bin. The expert with most rows has
 * a bin of its own, because all SMs may wait for it. `rows` is sorted. */
static void fill_bins(struct hopper_facts *f, const int64_t rows[])
{
    const int64_t first = f->v.experts - (int64_t)f->active, last = f->v.experts - 1;
    const double least = first <= last ? (double)rows[first] : 0;
    const double step = first <= last ? ((double)rows[last] - least) / (HOPPER_BINS - 1) : 0;
    int at = -1;
    for (int64_t e = first; e <= last; e++) {
        const double m = (double)rows[e];
        const int bin = step > 0 ? (int)((m - least) / step) : 0;
        if (bin != at || f->n_bins == 0) {
            f->n_bins++;
            at = bin;
        }
        f->bin[f->n_bins - 1].experts++;
        f->bin[f->n_bins - 1].rows += m;
    }
    for (uint32_t i = 0; i < f->n_bins; i++) {
        f->bin[i].rows /= f->bin[i].experts;
    }
}

void hopper_facts_init(struct hopper_facts *f, const struct problem *p,
                       const struct device_info *info, const struct workload *w)
{
    struct gemm v;
    int64_t rows[GEMM_EXPERTS_MAX];
    gemm_view(p, &v);
    if (w) {
        gemm_rows(&v, w, rows);
    } else {
        gemm_typical_rows(&v, rows);
    }
    hopper_facts_of(f, &v, info, rows);
}

void hopper_facts_of(struct hopper_facts *f, const struct gemm *v, const struct device_info *info,
                     int64_t rows[])
{
    *f = (struct hopper_facts){.v = *v};
    set_machine(f, info);
    f->v.routing = NULL;
    count_tiles(f, rows);
    count_swapped(f, 1, HOPPER_GRAIN, rows);
    count_swapped(f, 2, HOPPER_GRAIN_PAIRED, rows);
    qsort(rows, (size_t)f->v.experts, sizeof(rows[0]), by_size);
    for (int64_t e = 0; e < f->v.experts; e++) {
        f->active += rows[e] > 0;
    }
    fill_bins(f, rows);
}

const struct hopper_constants hopper_h200 = {
#define X(name, value, fp8, least, start, most, what) .name = value,
    HOPPER_CONSTANTS(X)
#undef X
};
const struct hopper_constants hopper_fp8_h200 = {
#define X(name, value, fp8, least, start, most, what) .name = fp8,
    HOPPER_CONSTANTS(X)
#undef X
};
const struct hopper_constants *hopper_fitted = &hopper_h200, *hopper_fp8_fitted = &hopper_fp8_h200;

double hopper_predict(const struct problem *p, const struct record *config,
                      const struct device_info *info, const struct workload *w)
{
    struct hopper_facts f;
    struct hopper_tile t;
    hopper_facts_init(&f, p, info, w);
    hopper_tile_make(&f.v, config, &t);
    const int unit = t.swap_ab ? HOPPER_GRAIN : 64;
    if (t.r < 64 || t.r > 64 * HOPPER_HEIGHTS || t.r % 64 || t.c < unit || t.c % unit ||
        t.c > 64 * HOPPER_HEIGHTS || t.height < HOPPER_GRAIN || t.stages < 1 || t.consumers < 1 ||
        t.group < 1) {
        return NAN; /* not a config of this target */
    }
    return hopper_expected(&f, &t);
}

/* Computes the problem's facts once; then predicting each config takes a microsecond. */
void hopper_predict_space(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[])
{
    struct hopper_facts f;
    hopper_facts_init(&f, p, info, w);
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        struct hopper_tile t;
        space_config(s, i, &config);
        hopper_tile_make(&f.v, &config, &t);
        us[i] = hopper_expected(&f, &t);
    }
}
