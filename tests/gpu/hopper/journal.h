/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file with a verdict for each variant, a line each. The next run leaves out variants with a
 * verdict, because a space is too large for a single run. Tabs between the fields:
 *
 *   stage  verdict  hash of the variant  its name  findings
 *
 * The hash names sources and options, so lines about an older template do not count. Files of
 * different shards may be concatenated.
 */
#ifndef GEMMD_TESTS_GPU_HOPPER_JOURNAL_H
#define GEMMD_TESTS_GPU_HOPPER_JOURNAL_H

#include <stdbool.h>

void journal_open(void); /* --journal; before anything is forked */
bool journal_has(const char *stage, const char *hash, const char *name); /* has a verdict */
void journal_add(const char *stage, const char *verdict, const char *hash, const char *name,
                 const char *finding);

#endif
