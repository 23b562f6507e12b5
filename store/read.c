/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a key's trials, the quarantine, and the modules that bests name; load.c reads the bests. */
#include <stdlib.h>
#include <string.h>

#include "proto/hash.h"
#include "store/inner.h"

/* Makes room for another element. */
static int read_grow_array(void **array, uint32_t n, size_t size, struct error *err)
{
    if (n & (n - 1)) {
        return 0; /* there is room: the capacity is the next power of two */
    }
    void *grown = realloc(*array, (n ? 2 * (size_t)n : 1) * size);
    if (!grown) {
        return error_set(err, ERROR_NO_MEMORY, "no memory for %u rows", n + 1);
    }
    *array = grown;
    return 0;
}

int store_trials_of(struct store *s, const char *key, const char *stamp, struct trial **out,
                    uint32_t *n, struct error *err)
{
    ROWS_AUTO rows = {0};
    void *array = NULL;
    uint32_t count = 0;
    int r = rows_begin(&rows, s, TABLE_TRIAL, err, NULL,
                       "WHERE key = ?1 AND stamp = ?2 AND status IN ('ok', 'aborted', 'invalid',"
                       " 'compile', 'resource', 'wrong_result') ORDER BY id",
                       "tt", key, stamp);
    while (r == 0 && (r = read_grow_array(&array, count, sizeof(**out), err)) == 0) {
        struct trial *t = (struct trial *)array + count;
        r = rows_next(&rows, t, err);
        if (r != DB_ROW) {
            break;
        }
        if (strcmp(t->key, key) != 0) {
            /* a trial of another key must not be returned for this key */
            r = store_index_damaged(s, err);
            break;
        }
        count++;
        r = 0;
    }
    if (r < 0 || count == 0) {
        free(array);
        array = NULL;
    }
    *out = array;
    *n = r < 0 ? 0 : count;
    return r;
}

int store_avoid(struct store *s, const char *class_, const char *driver, char (**out)[HASH_HEX],
                uint32_t *n, struct error *err)
{
    ROWS_AUTO rows = {0};
    struct quarantine q;
    void *array = NULL;
    uint32_t count = 0;
    int r = rows_begin(&rows, s, TABLE_QUARANTINE, err, NULL,
                       "WHERE class = ?1 AND driver = ?2 AND deaths > 0 ORDER BY variant", "tt",
                       class_, driver);
    while (r == 0 && (r = rows_next(&rows, &q, err)) == DB_ROW) {
        r = read_grow_array(&array, count, HASH_HEX, err);
        if (r == 0) {
            memcpy(((char(*)[HASH_HEX])array)[count++], q.variant, HASH_HEX);
        }
    }
    if (r < 0) {
        free(array);
        array = NULL;
        count = 0;
    }
    *out = array;
    *n = count;
    return r;
}

/* Does not check the rows' checksums: a wrong id in the list does no harm. */
int store_modules_of_bests(struct store *s, char (**out)[HASH_HEX], uint32_t *n, struct error *err)
{
    DB_STMT_AUTO *st = NULL;
    void *array = NULL;
    *n = 0;
    int r = db_query(&s->db, &st, err,
                     "SELECT DISTINCT module FROM current_best WHERE module <> ''", "");
    while (r == 0 && (r = db_step(&s->db, st, err)) == DB_ROW) {
        const char *id = (const char *)sqlite3_column_text(st, 0);
        r = read_grow_array(&array, *n, HASH_HEX, err);
        if (r == 0 && id && hash_is_hex(id)) {
            memcpy(((char(*)[HASH_HEX])array)[(*n)++], id, HASH_HEX);
        }
    }
    *out = array;
    return r;
}
