/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 10.605,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 6.8698e+06,        /* multiplied, in the dense steady state */
    .load_us = 80442,              /* loaded by TMA from L2 while all SMs load */
    .gather_us = 1.4496e+05,       /* gathered by the producer's threads */
    .latency_us = 0.083438,        /* of a load: what the stages must cover */
    .shared_us = 2.6813e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 40015,             /* output written by a warpgroup */
    .piece_us = 0.092799,          /* and for each 64 columns of it with one staging buffer */
    .tile_us = 0.13281,            /* between two tiles of a cooperative kernel */
    .exposed = 0.78307,            /* of the end of a cooperative tile: never hidden by loads */
    .turn_us = 0.23561,            /* between two tiles of a ping-pong kernel */
    .direct_store = 1.7559,        /* times as long: threads store, not TMA */
    .split_us = 1.6,               /* between the blocks of threads that share sums, for each tile */
    .sums_us = 40000,              /* sums that a warpgroup writes for others, and reads */
    .drain_pingpong = 1.1464,      /* times as long: ping-pong multiplication, none in flight */
    .skip_flops = 1.0084,          /* times as long: cooperative multiplication that may skip rows */
    .hbm = 1,                      /* of the device's peak_gbps */
    .hbm_write = 1.1867,           /* times as long: written bytes */
    .write_narrow = 0.022083,      /* more, with 128 columns instead of 256 */
    .starved = 0.034587,           /* more from memory, for each free stage fewer than 4 (forward) */
    .hbm_round = 0.28488,          /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.42662,           /* part of the last, uneven round that others feel */
    .cut_round = 2.6309,           /* tiles of unlike length: of what the longest has more */
    .cut_share = 0.23226,          /* of what tiles cut short save, lost to SMs that get none of them */
    .dynamic_us = 3.1107,          /* dynamic tiles: another step of the launch */
    .dynamic_apart = 0.42675,      /* the same as apart with dynamic tiles */
    .apart = 0.37758,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.76104,            /* of L2: working sets of this size are read again each time */
    .uneven = 1.1957,              /* dW: deviations that the last SM is behind */
    .sorted = 1.0023,              /* dW: times as long, with the long tiles first */
    .copy_us = 4.4093e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 1.1931,       /* permute_copy: another launch */
};

#endif
