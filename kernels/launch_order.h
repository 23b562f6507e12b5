/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a launch's clusters on a device, so that clusters with neighbouring tiles run next
 * to each other.
 *
 * SMs are grouped into GPCs. L2 serves reads of the same lines by one GPC at about the same time
 * once. An idle H200 deals single thread blocks GPC by GPC, but clusters of two in turn, one to
 * each GPC. Tiles dealt in that order share as little as possible within a GPC
 * (docs/kernel-notes.md).
 */
#ifndef GEMMD_KERNELS_LAUNCH_ORDER_H
#define GEMMD_KERNELS_LAUNCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { LAUNCH_ORDER_MAX = 96, /* clusters of two */ LAUNCH_ORDER_SMS_MAX = 2 * LAUNCH_ORDER_MAX };

struct launch_order {
    uint32_t n;                      /* clusters; 0: unknown */
    uint8_t place[LAUNCH_ORDER_MAX]; /* place[cluster number]: the cluster's place in an order that
                                        counts the clusters GPC by GPC */
};

/* Makes the order from two probe launches with one thread block for each of `sms` SMs: the SM of
 * each thread block, without clusters and with clusters of two. Returns false, and an unknown
 * order, when two blocks shared an SM, or when clusters do not lie on the SMs of two consecutive
 * single blocks.
 */
bool launch_order_make(const int32_t single[], const int32_t paired[], uint32_t sms,
                       struct launch_order *out);

/* True when a launch wants an order and has as many clusters as this order. */
struct launch;
bool launch_is_ordered(const struct launch *l, const struct launch_order *order);

#endif
