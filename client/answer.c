/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/answer.h"
#include "kernels/family.h"
#include "proto/message.h"

int answer_check_size(const struct gemmd_answer *out, struct error *err)
{
    if (!out) {
        return error_set(err, ERROR_INVALID, "there is no struct gemmd_answer to fill in (NULL)");
    }
    if (out->size < ANSWER_SIZE_MIN) {
        return error_set(err, ERROR_INVALID,
                         "struct gemmd_answer has size %zu: begin with GEMMD_ANSWER_INIT",
                         out->size);
    }
    return 0;
}

struct gemmd_answer answer_none(void)
{
    struct gemmd_answer a = {.size = sizeof(a)};
    a.time_us = a.spread = a.reference_us = a.tflops = a.gbps = a.floor_us = NAN;
    return a;
}

void answer_give(const struct gemmd_answer *a, struct gemmd_answer *out)
{
    size_t size = out->size;
    size_t known = size < sizeof(*a) ? size : sizeof(*a);
    memcpy(out, a, known);
    memset((char *)out + known, 0, size - known);
    out->size = size;
}

bool answer_is_final(const struct gemmd_answer *a)
{
    return strcmp(a->tier, "exact") == 0 &&
           (strcmp(a->source, "tuned") == 0 || strcmp(a->source, "manual") == 0);
}

int answer_set_config(struct gemmd_answer *a, const struct record *config, struct error *err)
{
    size_t length = record_format(config, a->config, sizeof(a->config));
    if (length >= sizeof(a->config)) {
        return error_set(
            err, ERROR_INVALID,
            "the answer's config has %zu characters, struct gemmd_answer holds %zu: ask "
            "with gemmd_call",
            length, sizeof(a->config) - 1);
    }
    return 0;
}

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%s", (from))

int answer_unpack(const struct wire_obj *map, struct gemmd_answer *out, struct error *err)
{
    struct answer a;
    int r = wire_type_of(map) == WIRE_MAP
                ? schema_decode(&answer_schema, SCHEMA_LENIENT, map, &a, err)
                : error_set(err, ERROR_MALFORMED, "it is not a map");
    if (r) {
        return error_prefix(err, "gemmd's answer cannot be read");
    }
    *out = (struct gemmd_answer){.size = sizeof(*out),
                                 .time_us = a.time_us,
                                 .spread = a.spread,
                                 .reference_us = a.reference_us,
                                 .tflops = a.tflops,
                                 .gbps = a.gbps,
                                 .floor_us = a.floor_us,
                                 .measured = a.measured,
                                 .generation = a.generation,
                                 .created_s = a.created_s,
                                 .saved = a.saved};
    COPY_TEXT(out->key, a.key);
    COPY_TEXT(out->tier, a.tier);
    COPY_TEXT(out->source, a.source);
    COPY_TEXT(out->family, a.family);
    COPY_TEXT(out->module, a.module);
    COPY_TEXT(out->note, a.note);
    COPY_TEXT(out->stamp, a.stamp);
    family_stamp_target(a.stamp, out->target);
    return answer_set_config(out, &a.config, err);
}
