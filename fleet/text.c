/* SPDX-License-Identifier: Apache-2.0 */
/* Writes parameters of statements (text.h). */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fleet/text.h"

void text_deinit(struct text *t)
{
    free(t->data);
    *t = (struct text){.data = NULL};
}

static bool text_grow(struct text *t, size_t more)
{
    if (t->n + more + 1 > t->size) {
        const size_t size = 2 * (t->n + more + 1);
        char *data = t->failed ? NULL : realloc(t->data, size);
        if (!data) {
            t->failed = true;
            return false;
        }
        t->data = data;
        t->size = size;
    }
    return !t->failed;
}

void text_append(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n >= 0 && text_grow(t, (size_t)n)) {
        va_start(args, format);
        vsnprintf(t->data + t->n, (size_t)n + 1, format, args);
        va_end(args);
        t->n += (size_t)n;
    }
}

void text_add_element(struct text *t, const char *value)
{
    text_append(t, t->n ? "," : "{");
    if (!text_grow(t, 2 * strlen(value) + 2)) {
        return;
    }
    t->data[t->n++] = '"';
    for (; *value; value++) {
        if (*value == '"' || *value == '\\') {
            t->data[t->n++] = '\\';
        }
        t->data[t->n++] = *value;
    }
    t->data[t->n++] = '"';
    t->data[t->n] = '\0';
}

void text_add_number(struct text *t, int64_t value)
{
    text_append(t, "%s%" PRId64, t->n ? "," : "{", value);
}

void text_end_array(struct text *t)
{
    text_append(t, t->n ? "}" : "{}");
}

const char *text_of_number(char out[24], int64_t value)
{
    snprintf(out, 24, "%" PRId64, value);
    return out;
}

void text_add_best(struct text *t, const struct best *b)
{
    struct best row = *b;
    WIRE_BUF_AUTO packed = WIRE_BUF_NULL;
    char *json = NULL;
    row.uid = row.trial = row.generation = 0;
    row.module[0] = '\0';
    schema_encode(&packed, &best_schema, &row);
    if (packed.failed || wire_buf_to_json(&packed, &json, NULL)) {
        t->failed = true;
        return;
    }
    text_add_element(t, json);
    free(json);
}

void text_make_row_id(const char *host, const struct best *b, char out[HASH_HEX])
{
    char numbers[96], config[CONFIG_TEXT_MAX];
    snprintf(numbers, sizeof(numbers), "%" PRId64 " %.17g %.17g", b->created_s, b->time_us,
             b->reference_us);
    record_format(&b->config, config, sizeof(config));
    const char *const texts[] = {host, b->key, b->stamp, config, numbers};
    hash128_texts(texts, sizeof(texts) / sizeof(texts[0]), out);
}
