/* SPDX-License-Identifier: Apache-2.0 */
/* The problems of the serving benchmarks, by number: each has a key, and an answer that identifies
 * the problem. */
#ifndef GEMMD_TESTS_SERVING_PROBLEMS_H
#define GEMMD_TESTS_SERVING_PROBLEMS_H

#include "client/gemmd.h"
#include "proto/record.h"

enum { PROBLEMS_MAX = 3 * 256 * 256 };

/* Problem number i < PROBLEMS_MAX. Its sizes are buckets of every scheme: rounding changes nothing.
 */
struct gemmd_problem bench_problem(int i);
void bench_config(int i, struct record *out); /* has as many fields as a tuned config */
double bench_time_us(int i);                  /* the answer's time, different for each number */
/* The numbers 0..n-1 in an order without a pattern, the same on every run. malloc'ed. */
int *bench_order(int n);

#endif
