/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 5.6586,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 6.7841e+06,        /* multiplied, in the dense steady state */
    .load_us = 83445,              /* loaded by TMA from L2 while all SMs load */
    .gather_us = 1.3979e+05,       /* gathered by the producer's threads */
    .latency_us = 0.05,            /* of a load: what the stages must cover */
    .shared_us = 2.6167e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 40945,             /* output written by a warpgroup */
    .piece_us = 0.082215,          /* and for each 64 columns of it with one staging buffer */
    .tile_us = 0.25121,            /* between two tiles of a cooperative kernel */
    .exposed = 0.82344,            /* of the end of a cooperative tile: never hidden by loads */
    .turn_us = 0.30145,            /* between two tiles of a ping-pong kernel */
    .direct_store = 1.5761,        /* times as long: threads store, not TMA */
    .split_us = 3.4859,            /* between the blocks of threads that share sums, for each tile */
    .sums_us = 39604,              /* sums that a warpgroup writes for others, and reads */
    .drain_pingpong = 1.1418,      /* times as long: ping-pong multiplication, none in flight */
    .skip_flops = 1,               /* times as long: cooperative multiplication that may skip rows */
    .hbm = 0.97548,                /* of the device's peak_gbps */
    .hbm_write = 1.1981,           /* times as long: written bytes */
    .write_narrow = 0.020238,      /* more, with 128 columns instead of 256 */
    .starved = 0.035228,           /* more from memory, for each free stage fewer than 4 (forward) */
    .hbm_round = 0.11117,          /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.94318,           /* part of the last, uneven round that others feel */
    .cut_round = 2.5525,           /* tiles of unlike length: of what the longest has more */
    .swapped_narrow = 0.94188,     /* times as long: swapped tiles of 128 columns */
    .cut_share = 0.30367,          /* of what tiles cut short save, lost to SMs that get none of them */
    .dynamic_us = 2.1053,          /* dynamic tiles: another step of the launch */
    .dynamic_apart = 0.40938,      /* the same as apart with dynamic tiles */
    .apart = 0.22134,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.76322,            /* of L2: working sets of this size are read again each time */
    .uneven = 0.59201,             /* dW: deviations that the last SM is behind */
    .sorted = 0.99429,             /* dW: times as long, with the long tiles first */
    .copy_us = 4.2315e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 1.2143,       /* permute_copy: another launch */
};

#endif
