/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the fleet that are void, and rows that failed. */
#include "store/fleet.h"
#include "store/inner.h"

int store_fleet_forget(struct store *s, bool own_only, struct error *err)
{
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = db_run(&s->db, NULL, err,
               own_only ? "DELETE FROM fleet_row WHERE state IN ('own', 'evidence')"
                        : "DELETE FROM fleet_row",
               "");
    return write_end(s, r, err);
}

int store_fleet_list_wrong(struct store *s, int64_t least, char (*out)[64], uint32_t max,
                           uint32_t *n, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    *n = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT origin FROM fleet_row WHERE state = 'refused' GROUP BY origin"
                     " HAVING count(*) >= ?1",
                     "i", least);
    while (r == 0 && *n < max && (r = db_step(&s->db, st, err)) == DB_ROW) {
        DB_COPY(out[*n], st, 0);
        ++*n;
        r = 0;
    }
    return r < 0 ? r : 0;
}
