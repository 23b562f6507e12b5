/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting a search aside. When gemmd has said that other searches wait for the device, the runner
 * ends an order between two candidates. The order comes again, with the trials so far, when the
 * other searches have had their turn. Compiles that the search has started go on, and the search
 * continues with their results. An order is set aside in two cases:
 *
 *   - The device would be idle: the search has nothing to measure until kernels are compiled.
 *   - The turn is over: the order has had the device for TURN_MS since its problem was prepared, or
 *     for as long as the preparation took.
 *
 * Starting again has a cost: the runner makes the plan, fills the operands, and measures the
 * reference once more. So a search is set aside to wait only when the expected wait, by the compile
 * times of the search's finished kernels, is longer than 200 ms. A turn is never shorter than its
 * preparation. Every order measures some candidates first, so that two searches cannot keep
 * displacing each other without progress.
 */
#ifndef GEMMD_RUNNER_ASIDE_H
#define GEMMD_RUNNER_ASIDE_H

#include <stdint.h>

#include "proto/record.h"

struct build;
struct candidate;
struct job;
struct runner;

/* A search that was set aside: the candidates in its compile queue. */
struct aside {
    struct aside *next;
    int64_t job; /* id */
    uint32_t n;
    struct {
        struct record config;
        struct build *build; /* held until the struct aside is dropped */
    } kept[];
};

#define ASIDE_NEVER INT64_MAX /* of job_patience(): do not set the search aside */

/* Keeps the queued candidates and their builds until the search comes back. Without memory nothing
 * is kept, and the search asks for the builds again. */
void aside_keep(struct job *j, struct candidate *const queue[], uint32_t n);
/* The kept state of a job, or NULL. */
const struct aside *aside_find(struct runner *r, int64_t job);
/* Drops the kept state: the search has come back and holds the builds itself, or never will. */
void aside_drop(struct runner *r, int64_t job);

#endif
