/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that loses power: a SQLite VFS around the real VFS. It remembers each file's synced
 * content, and every write and truncation since. After a power cut, a file holds its synced content
 * and any part of the later changes: no change, all, the first changes with the last change torn,
 * or any sectors in any order. A file that was created or removed after the last sync of its folder
 * may exist or not.
 *
 * The model keeps the promise that SQLite relies on by default (SQLITE_IOCAP_POWERSAFE_OVERWRITE):
 * a write harms no byte outside its range. Sectors are never torn.
 */
#ifndef GEMMD_TESTS_FAULT_POWER_VFS_H
#define GEMMD_TESTS_FAULT_POWER_VFS_H

#include <stdbool.h>
#include <stdint.h>

/* Makes this the default VFS of the process. Before power_on, all calls pass through. */
void power_install(void);

/* Begins to record files. The power fails at the write, truncation or sync number `operations` from
 * now: this and all later operations fail. */
void power_on(uint64_t seed, long operations);
bool power_is_off(void);

/* Call with all files closed. Cuts the power if still on. Writes each file as the disk may hold it,
 * and stops recording. Shared memory files are removed. */
void power_cut(void);

/* Returns how many unsynced writes the last cut dropped or tore. */
long power_dropped(void);

/* The test's generator: equal seeds make equal cuts. */
uint64_t power_random(void);
uint64_t power_below(uint64_t n); /* 0 .. n - 1 */

#endif
