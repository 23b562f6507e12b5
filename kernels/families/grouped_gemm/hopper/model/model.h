/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The analytic model of the target "hopper" in two steps: facts of a problem on a device, worked
 * out once, then the time of any tile, for less than a microsecond each.
 *
 *   facts.c           the facts, and predict()
 *   tile_time.c       the time of a tile, from facts and constants
 *   predict_space.c   predict_space()
 *   default.c         the analytic default
 *   corrections.c     what landscapes teach beside that; choices are not corrected by it
 *   constants.h       the constants, fitted to measurements by tests/model/refit.py
 *
 * What the routing does to a time is in the facts as counts, not as a list of experts: how many row
 * tiles of each height are whole, how many end after 16, 32, .. rows, and the experts by rows in a
 * few bins.
 */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_MODEL_H

#include "kernels/families/grouped_gemm/hopper/host/hopper.h"

/* Name; where a fit begins, between the least and the most that it may try; what it is. Rates are
 * those of one SM, in bytes or flops per microsecond, unless it says otherwise. */
#define HOPPER_CONSTANTS(X)                                                                        \
    X(setup_us, 2, 9, 25, "launch, scan of the experts, first loads, last stores")                 \
    X(flops_us, 5.5e6, 6.3e6, 7.5e6, "multiplied, in the dense steady state")                      \
    X(load_us, 60e3, 72e3, 95e3, "loaded by TMA from L2 while all SMs load")                       \
    X(shared_weights, 0.3, 0.6, 1,                                                                 \
      "of that load, as weights feel it that two thread blocks share")                             \
    X(gather_us, 20e3, 150e3, 600e3, "gathered by the producer's threads")                         \
    X(latency_us, 0.05, 0.8, 2.5, "of a load: what the stages must cover")                         \
    X(shared_us, 120e3, 225e3, 400e3, "moved in shared memory: by wgmma and by loads")             \
    X(store_us, 10e3, 60e3, 300e3, "output written by a warpgroup")                                \
    X(piece_us, 0, 0.1, 1, "and for each 64 columns of it with one staging buffer")                \
    X(tile_us, 0.05, 0.3, 2, "between two tiles of a cooperative kernel")                          \
    X(tile_sums, 0, 0.2, 2, "the same in dW")                                                      \
    X(exposed, 0, 0.3, 1, "of the end of a cooperative tile: never hidden by loads")               \
    X(staggered, 0, 0.5, 1, "of that end, staggered: the other half's sums do not hide it")        \
    X(deferred, 0, 0.5, 1,                                                                         \
      "of that end, deferred: what the next tile's sums do not hide of kept pieces")               \
    X(turn_us, 0, 0.1, 1, "between two tiles of a ping-pong kernel")                               \
    X(direct_store, 1, 1.5, 4, "times as long: threads store, not TMA")                            \
    X(alone, 0.2, 0.6, 1, "times as long: output of the one warpgroup that a tile has")            \
    X(split_us, 0.3, 1.6, 5, "between the blocks of threads that share sums, for each tile")       \
    X(sums_us, 10e3, 40e3, 300e3, "sums that a warpgroup writes for others, and reads")            \
    X(drain_pingpong, 1, 1.1, 1.3, "times as long: ping-pong multiplication, none in flight")      \
    X(drain_dx, 1, 1.05, 1.3, "the same in dX")                                                    \
    X(skip_flops, 1, 1.02, 1.1, "times as long: cooperative multiplication that may skip rows")    \
    X(skipping, 1, 1.01, 1.06, "times as long: a launch that may skip rows")                       \
    X(skip_sums, 1, 1.015, 1.06, "the same in dW")                                                 \
    X(hbm, 0.8, 0.97, 1, "of the device's peak_gbps")                                              \
    X(hbm_write, 0.8, 1.2, 1.6, "times as long: written bytes")                                    \
    X(write_narrow, 0, 0.05, 0.3, "more, with 128 columns instead of 256")                         \
    X(narrow_sums, -0.05, 0.01, 0.3, "the same in dW")                                             \
    X(write_direct, 1, 1.02, 1.3, "dW: times as long, written by threads instead of TMA")          \
    X(write_wide, 0.8, 0.95, 1, "dW: times as long, written by two slabs")                         \
    X(starved, 0, 0.02, 0.1, "more from memory, for each free stage fewer than 4 (forward)")       \
    X(starved_dx, 0, 0.02, 0.1, "the same in dX")                                                  \
    X(starved_turns, 0, 0.01, 0.1, "and in both so much more in ping-pong")                        \
    X(hbm_round, 0, 0.3, 1, "part of the last, uneven round that memory-bound launches feel")      \
    X(sm_round, 0.2, 0.8, 1, "part of the last, uneven round that others feel")                    \
    X(cut_round, 0, 0.5, 3, "tiles of unlike length: of what the longest has more")                \
    X(swapped_narrow, 0.8, 0.95, 1.1, "times as long: swapped tiles of 128 columns in turn")       \
    X(narrow_dynamic, 0.8, 0.98, 1.1, "the same, dynamic and cooperative")                         \
    X(cut_share, 0, 0.3, 1, "of what tiles cut short save, lost to SMs that get none of them")     \
    X(dynamic_us, 0, 3, 8, "dynamic tiles: another step of the launch")                            \
    X(dynamic_apart, 0, 1, 4, "the same as apart with dynamic tiles")                              \
    X(apart, 0, 1, 4, "times: operands of tiles that run apart, read again")                       \
    X(l2_part, 0.2, 0.6, 2, "of L2: working sets of this size are read again each time")           \
    X(uneven, 0, 2, 6, "dW: deviations that the last SM is behind")                                \
    X(loaders, 0.9, 0.98, 1, "dW: times as long, with load_warps above 1 and nothing gathered")    \
    X(ahead, 0.9, 0.98, 1, "dW: times as long, with l2_ahead")                                     \
    X(thirds, 0, 0.02, 0.1, "dX: of the time, more with 192 columns")                              \
    X(sorted, 0.95, 1.01, 1.1, "dW: times as long, with the long tiles first")                     \
    X(copy_us, 1.5e6, 4.5e6, 6e6, "permute_copy, bytes read and written by the device")            \
    X(copy_setup_us, 0, 2, 8, "permute_copy: another launch (by token two)")

struct hopper_constants {
#define X(name, least, start, most, what) double name;
    HOPPER_CONSTANTS(X)
#undef X
};
extern const struct hopper_constants hopper_h200; /* hopper/model/constants.h */
/* Those that predictions are made with: hopper_h200, but for tests of other fits. */
extern const struct hopper_constants *hopper_fitted;

enum { HOPPER_BINS = 8, HOPPER_HEIGHTS = 4 /* 64, 128, 192, 256 rows */ };

struct hopper_facts {
    struct grouped_gemm_problem v; /* v.routing is not kept */
    double sms, speed;             /* speed: of an SM, in those of the H200 */
    double bytes_us, l2_bytes;
    double active; /* experts with rows */
    struct {
        double whole, cut[HOPPER_HEIGHTS * 4 + 1]; /* cut[i]: tiles that end after 16 i rows */
        double beside; /* of the cut ones, below whole ones of the same expert */
    } height[HOPPER_HEIGHTS];
    /* swap_ab, tiles of up to 16, 32, .. rows: [i]: those of 8 i rows, rounded up. [1]: two at a
     * time, for a cluster */
    double swapped[2][HOPPER_HEIGHTS * 4][HOPPER_HEIGHTS * 8 + 1];
    uint32_t n_bins;
    struct {
        double experts, rows; /* rows: of each */
    } bin[HOPPER_BINS];       /* by rows, the longest last; those without rows are not in here */
};

/* `w` NULL: rows as expected, spread as draws are. */
void hopper_facts_init(struct hopper_facts *f, const struct problem *p,
                       const struct device_info *info, const struct workload *w);
/* Microseconds. */
double hopper_time(const struct hopper_facts *f, const struct hopper_tile *t,
                   const struct hopper_constants *c);

void hopper_predict_space(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[]);

#endif
