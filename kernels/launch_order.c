/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/launch_order.h"

#include "kernels/family.h"

enum { NOWHERE = -1 };

/* Fills block_of[SM] with the SM's thread block. False: two thread blocks share an SM, or an SM's
 * number is out of range. */
static bool launch_order_invert(const int32_t sm_of[], uint32_t sms, int32_t block_of[])
{
    for (uint32_t i = 0; i < sms; i++) {
        block_of[i] = NOWHERE;
    }
    for (uint32_t i = 0; i < sms; i++) {
        if (sm_of[i] < 0 || (uint32_t)sm_of[i] >= sms || block_of[sm_of[i]] != NOWHERE) {
            return false;
        }
        block_of[sm_of[i]] = (int32_t)i;
    }
    return true;
}

bool launch_order_make(const int32_t single[], const int32_t paired[], uint32_t sms,
                       struct launch_order *out)
{
    int32_t block_of[LAUNCH_ORDER_SMS_MAX], again[LAUNCH_ORDER_SMS_MAX];
    *out = (struct launch_order){0};
    if (sms % 2 || sms > LAUNCH_ORDER_SMS_MAX || !launch_order_invert(single, sms, block_of) ||
        !launch_order_invert(paired, sms, again)) {
        return false;
    }
    for (uint32_t i = 0; i < sms / 2; i++) {
        const int32_t first = block_of[paired[2 * i]], second = block_of[paired[2 * i + 1]];
        if (first / 2 != second / 2) {
            return false;
        }
        out->place[i] = (uint8_t)(first / 2);
    }
    out->n = sms / 2;
    return true;
}

bool launch_is_ordered(const struct launch *l, const struct launch_order *order)
{
    return l->order_at > 0 && l->cluster[0] == 2 && l->grid[0] == 2 * order->n;
}
