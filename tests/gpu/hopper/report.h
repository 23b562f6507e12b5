/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GEMMD_TESTS_GPU_HOPPER_REPORT_H
#define GEMMD_TESTS_GPU_HOPPER_REPORT_H

#include "proto/record.h"

/* Opens the files --out and --json. Call this before any fork. */
void report_open(void);
/* Prints on the terminal and into the file --out, unbuffered. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_record(
    const struct record *r); /* writes a line into the file --json, if there is one */

double now(void); /* seconds, monotonic */

#endif
