/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors 0, 1 and 2, before a program opens any file: when the parent has closed a descriptor,
 * the next opened file would get its number, and output would go into a socket or a database.
 */
#ifndef GEMMD_PROTO_STD_FILES_H
#define GEMMD_PROTO_STD_FILES_H

/* Opens closed descriptors in the unused direction, so that reading and writing still fail. */
void std_files_open(void);

/* Another descriptor for standard error's file. A write fails with EAGAIN instead of waiting for a
 * slow reader. (O_NONBLOCK on standard error itself would affect every process that shares standard
 * error.) -1: standard error is a file, a socket, or another user's pipe. The caller closes the
 * descriptor; closed on exec. */
int std_files_impatient(void);

#endif
