/* SPDX-License-Identifier: Apache-2.0 */
/* The cache directory, on the writer thread (modules.c says why there). */
#ifndef GEMMD_DAEMON_LEDGER_MODULES_H
#define GEMMD_DAEMON_LEDGER_MODULES_H

#include "daemon/ledger/local.h"

void ledger_modules_trim(struct local *l); /* with a cache_dir only; sets when it is due again */
void ledger_modules_count(struct local *l, struct ledger_status *out);

#endif
