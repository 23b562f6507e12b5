/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text helpers of proto/: output that is measured and cut like snprintf, numbers independent of the
 * locale (libgemmd is part of other programs), UTF-8, and foreign text made fit for error messages.
 */
#ifndef GEMMD_PROTO_TEXT_H
#define GEMMD_PROTO_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "proto/error.h"

/* Output: writes as much as fits, always terminated (when size > 0); len counts the whole text. */
struct text_out {
    char *data; /* borrowed; may be NULL when size is 0 */
    size_t size;
    size_t len;
};

struct text_out text_out_begin(char *data, size_t size);
void text_put(struct text_out *o, const char *s, size_t n);
void text_puts(struct text_out *o, const char *s);
void text_putc(struct text_out *o, char c);
void text_put_int(struct text_out *o, int64_t v);
void text_put_uint(struct text_out *o, uint64_t v);
/* The shortest decimal that reads back as v, with a '.' or an exponent so that it stays a real.
 * v is finite. The result is also valid JSON. */
void text_put_real(struct text_out *o, double v);
void text_put_json(struct text_out *o, const char *s, size_t n);
/* The index of s[0..n) in a NULL-terminated list; -1: absent. */
int text_find(const char *const *list, const char *s, size_t n);
/* A NULL-terminated list as "a, b or c". */
void text_put_choices(struct text_out *o, const char *const *choices);

/* The type of a word without quotes, s[0..n): an integer, a real, or text. s[n] must be readable
 * and no part of a number. TEXT_NUMBER_RANGE: a number beyond its type. */
enum text_number { TEXT_NOT_NUMBER, TEXT_INT, TEXT_REAL, TEXT_NUMBER_RANGE };
enum text_number text_number(const char *s, size_t n, int64_t *integer, double *real);

/* True when a real has an integral value that an int64_t holds. */
bool text_real_is_int(double v, int64_t *out);

/* True when s[0..n), which may hold zeros, equals `known`. */
static inline bool text_is(const char *known, const char *s, size_t n)
{
    return strlen(known) == n && memcmp(known, s, n) == 0;
}

bool text_utf8(const char *s, size_t n); /* valid UTF-8 */
void text_utf8_clean(char *s, size_t n); /* invalid bytes become '?', in place */

/* Text from a client for an error message, cut and without control bytes: text_show(s, n).text */
struct text_shown {
    char text[56];
};
struct text_shown text_show(const char *s, size_t n);

/* The known name nearest to an unknown name: offer all known names, then read the result. For error
 * messages such as "there is no field 'top_k'; did you mean 'topk'?". */
struct nearest {
    const char *given; /* borrowed */
    size_t n;
    const char *best; /* borrowed */
    unsigned distance;
    char known[320]; /* the offered names, with commas; cut at the buffer's end */
};
void nearest_begin(struct nearest *t, const char *given, size_t n);
void nearest_offer(struct nearest *t, const char *known);
const char *nearest_end(const struct nearest *t); /* NULL: no name is near */
/* ERROR_UNKNOWN_FIELD; the error message has the nearest name, or all names. */
int nearest_refuse(const struct nearest *t, const char *what, struct error *err);

#endif
