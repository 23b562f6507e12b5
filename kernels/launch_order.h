/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the clusters of a launch lie on a device, so that those with neighbouring tiles are
 * neighbours there.
 *
 * SMs come in groups (GPCs) whose reads of the same lines at about the same time L2 serves once. An
 * idle H200 deals single thread blocks group by group, but clusters of two one to each group in
 * turn: dealt tiles in that order, pairs of a group share as little as they can
 * (tests/gpu/results/2026-11-25-h200-order.txt).
 */
#ifndef GEMMD_KERNELS_LAUNCH_ORDER_H
#define GEMMD_KERNELS_LAUNCH_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { LAUNCH_ORDER_MAX = 96, /* clusters of two */ LAUNCH_ORDER_SMS_MAX = 2 * LAUNCH_ORDER_MAX };

struct launch_order {
    uint32_t n;                      /* clusters; 0: not known */
    uint8_t place[LAUNCH_ORDER_MAX]; /* of each of them, by its number, when they are counted group
                                        by group: a permutation */
};

/* From what a device did with two launches that had a thread block for each of `sms` SMs: the SM of
 * each block, without clusters and with clusters of two. False, and an order that is not known: the
 * blocks were not one to an SM, or clusters do not lie where two blocks that follow each other
 * did. */
bool launch_order_make(const int32_t single[], const int32_t paired[], uint32_t sms,
                       struct launch_order *out);

/* Whether a launch asks for an order, and has as many clusters as this one. */
struct launch;
bool launch_is_ordered(const struct launch *l, const struct launch_order *order);

#endif
