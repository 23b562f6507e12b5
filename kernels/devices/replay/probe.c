/* SPDX-License-Identifier: Apache-2.0 */
/* What a replayed device is: what its landscape says. */
#include "kernels/devices/replay/replay.h"

int replay_probe(const char *spec, struct device_info *out, struct error *err)
{
    struct landscape *l;
    int r = landscape_load(spec, &l, err);
    if (r == 0) {
        *out = l->info;
        landscape_free(l);
    }
    return r;
}
