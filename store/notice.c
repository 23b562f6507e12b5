/* SPDX-License-Identifier: Apache-2.0 */
/* What a store's files say of it, to people and to each other. */
#include <stdarg.h>
#include <stdio.h>

#include "store/inner.h"

void store_notice(struct store *s, const char *kind, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (s->notice) {
        s->notice(s->ctx, kind, text);
    }
}

int store_index_damaged(struct store *s, struct error *err)
{
    s->db.damaged = true;
    return error_set(err, ERROR_STORE,
                     "database %s is damaged: its index of keys does not fit its rows", s->path);
}
