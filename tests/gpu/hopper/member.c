/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/member.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/hopper/catalog.h"
#include "tests/gpu/hopper/options.h"

static uint64_t random_of(const char *hash)
{
    char part[17];
    snprintf(part, sizeof(part), "%.16s", hash);
    uint64_t state = strtoull(part, NULL, 16) ^ options.seed * UINT64_C(0x9e3779b97f4a7c15);
    return random_next(&state);
}

int member_at(int i, struct member *m)
{
    const struct catalog_entry e = catalog_at(i);
    struct problem p;
    struct gemm v;
    struct record config;
    struct hopper_tile tile;
    struct variant variant;
    *m = (struct member){.random = random_of(e.hash), .hash = e.hash, .config = e.config};
    if (catalog_problem(i, &p) || record_parse(&config, e.config, NULL)) {
        return -1;
    }
    gemm_view(&p, &v);
    hopper_tile_make(&v, &config, &tile);
    m->one_expert = catalog_variant(i, &variant) == 0 && case_of_one_expert(&variant);
    m->delicate = tile.gather || tile.pingpong || tile.staggered;
    m->load_warps = tile.loaders;
    m->store_slabs = tile.store_slabs;
    v.accumulate = v.mode == GEMM_DW && v.out == DTYPE_FP32 && m->random % 2;
    m->kind = kind_of_problem(&v);
    snprintf(m->name, sizeof(m->name), "%s, %s", e.kind, e.config);
    return m->kind < 0 ? -1 : 0;
}

static void draw_run_time(const struct member *m, const struct problem *p,
                          const struct device_info *info, struct record *config)
{
    struct param params[PARAMS_MAX];
    uint64_t state = m->random;
    const uint32_t n = hopper_tunables(p, info, params);
    for (uint32_t i = 0; i < n; i++) {
        if (params[i].run_time) {
            const uint64_t at = random_next(&state) % params[i].n;
            record_set(config, params[i].name, params[i].values[at], NULL);
        }
    }
}

/* Makes the member's config. If the drawn values are not legal together, the config gets the
 * space's first values instead. */
bool member_config(const struct member *m, const struct problem *p, const struct device_info *info,
                   struct record *config, struct rejection *why)
{
    struct record first;
    struct error err = ERROR_NULL;
    if (record_parse(&first, m->config, &err)) {
        rejection_set(why, ERROR_INVALID, "parse", "%s", err.text);
        return false;
    }
    record_put_int(&first, "load_warps", m->load_warps);
    record_put_int(&first, "store_slabs", m->store_slabs);
    record_copy(config, &first);
    draw_run_time(m, p, info, config);
    if (hopper_check(p, config, info, why) == 0) {
        return true;
    }
    record_copy(config, &first);
    return hopper_check(p, config, info, why) == 0;
}
