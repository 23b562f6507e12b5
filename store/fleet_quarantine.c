/* SPDX-License-Identifier: Apache-2.0 */
/* Variants that other hosts of the fleet put into quarantine (fleet.h). Their reasons begin with
 * FLEET_REASON, by which they differ from this host's rows. */
#include <stdio.h>
#include <string.h>

#include "store/fleet.h"
#include "store/inner.h"

bool fleet_is_reason(const char *reason)
{
    return strncmp(reason, FLEET_REASON, strlen(FLEET_REASON)) == 0;
}

/* Sets q->id to that of the variant's row. STORE_THERE: the row stays, since it is of this host, or
 * says the same. */
static int fleet_find_quarantine(struct store *s, struct quarantine *q, struct error *err)
{
    struct quarantine known;
    int r = rows_first(s, TABLE_QUARANTINE, &known, err, NULL,
                       "WHERE class = ?1 AND driver = ?2 AND variant = ?3", "ttt", q->class,
                       q->driver, q->variant);
    q->id = r == 0 ? known.id : 0;
    return r == 0 && (!fleet_is_reason(known.reason) || known.deaths == q->deaths) ? STORE_THERE
                                                                                   : r;
}

static int fleet_quarantine_variant(struct store *s, struct quarantine *q, struct error *err)
{
    int r = fleet_find_quarantine(s, q, err);
    if (r < 0 || r == STORE_THERE) {
        return r < 0 ? r : 0;
    }
    if (r == STORE_MISS) {
        rows_number(s, TABLE_QUARANTINE, q);
    }
    r = rows_put(s, TABLE_QUARANTINE, ROW_UPDATE, q, err);
    return r ? r : change_add(s, "quarantine", q->variant, err);
}

int store_fleet_add_quarantine(struct store *s, struct quarantine *q, const char *origin,
                               struct error *err)
{
    char reason[sizeof(q->reason)];
    memcpy(reason, q->reason, sizeof(reason));
    snprintf(q->reason, sizeof(q->reason), FLEET_REASON "%.64s: %.240s", origin, reason);
    int r = fleet_find_quarantine(s, q, err); /* mostly nothing is to be written */
    if (r < 0 || r == STORE_THERE) {
        return r < 0 ? r : 0;
    }
    r = write_begin(s, err);
    return r ? r : write_end(s, fleet_quarantine_variant(s, q, err), err);
}

int store_fleet_unquarantine(struct store *s, const struct quarantine *q, struct error *err)
{
    int64_t n = 0;
    int r = write_begin(s, err);
    if (r) {
        return r;
    }
    r = db_run(&s->db, &n, err,
               "DELETE FROM quarantine WHERE class = ?1 AND driver = ?2 AND variant = ?3 AND"
               " instr(reason, '" FLEET_REASON "') = 1",
               "ttt", q->class, q->driver, q->variant);
    r = r || n == 0 ? r : change_add(s, "quarantine", q->variant, err);
    return write_end(s, r, err);
}

int store_fleet_list_quarantine(struct store *s, bool of_others, int64_t after,
                                struct quarantine *out, uint32_t max, uint32_t *n,
                                struct error *err)
{
    return rows_page(s, TABLE_QUARANTINE, out, max, n, err, NULL,
                     of_others ? "WHERE id > ?1 AND instr(reason, '" FLEET_REASON
                                 "') = 1 ORDER BY id"
                               : "WHERE id > ?1 AND deaths > 0 AND instr(reason, '" FLEET_REASON
                                 "') <> 1 ORDER BY id",
                     after);
}
