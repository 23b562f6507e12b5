/* SPDX-License-Identifier: Apache-2.0 */
/*
 * News, on the loop: what this daemon and the others of its database have changed there. All are
 * told to the callback of ledger_config, in the order in which the writer thread met them.
 *
 * Others' news are rows of the table `change`, read on the writer thread. What they say of a key is
 * read from the file at that moment, so that a change that is met twice, or late, says what is true
 * now. When changes were missed, or the file is another one by now, all bests are read anew.
 */
#ifndef GEMMD_DAEMON_LEDGER_NEWS_H
#define GEMMD_DAEMON_LEDGER_NEWS_H

#include "daemon/ledger/local.h"

void news_tell(struct local *l, enum ledger_news_kind kind, const char *key,
               const struct best *best, bool saved);
/* A page of changes was read and told. `more`: there is another one. */
void news_asked(struct local *l, bool more);
/* All bests are to be read anew. `lost`: the file is another one, and may lack what it had. */
void news_reload(struct local *l, bool lost);
/* The daemon's own loading has ended. */
void news_loaded(struct local *l);

void news_start(struct local *l);                     /* with the loop handle `wake` made */
void news_close(struct local *l, uv_close_cb closed); /* two handles, whose data is `l` */

#endif
