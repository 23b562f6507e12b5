/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that loses power: a SQLite VFS around the real one, which remembers of each file what has
 * been synced, and every write and truncation since. When the power goes, a file holds what was
 * synced and, of what came after, whatever a disk may have written by then: nothing, all, the first
 * ones with the last one torn, or any of the sectors in any order. A file whose folder was not
 * synced since it was made, or removed, may be there or not.
 *
 * The model keeps the promise that SQLite relies on by default (SQLITE_IOCAP_POWERSAFE_OVERWRITE):
 * a write harms no byte outside its range; and sectors are not torn inside.
 */
#ifndef GEMMD_TESTS_FAULT_POWER_VFS_H
#define GEMMD_TESTS_FAULT_POWER_VFS_H

#include <stdbool.h>
#include <stdint.h>

/* Becomes the default VFS of this process. Without power_on it passes everything through. */
void power_install(void);

/* From now on files are followed; the write, truncation or sync number `operations` from now is
 * the first that does not reach the disk, and all after it fail. */
void power_on(uint64_t seed, long operations);
bool power_is_off(void);

/* With all files closed: the power goes, when it is not off yet. Lays each file down as the disk
 * may hold it, and stops following. Files of shared memory are gone. */
void power_cut(void);

/* What the last cut threw away: writes that had not been synced and did not reach the disk
 * whole. */
long power_dropped(void);

/* The generator of this test: the same seed, the same cuts. */
uint64_t power_random(void);
uint64_t power_below(uint64_t n); /* 0 .. n - 1 */

#endif
