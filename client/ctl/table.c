/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables by libsmartcols, aligned as lsblk's tables. fit.c chooses columns that fit the terminal;
 * without it each value is printed whole and on one line. libsmartcols itself writes control
 * characters as \x1b.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libsmartcols.h>

#include "client/ctl/ctl.h"

/* ---- showing values ------------------------------------------------------------------------- */

int show_decimals(double v)
{
    return v >= 1000 ? 0 : v >= 100 ? 1 : v >= 10 ? 2 : 3;
}

char *show_plain(const json_t *v)
{
    if (json_is_string(v)) {
        return text_copy(*json_string_value(v) ? json_string_value(v) : "-");
    }
    if (!v || json_is_null(v)) {
        return text_copy("-");
    }
    if (json_is_boolean(v)) {
        return text_copy(json_is_true(v) ? "yes" : "no");
    }
    return text_dump(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
}

char *show_time(const json_t *v)
{
    double d = json_number_value(v);
    return json_is_number(v) ? text_format("%.*f", show_decimals(d), d) : text_copy("-");
}

char *show_percent(const json_t *v)
{
    return json_is_number(v) ? text_format("%.1f", json_number_value(v)) : text_copy("-");
}

char *show_floor(const json_t *v)
{
    return json_number_value(v) > 100 ? text_copy(">100") : show_percent(v);
}

char *show_ratio(const json_t *v)
{
    return json_is_number(v) ? text_format("%.2fx", json_number_value(v)) : text_copy("-");
}

char *show_age(const json_t *v)
{
    double s = difftime(time(NULL), (time_t)json_number_value(v));
    if (!json_is_number(v) || json_number_value(v) <= 0) {
        return text_copy("-");
    }
    if (s < 100) {
        return text_format("%.0fs", s > 0 ? s : 0);
    }
    return s < 6000     ? text_format("%.0fm", s / 60)
           : s < 172800 ? text_format("%.0fh", s / 3600)
                        : text_format("%.0fd", s / 86400);
}

char *show_id(const json_t *v)
{
    const char *s = json_string_value(v);
    return s && *s ? text_format("%.8s", s) : show_plain(v);
}

char *show_bytes(const json_t *v)
{
    double d = json_number_value(v);
    if (!json_is_number(v)) {
        return text_copy("-");
    }
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    for (; d >= 10 * 1024 && unit < 3; unit++) {
        d /= 1024;
    }
    return text_format("%.*f %s", unit > 0, d, units[unit]);
}

char *show_known(const json_t *v)
{
    return json_is_number(v) && json_number_value(v) < 0 ? text_copy("-") : show_plain(v);
}

char *show_values(const json_t *values)
{
    char *text = text_copy("");
    ARRAY_EACH_AT(i, v, values) {
        TEXT_AUTO *one = json_is_string(v) ? text_copy(json_string_value(v))
                                           : text_dump(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
        text = text_append(text, "%s%s", i > 0 ? "," : "", one);
    }
    return text;
}

char *show_config(const json_t *v)
{
    return json_is_object(v) ? text_of_json(v) : show_plain(v);
}

/* ---- tables --------------------------------------------------------------------------------- */

char *table_show_value(const struct column *column, const json_t *row)
{
    const json_t *v = field_value(row, column->key);
    return column->show ? column->show(v) : show_plain(v);
}

void table_print_line(const struct column *column, const json_t *row)
{
    TEXT_AUTO *text = table_show_value(column, row);
    text_print("%-14s %s", column->title, text);
    putchar('\n');
}

void table_print_folded(const struct column *column, const json_t *row)
{
    static const int indent = 15; /* where table_print_line() begins the values */
    TEXT_AUTO *text = text_visible(table_show_value(column, row));
    char *at = text;
    const int room = fit_width(STDOUT_FILENO) - indent;
    if (room > 0) {
        fit_fold(text, (size_t)room);
    }
    printf("%-14s %s\n", column->title, strsep(&at, "\n"));
    for (const char *line; (line = strsep(&at, "\n"));) {
        printf("%*s%s\n", indent, "", line);
    }
}

bool table_needs_column(const struct column *column, const json_t *rows)
{
    ARRAY_EACH(row, rows) {
        const json_t *v = field_value(row, column->key);
        if (v && !json_is_null(v) && !(json_is_string(v) && !*json_string_value(v))) {
            return true;
        }
    }
    return !column->optional;
}

static void cells_init(struct cells *t, const struct column *columns, size_t n, const json_t *rows)
{
    *t = (struct cells){.columns = columns, .n = n, .n_rows = json_array_size(rows)};
    t->texts = calloc(t->n_rows * n + 1, sizeof(*t->texts));
    for (size_t c = 0; c < n; c++) {
        t->hidden[c] = !table_needs_column(&columns[c], rows);
    }
    ARRAY_EACH_AT(i, row, rows) {
        for (size_t c = 0; t->texts && c < n; c++) {
            t->texts[i * n + c] = table_show_value(&columns[c], row);
        }
    }
}

static void cells_add_column(struct libscols_table *table, const struct cells *t, size_t c)
{
    const struct column *column = &t->columns[c];
    const int flags = (t->hidden[c] ? SCOLS_FL_HIDDEN : 0) | (column->right ? SCOLS_FL_RIGHT : 0) |
                      (t->is_folded && column->prose ? SCOLS_FL_WRAP : 0);
    struct libscols_column *added = scols_table_new_column(table, column->title, 0, flags);
    if (added && t->is_folded && column->prose) { /* a folded text has a line for each '\n' */
        scols_column_set_safechars(added, "\n");
        scols_column_set_wrapfunc(added, scols_wrapnl_chunksize, scols_wrapnl_nextchunk, NULL);
    }
}

/* Prints the cells; libsmartcols frees their texts. */
static void cells_print(struct cells *t)
{
    scols_init_debug(0);
    struct libscols_table *table = scols_new_table();
    if (!table) {
        return;
    }
    scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
    for (size_t c = 0; c < t->n; c++) {
        cells_add_column(table, t, c);
    }
    for (size_t row = 0; t->texts && row < t->n_rows; row++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);
        for (size_t c = 0; line && c < t->n; c++) {
            scols_line_refer_data(line, c, t->texts[row * t->n + c]);
        }
    }
    scols_print_table(table);
    scols_unref_table(table);
    fflush(stdout); /* remarks on stderr follow the table, also when both share a pipe */
    free(t->texts);
}

void table_print(const struct column *columns, size_t n, const json_t *rows)
{
    struct cells t;
    cells_init(&t, columns, n, rows);
    cells_print(&t);
}

bool table_print_fitted(const struct column *columns, size_t n, const char *order,
                        const json_t *rows)
{
    struct cells t;
    cells_init(&t, columns, n, rows);
    if (t.texts) {
        fit_cells(&t, order, fit_width(STDOUT_FILENO));
    }
    cells_print(&t);
    return t.is_shortened;
}
