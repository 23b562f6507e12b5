/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors 0, 1 and 2, before a program opens anything: where its parent has closed one, the
 * next file that is opened would get its number, and what is printed would go into a socket or a
 * database.
 */
#ifndef GEMMD_PROTO_STD_FILES_H
#define GEMMD_PROTO_STD_FILES_H

/* Those that are closed are opened in the direction that nobody uses: reading and writing fail as
 * before. */
void std_files_open(void);

/* Another way to where standard error goes, on which a write fails (EAGAIN) rather than waits for a
 * reader that stands still: O_NONBLOCK on standard error itself would be everybody's who shares it.
 * -1: there is none, as for a file, a socket, another user's pipe. The caller closes it; closed on
 * exec. */
int std_files_impatient(void);

#endif
