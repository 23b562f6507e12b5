/* SPDX-License-Identifier: Apache-2.0 */
/* A problem of format 2 while its lines are read: what table.c and drift.c share. */
#ifndef GEMMD_KERNELS_DEVICES_REPLAY_TABLE_H
#define GEMMD_KERNELS_DEVICES_REPLAY_TABLE_H

#include "kernels/devices/replay/reader.h"

enum { SETTINGS_MAX = 4096 };

struct tunable {
    char name[RECORD_NAME_MAX];
    bool run_time;
    uint32_t n;
    struct value values[PARAM_VALUES_MAX]; /* texts are owned */
};

struct table {
    uint32_t n, n_settings; /* tunables; products of those at run time, which are last */
    struct tunable tunables[PARAMS_MAX];
    uint32_t first_entry, first_turn; /* of this problem in the landscape */
    struct record reference;          /* empty: not said */
    double reference_us;
    double walked_ms; /* when the last variant was measured */
};

/* drift.c: corrects the times of the last problem by what the reference did meanwhile. */
int drift_correct(struct reader *r, struct error *err);
#endif
