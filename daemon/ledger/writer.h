/* SPDX-License-Identifier: Apache-2.0 */
/* The writer thread of the local ledger. */
#ifndef GEMMD_DAEMON_LEDGER_WRITER_H
#define GEMMD_DAEMON_LEDGER_WRITER_H

/* Of a struct local. Ends when `stopping` is set and all is done. */
void writer_run(void *local);

#endif
