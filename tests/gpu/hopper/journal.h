/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A verdict for each variant, a line each, in a file that the next run reads to leave out what is
 * done: a space is more than one run can check. Tabs between the fields:
 *
 *   stage  verdict  hash of the variant  its name  what was found
 *
 * The hash names sources and options, so that lines about an older template count for nothing. Runs
 * of different shards may be concatenated.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_JOURNAL_H
#define GEMMD_TESTS_GPU_HOPPER_JOURNAL_H

#include <stdbool.h>

void journal_open(void); /* --journal; before anything is forked */
bool journal_has(const char *stage, const char *hash, const char *name); /* has a verdict */
void journal_add(const char *stage, const char *verdict, const char *hash, const char *name,
                 const char *finding);

#endif
