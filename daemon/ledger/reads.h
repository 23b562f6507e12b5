/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the shared ledger that read: from the home that has the file open, the keeper's own
 * or the reader's. When that one changes in between, the other begins anew. */
#ifndef GEMMD_DAEMON_LEDGER_READS_H
#define GEMMD_DAEMON_LEDGER_READS_H

#include "daemon/ledger/follow.h"

int reads_load(struct ledger *base, bool first, ledger_load_cb cb, void *ctx);
int reads_find(struct ledger *base, const char *key, ledger_best_cb cb, void *ctx);
int reads_history(struct ledger *base, const char *key, const char *stamp, const char *class_,
                  const char *driver, ledger_history_cb cb, void *ctx);
int reads_list(struct ledger *base, int64_t user, const char *what, const struct record *filter,
               size_t max_bytes, ledger_list_cb cb, void *ctx);
void reads_withdraw(struct ledger *base, const void *ctx);
int reads_backup(struct ledger *base, const char *path, ledger_done_cb cb, void *ctx);
/* Of a table's calls, these. */
#define LEDGER_READS                                                                               \
    .load = reads_load, .find = reads_find, .history = reads_history, .list = reads_list,          \
    .withdraw = reads_withdraw, .backup = reads_backup

#endif
