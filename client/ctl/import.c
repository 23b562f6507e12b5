/* SPDX-License-Identifier: Apache-2.0 */
/* Rows to the daemon, as many at a time as a request holds. */
#include "client/ctl/formats.h"

enum { CHUNK_BYTES = 40 * 1024, CHUNK_ROWS = 256 };

/* Sends a chunk of rows, of which the first is row `first` of the document, and adds up. */
static int send_rows(struct ctl *c, json_t *rows, size_t first, json_t *total)
{
    int code = DONE;
    json_t *result = ctl_call(c, "import", json_pack("{sO}", "rows", rows), &code);
    if (!result) {
        return code;
    }
    json_int_t imported = json_integer_value(json_object_get(total, "imported")) +
                          json_integer_value(json_object_get(result, "imported"));
    json_object_set_new(total, "imported", json_integer(imported));
    size_t i;
    json_t *s;
    json_array_foreach (json_object_get(result, "skipped"), i, s) {
        json_int_t row = json_integer_value(json_object_get(s, "row")) + (json_int_t)first;
        json_object_set_new(s, "row", json_integer(row));
        json_array_append(json_object_get(total, "skipped"), s);
    }
    json_decref(result);
    return DONE;
}

static size_t json_bytes(const json_t *j)
{
    return json_dumpb(j, NULL, 0, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

int import_rows(struct ctl *c, const json_t *rows, json_t *total)
{
    json_t *chunk = json_array();
    size_t bytes = 0, i;
    json_t *row;
    int code = DONE;
    json_array_foreach ((json_t *)(uintptr_t)rows, i, row) {
        size_t n = json_bytes(row);
        bool full = bytes + n > CHUNK_BYTES || json_array_size(chunk) == CHUNK_ROWS;
        if (code == DONE && full && bytes > 0) {
            code = send_rows(c, chunk, i - json_array_size(chunk), total);
            json_array_clear(chunk);
            bytes = 0;
        }
        json_array_append(chunk, row);
        bytes += n;
    }
    if (code == DONE && json_array_size(chunk) > 0) {
        code = send_rows(c, chunk, json_array_size(rows) - json_array_size(chunk), total);
    }
    json_decref(chunk);
    return code;
}
