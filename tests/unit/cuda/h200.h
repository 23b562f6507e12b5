/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU for tests without a GPU: an H200's own description, without its clock. */
#ifndef GEMMD_TESTS_UNIT_CUDA_H200_H
#define GEMMD_TESTS_UNIT_CUDA_H200_H

#include "proto/device.h"

#define H200_FIELDS                                                                                \
    .kind = "cuda", .name = "NVIDIA H200", .arch = "sm_90a", .sm_count = 132, .cc_major = 9,       \
    .smem_optin = 232448, .smem_per_sm = 233472, .regs_per_block = 65536, .warp_size = 32,         \
    .l2_bytes = 60 << 20, .peak_tflops = 788, .peak_gbps = 4300

#endif
