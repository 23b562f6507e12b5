/* SPDX-License-Identifier: Apache-2.0 */
/* A table of what was compiled: a row per kind, then why variants were refused. */
#ifndef GEMMD_TESTS_COMPILE_SUMMARY_H
#define GEMMD_TESTS_COMPILE_SUMMARY_H

#include "tests/compile/kinds.h"
#include "tests/compile/results.h"

/* Prints it; returns how many variants were refused or failed. */
uint32_t summary_print(const struct kinds *k, const struct results *r);

#endif
