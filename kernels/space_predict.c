/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted times of a whole space: by the target in one go, where it can, else point by point. */
#include "kernels/space.h"

void space_predict(const struct space *s, const struct family_target *t, const struct problem *p,
                   const struct device_info *info, const struct workload *w, double us[])
{
    if (t->predict_space) {
        t->predict_space(p, info, w, s, us);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        struct record config;
        space_config(s, i, &config);
        us[i] = t->predict(p, &config, info, w);
    }
}
