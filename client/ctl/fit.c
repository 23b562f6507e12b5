/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables that fit the terminal. A table takes as many columns as there is room for, the most
 * important first. A value that a person may copy is shown whole or as "...", and never in part.
 * Sentences are folded between words, within their column.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "client/ctl/ctl.h"

enum {
    WIDTH_USUAL = 100, /* also of a pipe, so that a table does not depend on its reader */
    PROSE_LEAST = 32,  /* narrowest column of sentences */
    NARROW = 12, /* if a column of at most this width has no room, all less important are hidden */
    ALWAYS = 2,  /* number of columns, the most important, that are shown in any width */
};

int fit_width(int fd)
{
    struct winsize w;
    int64_t columns;
    const char *told = getenv("COLUMNS");
    if (told && text_read_number(told, 1, INT32_MAX, &columns)) {
        return (int)columns;
    }
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : WIDTH_USUAL;
}

/* Columns that a text takes: libsmartcols writes other bytes than printable ASCII as \xNN. */
static size_t fit_measure(const char *text)
{
    size_t n = 0;
    for (; *text; text++) {
        n += *text >= ' ' && *text < 0x7f ? 1 : 4;
    }
    return n;
}

/* Writes blanks in place of line ends, which would look like rows of the table. */
static void fit_join_lines(char *text)
{
    for (; (text = strchr(text, '\n')); text++) {
        *text = ' ';
    }
}

void fit_fold(char *text, size_t width)
{
    char *line = text, *blank = NULL;
    char quote = '\0'; /* the quote in which `at` is */
    for (char *at = text; *at; at++) {
        if (quote ? *at == quote : *at == '"' || *at == '`') {
            quote = quote ? '\0' : *at;
        }
        if (blank && (size_t)(at - line) >= width) {
            *blank = '\n';
            line = blank + 1;
            blank = NULL;
        }
        if (*at == ' ' && !quote) {
            blank = at;
        }
    }
}

/* ---- columns -------------------------------------------------------------------------------- */

/* The width of a column; replaces its long values by "...". */
static size_t fit_column(struct cells *t, size_t c)
{
    const struct column *column = &t->columns[c];
    size_t width = 0;
    for (size_t row = 0; row < t->n_rows; row++) {
        char **cell = &t->texts[row * t->n + c];
        size_t n = *cell ? fit_measure(*cell) : 0;
        if (column->most && n > column->most) {
            free(*cell);
            *cell = text_copy("...");
            n = strlen("...");
            t->is_shortened = true;
        }
        width = n > width ? n : width;
    }
    if (column->prose && width > PROSE_LEAST) {
        width = PROSE_LEAST;
    }
    return width > strlen(column->title) ? width : strlen(column->title);
}

static size_t fit_find_column(const struct cells *t, const char *name)
{
    size_t c = 0;
    while (c < t->n && strcmp(t->columns[c].title, name) != 0 &&
           strcmp(t->columns[c].key, name) != 0) {
        c++;
    }
    return c;
}

/* Shows the columns of `order`, the most important first, as long as they have room; skips wide
 * columns that have none. Returns the columns of the terminal that are left. */
static size_t fit_choose(struct cells *t, const char *order, size_t room)
{
    TEXT_AUTO *names = text_copy(order);
    char *at = names;
    bool fits[CELLS_COLUMNS_MAX] = {false};
    size_t shown = 0;
    room++; /* the last column needs no blank after it */
    for (const char *name; (name = strsep(&at, ","));) {
        const size_t c = fit_find_column(t, name);
        const size_t width = c < t->n && !t->hidden[c] ? fit_column(t, c) + 1 : 0;
        if (width > 0 && (width <= room || shown < ALWAYS)) {
            fits[c] = true;
            room -= width <= room ? width : room;
            shown++;
        } else if (width > 0 && width <= NARROW) { /* so no table has N without M */
            break;
        }
    }
    for (size_t c = 0; c < t->n; c++) {
        t->hidden[c] = t->hidden[c] || !fits[c];
    }
    return room;
}

void fit_cells(struct cells *t, const char *order, int width)
{
    size_t room = fit_choose(t, order, (size_t)width);
    t->is_folded = true; /* from here on a line end is ours */
    for (size_t c = 0; c < t->n; c++) {
        for (size_t row = 0; row < t->n_rows && t->columns[c].prose; row++) {
            char *cell = t->texts[row * t->n + c];
            if (cell) {
                fit_join_lines(cell);
                fit_fold(cell, PROSE_LEAST + room);
            }
        }
    }
}
