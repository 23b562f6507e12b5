/* SPDX-License-Identifier: Apache-2.0 */
/* A table of the compiler's results: a row per kind of problem, then the reasons of refusals. */
#ifndef GEMMD_TESTS_COMPILE_SUMMARY_H
#define GEMMD_TESTS_COMPILE_SUMMARY_H

#include "tests/compile/kinds.h"
#include "tests/compile/results.h"

/* Prints the table. Returns the number of refused or failed variants. */
uint32_t summary_print(const struct kinds *k, const struct results *r);

#endif
