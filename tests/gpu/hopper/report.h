/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_TESTS_GPU_HOPPER_REPORT_H
#define GEMMD_TESTS_GPU_HOPPER_REPORT_H

#include "proto/record.h"

/* Opens --out and --json; before anything is forked. */
void report_open(void);
/* On the terminal and into --out, at once. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_record(const struct record *r); /* writes a line of --json, if given */

double now(void); /* seconds, monotonic */

#endif
