/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "proto/error.h"

void (*error_trace_hook)(int code, const char *text);

static const struct {
    int code;
    const char *name;
    bool survives;
} errors[] = {
#define X(name, code, text, survives) {(code), (text), (survives)},
    ERROR_LIST(X)
#undef X
};

enum { N_ERRORS = sizeof(errors) / sizeof(errors[0]) };

int error_vset(struct error *err, int code, const char *format, va_list args)
{
    struct error local;
    struct error *e = err ? err : &local;
    int n = vsnprintf(e->text, sizeof(e->text), format, args);
    if (n >= (int)sizeof(e->text)) {
        strcpy(e->text + sizeof(e->text) - 4, "...");
    }
    e->code = code;
    if (error_trace_hook) {
        error_trace_hook(code, e->text);
    }
    return code;
}

int error_set(struct error *err, int code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error_vset(err, code, format, args);
    va_end(args);
    return code;
}

int error_prefix(struct error *err, const char *format, ...)
{
    if (!err) {
        return ERROR_INTERNAL;
    }
    char old[ERROR_TEXT_MAX];
    memcpy(old, err->text, sizeof(old));
    va_list args;
    va_start(args, format);
    int n = vsnprintf(err->text, sizeof(err->text), format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof(err->text)) {
        snprintf(err->text + n, sizeof(err->text) - (size_t)n, ": %s", old);
    }
    return err->code;
}

/* The row of a code in ERROR_LIST, whose codes are -1, -2 and so on; an unknown code has the row of
 * ERROR_INTERNAL. */
static size_t error_row(int code)
{
    return code < 0 && code >= -N_ERRORS ? (size_t)-code - 1 : 0;
}

const char *error_name(int code)
{
    return errors[error_row(code)].name;
}

int error_code_of(const char *name)
{
    for (size_t i = 0; i < N_ERRORS; i++) {
        if (strcmp(errors[i].name, name) == 0) {
            return errors[i].code;
        }
    }
    return ERROR_INTERNAL;
}

bool error_survives(int code)
{
    return errors[error_row(code)].survives;
}
