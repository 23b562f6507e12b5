/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/catalog.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/compile/kinds.h"
#include "tests/gpu/hopper/options.h"

static struct kinds all;
static uint32_t *order;
static uint32_t n_order;

int catalog_open(void)
{
    struct error err = ERROR_NULL;
    struct kinds_setup setup = {
        .target = "hopper",
        .arch = "sm_90a",
        .compiler = "bench", /* as in cubin_hash, whose hashes do not depend on the compiler */
        .kind = options.variants,
        .seed = options.seed};
    if (order) {
        return (int)n_order;
    }
    if (kinds_init(&all, &setup, &err)) {
        fprintf(stderr, "%s\n", err.text);
        exit(2);
    }
    order = kinds_order(&all, &n_order);
    if (!order) {
        fprintf(stderr, "no memory for the order of %u variants\n", all.n);
        exit(2);
    }
    return (int)n_order;
}

static const struct entry *entry_at(int i)
{
    return &all.entries[order[i]];
}

struct catalog_entry catalog_at(int i)
{
    const struct entry *e = entry_at(i);
    return (struct catalog_entry){e->hash, all.kinds[e->kind].name, e->config};
}

int catalog_variant(int i, struct variant *out)
{
    return kinds_variant(&all, entry_at(i), out, NULL);
}

int catalog_problem(int i, struct problem *out)
{
    return kinds_problem(&all, entry_at(i), out, NULL);
}
