/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends rows to the daemon, as many in a request as fit. The size as MessagePack decides: a number
 * may be longer in MessagePack than in JSON, and a control character is shorter.
 */
#include <stdio.h>

#include "client/ctl/formats.h"
#include "proto/limits.h"
#include "proto/wire.h"

enum {
    HEAD_BYTES = 64, /* upper limit for a request's bytes around its rows */
    CHUNK_BYTES = 40 * 1024,
    CHUNK_ROWS = 256,
    ROW_DEPTH = 5, /* nesting within a row: a message has 8 levels, 3 are around the row */
};

/* ---- sizes ---------------------------------------------------------------------------------- */

static size_t import_count_bytes(const json_t *j)
{
    struct error e;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    TEXT_AUTO *text = text_dump(j, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    const int failed = text ? wire_from_json(&packed, text, &e) : -1;
    return failed ? SIZE_MAX : packed.len;
}

static int import_count_depth(const json_t *j)
{
    int depth, deepest = 0;
    OBJECT_EACH(name, v, j) {
        depth = import_count_depth(v);
        deepest = depth > deepest ? depth : deepest;
    }
    ARRAY_EACH(v, j) {
        depth = import_count_depth(v);
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest + (json_is_object(j) || json_is_array(j));
}

/* ---- sending -------------------------------------------------------------------------------- */

struct sending {
    struct ctl *ctl;            /* borrowed */
    json_t *total;              /* borrowed: {"imported": n, "skipped": [{"row", "message"}]} */
    json_t *chunk;              /* owned: the rows of the next request */
    bool trust;                 /* the rows answer at once */
    size_t numbers[CHUNK_ROWS]; /* index in the document of each row of the chunk */
    size_t at;                  /* the document's current row */
    size_t bytes;               /* of the chunk's rows as MessagePack */
};

static void import_add_result(struct sending *s, const json_t *result, const char *name)
{
    const json_t *more = json_object_get(result, name);
    if (more) {
        notice_count(s->total, name, json_integer_value(more));
    }
}

/* Sends the chunk unless it is empty, and adds up the result. */
static int send_chunk(struct sending *s)
{
    int code = DONE;
    if (json_array_size(s->chunk) == 0) {
        return DONE;
    }
    json_t *params = json_pack("{sO}", "rows", s->chunk);
    if (s->trust) {
        json_object_set_new(params, "trust", json_true());
    }
    json_auto_t *result = ctl_call(s->ctl, "import", params, &code);
    if (!result) {
        return code;
    }
    import_add_result(s, result, "imported");
    import_add_result(s, result, "trials");
    ARRAY_EACH(skipped, json_object_get(result, "skipped")) {
        const size_t row = (size_t)field_int(skipped, "row");
        json_object_set_new(skipped, "row",
                            json_integer(row < CHUNK_ROWS ? (json_int_t)s->numbers[row] : -1));
        json_array_append(json_object_get(s->total, "skipped"), skipped);
    }
    s->bytes = 0;
    json_array_clear(s->chunk);
    return DONE;
}

static int import_add_row(struct sending *s, json_t *row)
{
    const size_t bytes = import_count_bytes(row);
    const int depth = import_count_depth(row);
    json_t *why = NULL; /* the reason why no request can hold the row */
    if (bytes > REQUEST_BYTES_MAX - HEAD_BYTES) {
        why = json_sprintf("the row has %zu bytes, and gemmd takes %d at a time", bytes,
                           REQUEST_BYTES_MAX - HEAD_BYTES);
    } else if (depth > ROW_DEPTH) {
        why = json_sprintf("the row nests arrays and maps %d deep, and gemmd takes %d", depth,
                           ROW_DEPTH);
    }
    bool full = s->bytes + bytes > CHUNK_BYTES || json_array_size(s->chunk) == CHUNK_ROWS;
    int code = why || full ? send_chunk(s) : DONE;
    if (code) {
        json_decref(why);
        return code;
    }
    if (why) {
        json_array_append_new(json_object_get(s->total, "skipped"),
                              json_pack("{sI, so}", "row", (json_int_t)s->at, "message", why));
    } else {
        s->numbers[json_array_size(s->chunk)] = s->at;
        json_array_append(s->chunk, row);
        s->bytes += bytes;
    }
    return DONE;
}

/* Sends a row of a custom op with the trials of its key, up to thousands: the first trials with the
 * row, further trials in requests that repeat only the key's fields. */
static int take_parts(struct sending *s, json_t *row)
{
    json_t *trials = json_object_get(row, "trials");
    if (!json_is_array(trials)) {
        return import_add_row(s, row);
    }
    json_t *part = json_copy(row);
    json_auto_t *some = json_array();
    json_object_set(part, "trials", some);
    int code = DONE;
    size_t bytes = import_count_bytes(part);
    ARRAY_EACH(trial, trials) {
        const size_t more = import_count_bytes(trial);
        if (code == DONE && bytes + more > CHUNK_BYTES && json_array_size(some) > 0) {
            code = import_add_row(s, part);
            json_decref(part);
            json_decref(some);
            some = json_array();
            part = json_pack("{sO*, sO*, sO*, sO}", "op", json_object_get(row, "op"), "problem",
                             json_object_get(row, "problem"), "class",
                             json_object_get(row, "class"), "trials", some);
            bytes = import_count_bytes(part);
        }
        json_array_append(some, trial);
        bytes += more;
    }
    code = code ? code : import_add_row(s, part);
    json_decref(part);
    return code;
}

/* After the error message: prints how many rows were imported or skipped before the failure. */
static void say_how_far(const struct sending *s, size_t rows)
{
    const size_t n = json_array_size(s->chunk), first = n ? s->numbers[0] : s->at;
    fprintf(stderr,
            "before that, the first %zu of %zu rows were done: %lld imported, %zu skipped; of the "
            "next %zu it is not known\n",
            first, rows, field_int(s->total, "imported"),
            json_array_size(json_object_get(s->total, "skipped")),
            n ? s->numbers[n - 1] + 1 - first : 0);
}

int import_rows(struct ctl *c, const json_t *rows, bool trust, json_t *total)
{
    struct sending s = {.ctl = c, .trust = trust, .total = total, .chunk = json_array()};
    int code = DONE;
    for (; s.at < json_array_size(rows) && code == DONE; s.at++) {
        code = take_parts(&s, json_array_get(rows, s.at));
    }
    code = code ? code : send_chunk(&s);
    if (code && c->failed != GEMMD_DENIED) { /* a denied user has changed nothing */
        say_how_far(&s, json_array_size(rows));
    }
    json_decref(s.chunk);
    return code;
}
