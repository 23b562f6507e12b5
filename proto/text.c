/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

struct text_out text_out_begin(char *data, size_t size)
{
    if (size > 0) {
        data[0] = 0;
    }
    return (struct text_out){data, size, 0};
}

void text_put(struct text_out *o, const char *s, size_t n)
{
    if (o->len + 1 < o->size) {
        size_t room = o->size - 1 - o->len;
        size_t take = n < room ? n : room;
        memcpy(o->data + o->len, s, take);
        o->data[o->len + take] = 0;
    }
    o->len += n;
}

void text_puts(struct text_out *o, const char *s)
{
    text_put(o, s, strlen(s));
}

void text_putc(struct text_out *o, char c)
{
    text_put(o, &c, 1);
}

void text_put_uint(struct text_out *o, uint64_t v)
{
    char digits[24];
    text_put(o, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, v));
}

void text_put_int(struct text_out *o, int64_t v)
{
    char digits[24];
    text_put(o, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRId64, v));
}

/* Numbers always use the C locale, in any locale of the process. */
static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

/* Switches this thread to the C locale. Returns the locale to go back to. When c_locale could not
 * be made (no memory), uselocale(0) changes nothing. */
static locale_t c_locale_enter(void)
{
    pthread_once(&c_locale_once, c_locale_make);
    return uselocale(c_locale);
}

void text_put_real(struct text_out *o, double v)
{
    char s[32];
    locale_t old = c_locale_enter();
    /* Every decimal number of DBL_DIG digits survives in a normal double, and %g drops trailing
     * zeros: with fewer digits the text is the same. */
    for (int digits = fabs(v) < DBL_MIN ? 1 : DBL_DIG; digits <= 17; digits++) {
        snprintf(s, sizeof(s), "%.*g", digits, v);
        if (strtod(s, NULL) == v) {
            break;
        }
    }
    if (strchr(s, 'e') && fabs(v) >= 1 && fabs(v) < 1e16) {
        snprintf(s, sizeof(s), "%.0f", v); /* whole and short: 1000.0 instead of 1e+03 */
    }
    uselocale(old);
    text_puts(o, s);
    if (!strpbrk(s, ".e")) {
        text_puts(o, ".0");
    }
}

void text_put_json(struct text_out *o, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    text_putc(o, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c == '"' || c == '\\') {
            text_putc(o, '\\');
            text_putc(o, (char)c);
        } else if (c == '\n') {
            text_puts(o, "\\n");
        } else if (c == '\t') {
            text_puts(o, "\\t");
        } else if (c < 0x20 || c == 0x7f) {
            char escape[] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            text_put(o, escape, sizeof(escape));
        } else {
            text_putc(o, (char)c);
        }
    }
    text_putc(o, '"');
}

int text_find(const char *const *list, const char *s, size_t n)
{
    for (int i = 0; list[i]; i++) {
        if (text_is(list[i], s, n)) {
            return i;
        }
    }
    return -1;
}

void text_put_choices(struct text_out *o, const char *const *choices)
{
    for (size_t i = 0; choices[i]; i++) {
        text_puts(o, i == 0 ? "" : choices[i + 1] ? ", " : " or ");
        text_puts(o, choices[i]);
    }
}

enum text_number text_number(const char *s, size_t n, int64_t *integer, double *real)
{
    enum { DIGITS_MAX = 63 }; /* no number needs more */
    char *end = NULL;
    if (n == 0 || s[0] == '+' || strspn(s, "0123456789+-.eE") < n) {
        return TEXT_NOT_NUMBER;
    }
    locale_t old = c_locale_enter();
    *real = strtod(s, &end);
    uselocale(old);
    if (end != s + n) {
        return TEXT_NOT_NUMBER;
    }
    errno = 0;
    bool is_integer = strcspn(s, ".eE") >= n;
    *integer = is_integer ? strtoll(s, NULL, 10) : 0;
    return errno || !isfinite(*real) || n > DIGITS_MAX ? TEXT_NUMBER_RANGE
           : is_integer                                ? TEXT_INT
                                                       : TEXT_REAL;
}

bool text_real_is_int(double v, int64_t *out)
{
    if (!(v >= -0x1p63 && v < 0x1p63) || v != trunc(v)) {
        return false;
    }
    *out = (int64_t)v;
    return true;
}

/* Length of the valid UTF-8 sequence at s; 0: invalid. */
static size_t utf8_at(const unsigned char *s, size_t n)
{
    unsigned char c = s[0];
    size_t need = c < 0x80                ? 1
                  : c >= 0xc2 && c < 0xe0 ? 2
                  : (c & 0xf0) == 0xe0    ? 3
                  : c >= 0xf0 && c < 0xf5 ? 4
                                          : 0;
    if (need == 0 || need > n) {
        return 0;
    }
    for (size_t i = 1; i < need; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    bool overlong = (c == 0xe0 && s[1] < 0xa0) || (c == 0xf0 && s[1] < 0x90);
    bool surrogate = c == 0xed && s[1] >= 0xa0;
    bool beyond = c == 0xf4 && s[1] >= 0x90;
    return overlong || surrogate || beyond ? 0 : need;
}

/* A fast test, since most text is ASCII: reads eight or four bytes at a time. The last read may
 * overlap the read before. */
static bool text_is_ascii(const char *s, size_t n)
{
    uint64_t eight, all = 0;
    uint32_t four;
    for (size_t i = 0; n >= 8 && i < n; i += 8) {
        memcpy(&eight, s + (i + 8 <= n ? i : n - 8), 8);
        all |= eight;
    }
    for (size_t i = 0; n >= 4 && n < 8 && i < n; i += 4) {
        memcpy(&four, s + (i + 4 <= n ? i : n - 4), 4);
        all |= four;
    }
    for (size_t i = 0; n < 4 && i < n; i++) {
        all |= (unsigned char)s[i];
    }
    return !(all & UINT64_C(0x8080808080808080));
}

bool text_utf8(const char *s, size_t n)
{
    for (size_t i = text_is_ascii(s, n) ? n : 0; i < n;) {
        size_t step = utf8_at((const unsigned char *)s + i, n - i);
        if (step == 0) {
            return false;
        }
        i += step;
    }
    return true;
}

void text_utf8_clean(char *s, size_t n)
{
    for (size_t i = text_is_ascii(s, n) ? n : 0; i < n;) {
        size_t step = utf8_at((const unsigned char *)s + i, n - i);
        if (step == 0) {
            s[i] = '?';
            step = 1;
        }
        i += step;
    }
}

struct text_shown text_show(const char *s, size_t n)
{
    struct text_shown shown;
    size_t room = sizeof(shown.text) - 1;
    bool cut = n > room;
    size_t take = cut ? room - 3 : n;
    memcpy(shown.text, s, take);
    for (size_t i = 0; i < take; i++) {
        unsigned char c = (unsigned char)shown.text[i];
        if (c < 0x20 || c == 0x7f) {
            shown.text[i] = '?';
        }
    }
    text_utf8_clean(shown.text, take);
    strcpy(shown.text + take, cut ? "..." : "");
    return shown;
}

/* ---- the nearest name ------------------------------------------------------------------------ */

void nearest_begin(struct nearest *t, const char *given, size_t n)
{
    t->given = given;
    t->n = n;
    t->best = NULL;
    t->known[0] = '\0';
}

static bool nearest_is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

enum { NEAREST_MAX = 40 };

/* Edits (insert, drop, change, swap of neighbours) between two short words, letter case aside. */
static unsigned nearest_count_edits(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned edits[NEAREST_MAX + 1][NEAREST_MAX + 1]; /* from the first i letters to the first j */
    for (size_t i = 0; i <= na; i++) {
        for (size_t j = 0; j <= nb; j++) {
            unsigned least = (unsigned)(i + j);
            if (i > 0 && j > 0) {
                unsigned drop = edits[i - 1][j] + 1, insert = edits[i][j - 1] + 1;
                unsigned change = edits[i - 1][j - 1] + !nearest_is_same(a[i - 1], b[j - 1]);
                least = drop < insert ? drop : insert;
                least = change < least ? change : least;
            }
            if (i > 1 && j > 1 && nearest_is_same(a[i - 1], b[j - 2]) &&
                nearest_is_same(a[i - 2], b[j - 1]) && edits[i - 2][j - 2] + 1 < least) {
                least = edits[i - 2][j - 2] + 1;
            }
            edits[i][j] = least;
        }
    }
    return edits[na][nb];
}

void nearest_offer(struct nearest *t, const char *known)
{
    size_t n = strlen(known), at = strlen(t->known);
    snprintf(t->known + at, sizeof(t->known) - at, "%s%s", at > 0 ? ", " : "", known);
    if (t->n > NEAREST_MAX || n > NEAREST_MAX) {
        return;
    }
    bool begins = t->n >= 3 && t->n < n && strncmp(known, t->given, t->n) == 0;
    unsigned distance = begins ? 1 : nearest_count_edits(t->given, t->n, known, n);
    if (!t->best || distance < t->distance) {
        t->best = known;
        t->distance = distance;
    }
}

const char *nearest_end(const struct nearest *t)
{
    /* a name with more than a third of its letters wrong is no typing error */
    return t->best && t->distance <= (t->n + 1) / 3 ? t->best : NULL;
}

int nearest_refuse(const struct nearest *t, const char *what, struct error *err)
{
    const char *best = nearest_end(t);
    return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no field '%s'; %s%s%s", what,
                     text_show(t->given, t->n).text, best ? "did you mean '" : "it takes ",
                     best          ? best
                     : t->known[0] ? t->known
                                   : "none",
                     best ? "'?" : "");
}
