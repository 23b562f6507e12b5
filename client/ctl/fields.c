/* SPDX-License-Identifier: Apache-2.0 */
/* Values of JSON objects; the order of rows; words of a comma list; files of CSV. */
#include <stdio.h>
#include <stdlib.h>
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

bool field_is(const json_t *row, const char *path, const char *text)
{
    return strcmp(field_text(row, path), text) == 0;
}

int row_compare(const json_t *a, const json_t *b, const char *const order[])
{
    int c = 0;
    for (; c == 0 && *order; order++) {
        const bool down = **order == '-';
        const json_t *v = json_object_get(a, *order + down), *w = json_object_get(b, *order + down);
        const double x = json_number_value(v), y = json_number_value(w);
        c = json_is_string(v) && json_is_string(w)
                ? strcmp(json_string_value(v), json_string_value(w))
                : (x > y) - (x < y);
        c = down ? -c : c;
    }
    return c;
}

struct sorted_row {
    json_t *row; /* owned */
    size_t at;   /* index before the sort, which rows of equal fields keep */
};

static int row_compare_sorted(const void *a, const void *b, void *order)
{
    const struct sorted_row *x = a, *y = b;
    const int c = row_compare(x->row, y->row, order);
    return c ? c : (x->at > y->at) - (x->at < y->at);
}

void rows_sort(json_t *rows, const char *const order[])
{
    const size_t n = json_array_size(rows);
    struct sorted_row *all = calloc(n + 1, sizeof(*all));
    for (size_t i = 0; all && i < n; i++) {
        all[i] = (struct sorted_row){json_incref(json_array_get(rows, i)), i};
    }
    if (all) {
        qsort_r(all, n, sizeof(*all), row_compare_sorted, (void *)(uintptr_t)order);
    }
    for (size_t i = 0; all && i < n; i++) {
        json_array_set_new(rows, i, all[i].row);
    }
    free(all);
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

bool csv_open(struct csv *csv, const char *path, struct error *err)
{
    *csv = (struct csv){.path = path, .line = 1, .text = text_read_file(path, err)};
    if (!csv->text) {
        return false;
    }
    csv->at =
        csv->text + (strncmp(csv->text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0); /* a byte order mark */
    csv->n_names = csv_split(strsep(&csv->at, "\n"), csv->names);
    if (csv->n_names > CSV_FIELDS_MAX) {
        error_set(err, ERROR_INVALID, "%s, line 1: %d columns, and at most %d can be read", path,
                  csv->n_names, CSV_FIELDS_MAX);
        csv_close(csv);
        return false;
    }
    return true;
}

bool csv_next(struct csv *csv)
{
    char *line;
    do {
        line = strsep(&csv->at, "\n");
        csv->line++;
    } while (line && line[strspn(line, " \t\r")] == '\0');
    csv->n = line ? csv_split(line, csv->fields) : 0;
    return line;
}

int csv_find(const struct csv *csv, const char *name)
{
    for (int i = 0; i < csv->n_names; i++) {
        if (strcmp(csv->names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

const char *csv_field(const struct csv *csv, const char *name)
{
    const int i = csv_find(csv, name);
    return i >= 0 && i < csv->n ? csv->fields[i] : NULL;
}

void csv_close(struct csv *csv)
{
    free(csv->text);
    csv->text = NULL;
}
