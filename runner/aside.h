/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting aside. When gemmd has said that others wait for the device, an order ends between two
 * candidates, set aside, and comes again with the trials so far when the others have had their
 * turn. What is on its way stays so, and is what the search goes on with. An order is set aside
 * (patience.c):
 *
 *   - when the device would be idle: the search has nothing to measure until kernels are compiled;
 *   - when its turn is over: it has had the device for TURN_MS since its problem was prepared, or
 *     for as long as that took.
 *
 * To begin again costs something (operands, the reference once more). So the wait for a compiler
 * must be longer than that, by what the search's other kernels took to compile; a turn is never
 * shorter than its preparation; and every order measures something first, so that no two searches
 * do little but give way to each other.
 */
#ifndef GEMMD_RUNNER_ASIDE_H
#define GEMMD_RUNNER_ASIDE_H

#include <stdint.h>

#include "proto/record.h"
#include "runner/strategy/plan.h"

struct build;
struct candidate;
struct job;
struct runner;

/* What a search that was set aside had: its plan, and what was on its way. */
struct aside {
    struct aside *next;
    int64_t job;
    struct plan plan; /* owned; empty: it has not been kept, or has been taken */
    uint32_t n;
    struct {
        struct record config;
        struct build *build; /* held */
    } kept[];
};

#define ASIDE_NEVER INT64_MAX

/* Keeps what is on its way until the search comes back. No memory: nothing is kept, and the search
 * asks for it again. */
void aside_keep(struct job *j, struct candidate *const queue[], uint32_t n);
/* What was kept for a job; NULL: nothing. */
const struct aside *aside_find(struct runner *r, int64_t job);
/* Moves the plan of a job that ends, set aside, to what is kept of it; and from there to the next
 * order of the same job, which asks plan_go_on() whether it still holds. False: there is none. */
void aside_keep_plan(struct job *j);
bool aside_take_plan(struct runner *r, int64_t job, struct plan *out);
/* The search holds it itself, or will not come back. */
void aside_drop(struct runner *r, int64_t job);

#endif
