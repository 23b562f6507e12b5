/* SPDX-License-Identifier: Apache-2.0 */
/* What the Hopper bench says, and records of it. */
#ifndef GEMMD_TESTS_GPU_HOPPER_REPORT_H
#define GEMMD_TESTS_GPU_HOPPER_REPORT_H

#include "proto/record.h"

/* Opens --out and --json; before anything is forked. */
void report_open(void);
/* On the terminal and into --out, at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_record(const struct record *r); /* a line of --json, when there is one */

double now(void); /* seconds, monotonic */

#endif
