/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predicted times of all configs of a space: facts once, a tile once per variant, then a fraction
 * of a microsecond per point. What it says is what hopper_predict() says.
 */
#include <string.h>

#include "kernels/families/grouped_gemm/hopper/model/model.h"
#include "kernels/space.h"

/* Where the run-time settings are among a space's params; -1: nowhere. */
struct settings {
    int group, raster, order;
};

static int hopper_find_param(const struct space *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_params; i++) {
        if (strcmp(s->params[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static const struct value *value_at(const struct space *s, const struct space_point *at, int param)
{
    return &s->params[param].values[at->at[param]];
}

static bool hopper_value_is_text(const struct value *v, const char *text)
{
    return v->type == VALUE_TEXT && strcmp(v->text, text) == 0;
}

static void hopper_set_tile(const struct space *s, const struct settings *x,
                            const struct space_point *at, struct hopper_tile *t)
{
    t->group = x->group < 0 ? t->group : (int)value_at(s, at, x->group)->integer;
    t->raster_columns =
        x->raster >= 0 && hopper_value_is_text(value_at(s, at, x->raster), "columns");
    t->sort_experts = x->order >= 0 && hopper_value_is_text(value_at(s, at, x->order), "size");
}

void hopper_predict_space(const struct problem *p, const struct device_info *info,
                          const struct workload *w, const struct space *s, double us[])
{
    const struct settings settings = {hopper_find_param(s, "GROUP_SIZE_M"),
                                      hopper_find_param(s, "raster"),
                                      hopper_find_param(s, "expert_order")};
    struct hopper_facts f;
    struct hopper_tile t = {0};
    size_t compiled = 0; /* params that make up a variant: they come first */
    hopper_facts_init(&f, p, info, w);
    while (compiled < s->n_params && !s->params[compiled].run_time) {
        compiled++;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        const struct space_point *at = &s->points[i];
        if (i == 0 || memcmp(at->at, s->points[i - 1].at, compiled) != 0) {
            struct record config;
            space_config(s, i, &config);
            hopper_tile_make(&f.v, &config, &t);
        }
        hopper_set_tile(s, &settings, at, &t);
        us[i] = hopper_expected(&f, &t);
    }
}
