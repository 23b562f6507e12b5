/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 10.48,             /* launch, scan of the experts, first loads, last stores */
    .flops_us = 6.958e+06,         /* multiplied, in the dense steady state */
    .load_us = 80502,              /* loaded by TMA from L2 while all SMs load */
    .ask_us = 0.30054,             /* dW: of a block, for the thread that asks TMA for its many boxes */
    .gather_us = 1.4093e+05,       /* gathered by the producer's threads */
    .latency_us = 0.23693,         /* of a load: what the stages must cover */
    .shared_us = 2.7141e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 40806,             /* output written by a warpgroup */
    .piece_us = 0.13299,           /* and for each 64 columns of it with one staging buffer */
    .tile_us = 0.24343,            /* between two tiles of a cooperative kernel */
    .exposed = 0.60819,            /* of the end of a cooperative tile: never hidden by loads */
    .turn_us = 0.34219,            /* between two tiles of a ping-pong kernel */
    .direct_store = 2.3459,        /* times as long: threads store, not TMA */
    .drain_pingpong = 1.1495,      /* times as long: ping-pong multiplication, none in flight */
    .skip_flops = 1.0347,          /* times as long: cooperative multiplication that may skip rows */
    .hbm = 1,                      /* of the device's peak_gbps */
    .hbm_write = 1.173,            /* times as long: written bytes */
    .write_narrow = 0.01939,       /* more, with 128 columns instead of 256 */
    .starved = 0.036683,           /* more from memory, for each free stage fewer than 4 (forward) */
    .hbm_round = 0.26794,          /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.47596,           /* part of the last, uneven round that others feel */
    .cut_round = 2.3021,           /* tiles of unlike length: of what the longest has more */
    .cut_share = 0.37551,          /* of what tiles cut short save, lost to SMs that get none of them */
    .dynamic_us = 3.2816,          /* dynamic tiles: another step of the launch */
    .dynamic_apart = 0.38257,      /* the same as apart with dynamic tiles */
    .apart = 0.26814,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.66589,            /* of L2: working sets of this size are read again each time */
    .uneven = 6,                   /* dW: deviations that the last SM is behind */
    .sorted = 1.0087,              /* dW: times as long, with the long tiles first */
    .copy_us = 4.3182e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 1.6639,       /* permute_copy: another launch */
};

#endif
