/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/hopper/shelf.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct data *all[KINDS_MAX][SHELF_SHAPES];

struct data *shelf_get(struct lab *lab, int kind, int which, const struct shape *shape)
{
    struct data **d = &all[kind][which];
    struct problem p;
    assert(kind < KINDS_MAX && which < SHELF_SHAPES);
    if (*d) {
        return *d;
    }
    *d = calloc(1, sizeof(**d));
    progress_on(-1, -1, "", kinds[kind].name);
    if (case_problem(&kinds[kind], shape, &p) ||
        data_make(*d, &lab->tools, &p, shape, DATA_TO_CHECK)) {
        printf("FAULT no inputs for %s\n", kinds[kind].name);
        fflush(stdout);
        _exit(5);
    }
    return *d;
}

void shelf_clear(void)
{
    for (int i = 0; i < KINDS_MAX * SHELF_SHAPES; i++) {
        struct data **d = &all[i / SHELF_SHAPES][i % SHELF_SHAPES];
        if (*d) {
            data_free(*d);
            free(*d);
            *d = NULL;
        }
    }
}
