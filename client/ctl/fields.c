/* SPDX-License-Identifier: Apache-2.0 */
/* Values of JSON objects; words of a comma list; fields of a line of CSV. */
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"

const json_t *field_value(const json_t *row, const char *path)
{
    char name[64];
    for (;;) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        row = json_object_get(row, name);
        if (!row || !path[n]) {
            return row;
        }
        path += n + 1;
    }
}

long long field_int(const json_t *row, const char *path)
{
    return json_integer_value(field_value(row, path));
}

double field_number(const json_t *row, const char *path)
{
    return json_number_value(field_value(row, path));
}

bool field_is_true(const json_t *row, const char *path)
{
    return json_is_true(field_value(row, path));
}

const char *field_string(const json_t *row, const char *path)
{
    return json_string_value(field_value(row, path));
}

const char *field_text(const json_t *row, const char *path)
{
    const char *text = field_string(row, path);
    return text ? text : "";
}

bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strcspn(at, ",") == n && memcmp(at, word, n) == 0) {
            return true;
        }
    }
    return !list;
}

int csv_split(char *line, char *out[CSV_FIELDS_MAX])
{
    int n = 0;
    for (char *field; (field = strsep(&line, ",")); n++) {
        field += strspn(field, " \r");
        size_t length = strlen(field);
        while (length > 0 && strchr(" \r", field[length - 1])) {
            field[--length] = '\0';
        }
        if (n < CSV_FIELDS_MAX) {
            out[n] = field;
        }
    }
    return n;
}
