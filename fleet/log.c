/* SPDX-License-Identifier: Apache-2.0 */
/* Writes lines of the log (log.h). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fleet/log.h"

void log_write_line(enum log_level level, const char *format, ...)
{
    char text[1024], at[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (getenv("JOURNAL_STREAM")) {
        snprintf(at, sizeof(at), "<%d>", (int)level);
    } else {
        const time_t now = time(NULL);
        struct tm tm;
        strftime(at, sizeof(at), "%H:%M:%S ", localtime_r(&now, &tm));
    }
    fprintf(stderr, "%s%s\n", at, text);
}
