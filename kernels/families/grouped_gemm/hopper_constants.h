/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 10.867,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 7.1341e+06,        /* multiplied, in the dense steady state */
    .load_us = 86865,              /* loaded by TMA from L2 while all SMs load */
    .ask_us = 0.21534,             /* of a block, for the thread that asks TMA for its operands */
    .ask_dw_us = 0.43047,          /* the same in dW, where it counts rows */
    .gather_us = 1.6684e+05,       /* gathered by the producer's threads */
    .latency_us = 0.1,             /* of a load: what the stages must cover */
    .gather_latency_us = 1.0213,   /* of gathering */
    .overlap = 0.25461,            /* part of the lesser of multiplying and loading that is not hidden */
    .shared_us = 2.4506e+05,       /* moved in shared memory: by wgmma and by loads */
    .store_us = 2.0105e+05,        /* output written by a warpgroup */
    .tile_us = 0.60735,            /* between two tiles of a cooperative kernel */
    .turn_us = 0.25648,            /* between two tiles of a ping-pong kernel */
    .direct_store = 2.6591,        /* times as long: threads store, not TMA */
    .drain_pingpong = 1.1049,      /* times as long: ping-pong multiplication, none in flight */
    .single_flops = 1.0553,        /* times as long: one multiplying warpgroup */
    .hbm = 1.0002,                 /* of the device's peak_gbps */
    .hbm_write = 1.1894,           /* times as long: written bytes */
    .write_narrow = 0.04363,       /* more, with 128 columns instead of 256 */
    .hbm_round = 0.4765,           /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.47257,           /* part of the last, uneven round that others feel */
    .cut_round = 0.92168,          /* tiles of unlike length: of what the longest has more */
    .cut_share = 1,                /* of what tiles cut short save, lost to SMs that get none of them */
    .apart = 0.37048,              /* times: operands of tiles that run apart, read again */
    .l2_part = 0.25866,            /* of L2: working sets of this size are read again each time */
    .uneven = 4,                   /* dW: of the longest tile, at the end */
    .uneven_sorted = 4,            /* dW: the same with the long tiles first */
    .copy_us = 4.4166e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 1.3616,       /* permute_copy: another launch */
};

#endif
