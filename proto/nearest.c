/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
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

static bool nearest_is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

enum { NEAREST_MAX = 40 };

/* Edits (insert, drop, change, swap of neighbours) between two short words, letter case aside. */
static unsigned nearest_count_edits(const char *a, size_t na, const char *b, size_t nb)
{
    unsigned edits[NEAREST_MAX + 1][NEAREST_MAX + 1]; /* of the first i and j letters */
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
