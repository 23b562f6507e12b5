/* SPDX-License-Identifier: Apache-2.0 */
/* gemmctl: the connection and its errors, texts, and JSON fields. */
#ifndef GEMMD_CLIENT_CTL_BASE_H
#define GEMMD_CLIENT_CTL_BASE_H

#include <argp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <jansson.h>

#include "client/gemmd.h"
#include "proto/error.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

enum exit_code { DONE = 0, FAILED = 1, USAGE = 2, UNREACHABLE = 3, BUSY = 75 };

/* ---- ctl.c ---------------------------------------------------------------------------------- */

/* Options of every command. */
struct ctl {
    const char *socket, *device; /* borrowed from argv or the environment */
    const char *named_device; /* borrowed: --device of argv, never $GEMMD_DEVICE; NULL: not given */
    const char *generation;   /* borrowed from argv; NULL: not given */
    bool pinned;              /* the connection is pinned, to `generation` or $GEMMD_GENERATION */
    bool json, quiet;
    bool wide;           /* tables show all columns, and values in full */
    const char *columns; /* borrowed from argv: the columns that tables show; NULL: not given */
    struct gemmd *g;     /* owned */
    int patience_ms;     /* time limit for a daemon that does not answer; 0: libgemmd's default */
    int step_ms; /* gemmd_options.step_ms: set before connecting by commands with stops_catch */
    int failed;  /* enum gemmd_error_code of the last ctl_call that failed */
};
/* The input of every argp here is a struct subject. Only commands that ask for answers of `get`
 * take pin_argp, before ctl_argp: on a pinned connection only answers of `get` come from the pinned
 * generation. Other commands would show the newest rows regardless, or fail when the daemon lacks
 * the generation. output_argp: --json and --quiet, for commands that need no daemon. */
/* view_argp: --wide and --columns, for commands that show rows. */
extern const struct argp output_argp, ctl_argp, pin_argp, view_argp;

struct gemmd_options ctl_options(const struct ctl *c);
/* Connects, unless that has been done. 0, or an exit code after the error message. */
int ctl_connect(struct ctl *c);
/* Checks that the connected daemon has the device of --device: the path of --socket does not tell
 * the device, and the path for the device cpu does not tell the number of its threads. 0, or USAGE
 * after the error message. */
int ctl_check_device(struct ctl *c);
/* Connects, but prints nothing on failure: for commands that print an error message of their own.
 */
int ctl_try(struct ctl *c, struct gemmd_error *e);

/* Prints "gemmctl: <error message>" and returns the exit code. */
int ctl_fail(const struct gemmd_error *e);
/* ctl_fail for a call that waited. A deadline that passed although the user set none (deadline_ms
 * 0) means that the daemon hangs: the exit code is UNREACHABLE. */
int ctl_fail_waiting(const struct gemmd_error *e, int deadline_ms);
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));  /* returns USAGE */
int ctl_failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* returns FAILED */

/* A call whose params and result are JSON; takes over params. NULL and *code on failure. */
json_t *ctl_call(struct ctl *c, const char *method, json_t *params, int *code);
/* ctl_call without an error message: e->code is the failure, or GEMMD_WAITING. */
json_t *ctl_try_call(struct ctl *c, const char *method, json_t *params, struct gemmd_error *e);
/* The outcome of a library call that returned `r`: waits step by step until the call ends.
 * GEMMD_WAITING: a signal arrived first, and the call was cancelled. */
int ctl_finish(struct ctl *c, int r, struct gemmd_error *e);
json_t *ctl_list(struct ctl *c, const char *what, json_t *filter, int *code);
/* Prints a JSON document to stdout, and frees it. */
int ctl_print_json(json_t *j);
/* With --json stdout has one document, also when the command failed: the command's own document, or
 * {"error": {"name", "message"}} of the first error message. Call ctl_want_error at the start,
 * ctl_printed after printing a document, and ctl_print_error at the end. */
void ctl_want_error(int argc, char **argv);
void ctl_printed(void);
void ctl_print_error(int code);
/* The error, for a command's own document; NULL: nothing failed. */
json_t *ctl_error(void);
/* Takes the error, so that the next error message counts as the first. */
json_t *ctl_take_error(void);
/* Begins the next error messages with a daemon's name, borrowed; NULL: ends that. */
void ctl_set_label(const char *label);
/* Sets the error name of the next error message; the default is "usage" or "failed". */
void ctl_name_error(const char *name);
double ctl_now_ms(void);

/* ---- text.c --------------------------------------------------------------------------------- */

/* A malloc'ed text that is freed at the end of its block, as json_auto_t is. */
#define TEXT_AUTO __attribute__((cleanup(text_free))) char
static inline void text_free(char **text)
{
    free(*text);
}

enum { NUMBER_TEXT_MAX = 40 };
bool text_read_number(const char *text, int64_t min, int64_t max, int64_t *out);
/* The shortest text that reads back as the same number. */
void number_text(double v, char out[NUMBER_TEXT_MAX]);
/* "A=1 B=true" to {"A": 1, "B": true}. NULL and `err` when the text is malformed. */
json_t *text_to_json(const char *text, struct error *err);
/* The inverse of text_to_json, malloc'ed. The text of an object with the member "op" begins with
 * the op: "gemm M=1 ...". */
char *text_of_json(const json_t *object);
/* Takes over malloc'ed text and returns the text with control characters written as \x1b, so that
 * rows of other users cannot steer the terminal. */
char *text_visible(char *text);
/* printf for text that the daemon or other users wrote: control characters become visible. To
 * stdout, or as a line to stderr, which is folded between words to the width of a terminal. */
void text_print(const char *format, ...) __attribute__((format(printf, 1, 2)));
void text_remark(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Prints a line "name          text"; a line without a name continues the line above. On a terminal
 * a long text has several lines, unless it is a command, which a person copies. */
void text_print_named(const char *name, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* malloc'ed. Without memory for a text gemmctl ends, after the error message. text_append takes
 * over `text`, which may be NULL, and appends. text_dump writes JSON; NULL: there is no `j`. */
char *text_copy(const char *text);
char *text_dump(const json_t *j, size_t flags);
char *text_vformat(const char *format, va_list args) __attribute__((format(printf, 1, 0)));
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *text_append(char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads a problem's text, "grouped_gemm M=1 ..." or "M=1 ...", into {"op": ..., "M": 1, ...}. */
json_t *text_to_problem(const char *text, struct error *err);
/* A whole file ("-": stdin), malloc'ed; NULL and `err` on failure. text_read_bytes takes any bytes;
 * *size: their number. */
char *text_read_file(const char *path, struct error *err);
char *text_read_bytes(const char *path, size_t *size, struct error *err);
json_t *text_read_json(const char *path, struct error *err);

/* ---- fields.c ------------------------------------------------------------------------------- */

/* json_array_foreach and json_object_foreach, with loop variables of their own: the index and the
 * element; the name and the value. The outer loops only declare, and run once. */
#define ARRAY_EACH_AT(at, element, array)                                                          \
    for (size_t at = 0; at != SIZE_MAX; at = SIZE_MAX)                                             \
        for (json_t * element; (element = json_array_get((array), at)); at++)
#define ARRAY_EACH(element, array) ARRAY_EACH_AT(element##_at, element, array)
#define OBJECT_EACH(name, value, object)                                                           \
    for (json_t *value = NULL, *value##_of = (json_t *)(uintptr_t)(object); value##_of;            \
         value##_of = NULL)                                                                        \
        for (const char *name = ""; name; name = NULL)                                             \
            json_object_foreach(value##_of, name, value)

/* The value in a JSON object; dots in `path` descend into objects. NULL: no such field. */
const json_t *field_value(const json_t *row, const char *path);
/* The field's value; 0, false, NULL or "" when the object has no field of that type. */
long long field_int(const json_t *row, const char *path);
double field_number(const json_t *row, const char *path);
bool field_is_true(const json_t *row, const char *path);
const char *field_string(const json_t *row, const char *path);
const char *field_text(const json_t *row, const char *path);
bool field_is(const json_t *row, const char *path, const char *text); /* field_text equals it */

/* Compares rows by fields, "-name" from the largest down: numbers, of which an absent field is 0,
 * and texts. `order` ends with NULL. Below 0: a comes first. rows_sort keeps the order of equal
 * rows. */
int row_compare(const json_t *a, const json_t *b, const char *const order[]);
void rows_sort(json_t *rows, const char *const order[]);

/* True when a comma list names the word; a NULL list names all. */
bool list_has(const char *list, const char *word);
/* Splits a line of CSV at its commas, in place, and strips blanks. Returns the number of fields;
 * `out` holds at most CSV_FIELDS_MAX of them. */
enum { CSV_FIELDS_MAX = 256 };
int csv_split(char *line, char *out[CSV_FIELDS_MAX]);

/* A CSV file whose first line names the columns, line by line. */
struct csv {
    const char *path; /* borrowed */
    char *text, *at;  /* owned: the file; the lines that are still unread */
    int line, n;      /* number of the current line, and of its fields */
    int n_names;
    char *names[CSV_FIELDS_MAX], *fields[CSV_FIELDS_MAX];
};
bool csv_open(struct csv *csv, const char *path, struct error *err);
bool csv_next(struct csv *csv); /* skips blank lines; false at the end */
/* The index of a column, the first of equal names; -1: absent. */
int csv_find(const struct csv *csv, const char *name);
/* The current line's field; NULL when the file has no such column, or the line ends before. */
const char *csv_field(const struct csv *csv, const char *name);
void csv_close(struct csv *csv);

/* ---- notices.c ------------------------------------------------------------------------------ */

/* Counts a row `what` that was skipped for the reason `why` in `skipped`, [{"what", "why", "n"}]:
 * an entry for each reason, with the first row that was skipped for it. */
void notice_skip(json_t *skipped, const char *what, const char *why);
void notices_print(const json_t *skipped);
/* "a, b, c" of an object's names; malloc'ed. */
char *notice_names(const json_t *object);
/* Adds `more` to the name's count in {name: count}, and returns the sum. The count of a name that
 * is met the first time is 0, so counts serve as sets, too. */
json_int_t notice_count(json_t *counts, const char *name, json_int_t more);
void notices_add(json_t *to, const json_t *counts);
/* Counts the members of an object that the comma list `known` lacks. */
void notices_add_unknown(json_t *counts, const json_t *object, const char *known);

#endif
