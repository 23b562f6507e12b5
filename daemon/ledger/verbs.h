/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of the local ledger (request.h says what a verb is). */
#ifndef GEMMD_DAEMON_LEDGER_VERBS_H
#define GEMMD_DAEMON_LEDGER_VERBS_H

#include "daemon/ledger/request.h"

extern const struct verb verb_load, verb_find, verb_history, verb_publish, verb_restore, verb_unpin,
    verb_lease, verb_unlease, verb_add_run, verb_list, verb_list_key, verb_evict, verb_unquarantine,
    verb_backup, verb_status, verb_record, verb_add_trial, verb_add_module, verb_add_quarantine,
    verb_add_event, verb_put_device, verb_end_run, verb_changes, verb_want, verb_unwant,
    verb_next_wanted;
/* Nobody asks for these: news on their way to the loop. The row of a request that could not be
 * saved, and is now; or that another daemon has written. */
extern const struct verb verb_saved;
/* All bests are to be read anew; `saved` false: the file is another one. */
extern const struct verb verb_reload;

/* On the writer thread: tells all that others have changed. STORE_MISSED: not all of it is known,
 * and it is read anew. */
int verbs_tell_changes(struct local *l, struct error *err);

#endif
