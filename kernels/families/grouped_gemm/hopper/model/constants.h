/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper/model/model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper/model/facts.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 4.8479,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 6.8037e+06,        /* multiplied, in the dense steady state */
    .load_us = 83372,              /* loaded by TMA from L2 while all SMs load */
    .shared_weights = 0.38115,     /* of that load, as weights feel it that two thread blocks share */
    .gather_us = 1.4246e+05,       /* gathered by the producer's threads */
    .latency_us = 0.05,            /* of a load: what the stages must cover */
    .shared_us = 2.6246e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 41027,             /* output written by a warpgroup */
    .piece_us = 0.08378,           /* and for each 64 columns of it with one staging buffer */
    .tile_us = 0.22245,            /* between two tiles of a cooperative kernel */
    .tile_sums = 0.14188,          /* the same in dW */
    .exposed = 0.81795,            /* of the end of a cooperative tile: never hidden by loads */
    .staggered = 0.64424,          /* of that end, staggered: the other half's sums do not hide it */
    .deferred = 0.48947,           /* of that end, deferred: what the next tile's sums do not hide of kept pieces */
    .turn_us = 0.2873,             /* between two tiles of a ping-pong kernel */
    .direct_store = 1.5083,        /* times as long: threads store, not TMA */
    .alone = 0.62444,              /* times as long: output of the one warpgroup that a tile has */
    .split_us = 1.3446,            /* between the blocks of threads that share sums, for each tile */
    .sums_us = 13096,              /* sums that a warpgroup writes for others, and reads */
    .drain_pingpong = 1.1411,      /* times as long: ping-pong multiplication, none in flight */
    .drain_dx = 1.1698,            /* the same in dX */
    .skip_flops = 1,               /* times as long: cooperative multiplication that may skip rows */
    .skipping = 1.0007,            /* times as long: a launch that may skip rows */
    .skip_sums = 1.0125,           /* the same in dW */
    .hbm = 0.97567,                /* of the device's peak_gbps */
    .hbm_write = 1.1909,           /* times as long: written bytes */
    .write_narrow = 0.019558,      /* more, with 128 columns instead of 256 */
    .narrow_sums = 0.0028963,      /* the same in dW */
    .write_direct = 1.0068,        /* dW: times as long, written by threads instead of TMA */
    .write_wide = 0.83419,         /* dW: times as long, written by two slabs */
    .starved = 0.035774,           /* more from memory, for each free stage fewer than 4 (forward) */
    .starved_dx = 0.013722,        /* the same in dX */
    .starved_turns = 0,            /* and in both so much more in ping-pong */
    .hbm_round = 0.10936,          /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.96129,           /* part of the last, uneven round that others feel */
    .cut_round = 2.1629,           /* tiles of unlike length: of what the longest has more */
    .swapped_narrow = 0.92948,     /* times as long: swapped tiles of 128 columns in turn */
    .narrow_dynamic = 0.9677,      /* the same, dynamic and cooperative */
    .cut_share = 0.43958,          /* of what tiles cut short save, lost to SMs that get none of them */
    .dynamic_us = 2.0915,          /* dynamic tiles: another step of the launch */
    .dynamic_apart = 0.42609,      /* the same as apart with dynamic tiles */
    .apart = 0.17525,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.77622,            /* of L2: working sets of this size are read again each time */
    .uneven = 6,                   /* dW: deviations that the last SM is behind */
    .loaders = 0.97996,            /* dW: times as long, with load_warps above 1 and nothing gathered */
    .ahead = 0.95632,              /* dW: times as long, with l2_ahead */
    .thirds = 0.0084813,           /* dX: of the time, more with 192 columns */
    .sorted = 0.97364,             /* dW: times as long, with the long tiles first */
    .copy_us = 4.1963e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 3.1171,       /* permute_copy: another launch (by token two) */
};

#endif
