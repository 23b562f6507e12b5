/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/search/world.h"

#include <stdio.h>

#include "kernels/devices/replay/replay.h"

void world_open(struct world *w, const char *path)
{
    struct error err = ERROR_NULL;
    struct landscape *l;
    families_register();
    snprintf(w->spec, sizeof(w->spec), "replay:%s", path);
    if (landscape_load(w->spec, &l, &err)) {
        fail_msg("%s", err.text);
    }
    problem_format(&l->problems[0].problem, w->problem, sizeof(w->problem));
    landscape_free(l);
}

struct tune_order *world_order(const struct world *w)
{
    struct tune_order *o = order_new(w->problem);
    o->request.query.seed = 1;
    return o;
}
