/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not this. */
#ifndef GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_HOPPER_CONSTANTS_H

#include "kernels/families/grouped_gemm/hopper_model.h"

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper_model.c). */
const struct hopper_constants hopper_h200 = {
    .setup_us = 10.674,            /* launch, scan of the experts, first loads, last stores */
    .flops_us = 7.3854e+06,        /* multiplied, in the dense steady state */
    .load_us = 80358,              /* loaded by TMA from L2 while all SMs load */
    .gather_us = 1.8398e+05,       /* gathered by the producer's threads */
    .latency_us = 0.74182,         /* of a load: what the stages must cover */
    .gather_latency_us = 1.1713,   /* of gathering */
    .overlap = 0.22025,            /* part of the lesser of multiplying and loading that is not hidden */
    .shared_us = 2.285e+05,        /* moved in shared memory: by wgmma and by loads */
    .store_us = 80000,             /* output written by a warpgroup */
    .piece_us = 0.039926,          /* and for each 64 columns of it */
    .tile_us = 0.05,               /* between two tiles of a cooperative kernel */
    .turn_us = 0,                  /* between two tiles of a ping-pong kernel */
    .direct_store = 1.803,         /* times as long: threads store, not TMA */
    .one_buffer = 1,               /* times as long: cooperative stores with one staging buffer */
    .drain = 1.0438,               /* times as long: cooperative multiplication, none in flight */
    .drain_pingpong = 1.1524,      /* times as long: ping-pong multiplication, none in flight */
    .dx_flops = 1,                 /* times as long: dX, whose B is transposed */
    .dx_flops_192 = 1,             /* times as long: dX with 192 columns */
    .dw_flops = 1.0826,            /* times as long: dW, whose operands both are */
    .single_flops = 1.3714,        /* times as long: one multiplying warpgroup */
    .hbm = 0.99753,                /* of the device's peak_gbps */
    .hbm_write = 1.1962,           /* times as long: written bytes */
    .write_narrow = 0.059322,      /* more, with 128 columns instead of 256 */
    .hbm_round = 0.2255,           /* part of the last, uneven round that memory-bound launches feel */
    .sm_round = 0.796,             /* part of the last, uneven round that others feel */
    .cut_round = 0.042141,         /* rounds among tiles of unlike length: of what the longest has more */
    .together = 3.2609,            /* exponent of the norm that joins SM and memory time */
    .l2_low = 0.32912,             /* of L2: working sets below are read from memory once */
    .l2_high = 0.6,                /* of L2: working sets above are read again each time */
    .uneven = 0,                   /* dW: of the longest tile, at the end */
    .uneven_sorted = 0,            /* dW: the same with the long tiles first */
    .copy_us = 4.7063e+06,         /* permute_copy, bytes read and written by the device */
    .copy_setup_us = 0,            /* permute_copy: another launch */
    .fill_us = 1.3486e+05,         /* rows that do not exist, when they are asked for */
};

#endif
