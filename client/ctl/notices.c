/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of rows skipped while reading or writing files of other tuners: each reason once. */
#include "client/ctl/formats.h"

void notice_skip(json_t *skipped, const char *what, const char *why)
{
    ARRAY_EACH(row, skipped) {
        if (field_is(row, "why", why)) {
            notice_count(row, "n", 1);
            json_array_append_new(json_object_get(row, "all"), json_string(what));
            return;
        }
    }
    json_array_append_new(
        skipped, json_pack("{ss, si, ss, s[s]}", "why", why, "n", 1, "what", what, "all", what));
}

void notices_print(const json_t *skipped)
{
    ARRAY_EACH(row, skipped) {
        const long long n = field_int(row, "n");
        text_remark("skipped %lld: %s%s (%s)", n, n > 1 ? "for example " : "",
                    field_text(row, "what"), field_text(row, "why"));
    }
}

json_int_t notice_count(json_t *counts, const char *name, json_int_t more)
{
    json_int_t n = json_integer_value(json_object_get(counts, name)) + more;
    json_object_set_new(counts, name, json_integer(n));
    return n;
}

void notices_add(json_t *to, const json_t *counts)
{
    OBJECT_EACH(name, n, counts) {
        notice_count(to, name, json_integer_value(n));
    }
}

void notices_add_unknown(json_t *counts, const json_t *object, const char *known)
{
    OBJECT_EACH(name, v, object) {
        if (!list_has(known, name)) {
            notice_count(counts, name, 1);
        }
    }
}

char *notice_names(const json_t *object)
{
    char *text = text_copy("");
    OBJECT_EACH(name, v, object) {
        text = text_append(text, "%s%s", *text ? ", " : "", name);
    }
    return text;
}
