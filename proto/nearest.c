/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "proto/nearest.h"
#include "proto/text.h"

void nearest_begin(struct nearest *t, const char *given, size_t n)
{
    t->given = given;
    t->n = n;
    t->best = NULL;
    t->known[0] = '\0';
}

static unsigned char nearest_lower_letter(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

enum { NEAREST_MAX = 40 };

static unsigned nearest_pick_least(unsigned a, unsigned b, unsigned c)
{
    unsigned ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Edits (insert, drop, change, swap of neighbours) between two short words, letter case aside. */
static unsigned nearest_count_edits(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned rows[3][NEAREST_MAX + 1];
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++) {
        before[j] = last[j] = (unsigned)j;
    }
    for (size_t i = 1; i <= na; i++) {
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= nb; j++) {
            unsigned change = nearest_lower_letter(a[i - 1]) != nearest_lower_letter(b[j - 1]);
            now[j] = nearest_pick_least(last[j] + 1, now[j - 1] + 1, last[j - 1] + change);
            if (i > 1 && j > 1 &&
                nearest_lower_letter(a[i - 1]) == nearest_lower_letter(b[j - 2]) &&
                nearest_lower_letter(a[i - 2]) == nearest_lower_letter(b[j - 1]) &&
                before[j - 2] + 1 < now[j]) {
                now[j] = before[j - 2] + 1;
            }
        }
        unsigned *spare = before;
        before = last;
        last = now;
        now = spare;
    }
    return last[nb];
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
    /* more than a third of wrong letters is no typing error */
    return t->best && t->distance <= (t->n + 1) / 3 ? t->best : NULL;
}

int nearest_refuse(const struct nearest *t, const char *what, struct error *err)
{
    const char *best = nearest_end(t);
    return error_set(err, ERROR_UNKNOWN_FIELD, "%s has no field '%s'; %s%s%s", what,
                     text_show(t->given, t->n).text, best ? "did you mean '" : "it takes ",
                     best ? best : t->known, best ? "'?" : "");
}
