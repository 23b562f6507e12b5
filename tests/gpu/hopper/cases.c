/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/cases.h"

#include <stdio.h>
#include <string.h>

#include "tests/gpu/hopper/watch.h"
#include "tests/unit/cuda/h200.h"

const struct device_info h200 = {H200_FIELDS};

/* ---- the first set's tiles: configs chosen by hand, and variations of these */

const struct tile tiles[] = {
    {"128x192 pp s4 nb2", 128, 192, 12, true, 4, 2, 1},
    {"128x192 pp s4 nb1", 128, 192, 12, true, 4, 1, 1},
    {"128x256 c2 s4 nb2", 128, 256, 12, false, 4, 2, 1},
    {"128x256 c2 s4 nb2 f0", 128, 256, 12, false, 4, 2, 0},
    {"128x256 c2 s3 nb4", 128, 256, 12, false, 3, 4, 1},
    {"256x192 c2 s3 nb1", 256, 192, 12, false, 3, 1, 1},
    {"256x128 c2 s4 nb1", 256, 128, 12, false, 4, 1, 1},
    {"192x128 pp s4 nb1", 192, 128, 12, true, 4, 1, 1},
    {"128x128 pp s5 nb2", 128, 128, 12, true, 5, 2, 1},
    {"128x128 c2 s6 nb2", 128, 128, 12, false, 6, 2, 1},
    {"64x256 pp s4 nb2", 64, 256, 12, true, 4, 2, 1},
    {"64x192 pp s5 nb2", 64, 192, 12, true, 5, 2, 1},
    {"64x256 c1 s5 nb1", 64, 256, 8, false, 5, 1, 1},
    {"64x128 c1 s8 nb2", 64, 128, 8, false, 8, 2, 1},
    {"64x64 c1 s8 nb1", 64, 64, 8, false, 8, 1, 1},
    {"128x192 pp s4 nb1 f0", 128, 192, 12, true, 4, 1, 0},
    {"128x192 pp s4 nb1 skip", 128, 192, 12, true, 4, 1, 1, true},
    {"256x128 c2 s4 nb1 skip", 256, 128, 12, false, 4, 1, 1, true},
    {"128x128 pp s5 nb2 skip", 128, 128, 12, true, 5, 2, 1, true},
    {"128x256 c2 s4 nb2 dyn", 128, 256, 12, false, 4, 2, 1, .dynamic = true},
    {"128x256 c2 s4 nb2 skip dyn", 128, 256, 12, false, 4, 2, 1, true, .dynamic = true},
    {"128x256 c2 s4 nb2 f0 skip dyn", 128, 256, 12, false, 4, 2, 0, true, .dynamic = true},
    {"256x192 c2 s3 nb1 dyn", 256, 192, 12, false, 3, 1, 1, .dynamic = true},
    {"256x192 c2 s3 nb1 skip dyn", 256, 192, 12, false, 3, 1, 1, true, .dynamic = true},
    {"256x192 c2 s3 nb1 f0", 256, 192, 12, false, 3, 1, 0},
    {"256x192 c2 s3 nb1 f0 skip dyn", 256, 192, 12, false, 3, 1, 0, true, .dynamic = true},
    {"192x128 pp s4 nb1 skip dyn", 192, 128, 12, true, 4, 1, 1, true, .dynamic = true},
    {"128x192 pp s4 nb1 dyn", 128, 192, 12, true, 4, 1, 1, .dynamic = true},
    {"128x192 pp s4 nb1 skip dyn", 128, 192, 12, true, 4, 1, 1, true, .dynamic = true},
    {"256x128 c2 s4 nb1 skip dyn", 256, 128, 12, false, 4, 1, 1, true, .dynamic = true},
    {"64x256 pp s4 nb2 dyn", 64, 256, 12, true, 4, 2, 1, .dynamic = true},
    {"128x256 c2 s4 nb2 skip", 128, 256, 12, false, 4, 2, 1, true},
    {"128x128 c2 s6 nb2 skip", 128, 128, 12, false, 6, 2, 1, true},
    {"64x64 c1 s8 k2", 64, 64, 8, false, 8, 1, 1, .ksplit = 2},
    {"64x64 c1 s8 k4", 64, 64, 8, false, 8, 1, 1, .ksplit = 4},
    {"64x64 c1 s8 k8", 64, 64, 8, false, 8, 1, 1, .ksplit = 8},
    {"64x64 c1 s5 k2", 64, 64, 8, false, 5, 1, 1, .ksplit = 2},
    {"64x64 c1 s4 k4", 64, 64, 8, false, 4, 1, 1, .ksplit = 4},
    {"64x64 c1 s4 k8", 64, 64, 8, false, 4, 1, 1, .ksplit = 8},
    {"64x128 c1 s6 k2", 64, 128, 8, false, 6, 1, 1, .ksplit = 2},
    {"64x128 c1 s3 k4", 64, 128, 8, false, 3, 1, 1, .ksplit = 4},
    {"128x64 c2 s6 k2", 128, 64, 12, false, 6, 1, 1, .ksplit = 2},
    {"128x64 c2 s4 k4", 128, 64, 12, false, 4, 1, 1, .ksplit = 4},
    {"128x128 c2 s4 k4", 128, 128, 12, false, 4, 1, 1, .ksplit = 4},
    {"128x64 c2 s8 nb1", 128, 64, 12, false, 8, 1, 1},
    {"64x128 c1 s6 k4", 64, 128, 8, false, 6, 1, 1, .ksplit = 4},
    {"128x128 c2 s4 k2", 128, 128, 12, false, 4, 1, 1, .ksplit = 2},
    {"160x256 c2 s4 nb1 swap", 160, 256, 12, false, 4, 1, 1, .swap = true},
    {"160x256 c2 s4 nb1 f0 swap", 160, 256, 12, false, 4, 1, 0, .swap = true},
    {"160x256 c2 s4 nb1 swap dyn", 160, 256, 12, false, 4, 1, 1, .swap = true, .dynamic = true},
    {"160x256 c2 s3 nb4 swap", 160, 256, 12, false, 3, 4, 1, .swap = true},
    {"192x256 c2 s3 nb2 swap", 192, 256, 12, false, 3, 2, 1, .swap = true},
    {"192x256 c2 s3 nb2 f0 swap dyn", 192, 256, 12, false, 3, 2, 0, .swap = true, .dynamic = true},
    {"192x256 c2 s3 nb2 swap dyn", 192, 256, 12, false, 3, 2, 1, .swap = true, .dynamic = true},
    {"256x128 c2 s4 nb2 swap", 256, 128, 12, false, 4, 2, 1, .swap = true},
    {"256x128 c2 s4 nb2 f0 swap", 256, 128, 12, false, 4, 2, 0, .swap = true},
    {"256x128 c2 s4 nb2 swap dyn", 256, 128, 12, false, 4, 2, 1, .swap = true, .dynamic = true},
    {"128x256 c2 s4 nb2 swap", 128, 256, 12, false, 4, 2, 1, .swap = true},
    {"192x128 pp s4 nb2 swap", 192, 128, 12, true, 4, 2, 1, .swap = true},
    {"192x128 pp s5 nb1 swap", 192, 128, 12, true, 5, 1, 1, .swap = true},
    {"192x128 pp s4 nb2 swap dyn", 192, 128, 12, true, 4, 2, 1, .swap = true, .dynamic = true},
    {"160x128 pp s5 nb1 swap", 160, 128, 12, true, 5, 1, 1, .swap = true},
    {"160x128 pp s5 nb2 swap", 160, 128, 12, true, 5, 2, 1, .swap = true},
    {"96x256 c2 s4 nb2 swap", 96, 256, 12, false, 4, 2, 1, .swap = true},
    {"96x192 pp s4 nb2 swap", 96, 192, 12, true, 4, 2, 1, .swap = true},
    {"64x256 c2 s5 nb1 swap", 64, 256, 12, false, 5, 1, 1, .swap = true},
    {"64x128 c1 s8 nb2 swap", 64, 128, 8, false, 8, 2, 1, .swap = true},
    {"32x256 c2 s6 nb1 swap", 32, 256, 12, false, 6, 1, 1, .swap = true},
    {"32x128 c1 s8 nb2 swap", 32, 128, 8, false, 8, 2, 1, .swap = true},
    {"64x64 c1 s8 nb1 a8", 64, 64, 8, false, 8, 1, 1, .ahead = 8},
    {"64x64 c1 s12 nb1", 64, 64, 8, false, 12, 1, 1},
    {"64x64 c1 s12 nb1 a4", 64, 64, 8, false, 12, 1, 1, .ahead = 4},
    {"64x128 c1 s8 nb2 a8", 64, 128, 8, false, 8, 2, 1, .ahead = 8},
    {"128x128 c2 s6 nb2 a10", 128, 128, 12, false, 6, 2, 1, .ahead = 10},
    {"32x64 c1 s16 nb1 swap", 32, 64, 8, false, 16, 1, 1, .swap = true},
    {"64x64 c1 s12 nb1 swap a4", 64, 64, 8, false, 12, 1, 1, .swap = true, .ahead = 4},
    {"192x128 pp s4 nb1 a8", 192, 128, 12, true, 4, 1, 1, .ahead = 8},
    {"192x128 pp s4 nb1 a64", 192, 128, 12, true, 4, 1, 1, .ahead = 64},
    {"128x192 pp s4 nb1 a8", 128, 192, 12, true, 4, 1, 1, .ahead = 8},
    {"128x192 pp s4 nb1 a64", 128, 192, 12, true, 4, 1, 1, .ahead = 64},
    {"128x256 c2 s4 nb2 a8", 128, 256, 12, false, 4, 2, 1, .ahead = 8},
    {"128x256 c2 s4 nb2 a64", 128, 256, 12, false, 4, 2, 1, .ahead = 64},
    {"128x128 pp s5 nb2 a8", 128, 128, 12, true, 5, 2, 1, .ahead = 8},
    {"128x128 pp s5 nb2 a64", 128, 128, 12, true, 5, 2, 1, .ahead = 64},
    {"256x192 c2 s3 nb1 a8", 256, 192, 12, false, 3, 1, 1, .ahead = 8},
    {"256x192 c2 s3 nb1 a64", 256, 192, 12, false, 3, 1, 1, .ahead = 64},
    {"192x128 pp s4 nb1 w4", 192, 128, 12, true, 4, 1, 1, .loaders = 4},
    {"128x192 pp s4 nb2 f0 w2", 128, 192, 12, true, 4, 2, 0, .loaders = 2},
    {"128x128 pp s6 nb1 w3", 128, 128, 12, true, 6, 1, 1, .loaders = 3},
    {"128x64 pp s8 nb2 skip w4", 128, 64, 12, true, 8, 2, 1, true, .loaders = 4},
    {"256x192 c2 s3 nb1 w3", 256, 192, 12, false, 3, 1, 1, .loaders = 3},
    {"128x256 c2 s4 nb2 skip w4", 128, 256, 12, false, 4, 2, 1, true, .loaders = 4},
    {"128x128 c2 s5 nb2 w4 a1", 128, 128, 12, false, 5, 2, 1, .ahead = 1, .loaders = 4},
    {"64x128 c1 s7 nb2 w4", 64, 128, 8, false, 7, 2, 1, .loaders = 4},
    {"128x64 pp s6 nb2 1x2", 128, 64, 12, true, 6, 2, 1, .cluster = "1x2"},
    {"128x64 pp s8 nb1 f0 1x2 w4", 128, 64, 12, true, 8, 1, 0, .loaders = 4, .cluster = "1x2"},
    {"256x64 c2 s3 nb2 1x2", 256, 64, 12, false, 3, 2, 1, .cluster = "1x2"},
    {"256x64 c2 s4 nb1 skip 1x2 w4", 256, 64, 12, false, 4, 1, 1, true, .loaders = 4,
     .cluster = "1x2"},
    {"128x128 pp s4 nb2 1x2", 128, 128, 12, true, 4, 2, 1, .cluster = "1x2"},
    {"128x128 pp s4 nb2 2x1", 128, 128, 12, true, 4, 2, 1, .cluster = "2x1"},
    {"256x128 c2 s3 nb2 2x1", 256, 128, 12, false, 3, 2, 1, .cluster = "2x1"},
    {"64x256 pp s4 nb2 2x1 a8", 64, 256, 12, true, 4, 2, 1, .ahead = 8, .cluster = "2x1"},
    {"128x128 c1 s5 nb2 skip 2x1", 128, 128, 8, false, 5, 2, 1, true, .cluster = "2x1"},
    {"64x128 c1 s6 nb2 2x1", 64, 128, 8, false, 6, 2, 1, .cluster = "2x1"},
    {"128x128 c2 s4 nb4 x1", 128, 128, 12, false, 4, 4, 1, .slabs = 1},
    {"128x128 c2 s4 nb4 x2", 128, 128, 12, false, 4, 4, 1, .slabs = 2},
    {"128x128 c2 s4 nb4 x2 1x2", 128, 128, 12, false, 4, 4, 1, .slabs = 2, .cluster = "1x2"},
    {"128x128 c2 s4 nb4 x2 2x1", 128, 128, 12, false, 4, 4, 1, .slabs = 2, .cluster = "2x1"},
    {"128x128 c1 s5 nb4 x2", 128, 128, 8, false, 5, 4, 1, .slabs = 2},
    {"128x192 c1 s4 nb2", 128, 192, 8, false, 4, 2, 1},
    {"128x192 c1 s3 nb4", 128, 192, 8, false, 3, 4, 1},
    {"128x256 c2 s3 nb4 x1", 128, 256, 12, false, 3, 4, 1, .slabs = 1},
    {"128x256 c2 s3 nb4 x2", 128, 256, 12, false, 3, 4, 1, .slabs = 2},
    {"128x256 c2 s4 nb2 x1", 128, 256, 12, false, 4, 2, 1, .slabs = 1},
    {"128x256 c2 s4 nb2 x2", 128, 256, 12, false, 4, 2, 1, .slabs = 2},
    {"256x128 c2 s3 nb2 x1", 256, 128, 12, false, 3, 2, 1, .slabs = 1},
    {"256x128 c2 s3 nb2 x2", 256, 128, 12, false, 3, 2, 1, .slabs = 2},
    {"256x128 c2 s3 nb2 skip x2", 256, 128, 12, false, 3, 2, 1, true, .slabs = 2},
    {"128x128 pp s5 nb2 x1", 128, 128, 12, true, 5, 2, 1, .slabs = 1},
    {"128x128 pp s5 nb2 x2", 128, 128, 12, true, 5, 2, 1, .slabs = 2},
    {"64x256 pp s4 nb2 x1", 64, 256, 12, true, 4, 2, 1, .slabs = 1},
    {"64x256 pp s4 nb2 x2", 64, 256, 12, true, 4, 2, 1, .slabs = 2},
    {"192x128 pp s3 nb2 x2 w3", 192, 128, 12, true, 3, 2, 1, .loaders = 3, .slabs = 2},
    {"128x64 pp s6 nb2 x2", 128, 64, 12, true, 6, 2, 1,
     .slabs = 2}, /* legal only for fp32 output, where two slabs of 128 bytes are 64 columns */
    {"128x64 pp s4 nb4", 128, 64, 12, true, 4, 4,
     1}, /* legal only for fp32 output, where two tiles fill the four staging buffers */
    {"128x64 c2 s6 nb4", 128, 64, 12, false, 6, 4, 1},
    {"64x64 c1 s8 nb4", 64, 64, 8, false, 8, 4, 1},
    {"160x256 df s4 nb1 swap", 160, 256, 12, false, 4, 1, 1, .swap = true, .deferred = true},
    {"160x256 df s4 nb1 f0 swap", 160, 256, 12, false, 4, 1, 0, .swap = true, .deferred = true},
    {"160x256 df s4 nb1 swap dyn", 160, 256, 12, false, 4, 1, 1, .swap = true, .dynamic = true,
     .deferred = true},
    {"144x256 df s4 nb1 swap", 144, 256, 12, false, 4, 1, 1, .swap = true, .deferred = true},
    {"144x256 df s4 nb1 f0 swap", 144, 256, 12, false, 4, 1, 0, .swap = true, .deferred = true},
    {"128x256 df s4 nb2 swap", 128, 256, 12, false, 4, 2, 1, .swap = true, .deferred = true},
    {"128x256 df s4 nb1 f0 swap", 128, 256, 12, false, 4, 1, 0, .swap = true, .deferred = true},
    {"64x128 df1 s8 nb2 swap", 64, 128, 8, false, 8, 2, 1, .swap = true, .deferred = true},
    {"256x128 df s4 nb2 swap", 256, 128, 12, false, 4, 2, 1, .swap = true, .deferred = true},
    {"160x256 c2 s4 nb1 swap 2x1", 160, 256, 12, false, 4, 1, 1, .swap = true, .cluster = "2x1"},
    {"160x256 c2 s4 nb1 f0 swap 2x1", 160, 256, 12, false, 4, 1, 0, .swap = true, .cluster = "2x1"},
    {"192x256 c2 s3 nb2 swap 2x1", 192, 256, 12, false, 3, 2, 1, .swap = true, .cluster = "2x1"},
    {"192x256 c2 s3 nb2 f0 swap 2x1", 192, 256, 12, false, 3, 2, 0, .swap = true, .cluster = "2x1"},
    {"96x256 c2 s4 nb2 swap 2x1", 96, 256, 12, false, 4, 2, 1, .swap = true, .cluster = "2x1"},
    {"128x256 c2 s4 nb2 swap 2x1", 128, 256, 12, false, 4, 2, 1, .swap = true, .cluster = "2x1"},
    {"160x128 pp s5 nb1 swap 2x1", 160, 128, 12, true, 5, 1, 1, .swap = true, .cluster = "2x1"},
    {"256x128 c2 s4 nb2 swap 2x1", 256, 128, 12, false, 4, 2, 1, .swap = true, .cluster = "2x1"},
    {"144x256 df s4 nb1 f0 swap 2x1", 144, 256, 12, false, 4, 1, 0, .swap = true, .deferred = true,
     .cluster = "2x1"},
    {"160x256 df s4 nb1 f0 swap 2x1", 160, 256, 12, false, 4, 1, 0, .swap = true, .deferred = true,
     .cluster = "2x1"},
    {"160x256 df s4 nb1 swap 2x1", 160, 256, 12, false, 4, 1, 1, .swap = true, .deferred = true,
     .cluster = "2x1"},
    {"160x256 c2 s4 nb1 swap dyn 2x1", 160, 256, 12, false, 4, 1, 1, .swap = true, .dynamic = true,
     .cluster = "2x1"},
    {"160x256 c2 s4 nb1 f0 swap dyn 2x1", 160, 256, 12, false, 4, 1, 0, .swap = true,
     .dynamic = true, .cluster = "2x1"},
    {"192x256 c2 s3 nb2 swap dyn 2x1", 192, 256, 12, false, 3, 2, 1, .swap = true, .dynamic = true,
     .cluster = "2x1"},
    {"192x256 c2 s3 nb2 f0 swap dyn 2x1", 192, 256, 12, false, 3, 2, 0, .swap = true,
     .dynamic = true, .cluster = "2x1"},
    {"192x128 pp s5 nb1 swap dyn 2x1", 192, 128, 12, true, 5, 1, 1, .swap = true, .dynamic = true,
     .cluster = "2x1"},
    {"256x128 c2 s4 nb2 swap dyn 2x1", 256, 128, 12, false, 4, 2, 1, .swap = true, .dynamic = true,
     .cluster = "2x1"},
    {"160x256 df s4 nb1 f0 swap dyn 2x1", 160, 256, 12, false, 4, 1, 0, .swap = true,
     .dynamic = true, .deferred = true, .cluster = "2x1"},
    {"160x256 df s4 nb1 swap dyn 2x1", 160, 256, 12, false, 4, 1, 1, .swap = true, .dynamic = true,
     .deferred = true, .cluster = "2x1"},
    {"144x256 df s4 nb1 f0 swap dyn 2x1", 144, 256, 12, false, 4, 1, 0, .swap = true,
     .dynamic = true, .deferred = true, .cluster = "2x1"},
    {"128x192 pp s4 nb2 r64", 128, 192, 12, true, 4, 2, 1, .stage_rows = 64},
    {"192x128 pp s4 nb1 r64", 192, 128, 12, true, 4, 1, 1, .stage_rows = 64},
    {"256x128 c2 s4 nb1 r64", 256, 128, 12, false, 4, 1, 1, .stage_rows = 64},
    {"64x64 pp s8 nb1 f0 r32", 64, 64, 12, true, 8, 1, 0, .stage_rows = 32},
    {"128x256 c2 s4 nb2 f0 r32", 128, 256, 12, false, 4, 2, 0, .stage_rows = 32},
    {"64x128 c1 s7 nb2 r32", 64, 128, 8, false, 7, 2, 1, .stage_rows = 32},
    {"128x64 pp s6 nb2 1x2 r32", 128, 64, 12, true, 6, 2, 1, .cluster = "1x2", .stage_rows = 32},
    {"128x128 c1 s5 nb2 skip 2x1 r32", 128, 128, 8, false, 5, 2, 1, true, .cluster = "2x1",
     .stage_rows = 32},
    {"128x192 pp s4 nb2 1x2", 128, 192, 12, true, 4, 2, 1, .cluster = "1x2"},
    {"192x128 pp s4 nb1 2x1", 192, 128, 12, true, 4, 1, 1, .cluster = "2x1"},
    {"256x128 c2 s4 nb1 2x1", 256, 128, 12, false, 4, 1, 1, .cluster = "2x1"},
    {"256x128 c2 s4 nb1 1x2", 256, 128, 12, false, 4, 1, 1, .cluster = "1x2"},
    {"256x128 sg s4 nb2", 256, 128, 12, false, 4, 2, 1, .staggered = true},
    {"256x128 sg s4 nb2 f0", 256, 128, 12, false, 4, 2, 0, .staggered = true},
    {"256x128 sg s4 nb2 skip", 256, 128, 12, false, 4, 2, 1, true, .staggered = true},
    {"256x128 sg s4 nb2 f0 skip", 256, 128, 12, false, 4, 2, 0, true, .staggered = true},
    {"256x128 sg s4 nb2 f0 dyn", 256, 128, 12, false, 4, 2, 0, .dynamic = true, .staggered = true},
    {"256x128 sg s3 nb4 x2", 256, 128, 12, false, 3, 4, 1, .slabs = 2, .staggered = true},
    {"256x128 sg s3 nb4 f0 x2", 256, 128, 12, false, 3, 4, 0, .slabs = 2, .staggered = true},
    {"256x192 sg s3 nb2", 256, 192, 12, false, 3, 2, 1, .staggered = true},
    {"256x192 sg s3 nb2 f0", 256, 192, 12, false, 3, 2, 0, .staggered = true},
    {"256x192 sg s3 nb1 f0", 256, 192, 12, false, 3, 1, 0, .staggered = true},
    {"256x192 sg s3 nb2 skip dyn", 256, 192, 12, false, 3, 2, 1, true, .dynamic = true,
     .staggered = true},
    {"256x192 sg s3 nb2 f0 skip dyn", 256, 192, 12, false, 3, 2, 0, true, .dynamic = true,
     .staggered = true},
    {"256x64 sg s4 nb2 f0", 256, 64, 12, false, 4, 2, 0, .staggered = true},
    {"128x128 sg1 s6 nb2 f0", 128, 128, 8, false, 6, 2, 0, .staggered = true},
    {"128x192 sg1 s4 nb2", 128, 192, 8, false, 4, 2, 1, .staggered = true},
};
const int n_tiles = sizeof(tiles) / sizeof(tiles[0]);
_Static_assert(sizeof(tiles) / sizeof(tiles[0]) <= TILES_MAX,
               "tables of results have a place for each tile");

int tile_named(const char *name)
{
    for (int t = 0; t < n_tiles; t++) {
        if (strcmp(tiles[t].name, name) == 0) {
            return t;
        }
    }
    return -1;
}

/* ---- kinds */

/* Every mode with each permute, fuse_mul_post and type; then kinds whose configs have permute_copy
 * ("copy"), and kinds whose kernels store the output by threads instead of TMA ("st"). */
const struct kind kinds[] = {
    {"fwd", GEMM_FORWARD, .soak = true},
    {"dX", GEMM_DX, .soak = true},
    {"dW", GEMM_DW, .soak = true},
    {"fwd px", GEMM_FORWARD, .permute_x = true, .soak = true},
    {"fwd py", GEMM_FORWARD, .permute_y = true, .soak = true},
    {"fwd py mul", GEMM_FORWARD, .permute_y = true, .fuse = true},
    {"dX px", GEMM_DX, .permute_x = true, .soak = true},
    {"dX py", GEMM_DX, .permute_y = true, .soak = true},
    {"dW px", GEMM_DW, .permute_x = true, .soak = true},
    {"dW py", GEMM_DW, .permute_y = true, .soak = true},
    {"dW f32", GEMM_DW, .out_fp32 = true, .soak = true},
    {"dW f32 add", GEMM_DW, .out_fp32 = true, .accumulate = true},
    {"dW px f32", GEMM_DW, .permute_x = true, .out_fp32 = true},
    {"dW px f32 add", GEMM_DW, .permute_x = true, .out_fp32 = true, .accumulate = true},
    {"dW py f32", GEMM_DW, .permute_y = true, .out_fp32 = true},
    {"dW py f32 add", GEMM_DW, .permute_y = true, .out_fp32 = true, .accumulate = true},

    {"fwd h", GEMM_FORWARD, .fp16 = true},
    {"dX h", GEMM_DX, .fp16 = true},
    {"dW h", GEMM_DW, .fp16 = true},
    {"fwd px h", GEMM_FORWARD, .permute_x = true, .fp16 = true},
    {"fwd py h", GEMM_FORWARD, .permute_y = true, .fp16 = true},
    {"fwd py mul h", GEMM_FORWARD, .permute_y = true, .fuse = true, .fp16 = true},
    {"dX px h", GEMM_DX, .permute_x = true, .fp16 = true},
    {"dX py h", GEMM_DX, .permute_y = true, .fp16 = true},
    {"dW px h", GEMM_DW, .permute_x = true, .fp16 = true},
    {"dW py h", GEMM_DW, .permute_y = true, .fp16 = true},
    {"dW h f32", GEMM_DW, .fp16 = true, .out_fp32 = true},
    {"dW h f32 add", GEMM_DW, .fp16 = true, .out_fp32 = true, .accumulate = true},
    {"dW px h f32", GEMM_DW, .permute_x = true, .fp16 = true, .out_fp32 = true},
    {"dW px h f32 add", GEMM_DW, .permute_x = true, .fp16 = true, .out_fp32 = true,
     .accumulate = true},
    {"dW py h f32", GEMM_DW, .permute_y = true, .fp16 = true, .out_fp32 = true},
    {"dW py h f32 add", GEMM_DW, .permute_y = true, .fp16 = true, .out_fp32 = true,
     .accumulate = true},

    {"fwd px copy", GEMM_FORWARD, .permute_x = true, .copy = true},
    {"dX py copy", GEMM_DX, .permute_y = true, .copy = true},
    {"dW px copy", GEMM_DW, .permute_x = true, .copy = true},
    {"dW py copy", GEMM_DW, .permute_y = true, .copy = true},
    {"fwd px copy h", GEMM_FORWARD, .permute_x = true, .copy = true, .fp16 = true},
    {"fwd st", GEMM_FORWARD, .no_tma_store = true, .soak = true},
    {"fwd px st", GEMM_FORWARD, .permute_x = true, .no_tma_store = true},
    {"dX st", GEMM_DX, .no_tma_store = true},
    {"dW st", GEMM_DW, .no_tma_store = true},
    {"dW f32 st", GEMM_DW, .out_fp32 = true, .no_tma_store = true},
    {"dW f32 add st", GEMM_DW, .out_fp32 = true, .accumulate = true, .no_tma_store = true},
};
const int n_kinds = sizeof(kinds) / sizeof(kinds[0]);

int kind_named(const char *name)
{
    for (int k = 0; k < n_kinds; k++) {
        if (strcmp(kinds[k].name, name) == 0) {
            return k;
        }
    }
    return -1;
}

int kind_of_problem(const struct gemm *v)
{
    for (int i = 0; i < n_kinds; i++) {
        const struct kind *k = &kinds[i];
        if (!k->copy && !k->no_tma_store && k->mode == v->mode && k->permute_x == v->permute_x &&
            k->permute_y == v->permute_y && k->fuse == v->fuse_mul_post &&
            k->accumulate == v->accumulate && k->fp16 == (v->in == DTYPE_FP16) &&
            k->out_fp32 == (v->out == DTYPE_FP32)) {
            return i;
        }
    }
    return -1;
}

bool kind_gathers(const struct kind *kind)
{
    return !kind->copy && ((kind->permute_x && kind->mode != GEMM_DX) ||
                           (kind->permute_y && kind->mode != GEMM_FORWARD));
}

bool case_is_delicate(const struct kind *kind, const struct tile *tile)
{
    return tile->pingpong || tile->staggered || kind_gathers(kind);
}

/* ---- shapes */

static const int rows_all[] = {0, 1, 15, 16, 63, 64, 65, 1000};
static const int rows_short[] = {0, 1, 15, 16, 63, 64, 65, 130};
static const int rows_seven[] = {1, 0, 64, 15, 0, 130, 65};
static const int rows_thousand[] = {1000};
static const int rows_one[] = {1};
static const int rows_soak[] = {130, 0, 63, 300, 1, 64, 0, 65};
static const int rows_long[] = {1000, 0, 256, 600};
static const int rows_sample[] = {65, 0, 130, 17};

#define ROWS(list) list, sizeof(list) / sizeof(list[0])

/* Each number of rows per expert appears in a shape where another expert's data are all NaN. */
const struct shape shapes[] = {
    {8, 584, 328, 2, ROWS(rows_soak), .nan = 2, .soak = true},
    {1, 584, 328, 1, ROWS(rows_thousand), .no_sizes = true},
    {7, 8, 8, 3, ROWS(rows_seven), .strided = true, .weights_in = true},
    {8, 1096, 520, 2, ROWS(rows_all), .strided = true, .indices = INDICES_64, .nan = 4},
    {128, 264, 136, 8, ROWS(rows_short), .indices = INDICES_64, .weights_in = true, .nan = 45,
     .shared_dy = true},
    {257, 72, 200, 6, ROWS(rows_short), .indices = INDICES_MIXED, .nan = 126},
    {8, 8, 520, 1, ROWS(rows_all), .strided = true, .nan = 6},
    {8, 520, 8, 1, ROWS(rows_all), .indices = INDICES_64, .weights_in = true, .nan = 5},
    {1, 136, 1096, 1, ROWS(rows_one), .strided = true},
    {8, 264, 136, 2, ROWS(rows_all), .strided = true, .nothing = true},
    {16, 448, 320, 2, ROWS(rows_all), .strided = true, .nan = 4, .soak = true},
    {7, 64, 192, 3, ROWS(rows_seven), .indices = INDICES_64},
};
const int n_shapes = sizeof(shapes) / sizeof(shapes[0]);

const struct shape soak_shapes[SOAK_SHAPES + 1][3] = {
    {
        [GEMM_FORWARD] = {32, 1160, 136, 2, ROWS(rows_soak)},
        [GEMM_DX] = {32, 136, 1160, 2, ROWS(rows_soak)},
        [GEMM_DW] = {32, 272, 392, 2, ROWS(rows_soak)},
    },
    {
        [GEMM_FORWARD] = {8, 264, 1096, 2, ROWS(rows_soak)},
        [GEMM_DX] = {8, 1096, 264, 2, ROWS(rows_soak)},
        [GEMM_DW] = {4, 264, 200, 2, ROWS(rows_long)},
    },
    {
        [GEMM_FORWARD] = {32, 1152, 128, 2, ROWS(rows_soak)},
        [GEMM_DX] = {32, 128, 1152, 2, ROWS(rows_soak)},
        [GEMM_DW] = {32, 320, 448, 2, ROWS(rows_soak)},
    },
    {
        /* each sum has ten blocks along K, and may be split into eight parts */
        [GEMM_FORWARD] = {1, 1160, 584, 1, ROWS(rows_thousand), .no_sizes = true},
        [GEMM_DX] = {1, 584, 1160, 1, ROWS(rows_thousand), .no_sizes = true},
    },
};

const struct shape variant_shapes[VARIANT_SHAPES + 1] = {
    {8, 584, 328, 1, ROWS(rows_soak), .nan = 5, .indices = INDICES_64, .weights_in = true},
    {8, 328, 584, 2, ROWS(rows_soak), .nan = 2, .strided = true, .shared_dy = true},
    {4, 1160, 1088, 1, ROWS(rows_long),
     .nan = 2}, /* rows of dW's output are whole slabs of 128 bytes, which store_slabs=2 needs */
    {1, 1160, 1088, 1, ROWS(rows_thousand), .no_sizes = true},
};

const struct shape sample_shape = {4, 192, 320, 2, ROWS(rows_sample)};

/* ---- cases */

int case_problem(const struct kind *kind, const struct shape *shape, struct problem *p)
{
    static const char *const modes[] = {"forward", "dX", "dW"};
    struct record f;
    struct error err = ERROR_NULL;
    char routing[4096] = "rows:";
    int64_t total = 0;
    for (int e = 0; e < shape->experts; e++) {
        int rows = shape->rows[e % shape->n_rows];
        total += rows;
        if (e == shape->experts - 1) {
            int more = (int)((shape->topk - total % shape->topk) % shape->topk);
            rows += more;
            total += more;
        }
        size_t n = strlen(routing);
        snprintf(routing + n, sizeof(routing) - n, "%s%d", e ? "," : "", rows);
    }
    record_init(&f);
    record_put_text(&f, "mode", modes[kind->mode]);
    record_put_int(&f, "M", total);
    record_put_int(&f, "N", shape->n);
    record_put_int(&f, "K", shape->k);
    record_put_int(&f, "experts", shape->experts);
    record_put_int(&f, "topk", shape->topk);
    record_put_text(&f, "dtype_in", kind->fp16 ? "fp16" : "bf16");
    record_put_text(&f, "dtype_out", kind->out_fp32 ? "fp32" : "same");
    record_put_bool(&f, "permute_x", kind->permute_x);
    record_put_bool(&f, "permute_y", kind->permute_y);
    record_put_bool(&f, "fuse_mul_post", kind->fuse);
    record_put_bool(&f, "accumulate", kind->accumulate);
    record_put_text(&f, "routing", routing);
    if (problem_make(p, "grouped_gemm", &f, &err)) {
        printf("FAULT problem %s: %s\n", kind->name, err.text);
        return -1;
    }
    return 0;
}

void case_config(const struct gemm *v, const struct kind *kind, const struct tile *tile,
                 struct record *config)
{
    static const char *const names[][3] = {
        [GEMM_FORWARD] = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"},
        [GEMM_DX] = {"BLOCK_SIZE_M", "BLOCK_SIZE_K", "BLOCK_SIZE_N"},
        [GEMM_DW] = {"BLOCK_SIZE_N", "BLOCK_SIZE_K", "BLOCK_SIZE_M"},
    };
    const bool tma_store = !v->scatter && !kind->no_tma_store && tile->ksplit <= 1;
    record_init(config);
    record_put_int(config, names[v->mode][0], tile->r);
    record_put_int(config, names[v->mode][1], tile->c);
    record_put_int(config, names[v->mode][2], HOPPER_DEPTH);
    record_put_int(config, "num_warps", tile->warps);
    record_put_text(config, "schedule",
                    tile->staggered  ? "staggered"
                    : tile->deferred ? "deferred"
                    : tile->pingpong ? "pingpong"
                                     : "cooperative");
    record_put_int(config, "num_stages", tile->stages);
    record_put_int(config, "staging_buffers", tma_store ? tile->staging : 1);
    record_put_int(config, "in_flight", tile->in_flight);
    record_put_bool(config, "skip_rows", tile->skip_rows);
    if (tile->dynamic) {
        record_put_text(config, "tile_scheduler", "dynamic");
    }
    if (tile->swap) {
        record_put_bool(config, "swap_ab", true);
    }
    if (tile->ahead && (kind->mode == GEMM_DW || !kind_gathers(kind))) {
        record_put_int(config, "l2_ahead", tile->ahead);
    }
    if (tile->loaders) {
        record_put_int(config, "load_warps", tile->loaders);
    }
    if (tile->slabs && kind->mode == GEMM_DW) {
        record_put_int(config, "store_slabs", tile->slabs);
    }
    if (tile->stage_rows && kind->mode == GEMM_DW) {
        record_put_int(config, "stage_rows", tile->stage_rows);
    }
    record_put_bool(config, "use_tma_store", tma_store);
    if (kind->copy) {
        record_put_bool(config, "permute_copy", true);
    }
    if (tile->cluster) {
        record_put_text(config, "cluster_shape_mn", tile->cluster);
    }
    if (tile->ksplit > 1) {
        record_put_int(config, "NUM_KSPLIT", tile->ksplit);
    }
    record_put_int(config, "GROUP_SIZE_M", v->mode == GEMM_DW ? 1 : 8);
}

bool case_of_one_expert(const struct variant *v)
{
    return strstr(v->options, "-DONE_EXPERT=1 ") != NULL;
}

bool case_variant(const struct kind *kind, const struct tile *tile, const struct problem *p,
                  const struct device_info *info, struct record *config, struct variant *out,
                  struct rejection *why)
{
    struct gemm v;
    struct error err = ERROR_NULL;
    gemm_view(p, &v);
    case_config(&v, kind, tile, config);
    return hopper_check(p, config, info, why) == 0 &&
           hopper_variant(p, config, "sm_90a", out, &err) == 0;
}
