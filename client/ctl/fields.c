/* SPDX-License-Identifier: Apache-2.0 */
/* Words between commas: of a list that was typed, of a line of CSV. */
#include <string.h>

#include "client/ctl/ctl.h"

bool list_has(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (strcspn(at, ",") == n && memcmp(at, word, n) == 0) {
            return true;
        }
    }
    return !list;
}

char *csv_field(const char *line, int i)
{
    for (; i > 0; i--) {
        line = strchr(line, ',');
        if (!line) {
            return NULL;
        }
        line++;
    }
    while (*line == ' ') {
        line++;
    }
    size_t n = strcspn(line, ",\r");
    while (n > 0 && line[n - 1] == ' ') {
        n--;
    }
    return strndup(line, n);
}
