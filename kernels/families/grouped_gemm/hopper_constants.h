/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 11.304,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 7.0117e+06,        /* multiplied, in the dense steady state */
    .load_us = 80593,              /* loaded by TMA from L2 while all SMs load */
    .ask_us = 0.23495,             /* of a block, for the thread that asks TMA for its operands */
    .ask_dw_us = 0.46383,          /* the same in dW, where it counts rows */
    .gather_us = 1.3369e+05,       /* gathered by the producer's threads */
    .latency_us = 0.25817,         /* of a load: what the stages must cover */
    .shared_us = 2.5012e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 46718,             /* output written by a warpgroup */
    .piece_us = 0.081764,          /* and for each 64 columns of it with one staging buffer */
    .tile_us = 0.36826,            /* between two tiles of a cooperative kernel */
    .exposed = 0.70024,            /* of the end of a cooperative tile: never hidden by loads */
    .turn_us = 0.43752,            /* between two tiles of a ping-pong kernel */
    .direct_store = 1.6347,        /* times as long: threads store, not TMA */
    .drain_pingpong = 1.1247,      /* times as long: ping-pong multiplication, none in flight */
    .skip_flops = 1.0569,          /* times as long: cooperative multiplication that may skip rows */
    .hbm = 1.0019,                 /* of the device's peak_gbps */
    .hbm_write = 1.1535,           /* times as long: written bytes */
    .write_narrow = 0.028578,      /* more, with 128 columns instead of 256 */
    .starved = 0.030539,           /* more from memory, for each free stage fewer than 4 (forward) */
    .hbm_round = 0.3437,           /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.4934,            /* part of the last, uneven round that others feel */
    .cut_round = 0.34173,          /* tiles of unlike length: of what the longest has more */
    .cut_share = 0.93251,          /* of what tiles cut short save, lost to SMs that get none of them */
    .apart = 0.30776,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.56983,            /* of L2: working sets of this size are read again each time */
    .uneven = 4,                   /* dW: deviations that the last SM is behind */
    .sorted = 0.99714,             /* dW: times as long, with the long tiles first */
    .copy_us = 4.0139e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 1.1149,       /* permute_copy: another launch */
};

#endif
