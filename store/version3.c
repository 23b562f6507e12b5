/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Version 3: `stale` compares a best with the newest stamp of its own target. Several targets of a
 * family serve one class (on sm_90a hopper and portable), each with a stamp of its own, so that all
 * rows of one were told to be stale whenever the newest row was another's.
 */
#include "store/db.h"

/* The word behind "target=" in a stamp, or ''. */
#define BEHIND "substr(stamp, instr(stamp, 'target=') + 7)"
#define TARGET                                                                                     \
    "CASE WHEN instr(stamp, 'target=') > 0\n"                                                      \
    "     THEN substr(" BEHIND ", 1, instr(" BEHIND " || ' ', ' ') - 1) ELSE '' END"

const char *const version3_sql[] = {
    "DROP VIEW IF EXISTS stale;\n",

    "CREATE VIEW stale AS\n"
    "  WITH newest AS (SELECT family, class, " TARGET " AS target, stamp, max(generation)\n"
    "                  FROM best WHERE source <> 'imported' GROUP BY 1, 2, 3),\n"
    "       current AS (SELECT *, " TARGET " AS target FROM current_best)\n"
    "  SELECT substr(b.key, 1, 12) AS key, b.op, b.family, b.class, b.target, b.source, b.stamp,\n"
    "  n.stamp AS newest_stamp,\n"
    "  round((unixepoch() - b.created_s) / 86400.0, 1) AS age_days, b.generation\n"
    "  FROM current AS b JOIN newest AS n USING (family, class, target)\n"
    "  WHERE b.stamp <> n.stamp;\n",

    "PRAGMA user_version = 3;\n", NULL};
