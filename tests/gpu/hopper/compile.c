/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/compile.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/hopper/catalog.h"
#include "tests/gpu/hopper/cubins.h"
#include "tests/gpu/hopper/options.h"
#include "tests/gpu/hopper/pool.h"
#include "tests/gpu/hopper/report.h"
#include "tests/gpu/hopper/stages.h"
#include "tests/gpu/hopper/tools.h"

static int compile_tools(void)
{
    struct variant v;
    void *data;
    char why[512];
    tools_variant(&v);
    if (cubin_get(&v, &data, why, sizeof(why)) != CUBIN_HERE) {
        say("BROKEN the bench's own kernels: %s\n", why);
        return -1;
    }
    free(data);
    return 0;
}

static int compile_list(int n, bool (*variant)(int i, struct variant *v, char *name, size_t size))
{
    const struct pool_list list = {n, variant};
    options.jobs = options.jobs > 0 ? options.jobs : 1;
    if (compile_tools()) {
        return 1;
    }
    pool_start(&list, 1);
    return pool_finish() > 0;
}

int compile_first_set(void)
{
    return compile_list(stage_check.steps(), check_variant);
}

static bool space_variant(int i, struct variant *v, char *name, size_t size)
{
    const int at = i * options.shards + options.shard;
    snprintf(name, size, "%s, %s", catalog_at(at).kind, catalog_at(at).config);
    return catalog_variant(at, v) == 0;
}

int compile_space(void)
{
    const int n = catalog_open();
    const int mine = (n - options.shard + options.shards - 1) / options.shards;
    say("%d variants in the space, %d in shard %d of %d\n", n, mine, options.shard, options.shards);
    return compile_list(mine, space_variant);
}
