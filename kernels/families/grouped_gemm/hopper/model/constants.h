/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tests/model/refit.py from measured times: change those, not the values. */
#ifndef GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H
#define GEMMD_KERNELS_FAMILIES_GROUPED_GEMM_HOPPER_MODEL_CONSTANTS_H

/* NVIDIA H200, 132 SMs, 700 W. Other devices are scaled (hopper/model/facts.c). Name; value for
 * 16-bit operands, and for fp8 operands; where a fit begins, between the least and the most that it
 * may try; what it is. Rates are those of one SM, in bytes or flops per microsecond, unless it says
 * otherwise. fp8 operands count as half as many operands of 16 bits. */
#define HOPPER_CONSTANTS(X) \
    X(setup_us, 4.8479, 4.5092, 2, 9, 25, "launch, scan of the experts, first loads, last stores") \
    X(flops_us, 6.8037e+06, 6.1792e+06, 5.5e+06, 6.3e+06, 7.5e+06, "multiplied, in the dense steady state") \
    X(load_us, 83372, 95000, 60000, 72000, 95000, "loaded by TMA from L2 while all SMs load") \
    X(shared_weights, 0.38115, 1, 0.3, 0.6, 1, "of that, for weights that two thread blocks share") \
    X(gather_us, 1.4246e+05, 1.0113e+05, 20000, 1.5e+05, 6e+05, "gathered by the producer's threads") \
    X(latency_us, 0.05, 0.82346, 0.05, 0.8, 2.5, "of a load: what the stages must cover") \
    X(shared_us, 2.6246e+05, 3.022e+05, 1.2e+05, 2.25e+05, 4e+05, "moved in shared memory: wgmma and loads") \
    X(store_us, 41027, 14202, 10000, 60000, 3e+05, "output written by a warpgroup") \
    X(piece_us, 0.08378, 0.089252, 0, 0.1, 1, "and for each 64 columns of it with one staging buffer") \
    X(tile_us, 0.22245, 0.05, 0.05, 0.3, 2, "between two tiles of a cooperative kernel") \
    X(tile_sums, 0.14188, 0.41598, 0, 0.2, 2, "the same in dW") \
    X(exposed, 0.81795, 0.92839, 0, 0.3, 1, "of the end of a cooperative tile: never hidden by loads") \
    X(staggered, 0.64424, 0.64424, 0, 0.5, 1, "of that end, staggered: what the other half does not hide") \
    X(deferred, 0.48947, 0.48947, 0, 0.5, 1, "of that end, deferred: of kept pieces, what is not hidden") \
    X(turn_us, 0.2873, 0.2873, 0, 0.1, 1, "between two tiles of a ping-pong kernel") \
    X(direct_store, 1.5083, 1.1126, 1, 1.5, 4, "times as long: threads store, not TMA") \
    X(alone, 0.62444, 0.38895, 0.2, 0.6, 1, "times as long: output of the one warpgroup that a tile has") \
    X(split_us, 1.3446, 1.204, 0.3, 1.6, 5, "between thread blocks that share sums, for each tile") \
    X(sums_us, 13096, 19216, 10000, 40000, 3e+05, "sums that a warpgroup writes for others, and reads") \
    X(drain_pingpong, 1.1411, 1.1411, 1, 1.1, 1.3, "times as long: ping-pong, none in flight") \
    X(drain_dx, 1.1698, 1.1698, 1, 1.05, 1.3, "the same in dX") \
    X(skipping, 1.0007, 1.0161, 1, 1.01, 1.06, "times as long: a launch that may skip rows") \
    X(skip_sums, 1.0125, 1.0125, 1, 1.015, 1.06, "the same in dW") \
    X(hbm, 0.97567, 0.99713, 0.8, 0.97, 1, "of the device's peak_gbps") \
    X(hbm_write, 1.1909, 1.18, 0.8, 1.2, 1.6, "times as long: written bytes") \
    X(write_narrow, 0.019558, 0.3, 0, 0.05, 0.3, "more, with 128 columns instead of 256") \
    X(narrow_sums, 0.0028963, -0.036891, -0.05, 0.01, 0.3, "the same in dW") \
    X(write_direct, 1.0068, 1.0068, 1, 1.02, 1.3, "dW: times as long, written by threads instead of TMA") \
    X(write_wide, 0.83419, 0.83419, 0.8, 0.95, 1, "dW: times as long, written by two slabs") \
    X(starved, 0.035774, 0.025753, 0, 0.02, 0.1, "forward: more from memory, for each free stage below 4") \
    X(starved_dx, 0.013722, 0.013722, 0, 0.02, 0.1, "the same in dX") \
    X(hbm_round, 0.10936, 0.34803, 0, 0.3, 1, "part of the last, uneven round that memory feels") \
    X(sm_round, 0.96129, 0.29489, 0.2, 0.8, 1, "part of the last, uneven round that SMs feel") \
    X(cut_round, 2.1629, 0.68038, 0, 0.5, 3, "tiles of unlike length: of what the longest has more") \
    X(swapped_narrow, 0.92948, 0.92948, 0.8, 0.95, 1.1, "times as long: swapped, 128 columns, in turn") \
    X(narrow_dynamic, 0.9677, 0.9677, 0.8, 0.98, 1.1, "the same, dynamic and cooperative") \
    X(cut_share, 0.43958, 0.23122, 0, 0.3, 1, "of what tiles cut short save, lost to SMs that get none") \
    X(dynamic_us, 2.0915, 3.4477, 0, 3, 8, "dynamic tiles: another step of the launch") \
    X(dynamic_apart, 0.42609, 0.096751, 0, 1, 4, "the same as apart with dynamic tiles") \
    X(apart, 0.17525, 0.30685, 0, 1, 4, "times: operands of tiles that run apart, read again") \
    X(l2_part, 0.77622, 0.33922, 0.2, 0.6, 2, "of L2: working sets of this size are read again each time") \
    X(uneven, 6, 0, 0, 2, 6, "dW: deviations that the last SM is behind") \
    X(loaders, 0.97996, 0.97996, 0.9, 0.98, 1, "dW: times as long, with load_warps above 1, no gather") \
    X(ahead, 0.95632, 0.95632, 0.9, 0.98, 1, "dW: times as long, with l2_ahead") \
    X(thirds, 0.0084813, 0.0084813, 0, 0.02, 0.1, "dX: of the time, more with 192 columns") \
    X(sorted, 0.97364, 1.0166, 0.95, 1.01, 1.1, "dW: times as long, with the long tiles first") \
    X(copy_us, 4.1963e+06, 4.1963e+06, 1.5e+06, 4.5e+06, 6e+06, "permute_copy, bytes read and written") \
    X(copy_setup_us, 3.1171, 3.1171, 0, 2, 8, "permute_copy: another launch (by token two)") \
    X(added, 1, 1.0109, 0.8, 1, 3, "dW: times as long, bytes that are added to the output") \
    X(added_direct, 1, 1.2992, 0.8, 1, 2, "the same, by threads instead of TMA") \
    X(added_alone, 1, 1.0379, 0.8, 1, 1.2, "the same, of the one warpgroup that a tile has") \
    X(sums_columns, 1, 1.0455, 0.95, 1, 1.1, "dW: times as long, with raster=columns") \
    X(sums_groups, 1, 1.0352, 0.95, 1, 1.1, "dW: times as long, with GROUP_SIZE_M above 1, by rows") \
    X(promote, 0, 0.010689, 0, 0.25, 1, "fp8: of multiplying, more for the promotion of sums") \
    X(promote_swapped, 0, 1, 0, 0.375, 1, "the same with swap_ab") \
    X(promote_lines, 0, 0.28752, 0, 0.5, 1, "the same in dW") \
    X(promote_beside, 0, 0.39601, 0, 0.1, 1, "of that, not hidden by another warpgroup")

#endif
