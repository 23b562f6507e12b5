/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version 4: several daemons write one file, as equals. `change` says what each commit changed, and
 * `wanted` has the searches that wait at one daemon and that another may carry out.
 */
#include "store/db.h"

const char *const version4_sql[] = {
    "CREATE TABLE change (\n"
    "  seq INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, name TEXT NOT NULL,\n"
    "  writer TEXT NOT NULL) STRICT;\n",

    "CREATE TABLE wanted (\n"
    "  key TEXT NOT NULL, owner TEXT NOT NULL, boot TEXT NOT NULL, class TEXT NOT NULL,\n"
    "  uid INTEGER NOT NULL, search BLOB NOT NULL, since_s INTEGER NOT NULL,\n"
    "  PRIMARY KEY (key, owner)) STRICT;\n",

    "PRAGMA user_version = 4;\n", NULL};
