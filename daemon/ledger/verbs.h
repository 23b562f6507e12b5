/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of the local ledger (request.h says what a verb is). */
#ifndef GEMMD_DAEMON_LEDGER_VERBS_H
#define GEMMD_DAEMON_LEDGER_VERBS_H

#include "daemon/ledger/request.h"

extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_restore, verb_unpin,
    verb_lease, verb_unlease, verb_add_run, verb_list, verb_list_key, verb_evict, verb_unquarantine,
    verb_backup, verb_status, verb_record, verb_add_trial, verb_add_module, verb_add_quarantine,
    verb_add_event, verb_put_device, verb_end_run;
/* Nobody asks for it: the row of a request that could not be saved, and is now. */
extern const struct verb verb_saved;

#endif
